"""A GPU as a device: memory from a pool, streams as queues, and recorded work as graphs."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from motet.artifact.library import Algorithm, LibraryCall
from motet.artifact.schema import Variant
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.common.base import BaseDevice
from motet.runtime.drivers.common.recording import bytes_of, check_contiguous
from motet.runtime.drivers.common.stream_queue import Finish, Issue, StreamQueue
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.common.transfers import Transfers
from motet.runtime.drivers.cuda.api import CudaApi, CudaError, Gpu
from motet.runtime.drivers.cuda.caller_streams import CallerStreams
from motet.runtime.drivers.cuda.commands import CudaCommand, CudaCommandBuffer
from motet.runtime.drivers.cuda.cublaslt import CublasError, Products
from motet.runtime.drivers.cuda.external import DLPACK_CUDA, LEGACY_STREAM, exported
from motet.runtime.drivers.cuda.lifetime import Remains
from motet.runtime.drivers.cuda.memory import CudaBuffer
from motet.runtime.drivers.cuda.modules import Modules
from motet.runtime.drivers.cuda.profiling import Profiler
from motet.runtime.drivers.cuda.program import CudaExecutable, load_kernels, obstacle, with_products
from motet.runtime.timeline import Point

Array = np.ndarray[Any, Any]

_ALIGNED = 256  # bytes; alignment of arrays within one block


class CudaDevice(CallerStreams, BaseDevice[CudaBuffer, CudaExecutable, CudaCommandBuffer]):
    """See `motet.runtime.device.Device`. With `check`, each command is waited for before the next one, so that a fault
    is reported for the kernel that caused it."""

    def __init__(
        self, api: CudaApi, info: DeviceInfo, gpu: Gpu, ordinal: int, queues: int, check: bool,
        overlap: bool,
    ) -> None:
        BaseDevice.__init__(self, info, queues)
        CallerStreams.__init__(self, api, info, gpu, ordinal, check, overlap)
        self._met: set[int] = set()  # other GPUs
        self._products = Products(api.product_libraries)
        self._profiler: Profiler | None = None
        with self.current:
            self._transfers = Transfers(api, self._staging)
            self._queues = [StreamQueue(self, number) for number in range(queues)]
        self._remains = Remains(
            self.current, api, ordinal, self._lifetimes, self._staging, self._pool,
            [queue.handles for queue in self._queues], self._products, self.marks,
        )
        weakref.finalize(self, self._remains.release).atexit = False

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> CudaBuffer:
        return self.allocate_for(size, None)

    def wrap(self, tensor: Any) -> DeviceArray:
        """A contiguous tensor of another library on this GPU, without a copy: both share memory. Raises CallError for
        any other tensor."""
        self.check_usable()
        found = exported(self, tensor)
        size = math.prod(found.shape) * found.dtype.itemsize
        return DeviceArray(self, self.adopt_address(found.address, size, found), found.shape, found.dtype)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return DLPACK_CUDA, self.info.ordinal

    def let_consumer_wait(self, buffer: Buffer, stream: int | None) -> None:
        """See `motet.runtime.device_array.Exporter`; None is the legacy default stream, -1 means no wait."""
        pending = buffer.stream if isinstance(buffer, CudaBuffer) else None
        if pending is not None and stream != -1:
            self.let_stream_wait(LEGACY_STREAM if stream is None else stream, pending)

    def array_interface(self, array: DeviceArray, name: str) -> dict[str, Any] | None:
        """The CUDA array interface of a tensor; None for a dtype that numpy does not have."""
        if name != "__cuda_array_interface__" or array.dtype.kind not in "biufc":
            return None
        stream = array.buffer.stream if isinstance(array.buffer, CudaBuffer) else None
        own = {} if stream is None else {"stream": stream or LEGACY_STREAM}
        data = (array.buffer.address if array.nbytes else 0, False)
        return {"version": 3, "shape": array.shape, "typestr": array.dtype.str, "data": data, "strides": None} | own

    def _write(self, target: CudaBuffer, source: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        data = bytes_of(source)
        issue, by_thread = self._transfers.upload(target.address + offset, data, queue)
        timed = self._timed("write", queue, data.size, issue)
        return self._queues[queue].submit(timed, waits, (target, source), for_host=True, by_thread=by_thread)

    def _read(self, source: CudaBuffer, target: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        data = bytes_of(target)
        issue, by_thread = self._transfers.download(data, source.address + offset, queue)
        timed = self._timed("read", queue, data.size, issue)
        return self._queues[queue].submit(
            timed, waits, (source, target), for_host=True, fills_host=True, by_thread=by_thread
        )

    def place(self, arrays: Sequence[Array]) -> tuple[list[CudaBuffer], Point]:
        """See `write` of `motet.runtime.device.Device`. All arrays share one block, freed with the last of them."""
        for array in arrays:
            check_contiguous(f"device {self.info.uri}: place", array)
        found = [bytes_of(array) for array in arrays]
        *starts, size = itertools.accumulate((-(-data.size // _ALIGNED) * _ALIGNED for data in found), initial=0)
        parts = list(zip(starts, found, strict=True))
        block = self.allocate_for(size, None)
        buffers = [CudaBuffer(self, block.address + start, data.size, owner=block) for start, data in parts]
        issue, by_thread = self._transfers.gather(block.address, size, parts, 0)
        timed = self._timed("write", 0, size, issue)
        return buffers, self._queues[0].submit(timed, (), (block, found), for_host=True, by_thread=by_thread)

    def copies_from(self, other: object) -> bool:
        """Whether `copy` accepts buffers of another device: those of every GPU, directly if the two can access each
        other, else by the driver through host memory."""
        if not isinstance(other, CudaDevice) or other is self:
            return False
        if other.ordinal not in self._met:
            self._met.add(other.ordinal)
            if self.api.can_reach(self.ordinal, other.ordinal):
                with self.lock, contextlib.suppress(CudaError), self.current:
                    self.api.reach(other.current.context)
                    other.let_in(self.ordinal)
        return True

    def let_in(self, ordinal: int) -> None:
        """Allow another GPU to access this one's memory. Raises CudaError."""
        self._blocks.let_in(ordinal)

    def _copy(self, source: CudaBuffer, target: CudaBuffer, waits: Sequence[Point], queue: int) -> Point:
        """`source` may also be a buffer of another GPU."""

        def issue(stream: Handle) -> Finish | None:
            if source.device is self and source.bytes:
                self.api.copy(target.address, source.address, source.bytes, stream)
            elif source.bytes:
                there = source.device.current.context
                self.api.copy_peer(
                    target.address, self.current.context, source.address, there, source.bytes, stream
                )
            return None

        timed = self._timed("copy", queue, source.bytes, issue)
        return self._queues[queue].submit(timed, waits, (source, target))

    def _fill(self, target: CudaBuffer, byte: int, waits: Sequence[Point], queue: int) -> Point:
        def issue(stream: Handle) -> Finish | None:
            if target.bytes:
                self.api.fill(target.address, byte, target.bytes, stream)
            return None

        return self._queues[queue].submit(self._timed("fill", queue, target.bytes, issue), waits, (target,))

    def _timed(self, kind: str, queue: int, size: int, issue: Issue) -> Issue:
        """`issue`, recorded as an event if the device is profiled."""

        def timed(stream: Handle) -> Finish | None:
            profiler = self._profiler
            if profiler is None:
                return issue(stream)
            begin = profiler.mark(stream)
            finish = issue(stream)
            profiler.note(kind, kind, queue, size, begin, stream)
            return finish

        return timed

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        return obstacle(variant, self.gpu.capability)

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> CudaExecutable:
        with self.working():
            self.check_usable()
            self._lifetimes.collect()
            resources = self._lifetimes.new()
            modules = Modules(self.info.uri, self.api, self.current, self.gpu.capability)
            kernels = load_kernels(self.info.uri, modules, resources, objects, names, self.gpu.shared)
            kernels, notes = with_products(self.info.uri, kernels, self._products, resources)
            return CudaExecutable(self, kernels, resources, notes)

    def algorithms(self, call: LibraryCall, most: int) -> list[Algorithm]:
        """The algorithms of a library on this machine for a product, best first by its heuristic; empty if there is no
        library, or it has none."""
        self.check_usable()
        with self.working():
            self._lifetimes.collect()
            try:
                return self._products.library().algorithms(call, most)
            except CublasError:
                return []

    def _record(
        self, executable: CudaExecutable, work: Sequence[Work], externals: int, scratch: int
    ) -> CudaCommandBuffer:
        return CudaCommandBuffer(self, self._lifetimes.new(), executable, work, externals, scratch)

    def _submit(
        self, work: CudaCommandBuffer, buffers: Sequence[CudaBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        scratch = self.allocate_for(work.scratch, None) if work.scratch else None
        bases = (*[buffer.address for buffer in buffers], scratch.address if scratch else 0)

        def issue(stream: Handle) -> Finish | None:
            if self._profiler is not None:
                self._run_profiled(work, bases, stream, self._profiler, queue)
            elif self.checks:
                work.run_checked(bases, stream)
            else:
                work.run(bases, stream)
            return None

        return self._queues[queue].submit(issue, waits, (work, buffers, scratch), work.kernels)

    def _run_profiled(
        self, work: CudaCommandBuffer, bases: tuple[int, ...], stream: Handle, profiler: Profiler, queue: int
    ) -> None:
        def around(command: CudaCommand, stream: Handle, put: Callable[[], None], _: bool) -> Handle:
            begin = profiler.mark(stream)
            put()
            kind = "copy" if command.bytes else "launch"
            return profiler.note(command.kernel, kind, queue, command.bytes, begin, stream, command.source)

        streams = [stream, *profiler.streams]
        work.run_on(bases, work.lanes(len(streams)), streams, around)

    # -- lifetime --------------------------------------------------------------------------------

    def abort(self) -> None:
        """End queued work immediately. Work on the GPU continues; its points are poisoned when it ends."""
        self.check_usable()
        error = self._aborted()
        with self.lock:
            for queue in self._queues:
                queue.abort(error)

    def profile(self, on: bool) -> list[Event]:
        """While profiling is on, the commands of a submission run on several streams, with events around each."""
        self.check_usable()
        with self.working():
            profiler, self._profiler = self._profiler, None
            events = profiler.end() if profiler is not None else []
            if on:
                self._profiler = Profiler.begin(self.api, self._blocks.stream)
            return events

    def close(self) -> None:
        if os.getpid() != self.process:
            return
        with self._closing:  # by other threads, which have closed it once they are here
            if not self._closed:
                self._close()

    def _close(self) -> None:
        with self.lock:
            self._closed = True
            self._stream_memory.clear()
            self._captured.clear()
        for queue in self._queues:
            queue.drain()
        for queue in self._queues:
            queue.stop()
        kept: list[object] = []  # released without the lock
        with contextlib.suppress(CudaError), self.current:
            kept = self.marks.drain()
        kept.clear()
        with self.lock:
            self._remains.release()

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        self.check_usable()

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[CudaBuffer]:
        return isinstance(buffer, CudaBuffer) and buffer.device is self

    def _is_own_code(self, executable: Executable) -> TypeGuard[CudaExecutable]:
        return isinstance(executable, CudaExecutable) and executable.device is self

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[CudaCommandBuffer]:
        return isinstance(work, CudaCommandBuffer) and work.executable.device is self

    def _own(self, buffer: Buffer) -> CudaBuffer:
        own = super()._own(buffer)
        if own.stream is not None:
            self.let_queues_wait_for(own.stream)
            own.stream = None
        return own

    def _readable(self, buffer: Buffer) -> CudaBuffer:
        if not isinstance(buffer, CudaBuffer) or buffer.device.lost is not None or buffer.device is self:
            return self._own(buffer)
        if buffer.stream is not None:
            buffer.device.finish(buffer.stream)
            buffer.stream = None
        return buffer
