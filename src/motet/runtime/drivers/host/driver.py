"""The host as a device: the CPU that this process runs on, and its memory.

Work runs in the submitting thread if it does not have to wait, else on the thread of its queue. All devices of this
driver share the machine and its memory: a buffer of one is a buffer of the others.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from motet.artifact.schema import Variant
from motet.artifact.uri import number_options, split_uri
from motet.cpu_features import host_features, level, machine
from motet.errors import DeviceError
from motet.runtime.device import API_VERSION, Buffer, CommandBuffer, DeviceInfo
from motet.runtime.drivers.common.recording import bytes_of, check_buffers, foreign_work
from motet.runtime.drivers.host.in_process import EXEMPT_IN_PROCESS, NativeDevice
from motet.runtime.drivers.host.memory import Allocation, Pool
from motet.runtime.drivers.host.recorded import (
    NativeCommandBuffer,
    note_events,
    processor_obstacle,
)
from motet.runtime.drivers.host.threads import HostThreads, processors, thread_count
from motet.runtime.timeline import Point

api = API_VERSION

FAMILY = "host"
QUEUES = 4

conformance_exempt = {
    **EXEMPT_IN_PROCESS,
    "submit-returns-at-once": "a submission with nothing to wait for runs in its caller's thread",
}


# -- probe -----------------------------------------------------------------------------------------


def probe() -> Sequence[DeviceInfo]:
    highest = level(host_features(), machine())
    return [
        DeviceInfo(
            processor_name(), "host", processors(), thread_count(), highest, memory(), family=FAMILY, host_memory=True,
            instances=True,
        )
    ]


def processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else machine()


def memory() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


# -- open ------------------------------------------------------------------------------------------


def open(info: DeviceInfo) -> HostDevice:
    """Open the host: `host`, or another instance of it, `host/1`; see `open_threads` for the options."""
    return HostDevice(info, open_threads(info.uri, info.threads))


def open_threads(uri: str, default: int = 0) -> HostThreads:
    """The threads of an instance of the host: `host?threads=2` has two, `host/1?cores=0-1+6` one on each of the CPUs 0,
    1 and 6. Raises DeviceError."""
    base, options = split_uri(uri)
    cores = _cores(uri, options.pop("cores")) if "cores" in options else ()
    others = "&".join(f"{key}={value}" for key, value in options.items())
    known = {"threads": (len(cores) or default or thread_count(), 1)}
    return HostThreads(int(number_options(f"{base}?{others}" if others else base, known)["threads"]), cores)


def _cores(uri: str, text: str) -> frozenset[int]:
    """The CPUs listed as `0-3+8`, on which this process may run."""
    allowed = os.sched_getaffinity(0)
    found: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
        chosen = set(range(int(match[1]), int(match[2] or match[1]) + 1)) if match else set[int]()
        if not chosen or not chosen <= allowed:
            raise DeviceError(
                f"device {uri!r}: option cores={text}: {part!r}; expected processors such as 0-1+3, of those that this "
                f"process may run on: {'+'.join(map(str, sorted(allowed)))}"
            )
        found |= chosen
    return frozenset(found)


class HostBuffer:
    """Memory of this process: from the pool, or an adopted array."""

    __slots__ = ("__weakref__", "address", "bytes", "memory")

    def __init__(self, memory: Allocation | np.ndarray[Any, Any], address: int, size: int) -> None:
        self.memory = memory
        self.address = address
        self.bytes = size


class HostDevice(NativeDevice[HostBuffer]):
    """See `motet.runtime.device.Device`. `pool` and `threads` may be shared with other devices."""

    def __init__(self, info: DeviceInfo, threads: HostThreads, pool: Pool | None = None) -> None:
        super().__init__(info, QUEUES, threads, Pool() if pool is None else pool)

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> HostBuffer:
        allocation = self._pool.allocate(size)
        return HostBuffer(allocation, allocation.address, size)

    def adopt(self, array: np.ndarray[Any, Any]) -> HostBuffer | None:
        self._check_usable()
        if not array.flags.c_contiguous:
            return None
        return HostBuffer(array, array.ctypes.data, array.nbytes)

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        return self._bytes(self._own(buffer))

    def _bytes(self, buffer: HostBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        memory = buffer.memory
        return bytes_of(memory) if isinstance(memory, np.ndarray) else np.asarray(memory)

    def _writable(self, buffer: Buffer) -> HostBuffer:
        own = self._own(buffer)
        if isinstance(own.memory, np.ndarray) and not own.memory.flags.writeable:
            raise DeviceError(f"device {self.info.uri}: the buffer is an array that is read-only")
        return own

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family not in (FAMILY, "cpu"):
            return f"for {variant.family} devices"
        return processor_obstacle(variant)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        """Like `BaseDevice.submit`, in one pass over the buffers: it dominates calls of small programs."""
        if type(work) is not NativeCommandBuffer:
            raise foreign_work(self.info.uri)
        if self._closed or not 0 <= queue < QUEUES or len(buffers) != work.externals:
            self._check_queue(queue)
            check_buffers(self.info.uri, buffers, work.needed)
        pointers: list[int] = []
        for buffer, needed in zip(buffers, work.needed, strict=True):
            if type(buffer) is not HostBuffer:
                self._own(buffer)
            if buffer.bytes < needed:
                check_buffers(self.info.uri, buffers, work.needed)
            pointers.append(buffer.address)
        if self._profiling:
            return self._queues[queue].run(lambda: self._run_timed(work, pointers, buffers, queue), waits)
        return self._queues[queue].run(functools.partial(_run, work.program.run, pointers, buffers), waits)

    def _submit(
        self, work: NativeCommandBuffer, buffers: Sequence[HostBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        return self.submit(work, buffers, waits, queue)

    def _run_timed(
        self, work: NativeCommandBuffer, pointers: list[int], buffers: Sequence[Buffer], queue: int
    ) -> object:
        begin = time.perf_counter()
        self._events.extend(note_events(work.work, work.program.run_logged(pointers).pieces, queue, begin))
        return buffers

    # -- ownership -------------------------------------------------------------------------------

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[HostBuffer]:
        return isinstance(buffer, HostBuffer)


def _run(run: Callable[[Sequence[int]], None], pointers: list[int], keep: object) -> None:
    """Run a program; `keep` keeps its memory alive."""
    run(pointers)
