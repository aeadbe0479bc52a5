"""The driver of sandboxed cores, and their device.

    sandbox                       two cores, each a queue
    sandbox?cores=4&memory=4e9    four cores, four billion bytes

The device's memory is an unnamed file. This process transfers bytes to and from it; kernels run in one process per
core, which is started when its queue first gets work. A faulting kernel ends that process only: memory is kept, and the
next launch starts another one.
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from motet.artifact.schema import Variant
from motet.artifact.uri import number_options
from motet.cpu_features import host_features, level, machine
from motet.errors import ArtifactError, DeviceError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.drivers.common.queued import QueuedDevice
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.host.loader import load_objects
from motet.runtime.drivers.host.recorded import processor_obstacle
from motet.runtime.timeline import Point
from motet_sandbox.core import CodeImage, Core
from motet_sandbox.memory import Memory, SandboxBuffer
from motet_sandbox.worker import Command

api = 1  # the version of the driver interface that this module implements

FAMILY = "sandbox"
MOST_CORES = 64
# Each option's default and minimum.
_OPTIONS = {"cores": (2, 1), "memory": (1 << 30, 1 << 12)}


# -- probe -----------------------------------------------------------------------------------------


def probe() -> Sequence[DeviceInfo]:
    available = hasattr(os, "memfd_create")
    highest = level(host_features(), machine())
    return [
        DeviceInfo(
            "cores in processes of their own", FAMILY, cores=int(_OPTIONS["cores"][0]), threads=1, level=highest,
            memory=int(_OPTIONS["memory"][0]), family=FAMILY, available=available,
            reason="" if available else f"needs memory without a name, which {sys.platform} has not",
        )
    ]


# -- open ------------------------------------------------------------------------------------------


def open(info: DeviceInfo) -> SandboxDevice:
    """Raises DeviceError for unknown options, OutOfMemoryError."""
    options = number_options(info.uri, _OPTIONS)
    cores = int(options["cores"])
    if cores > MOST_CORES:
        raise DeviceError(f"device {info.uri}: option cores={cores}; expected at most {MOST_CORES}")
    memory = int(options["memory"])
    return SandboxDevice(replace(info, cores=cores, memory=memory), cores, Memory(memory, info.uri))


class SandboxExecutable:
    """Code and its kernels. The cores forget it when it is collected."""

    def __init__(self, image: CodeImage, kernels: Sequence[str], cores: Sequence[Core]) -> None:
        self.image = image
        self.kernels = kernels
        for core in cores:
            weakref.finalize(self, core.drop, image.number).atexit = False


@dataclass(frozen=True)
class SandboxCommands:
    """Recorded work; `needed` is the required bytes of each external."""

    executable: SandboxExecutable
    work: tuple[Work, ...]
    needed: tuple[int, ...]
    scratch: int

    @property
    def externals(self) -> int:
        return len(self.needed)


class SandboxDevice(QueuedDevice[SandboxBuffer, SandboxExecutable, SandboxCommands]):
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, cores: int, memory: Memory) -> None:
        super().__init__(info, cores)
        self._memory = memory
        self._cores = [Core(info.uri, number, memory) for number in range(cores)]
        self._numbers = itertools.count()
        self._owner = os.getpid()

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> SandboxBuffer:
        return self._memory.allocate(size)

    def _bytes(self, buffer: SandboxBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._memory.part(buffer)

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        return f"for {variant.family} devices" if variant.family != FAMILY else processor_obstacle(variant)

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> SandboxExecutable:
        try:
            # Loaded here only to list its kernels and to find errors; the cores load it when they run it.
            kernels = load_objects(objects, {}, names).names
        except ArtifactError as error:
            raise DeviceError(f"device {self.info.uri}: {error}") from error
        return SandboxExecutable(CodeImage(next(self._numbers), objects, names), kernels, self._cores)

    def _record(
        self, executable: SandboxExecutable, work: Sequence[Work], externals: int, scratch: int
    ) -> SandboxCommands:
        needed = check_work(self.info.uri, work, executable.kernels, externals)
        return SandboxCommands(executable, tuple(work), needed, scratch)

    def _submit(
        self, work: SandboxCommands, buffers: Sequence[SandboxBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        return self._queues[queue].submit(lambda: self._run(work, buffers, queue), waits)

    def _run(self, work: SandboxCommands, buffers: Sequence[SandboxBuffer], queue: int) -> None:
        commands = [_command(item, buffers) for item in work.work]
        times = self._cores[queue].run(work.executable.image, commands, work.scratch)
        if self._profiling:
            for item, (begin, end) in zip(work.work, times, strict=True):
                size = item.references[0].bytes if item.op == "copy" else 0
                self._events.append(Event(item.kernel or item.op, item.op, queue, begin, end, size))

    # -- lifetime --------------------------------------------------------------------------------

    def abort(self) -> None:
        super().abort()
        for queue, core in zip(self._queues, self._cores, strict=True):
            if not queue.idle:
                core.kill()

    def close(self) -> None:
        super().close()
        for core in self._cores:
            core.close()
        self._memory.close()

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        super()._check_usable()
        if os.getpid() != self._owner:  # in the child of a fork: cores and memory are the parent's
            raise DeviceError(f"device {self.info.uri}: another process has opened it; open it here too")

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[SandboxBuffer]:
        return isinstance(buffer, SandboxBuffer) and buffer.memory is self._memory

    def _is_own_code(self, executable: Executable) -> TypeGuard[SandboxExecutable]:
        return isinstance(executable, SandboxExecutable)

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[SandboxCommands]:
        return isinstance(work, SandboxCommands)


def _command(item: Work, buffers: Sequence[SandboxBuffer]) -> Command:
    """A command in the form that cores accept. Commands run in order, which satisfies all dependences."""
    addresses = [buffers[reference.external].address + reference.offset for reference in item.references]
    if item.op == "copy":
        return None, addresses, (item.references[0].bytes,), 0
    return item.kernel, addresses, item.sizes, item.tasks
