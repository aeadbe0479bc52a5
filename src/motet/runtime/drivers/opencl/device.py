"""An OpenCL device: memory, programs, and out-of-order queues.

Every queue has a thread, which enqueues a submission's commands with wait lists made from their dependences and waits
for their end. Points of other devices are waited for by that thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np

from motet.artifact.intel_gpus import VENDOR, gpu_of_id
from motet.artifact.schema import Variant
from motet.errors import DeviceError, DeviceLost
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.drivers.common.base import Array
from motet.runtime.drivers.common.queued import ThreadedDevice
from motet.runtime.drivers.opencl.api import (
    DEVICE_COMPUTE_UNITS,
    DEVICE_EXTENSIONS,
    DEVICE_ID_INTEL,
    DEVICE_IL,
    DEVICE_SINGLE_FP,
    DEVICE_SUB_GROUPS,
    DEVICE_SVM,
    DEVICE_VENDOR,
    Handle,
    OpenClApi,
)
from motet.runtime.drivers.opencl.context import Context, Memory, MemoryPart
from motet.runtime.drivers.opencl.external import ExternalWork
from motet.runtime.drivers.opencl.program import OpenClCommands, OpenClExecutable, load_programs, record_commands
from motet.runtime.drivers.opencl.trial import LANES, prefers_shorter, vector_fault
from motet.runtime.plan_executor import Alone
from motet.runtime.timeline import Point

FAMILY = "opencl"
INTEL = "intel"  # the family of code for Intel's GPUs, and of tile programs for all devices with sub-groups
SOURCE = "opencl-c"  # what the names of targets of programs in OpenCL C begin with
_ROUNDED_DIVISION = 1 << 7  # of the floating-point properties
_ITEMS_PER_UNIT = 4  # work-items with scratch memory
_MOST_CONTEXTS = 8  # of callers


class OpenClDevice(ThreadedDevice[Memory, OpenClExecutable, OpenClCommands]):
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, api: OpenClApi, device: Handle, queues: int, svm: bool) -> None:
        super().__init__(info, queues)
        self._api = api
        self._svm = svm and bool(api.device_number(device, DEVICE_SVM))
        self._context = Context(api, device, info.uri, svm=self._svm)
        self._handles = [
            self._context.own("CommandQueue", api.queue_create(self._context.handle, device)) for _ in range(queues)
        ]
        self._scratch: list[Memory | None] = [None] * queues
        self._most_items = _ITEMS_PER_UNIT * max(1, api.device_number(device, DEVICE_COMPUTE_UNITS))
        self._rounded = bool(api.device_number(device, DEVICE_SINGLE_FP) & _ROUNDED_DIVISION)
        self._callers: OrderedDict[Handle, Context] = OrderedDict()
        self._calling = threading.Lock()
        self.compile_faults: list[str] = []

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> Memory:
        return self._context.allocate(size)

    def _write(self, target: Memory, source: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            self._transfer(queue, target.place.part(offset, source.nbytes), source, write=True)

        return self._start("write", source.nbytes, work, waits, queue)

    def _read(self, source: Memory, target: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            self._transfer(queue, source.place.part(offset, target.nbytes), target, write=False)

        return self._start("read", target.nbytes, work, waits, queue)

    def _copy(self, source: Memory, target: Memory, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            handle = self._handles[queue].handle
            if event := self._context.copy(handle, source.place, target.place.part(0, source.bytes), ()):
                self._api.end(handle, event)

        return self._start("copy", source.bytes, work, waits, queue)

    def _fill(self, target: Memory, byte: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            if target.bytes:
                handle = self._handles[queue].handle
                self._api.end(handle, self._context.fill(handle, target.place, byte))

        return self._start("fill", target.bytes, work, waits, queue)

    def _transfer(self, queue: int, place: MemoryPart, array: Array, *, write: bool) -> None:
        if place.bytes:
            handle = self._handles[queue].handle
            self._api.end(handle, self._context.transfer(handle, place, array.ctypes.data, write=write))

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family not in (FAMILY, INTEL):
            return f"for {variant.family} devices"
        device = self._context.device
        taken = {SOURCE, *self._api.device_text(device, DEVICE_EXTENSIONS).split()}
        if self._api.device_number(device, DEVICE_VENDOR) == VENDOR:
            gpu = gpu_of_id(self._api.device_number(device, DEVICE_ID_INTEL))
            taken |= {gpu.feature} if gpu is not None else set()
        lengths = np.frombuffer(self._api.device_bytes(device, DEVICE_SUB_GROUPS), np.uint64)
        taken |= {f"sub-groups-of-{length}" for length in lengths}
        for feature in LANES.keys() & variant.features:
            if fault := self._vector_fault(LANES[feature]):
                return fault
            taken.add(feature)
        if lacking := [feature for feature in variant.features if feature not in taken]:
            return f"needs {', '.join(lacking)}, which {self.info.name} lacks"
        if variant.target.startswith(SOURCE) or "SPIR-V" in self._api.device_text(device, DEVICE_IL):
            return None
        return f"needs SPIR-V, which {self.info.name} does not take"

    def _vector_fault(self, lanes: int) -> str:
        """Why code with vectors of `lanes` floats is not for the device; empty if it is."""
        if prefers_shorter(self._api, self._context.device, lanes):
            return f"has vectors of {lanes} floats; {self.info.name} prefers shorter ones"
        fault = vector_fault(self._api, self._context.device, lanes)
        if fault and fault not in self.compile_faults:
            self.compile_faults.append(fault)
        return fault

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> OpenClExecutable:
        try:
            return load_programs(self._context, objects, names, self._rounded)
        except DeviceError as error:
            self.compile_faults.append(error.reason if isinstance(error, DeviceLost) else str(error))
            raise

    def _record(
        self, executable: OpenClExecutable, work: Sequence[Work], externals: int, scratch: int
    ) -> OpenClCommands:
        return record_commands(executable, work, externals, scratch, self._most_items)

    def _submit(
        self, work: OpenClCommands, buffers: Sequence[Memory], waits: Sequence[Point], queue: int
    ) -> Point:
        def run() -> None:
            scratch = self._scratch_of(queue, work.scratch)
            work.run(self._handles[queue].handle, buffers, scratch, self._note(queue) if self._profiling else None)

        return self._queues[queue].submit(run, waits)

    def _scratch_of(self, queue: int, size: int) -> Memory | None:
        """A queue's scratch memory; None for no bytes. Called by the queue's thread."""
        if not size:
            return None
        memory = self._scratch[queue]
        if memory is None or memory.bytes < size:
            memory = self._scratch[queue] = self._context.allocate(size)
        return memory

    def _note(self, queue: int) -> Callable[[Work], None]:
        """A function that records the event of a command that has just ended."""
        begin = time.perf_counter()

        def note(item: Work) -> None:
            nonlocal begin
            end = time.perf_counter()
            size = item.references[0].bytes if item.op == "copy" else 0
            self._events.append(Event(item.kernel or item.op, item.op, queue, begin, end, size, source=item.source))
            begin = end

        return note

    # -- callers' contexts ------------------------------------------------------------------------

    @property
    def handle(self) -> Handle:
        """OpenCL's handle of the device, the same in all contexts."""
        return self._context.device

    def keeps(self, context: Context) -> bool:
        """Whether a caller's context is still one of those that are kept."""
        return self._callers.get(context.handle) is context

    def external(self, context: Handle, alone: Alone) -> ExternalWork:
        """A function in a caller's context, which is kept, with its programs and constants, until this device is closed
        or eight other contexts were used. Raises DeviceError, OutOfMemoryError."""
        self._check_usable()
        with self._calling:
            caller = self._callers.get(context)
            if caller is None:
                caller = self._callers[context] = Context(
                    self._api, self.handle, self.info.uri, context, svm=self._svm
                )
                if len(self._callers) > _MOST_CONTEXTS:
                    self._callers.popitem(last=False)
            self._callers.move_to_end(context)
            artifact, names = alone.loaded.artifact, alone.loaded.variant.objects
            executable = load_programs(caller, [bytes(artifact.member(name)) for name in names], names, self._rounded)
            concrete = alone.concrete
            commands = record_commands(
                executable, concrete.work, concrete.externals, concrete.scratch, self._most_items
            )
            parameters = [
                self._constant(caller, index, artifact.parameter(index)) for index in concrete.parameters
            ]
            return ExternalWork(caller, commands, concrete, parameters, alone.name, lambda: self.keeps(caller))

    def _constant(self, caller: Context, index: int, array: Array) -> Memory:
        """A constant in a caller's context, written once."""
        found = caller.constants.get(index)
        if found is None:
            found = caller.constants[index] = caller.allocate(array.nbytes)
            queue = caller.own("CommandQueue", self._api.queue_create(caller.handle, self.handle))
            if array.nbytes:
                whole = np.ascontiguousarray(array)
                self._api.end(queue.handle, caller.transfer(queue.handle, found.place, whole.ctypes.data, write=True))
        return found

    # -- lifetime --------------------------------------------------------------------------------

    def close(self) -> None:
        super().close()
        with self._calling:
            self._callers.clear()
        self._scratch = [None] * len(self._queues)

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        super()._check_usable()
        if os.getpid() != self._context.process:
            raise DeviceError(
                f"device {self.info.uri}: it was opened by another process, of which this is a fork; open it here "
                f"before OpenCL is used, or start the process anew"
            )

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[Memory]:
        return isinstance(buffer, Memory) and buffer.context is self._context

    def _is_own_code(self, executable: Executable) -> TypeGuard[OpenClExecutable]:
        return isinstance(executable, OpenClExecutable) and executable.context is self._context

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[OpenClCommands]:
        return isinstance(work, OpenClCommands) and work.executable.context is self._context
