"""A GPU's memory, and work on streams of callers or other libraries.

A buffer used on such a stream is ordered by it (`block_pool.py`); the device's own queues wait for the stream before
they use the buffer.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.common.block_pool import BlockPool
from motet.runtime.drivers.common.recording import bytes_of, check_size
from motet.runtime.drivers.common.staging import StagingMemory, StagingSlot
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import WRONG_CONTEXT, CudaApi, CudaError, Gpu
from motet.runtime.drivers.cuda.core import CudaCore
from motet.runtime.drivers.cuda.faults import passing_error
from motet.runtime.drivers.cuda.memory import CudaBuffer, DriverPool
from motet.runtime.drivers.cuda.stream_marks import StreamMarks


class Forgetful(Protocol):
    def forget(self) -> None: ...


class CallerStreams(CudaCore):
    """A GPU without its queues: allocation, and work on streams of callers."""

    def __init__(self, api: CudaApi, info: DeviceInfo, gpu: Gpu, ordinal: int, check: bool, overlap: bool) -> None:
        super().__init__(api, info, gpu, ordinal, check, overlap)
        with self.current:
            self._blocks = DriverPool(api, ordinal)
            self._pool = BlockPool(api, self._blocks, gpu.memory)
            self._staging = StagingMemory(api)
        self._stream_memory: dict[int, CudaBuffer] = {}
        self._captured: list[CudaBuffer] = []
        self.marks = StreamMarks(api)
        self._direct: weakref.WeakSet[Forgetful] = weakref.WeakSet()

    @property
    def bytes_used(self) -> int:
        """Bytes of the blocks in which buffers are allocated."""
        return self._pool.used

    # -- memory ----------------------------------------------------------------------------------

    def allocate_for(self, size: int, stream: int | None) -> CudaBuffer:
        """Memory for work on a caller's stream or, without one, on the device's queues."""
        self.check_usable()
        check_size(self.info.uri, size)
        if size > self.gpu.memory:
            raise OutOfMemoryError(size, self.info.uri)
        address = self._pool.reuse(size, stream)
        if address is not None:
            return CudaBuffer(self, address, size, self._pool, stream=stream)
        with self.lock:
            self.check_usable()
            try:
                with self.current:
                    return self._allocate_new(size, stream)
            except CudaError as error:
                raise self.failure(error, size) from error

    def _allocate_new(self, size: int, stream: int | None) -> CudaBuffer:
        """Call with the context current. Raises CudaError, OutOfMemoryError."""
        self._lifetimes.collect()
        try:
            address = self._pool.allocate(size)
        except CudaError as error:
            if not error.is_out_of_memory:
                raise
            for queue in self._queues:  # submissions that have ended, unnoticed so far, may hold memory
                queue.advance()
            try:
                address = self._pool.allocate(size)
            except CudaError as again:
                raise passing_error(self.info.uri, again, size) from again
        return CudaBuffer(self, address, size, self._pool, stream=stream)

    def stream_memory(self, stream: int, size: int) -> int:
        """The address of at least `size` bytes for work on a caller's stream. All work on a stream shares them, as it
        runs in order. Call with the lock held."""
        kept = self._stream_memory.get(stream)
        if kept is None or kept.bytes < size:
            self._stream_memory.pop(stream, None)
            for work in self._direct:
                work.forget()
            kept = self._stream_memory[stream] = self.allocate_for(size, stream)
        return kept.address

    def captured_memory(self, size: int) -> int:
        """The address of `size` bytes for work captured into another library's graph. Its last use is unknown, so that
        it is freed when the device is closed. Call with the lock held."""
        self._captured.append(self.allocate_for(size, None))
        return self._captured[-1].address

    def note_direct(self, work: Forgetful) -> None:
        """Register `work` to be notified when the memory of a stream is replaced."""
        self._direct.add(work)

    def keep_pinned(self, size: int, owner: object) -> StagingSlot:
        """Pinned host memory to which kernels can write, zero at first, for the lifetime of `owner`."""
        with self.current:
            slot = self._staging.take(size)
        slot.array[:] = 0
        weakref.finalize(owner, self._staging.give, slot)
        return slot

    def adopt_address(self, address: int, size: int, owner: object) -> CudaBuffer:
        """Memory of this GPU that belongs to `owner`, as a buffer that keeps it alive. Raises DeviceError if the
        address is in another device's memory."""
        self.check_usable()
        found = self.api.ordinal_of(address) if size else self.ordinal
        if found != self.ordinal:
            whose = "no GPU's" if found is None else f"that of GPU {found}"
            raise DeviceError(f"device {self.info.uri}: memory at {address:#x} is {whose}; expected its own")
        return CudaBuffer(self, address, size, owner=owner)

    # -- streams ---------------------------------------------------------------------------------

    def has_stream(self, stream: int) -> bool:
        """Whether a stream belongs to this GPU's context."""
        try:
            with self.current:
                return self.api.stream_context(stream) == self.current.context
        except CudaError as error:
            if error.code in WRONG_CONTEXT:
                return False
            raise self.failure(error) from error

    def let_stream_wait(self, stream: int, other: int) -> None:
        """Make later work on a stream run after the current work of the other stream."""
        if stream == other:
            return
        with self.working():
            self.marks.let_wait([stream], other)

    def let_stream_wait_for(self, stream: int, events: Sequence[Handle]) -> None:
        """Make later work on a stream run after `events` of callers. Raises DeviceError for an invalid one."""
        with self.working():
            for event in events:
                self.api.stream_wait(stream, event)

    def event_after(self, stream: int) -> Handle:
        """A new event after the current work of a stream."""
        with self.working():
            event = self.api.event_create()
            self.api.event_record(event, stream)
            return event

    def keep_until_done(self, stream: Handle, owners: Sequence[object]) -> None:
        """Keep memory of other libraries, which may use it again once it is released, until the current work of a
        stream has ended. Work that is captured may run at any time: its memory is the caller's to keep."""
        ended: list[object] = []  # released after the lock
        with self.working():
            if not self.api.is_capturing(stream):
                ended = self.marks.keep(stream, owners)
        ended.clear()

    def let_queues_wait_for(self, stream: Handle) -> None:
        """Make later submissions run after the current work of another library's stream on this GPU."""
        with self.working():
            self.marks.let_wait([queue.stream for queue in self._queues], stream)

    def write_on_stream(self, target: CudaBuffer, source: np.ndarray[Any, Any], stream: int) -> None:
        """Host to device on a caller's stream; `source` has been read on return."""
        data = bytes_of(source)
        if not data.size:
            return
        with self.working():
            if self.api.is_pinned(data.ctypes.data):  # the GPU would read it directly, later
                data = data.copy()
            self.api.upload(target.address, data.ctypes.data, data.size, stream)

    def finish(self, stream: int) -> None:
        """Block until all work on a caller's stream has ended. Raises DeviceError, KernelFault."""
        try:
            with self.current:
                self.api.stream_synchronize(stream)
        except CudaError as error:
            raise self.failure(error) from error
