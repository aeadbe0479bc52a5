"""The driver of sandboxed cores, and their device.

    sandbox                       two cores, each a queue
    sandbox?cores=4&memory=4e9    four cores, four billion bytes

The device's memory lies in a file without a name. This process moves bytes to and from it; kernels run in one
process per core, which is started when its queue first gets work. A kernel that goes wrong ends that process and
nothing else: memory stays, and the next launch starts another.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import ArtifactError, DeviceError
from motet.runtime import cpu_features
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.devices.common import recording
from motet.runtime.devices.common.recording import bytes_of
from motet.runtime.devices.common.work_queue import WorkQueue
from motet.runtime.devices.host.loader import load_objects
from motet.runtime.devices.host.recorded import processor_obstacle
from motet.runtime.timeline import Point
from motet.runtime.uri import number_options
from motet_sandbox.core import CodeImage, Core
from motet_sandbox.memory import Memory, SandboxBuffer
from motet_sandbox.worker import Command

api = 1  # the version of the contract that this was written for

FAMILY = "sandbox"
MOST_CORES = 64
# Each option's default and least value.
_OPTIONS = {"cores": (2, 1), "memory": (1 << 30, 1 << 12)}


# -- probe -----------------------------------------------------------------------------------------


def probe() -> Sequence[DeviceInfo]:
    available = hasattr(os, "memfd_create")
    level = cpu_features.level(cpu_features.host_features(), cpu_features.machine())
    return [
        DeviceInfo(
            "cores in processes of their own", FAMILY, cores=int(_OPTIONS["cores"][0]), threads=1, level=level,
            memory=int(_OPTIONS["memory"][0]), family=FAMILY, available=available,
            reason="" if available else f"needs memory without a name, which {sys.platform} has not",
        )
    ]


# -- open ------------------------------------------------------------------------------------------


def open(info: DeviceInfo) -> SandboxDevice:
    """Raises DeviceError for options that there are not, OutOfMemoryError."""
    options = number_options(info.uri, _OPTIONS)
    cores = int(options["cores"])
    if cores > MOST_CORES:
        raise DeviceError(f"device {info.uri}: option cores={cores}; expected at most {MOST_CORES}")
    return SandboxDevice(info, cores, Memory(int(options["memory"]), info.uri))


class SandboxExecutable:
    """Code and its kernels. The cores forget it when it is gone."""

    def __init__(self, image: CodeImage, kernels: Sequence[str], cores: Sequence[Core]) -> None:
        self.image = image
        self.kernels = kernels
        for core in cores:
            weakref.finalize(self, core.drop, image.number).atexit = False


@dataclass(frozen=True)
class SandboxCommands:
    """Recorded work; `needed` is how many bytes each external must have."""

    executable: SandboxExecutable
    work: tuple[Work, ...]
    needed: tuple[int, ...]
    scratch: int

    @property
    def externals(self) -> int:
        return len(self.needed)


class SandboxDevice:
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, cores: int, memory: Memory) -> None:
        self.info = info
        self._memory = memory
        self._cores = [Core(info.uri, number, memory) for number in range(cores)]
        self._queues = [WorkQueue(f"{info.uri} queue {number}") for number in range(cores)]
        self._numbers = itertools.count()
        self._owner = os.getpid()
        self._closed = False
        self._profiling = False
        self._events: list[Event] = []

    @property
    def queues(self) -> int:
        return len(self._queues)

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        self._check_open()
        recording.check_size(self.info.uri, size)
        return self._memory.allocate(size)

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        return None  # the cores cannot address this process's memory

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        self._own(buffer)
        return None

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        own = self._own(target)
        recording.check_transfer(self.info.uri, "write", own, source, offset, writes_array=False)

        def work() -> None:
            self._memory.part(own)[offset : offset + source.nbytes] = bytes_of(source)

        return self._move("write", source.nbytes, work, waits, queue)

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        own = self._own(source)
        recording.check_transfer(self.info.uri, "read", own, target, offset, writes_array=True)

        def work() -> None:
            bytes_of(target)[...] = self._memory.part(own)[offset : offset + target.nbytes]

        return self._move("read", target.nbytes, work, waits, queue)

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        origin, own = self._own(source), self._own(target)
        recording.check_copy(self.info.uri, origin, own)

        def work() -> None:
            self._memory.part(own)[: origin.bytes] = self._memory.part(origin)

        return self._move("copy", origin.bytes, work, waits, queue)

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        own = self._own(target)
        recording.check_byte(self.info.uri, byte)

        def work() -> None:
            self._memory.part(own)[...] = byte

        return self._move("fill", own.bytes, work, waits, queue)

    def _move(
        self, kind: str, size: int, work: Callable[[], None], waits: Sequence[Point], queue: int
    ) -> Point:
        """Moves bytes by `work`, which holds what it works on."""
        self._check_queue(queue)

        def timed() -> None:
            begin = time.perf_counter()
            work()
            if self._profiling:
                self._events.append(Event(kind, kind, queue, begin, time.perf_counter(), size))

        return self._queues[queue].run(timed, waits)  # in this thread, where nothing has to be waited for

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        return f"for {variant.family} devices" if variant.family != FAMILY else processor_obstacle(variant)

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        self._check_open()
        try:
            # Loaded here only to know its kernels and what is wrong with it; the cores load it when they run it.
            kernels = load_objects(objects, {}, names).names
        except ArtifactError as error:
            raise DeviceError(f"device {self.info.uri}: {error}") from error
        return SandboxExecutable(CodeImage(next(self._numbers), objects, names), kernels, self._cores)

    def record(
        self, executable: Executable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        self._check_open()
        if not isinstance(executable, SandboxExecutable):
            raise recording.foreign_executable(self.info.uri)
        recording.check_scratch(self.info.uri, scratch)
        needed = recording.check_work(self.info.uri, work, executable.kernels, externals)
        return SandboxCommands(executable, tuple(work), needed, scratch)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        if not isinstance(work, SandboxCommands):
            raise recording.foreign_work(self.info.uri)
        own = [self._own(buffer) for buffer in buffers]
        recording.check_buffers(self.info.uri, own, work.needed)
        self._check_queue(queue)
        return self._queues[queue].submit(lambda: self._run(work, own, queue), waits)

    def _run(self, work: SandboxCommands, buffers: Sequence[SandboxBuffer], queue: int) -> None:
        commands = [_command(item, buffers) for item in work.work]
        times = self._cores[queue].run(work.executable.image, commands, work.scratch)
        if self._profiling:
            for item, (begin, end) in zip(work.work, times, strict=True):
                size = item.references[0].bytes if item.op == "copy" else 0
                self._events.append(Event(item.kernel or item.op, item.op, queue, begin, end, size))

    # -- time and life ---------------------------------------------------------------------------

    def abort(self) -> None:
        self._check_open()
        error = DeviceError(f"device {self.info.uri}: aborted")
        for queue, core in zip(self._queues, self._cores, strict=True):
            queue.abort(error)
            if not queue.idle:
                core.kill()

    def profile(self, on: bool) -> list[Event]:
        events, self._events = self._events, []
        self._profiling = on
        return events

    def close(self) -> None:
        self._closed = True
        for queue, core in zip(self._queues, self._cores, strict=True):
            queue.close()
            core.close()
        self._memory.close()

    # -- checks ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        recording.check_open(self.info.uri, self._closed)
        if os.getpid() != self._owner:  # in the child of a fork: the cores are the parent's, and so is the memory
            raise DeviceError(f"device {self.info.uri}: another process has opened it; open it here too")

    def _check_queue(self, queue: int) -> None:
        self._check_open()
        recording.check_queue(self.info.uri, queue, len(self._queues))

    def _own(self, buffer: Buffer) -> SandboxBuffer:
        if not isinstance(buffer, SandboxBuffer) or buffer.memory is not self._memory:
            raise recording.foreign_buffer(self.info.uri)
        return buffer


def _command(item: Work, buffers: Sequence[SandboxBuffer]) -> Command:
    """A command as a core takes it. Commands run in their order, which keeps every dependence."""
    addresses = [buffers[reference.external].address + reference.offset for reference in item.references]
    if item.op == "copy":
        return None, addresses, (item.references[0].bytes,), 0
    return item.kernel, addresses, item.sizes, item.tasks
