"""A GPU's memory, and work on streams of others: a caller's, or another library's.

A buffer that was used on such a stream is ordered by it (`block_pool.py`); the device's own queues wait for the stream
before they use the buffer.
"""

from __future__ import annotations

import weakref
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


class Forgetful(Protocol):
    def forget(self) -> None: ...


class CallerStreams(CudaCore):
    """A GPU without queues' work: what it allocates, and what it does on streams of others."""

    def __init__(self, api: CudaApi, info: DeviceInfo, gpu: Gpu, ordinal: int, check: bool, overlap: bool) -> None:
        super().__init__(api, info, gpu, ordinal, check, overlap)
        with self.current:
            self._blocks = DriverPool(api, ordinal)
            self._pool = BlockPool(api, self._blocks, gpu.memory)
            self._staging = StagingMemory(api)
        self._stream_memory: dict[int, CudaBuffer] = {}
        self._captured: list[CudaBuffer] = []
        self._direct: weakref.WeakSet[Forgetful] = weakref.WeakSet()

    @property
    def bytes_used(self) -> int:
        """Bytes of the blocks that buffers are in."""
        return self._pool.used

    # -- memory ----------------------------------------------------------------------------------

    def allocate_for(self, size: int, stream: int | None) -> CudaBuffer:
        """Memory for work on a stream of someone else's, or, without one, on the device's queues."""
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
        """With the context current. Raises CudaError, OutOfMemoryError."""
        self._lifetimes.collect()
        try:
            address = self._pool.allocate(size)
        except CudaError as error:
            if not error.is_out_of_memory:
                raise
            for queue in self._queues:  # what has ended, and nobody has asked about, may hold memory
                queue.advance()
            try:
                address = self._pool.allocate(size)
            except CudaError as again:
                raise passing_error(self.info.uri, again, size) from again
        return CudaBuffer(self, address, size, self._pool, stream=stream)

    def stream_memory(self, stream: int, size: int) -> int:
        """The address of `size` bytes at least for work on a stream of someone else's, the same ones for all of it:
        it runs one after the other. With the lock held."""
        kept = self._stream_memory.get(stream)
        if kept is None or kept.bytes < size:
            self._stream_memory.pop(stream, None)
            for work in self._direct:
                work.forget()
            kept = self._stream_memory[stream] = self.allocate_for(size, stream)
        return kept.address

    def captured_memory(self, size: int) -> int:
        """The address of `size` bytes for work that becomes part of someone else's graph: nobody knows when it is done
        for the last time, so it is given back when the device is closed. With the lock held."""
        self._captured.append(self.allocate_for(size, None))
        return self._captured[-1].address

    def note_direct(self, work: Forgetful) -> None:
        """`work` is told when memory of a stream's is other memory from now on."""
        self._direct.add(work)

    def keep_pinned(self, size: int, owner: object) -> StagingSlot:
        """Memory of the host that kernels can write to, zero at first, as long as `owner` lives."""
        with self.current:
            slot = self._staging.take(size)
        slot.array[:] = 0
        weakref.finalize(owner, self._staging.give, slot)
        return slot

    def adopt_address(self, address: int, size: int, owner: object) -> CudaBuffer:
        """Memory of this GPU that belongs to `owner`, as a buffer that keeps it alive. Raises DeviceError for an
        address that is another device's."""
        self.check_usable()
        found = self.api.ordinal_of(address) if size else self.ordinal
        if found != self.ordinal:
            whose = "no GPU's" if found is None else f"that of GPU {found}"
            raise DeviceError(f"device {self.info.uri}: memory at {address:#x} is {whose}; expected its own")
        return CudaBuffer(self, address, size, owner=owner)

    # -- streams ---------------------------------------------------------------------------------

    def has_stream(self, stream: int) -> bool:
        """Whether a stream is one of this GPU's context."""
        try:
            with self.current:
                return self.api.stream_context(stream) == self.current.context
        except CudaError as error:
            if error.code in WRONG_CONTEXT:
                return False
            raise self.failure(error) from error

    def let_stream_wait(self, stream: int, other: int) -> None:
        """What is put on a stream from now on runs after what is on the other."""
        if stream == other:
            return
        with self.working():
            event = self.api.event_create()
            self.api.event_record(event, other)
            self.api.stream_wait(stream, event)
            self.api.event_destroy(event)

    def let_queues_wait_for(self, stream: Handle) -> None:
        """What is submitted from now on runs after what is on another library's stream of this GPU."""
        with self.working():
            event = self.api.event_create()
            self.api.event_record(event, stream)
            for queue in self._queues:
                self.api.stream_wait(queue.stream, event)
            self.api.event_destroy(event)

    def write_on_stream(self, target: CudaBuffer, source: np.ndarray[Any, Any], stream: int) -> None:
        """Host to device on a stream of someone else's; `source` has been read when this returns."""
        data = bytes_of(source)
        if not data.size:
            return
        with self.working():
            if self.api.is_pinned(data.ctypes.data):  # which the GPU would read by itself, later
                data = data.copy()
            self.api.upload(target.address, data.ctypes.data, data.size, stream)

    def finish(self, stream: int) -> None:
        """Blocks until what is on a stream of someone else's has ended. Raises DeviceError, KernelFault."""
        try:
            with self.current:
                self.api.stream_synchronize(stream)
        except CudaError as error:
            raise self.failure(error) from error
