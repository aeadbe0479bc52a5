"""A device that runs this CPU's code in this process: memory from a pool, code loaded by the host's loader. Drivers
that inherit it add `obstacle`, which selects variants."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from motet.errors import OutOfMemoryError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Executable, Work
from motet.runtime.drivers.common.base import BufferT
from motet.runtime.drivers.common.queued import QueuedDevice
from motet.runtime.drivers.host.memory import Allocation, Pool
from motet.runtime.drivers.host.recorded import (
    NativeCommandBuffer,
    NativeExecutable,
    load_native,
    note_events,
    record_native,
)
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.timeline import Point

# What conformance cannot ask of a kernel that runs in this process, by checks.
_IN_PROCESS = "kernels run in this process, and nothing can stop them but its end"
EXEMPT_IN_PROCESS = {
    "fault-illegal-instruction": _IN_PROCESS,
    "fault-out-of-bounds": _IN_PROCESS,
    "fault-reaches-dependants": _IN_PROCESS,
    "fault-then-usable": _IN_PROCESS,
    "abort-endless": _IN_PROCESS,
}


class NativeBuffer:
    """Memory of such a device."""

    __slots__ = ("__weakref__", "address", "bytes", "device", "memory")

    def __init__(self, device: weakref.ref[InProcessDevice], memory: Allocation, size: int) -> None:
        self.device = device
        self.memory = memory
        self.address = memory.address
        self.bytes = size


class NativeDevice(QueuedDevice[BufferT, NativeExecutable, NativeCommandBuffer]):
    """Code and work of a device whose kernels run in this process."""

    def __init__(self, info: DeviceInfo, queues: int, threads: HostThreads, pool: Pool) -> None:
        super().__init__(info, queues)
        self._threads = threads
        self._pool = pool

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> NativeExecutable:
        return load_native(self.info.uri, objects, names)

    def _record(
        self, executable: NativeExecutable, work: Sequence[Work], externals: int, scratch: int
    ) -> NativeCommandBuffer:
        return record_native(self.info.uri, executable, work, externals, scratch, self._threads)

    def _is_own_code(self, executable: Executable) -> TypeGuard[NativeExecutable]:
        return isinstance(executable, NativeExecutable)

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[NativeCommandBuffer]:
        return isinstance(work, NativeCommandBuffer)


class InProcessDevice(NativeDevice[NativeBuffer]):
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, queues: int = 1, threads: int = 1) -> None:
        super().__init__(info, queues, HostThreads(threads), Pool())

    def _allocate(self, size: int) -> NativeBuffer:
        try:
            memory = self._pool.allocate(size)
        except OutOfMemoryError:
            raise OutOfMemoryError(size, self.info.uri) from None
        return NativeBuffer(weakref.ref(self), memory, size)

    def _bytes(self, buffer: NativeBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.asarray(buffer.memory)

    def _submit(
        self, work: NativeCommandBuffer, buffers: Sequence[NativeBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        def run() -> None:
            addresses = [buffer.address for buffer in buffers]
            if not self._profiling:
                work.program.run(addresses)
                return
            begin = time.perf_counter()
            self._events.extend(note_events(work.work, work.program.run_logged(addresses).pieces, queue, begin))

        return self._queues[queue].submit(run, waits)

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[NativeBuffer]:
        return isinstance(buffer, NativeBuffer) and buffer.device() is self
