"""A GPU as a device: memory from a pool, queues that are streams, and recorded work as graphs."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import numpy as np

from motet.artifact.library import Algorithm, LibraryCall
from motet.artifact.schema import Variant
from motet.errors import DeviceError, DeviceLost, MotetError, OutOfMemoryError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.device_array import DeviceArray
from motet.runtime.devices.common import recording
from motet.runtime.devices.common.block_pool import CudaBuffer, Pool
from motet.runtime.devices.common.lifetime import Current, Lifetimes, Remains, Resources
from motet.runtime.devices.common.recording import bytes_of
from motet.runtime.devices.common.staging import Slot, Staging
from motet.runtime.devices.common.stream_queue import CudaQueue, Finish, Issue
from motet.runtime.devices.common.transfers import Transfers
from motet.runtime.devices.cuda import external, faults
from motet.runtime.devices.cuda.api import OUT_OF_MEMORY, WRONG_CONTEXT, CudaApi, CudaError, Gpu, Handle
from motet.runtime.devices.cuda.commands import Command, CudaCommandBuffer
from motet.runtime.devices.cuda.cublaslt import CublasError, Products
from motet.runtime.devices.cuda.modules import Modules
from motet.runtime.devices.cuda.profiling import Profiler
from motet.runtime.devices.cuda.program import CudaExecutable, load_kernels, obstacle, with_products
from motet.runtime.timeline import Point

_APART = 256  # bytes: where arrays in one block may begin


class Forgetful(Protocol):
    def forget(self) -> None: ...


class CudaDevice:
    """See `motet.runtime.device.Device`. With `check`, each command is waited for before the next is begun, so that a
    fault is told of the kernel that it is of."""

    def __init__(
        self, api: CudaApi, info: DeviceInfo, gpu: Gpu, ordinal: int, queues: int, check: bool,
        overlap: bool,
    ) -> None:
        self.info = info
        self.api = api
        self.gpu = gpu
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.lost: MotetError | None = None
        self.ordinal = ordinal
        self._met: set[int] = set()  # other GPUs
        self.checks = check
        self.overlaps = overlap
        self._closed = False
        self._lifetimes = Lifetimes()
        self._products = Products(api.product_libraries)
        self._profiler: Profiler | None = None
        self.current = Current(api, api.retain(ordinal))
        with self.current:
            self._pool = Pool(api, ordinal, gpu.memory)
            staging = self._staging = Staging(api)
            self._transfers = Transfers(api, staging)
            self._queues = [CudaQueue(self, number) for number in range(queues)]
        self._stream_memory: dict[int, CudaBuffer] = {}
        self._captured: list[CudaBuffer] = []
        self._direct: weakref.WeakSet[Forgetful] = weakref.WeakSet()
        self._remains = Remains(
            self.current, api, ordinal, self._lifetimes, staging, self._pool,
            [queue.lane for queue in self._queues], self._products,
        )
        weakref.finalize(self, self._remains.release).atexit = False

    @property
    def queues(self) -> int:
        return len(self._queues)

    @property
    def bytes_used(self) -> int:
        """Bytes of the blocks that buffers are in."""
        return self._pool.used

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        return self.allocate_for(size, None)

    def allocate_for(self, size: int, stream: int | None) -> CudaBuffer:
        """Memory for work on a stream of someone else's, or, without one, on the device's queues."""
        self.check_usable()
        recording.check_size(self.info.uri, size)
        if size > self.gpu.memory:
            raise OutOfMemoryError(size, self.info.uri)
        address = self._pool.reuse(size, stream)
        if address is not None:
            return CudaBuffer(self, address, size, self._pool, stream=stream)
        with self.lock:
            self.check_usable()
            try:
                with self.current:
                    return self._allocate(size, stream)
            except CudaError as error:
                raise self._failure(error, size) from error

    def _allocate(self, size: int, stream: int | None) -> CudaBuffer:
        """With the context current. Raises CudaError, OutOfMemoryError."""
        self._lifetimes.collect()
        try:
            address = self._pool.allocate(size)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            for queue in self._queues:  # what has ended, and nobody has asked about, may hold memory
                queue.advance()
            try:
                address = self._pool.allocate(size)
            except CudaError as again:
                raise faults.passing_error(self.info.uri, again, size) from again
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

    def has_stream(self, stream: int) -> bool:
        """Whether a stream is one of this GPU's context."""
        try:
            with self.current:
                return self.api.stream_context(stream) == self.current.context
        except CudaError as error:
            if error.code in WRONG_CONTEXT:
                return False
            raise self._failure(error) from error

    def let_stream_wait(self, stream: int, other: int) -> None:
        """What is put on a stream from now on runs after what is on the other."""
        if stream == other:
            return
        with self.lock:
            try:
                with self.current:
                    event = self.api.event_create()
                    self.api.event_record(event, other)
                    self.api.stream_wait(stream, event)
                    self.api.event_destroy(event)
            except CudaError as error:
                raise self._failure(error) from error

    def write_on_stream(self, target: CudaBuffer, source: np.ndarray[Any, Any], stream: int) -> None:
        """Host to device on a stream of someone else's; `source` has been read when this returns."""
        data = bytes_of(source)
        if not data.size:
            return
        with self.lock:
            try:
                with self.current:
                    if self.api.is_pinned(data.ctypes.data):  # which the GPU would read by itself, later
                        data = data.copy()
                    self.api.upload(target.address, data.ctypes.data, data.size, stream)
            except CudaError as error:
                raise self._failure(error) from error

    def finish(self, stream: int) -> None:
        """Blocks until what is on a stream of someone else's has ended. Raises DeviceError, KernelFault."""
        try:
            with self.current:
                self.api.stream_synchronize(stream)
        except CudaError as error:
            raise self._failure(error) from error

    def note_direct(self, work: Forgetful) -> None:
        """`work` is told when memory of a stream's is other memory from now on."""
        self._direct.add(work)

    def keep_pinned(self, size: int, owner: object) -> Slot:
        """Memory of the host that kernels can write to, zero at first, as long as `owner` lives."""
        with self.current:
            slot = self._staging.take(size)
        slot.array[:] = 0
        weakref.finalize(owner, self._staging.give, slot)
        return slot

    def failed(self, error: CudaError) -> MotetError:
        """What a call of the driver that failed is to raise."""
        return self._failure(error)

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        return None

    def adopt_address(self, address: int, size: int, owner: object) -> CudaBuffer:
        """Memory of this GPU that belongs to `owner`, as a buffer that keeps it alive. Raises DeviceError for an
        address that is another device's."""
        self.check_usable()
        found = self.api.ordinal_of(address) if size else self.ordinal
        if found != self.ordinal:
            whose = "no GPU's" if found is None else f"that of GPU {found}"
            raise DeviceError(f"device {self.info.uri}: memory at {address:#x} is {whose}; expected its own")
        return CudaBuffer(self, address, size, owner=owner)

    def wrap(self, tensor: Any) -> DeviceArray:
        """A tensor of another library that lies on this GPU, contiguous, without a copy: what is written to one is in
        the other. Raises CallError for any other tensor."""
        self.check_usable()
        found = external.exported(self, tensor, self.ordinal)
        size = math.prod(found.shape) * found.dtype.itemsize
        return DeviceArray(self, self.adopt_address(found.address, size, found), found.shape, found.dtype)

    def let_queues_wait_for(self, stream: Handle) -> None:
        """What is submitted from now on runs after what is on another library's stream of this GPU."""
        with self.lock:
            try:
                with self.current:
                    event = self.api.event_create()
                    self.api.event_record(event, stream)
                    for queue in self._queues:
                        self.api.stream_wait(queue.stream, event)
                    self.api.event_destroy(event)
            except CudaError as error:
                raise self._failure(error) from error

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        self._own(buffer)
        return None

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        own, lane = self._own(target), self._queue(queue)
        recording.check_transfer(self.info.uri, "write", own, source, offset, writes_array=False)
        data = bytes_of(source)
        issue, by_thread = self._transfers.upload(own.address + offset, data, queue)
        timed = self._timed("write", queue, data.size, issue)
        return lane.submit(timed, waits, (own, source), for_host=True, by_thread=by_thread)

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        own, lane = self._own(source), self._queue(queue)
        recording.check_transfer(self.info.uri, "read", own, target, offset, writes_array=True)
        data = bytes_of(target)
        issue, by_thread = self._transfers.download(data, own.address + offset, queue)
        timed = self._timed("read", queue, data.size, issue)
        return lane.submit(timed, waits, (own, target), for_host=True, fills_host=True, by_thread=by_thread)

    def place(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[list[CudaBuffer], Point]:
        """See `write` of `motet.runtime.device.Device`. One block of memory for all, which goes when they have gone."""
        for array in arrays:
            recording.check_contiguous(f"device {self.info.uri}: place", array)
        found = [bytes_of(array) for array in arrays]
        *starts, size = itertools.accumulate((-(-data.size // _APART) * _APART for data in found), initial=0)
        parts = list(zip(starts, found, strict=True))
        block = self.allocate_for(size, None)
        buffers = [CudaBuffer(self, block.address + start, data.size, owner=block) for start, data in parts]
        issue, by_thread = self._transfers.gather(block.address, size, parts, 0)
        timed = self._timed("write", 0, size, issue)
        return buffers, self._queue(0).submit(timed, (), (block, found), for_host=True, by_thread=by_thread)

    def copies_from(self, other: object) -> bool:
        """Whether `copy` takes buffers of another device: of every GPU, directly where the two can reach each other,
        else by way of the host's memory, which the driver sees to."""
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
        """Another GPU may read and write this one's memory. Raises CudaError."""
        self._pool.let_in(ordinal)

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        """`source` may also be a buffer of another GPU."""
        origin, own, lane = self._readable(source), self._own(target), self._queue(queue)
        recording.check_copy(self.info.uri, origin, own)

        def issue(stream: Handle) -> Finish | None:
            if origin.device is self and origin.bytes:
                self.api.copy(own.address, origin.address, origin.bytes, stream)
            elif origin.bytes:
                there = origin.device.current.context
                self.api.copy_peer(
                    own.address, self.current.context, origin.address, there, origin.bytes, stream
                )
            return None

        return lane.submit(self._timed("copy", queue, origin.bytes, issue), waits, (origin, own))

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        own, lane = self._own(target), self._queue(queue)
        recording.check_byte(self.info.uri, byte)

        def issue(stream: Handle) -> Finish | None:
            if own.bytes:
                self.api.fill(own.address, byte, own.bytes, stream)
            return None

        return lane.submit(self._timed("fill", queue, own.bytes, issue), waits, (own,))

    def _timed(self, kind: str, queue: int, size: int, issue: Issue) -> Issue:
        """The same, noted where the device is profiled."""

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

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        with self._working() as resources:
            modules = Modules(self.info.uri, self.api, self.current, self.gpu.capability)
            kernels = load_kernels(self.info.uri, modules, resources, objects, names, self.gpu.shared)
            kernels, notes = with_products(self.info.uri, kernels, self._products, resources)
            return CudaExecutable(self, kernels, resources, notes)

    def algorithms(self, call: LibraryCall, most: int) -> list[Algorithm]:
        """Those that a library of this machine thinks best for a product, the best first; none where there is no
        library, or none of its algorithms does it."""
        with self._working():
            try:
                return self._products.library().algorithms(call, most)
            except CublasError:
                return []

    @contextlib.contextmanager
    def _working(self) -> Generator[Resources, None, None]:
        """New resources, in the context. Raises DeviceError for what the driver refuses."""
        self.check_usable()
        with self.lock:
            self.check_usable()
            try:
                with self.current:
                    self._lifetimes.collect()
                    yield self._lifetimes.new()
            except CudaError as error:
                raise self._failure(error) from error

    def record(
        self, executable: Executable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        self.check_usable()
        if not isinstance(executable, CudaExecutable) or executable.device is not self:
            raise DeviceError(
                f"device {self.info.uri}: record: the executable is another device's; load its code here"
            )
        if scratch < 0:
            raise DeviceError(f"device {self.info.uri}: record: {scratch} bytes of scratch; expected 0 or more")
        return CudaCommandBuffer(self, self._lifetimes.new(), executable, work, externals, scratch)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        if not isinstance(work, CudaCommandBuffer) or work.executable.device is not self:
            raise DeviceError(f"device {self.info.uri}: submit: work that was recorded by another device")
        own = [self._own(buffer) for buffer in buffers]
        recording.check_buffers(self.info.uri, own, work.needed)
        lane = self._queue(queue)
        scratch = self.allocate(work.scratch) if work.scratch else None
        bases = (*[buffer.address for buffer in own], scratch.address if scratch else 0)

        def issue(stream: Handle) -> Finish | None:
            if self._profiler is not None:
                self._run_profiled(work, bases, stream, self._profiler, queue)
            elif self.checks:
                self.run_checked(work, bases, stream)
            else:
                work.run(bases, stream)
            return None

        return lane.submit(issue, waits, (work, own, scratch), work.kernels)

    def _run_profiled(
        self, work: CudaCommandBuffer, bases: tuple[int, ...], stream: Handle, profiler: Profiler, queue: int
    ) -> None:
        def around(command: Command, stream: Handle, put: Callable[[], None]) -> Handle:
            begin = profiler.mark(stream)
            put()
            kind = "copy" if command.bytes else "launch"
            return profiler.note(command.kernel, kind, queue, command.bytes, begin, stream)

        work.run_on(bases, [stream, *profiler.streams], around)

    def run_checked(self, work: CudaCommandBuffer, bases: tuple[int, ...], stream: Handle) -> None:
        """Puts one command after the other on a stream, and waits for each. With the lock held."""

        def after(command: Command) -> None:
            try:
                self.api.stream_synchronize(stream)
            except CudaError as error:
                if not self.lose(error, [command.kernel], alone=True):
                    raise

        work.run_in_order(bases, stream, after)

    # -- errors ----------------------------------------------------------------------------------

    def lose(self, error: CudaError, kernels: Sequence[str] = (), *, alone: bool = False) -> bool:
        """Ends everything if an error is final, and says whether it is. `kernels` may have been at work beside those
        that are in flight, unless they were `alone`."""
        if not faults.is_final(error):
            return False
        with self.lock:
            if self.lost is None:
                at_work = [] if alone else [name for queue in self._queues for name in queue.kernels()]
                final = faults.final_error(self.info.uri, error, [*kernels, *at_work])
                self.lost = final if isinstance(final, DeviceLost) else faults.lost_by(final)
                for queue in self._queues:
                    queue.fail(final)
        return True

    def passing(self, error: CudaError) -> MotetError:
        return faults.passing_error(self.info.uri, error)

    def _failure(self, error: CudaError, size: int = 0) -> MotetError:
        """What a call that failed raises."""
        if self.lose(error) and self.lost is not None:
            return self.lost
        return faults.passing_error(self.info.uri, error, size)

    # -- its life --------------------------------------------------------------------------------

    def abort(self) -> None:
        """What is queued ends now. The GPU goes on with what it works at, whose points are poisoned in the end."""
        self.check_usable()
        error = DeviceError(f"device {self.info.uri}: aborted")
        with self.lock:
            for queue in self._queues:
                queue.abort(error)

    def profile(self, on: bool) -> list[Event]:
        """While it is on, the commands of a submission are put on several streams, with events around each."""
        self.check_usable()
        with self.lock:
            profiler, self._profiler = self._profiler, None
            try:
                with self.current:
                    events = profiler.end() if profiler is not None else []
                    if on:
                        self._profiler = Profiler.begin(self.api, self._pool.stream)
            except CudaError as error:
                raise self._failure(error) from error
        return events

    def close(self) -> None:
        if os.getpid() != self.process:
            return
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._stream_memory.clear()
            self._captured.clear()
        for queue in self._queues:
            queue.drain()
        for queue in self._queues:
            queue.stop()
        with self.lock:
            self._remains.release()

    # -- checks ----------------------------------------------------------------------------------

    def check_usable(self) -> None:
        self.check_process()
        if self._closed:
            raise DeviceError(f"device {self.info.uri}: it is closed; open it again")
        if self.lost is not None:
            raise self.lost

    def check_process(self) -> None:
        """A child of a fork has none of what the driver keeps for its parent."""
        if os.getpid() != self.process:
            raise DeviceError(
                f"device {self.info.uri}: opened before a fork, in the parent process; start processes that use it by "
                "spawn"
            )

    def _queue(self, number: int) -> CudaQueue:
        if not 0 <= number < len(self._queues):
            raise DeviceError(f"device {self.info.uri}: queue {number}; there are {len(self._queues)}, from 0 on")
        return self._queues[number]

    def _own(self, buffer: Buffer) -> CudaBuffer:
        if not isinstance(buffer, CudaBuffer) or buffer.device is not self:
            raise DeviceError(f"device {self.info.uri}: a buffer of another device; expected one of its own")
        if buffer.stream is not None:
            self.let_queues_wait_for(buffer.stream)
            buffer.stream = None
        return buffer

    def _readable(self, buffer: Buffer) -> CudaBuffer:
        if not isinstance(buffer, CudaBuffer) or buffer.device.lost is not None or buffer.device is self:
            return self._own(buffer)
        if buffer.stream is not None:
            buffer.device.finish(buffer.stream)
            buffer.stream = None
        return buffer
