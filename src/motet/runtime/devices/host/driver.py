"""The host as a device: the processor this process runs on, and its memory.

Work runs in the thread that submits it if nothing has to be waited for, else on the thread of its queue. All
devices of this driver share the machine and its memory: a buffer of one is a buffer of the others.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime import cpu_features
from motet.runtime.device import API_VERSION, Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.devices.common import recording
from motet.runtime.devices.common.recording import bytes_of
from motet.runtime.devices.common.work_queue import WorkQueue
from motet.runtime.devices.host.memory import Allocation, Pool
from motet.runtime.devices.host.recorded import (
    NativeCommandBuffer,
    NativeExecutable,
    load_native,
    note_events,
    processor_obstacle,
    record_native,
)
from motet.runtime.devices.host.threads import HostThreads, processors, thread_count
from motet.runtime.timeline import Point
from motet.runtime.uri import number_options, split_uri

api = API_VERSION

FAMILY = "host"
QUEUES = 4

# What conformance cannot ask of a kernel that runs in this process: nothing stops it but the process's end.
_IN_PROCESS = "kernels run in this process, and nothing can stop them but its end"
conformance_exempt = {
    "fault-illegal-instruction": _IN_PROCESS,
    "fault-out-of-bounds": _IN_PROCESS,
    "fault-reaches-dependants": _IN_PROCESS,
    "fault-then-usable": _IN_PROCESS,
    "abort-endless": _IN_PROCESS,
    "submit-returns-at-once": "a submission with nothing to wait for runs in its caller's thread",
}


# -- probe -----------------------------------------------------------------------------------------


def probe() -> Sequence[DeviceInfo]:
    level = cpu_features.level(cpu_features.host_features(), cpu_features.machine())
    return [
        DeviceInfo(
            processor_name(), "host", processors(), thread_count(), level, memory(), family=FAMILY, host_memory=True,
            instances=True,
        )
    ]


def processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else cpu_features.machine()


def memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


# -- open ------------------------------------------------------------------------------------------


def open(info: DeviceInfo) -> HostDevice:
    """The host: `host`, or another instance of it, `host/1`; see `open_threads` for the options."""
    return HostDevice(info, open_threads(info.uri, info.threads))


def open_threads(uri: str, default: int = 0) -> HostThreads:
    """Threads for an instance of the host: `host?threads=2` has two, `host/1?cores=0-1+6` one on each of the
    processors 0, 1 and 6. Raises DeviceError."""
    base, options = split_uri(uri)
    cores = _cores(uri, options.pop("cores")) if "cores" in options else ()
    others = "&".join(f"{key}={value}" for key, value in options.items())
    known = {"threads": (len(cores) or default or thread_count(), 1)}
    return HostThreads(int(number_options(f"{base}?{others}" if others else base, known)["threads"]), cores)


def _cores(uri: str, text: str) -> frozenset[int]:
    """`0-3+8`: processors that this process may run on."""
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
    """Memory of this process: from the pool, or an array that was adopted."""

    __slots__ = ("__weakref__", "address", "bytes", "memory")

    def __init__(self, memory: Allocation | np.ndarray[Any, Any], address: int, size: int) -> None:
        self.memory = memory
        self.address = address
        self.bytes = size


class HostDevice:
    """See `motet.runtime.device.Device`. `pool` and `threads` may be shared with others."""

    def __init__(self, info: DeviceInfo, threads: HostThreads, pool: Pool | None = None) -> None:
        self.info = info
        self._threads = threads
        self._pool = Pool() if pool is None else pool
        self._queues = [WorkQueue(f"{info.uri} queue {number}") for number in range(QUEUES)]
        self._closed = False
        self._profiling = False
        self._events: list[Event] = []

    @property
    def queues(self) -> int:
        return QUEUES

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        self._check_open()
        recording.check_size(self.info.uri, size)
        allocation = self._pool.allocate(size)
        return HostBuffer(allocation, allocation.address, size)

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        self._check_open()
        if not array.flags.c_contiguous:
            return None
        return HostBuffer(array, array.ctypes.data, array.nbytes)

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        memory = self._own(buffer).memory
        return bytes_of(memory) if isinstance(memory, np.ndarray) else np.asarray(memory)

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        memory = self._writable(target)
        recording.check_transfer(self.info.uri, "write", memory, source, offset, writes_array=False)
        return self._move("write", memory.address + offset, source.ctypes.data, source.nbytes, waits, queue,
                          (memory, source))

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        memory = self._own(source)
        recording.check_transfer(self.info.uri, "read", memory, target, offset, writes_array=True)
        return self._move("read", target.ctypes.data, memory.address + offset, target.nbytes, waits, queue,
                          (memory, target))

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        origin, memory = self._own(source), self._writable(target)
        recording.check_copy(self.info.uri, origin, memory)
        return self._move("copy", memory.address, origin.address, origin.bytes, waits, queue, (origin, memory))

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        memory = self._writable(target)
        recording.check_byte(self.info.uri, byte)

        def work() -> None:
            ctypes.memset(memory.address, byte, memory.bytes)

        return self._start("fill", memory.bytes, work, waits, queue)

    def _move(
        self, kind: str, target: int, source: int, size: int, waits: Sequence[Point], queue: int, keep: object
    ) -> Point:
        def work() -> object:
            ctypes.memmove(target, source, size)
            return keep  # holds the memory until it was moved

        return self._start(kind, size, work, waits, queue)

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family not in (FAMILY, "cpu"):
            return f"for {variant.family} devices"
        return processor_obstacle(variant)

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        self._check_open()
        return load_native(self.info.uri, objects, names)

    def record(
        self, executable: Executable | NativeExecutable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        self._check_open()
        return record_native(self.info.uri, executable, work, externals, scratch, self._threads)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        if type(work) is not NativeCommandBuffer:
            raise recording.foreign_work(self.info.uri)
        if self._closed or not 0 <= queue < QUEUES or len(buffers) != work.externals:
            self._check_queue(queue)
            recording.check_buffers(self.info.uri, buffers, work.needed)
        pointers: list[int] = []
        for buffer, needed in zip(buffers, work.needed, strict=True):
            if type(buffer) is not HostBuffer:
                self._own(buffer)
            if buffer.bytes < needed:
                recording.check_buffers(self.info.uri, buffers, work.needed)
            pointers.append(buffer.address)
        if self._profiling:
            return self._queues[queue].run(lambda: self._run_timed(work, pointers, buffers, queue), waits)
        return self._queues[queue].run(functools.partial(_run, work.program.run, pointers, buffers), waits)

    def _run_timed(
        self, work: NativeCommandBuffer, pointers: list[int], buffers: Sequence[Buffer], queue: int
    ) -> object:
        begin = time.perf_counter()
        self._events += note_events(work.work, work.program.run_logged(pointers), queue, begin)
        return buffers

    def _start(
        self, kind: str, size: int, work: Callable[[], object], waits: Sequence[Point], queue: int
    ) -> Point:
        self._check_queue(queue)
        if not self._profiling:
            return self._queues[queue].run(work, waits)

        def timed() -> None:
            begin = time.perf_counter()
            work()
            self._events.append(Event(kind, kind, queue, begin, time.perf_counter(), size))

        return self._queues[queue].run(timed, waits)

    # -- time and life ---------------------------------------------------------------------------

    def abort(self) -> None:
        """What is queued ends now; a kernel that runs goes on to its end, and its point is poisoned then."""
        self._check_open()
        error = DeviceError(f"device {self.info.uri}: aborted")
        for queue in self._queues:
            queue.abort(error)

    def profile(self, on: bool) -> list[Event]:
        events, self._events = self._events, []
        self._profiling = on
        return events

    def close(self) -> None:
        self._closed = True
        for queue in self._queues:
            queue.close()

    # -- checks ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        recording.check_open(self.info.uri, self._closed)

    def _check_queue(self, queue: int) -> None:
        self._check_open()
        recording.check_queue(self.info.uri, queue, QUEUES)

    def _own(self, buffer: Buffer) -> HostBuffer:
        if not isinstance(buffer, HostBuffer):
            raise recording.foreign_buffer(self.info.uri)
        return buffer

    def _writable(self, buffer: Buffer) -> HostBuffer:
        own = self._own(buffer)
        if isinstance(own.memory, np.ndarray) and not own.memory.flags.writeable:
            raise DeviceError(f"device {self.info.uri}: the buffer is an array that is read-only")
        return own


def _run(run: Callable[[Sequence[int]], None], pointers: list[int], keep: object) -> None:
    """Runs a program; `keep` holds the memory meanwhile."""
    run(pointers)
