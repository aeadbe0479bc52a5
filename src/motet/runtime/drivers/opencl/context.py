"""A context and the objects that are made in it for one device. Each is given back when it is collected, except in the
child of a fork, where they are the parent's. A `MemoryPart` describes memory, also of a caller, and owns none."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.drivers.opencl.api import (
    DEVICE_ALIGNMENT,
    DEVICE_LARGEST,
    DEVICE_MEMORY,
    Handle,
    OpenClApi,
    OpenClError,
)
from motet.runtime.drivers.opencl.binaries import Binaries
from motet.runtime.drivers.opencl.objects import load_objects
from motet.runtime.drivers.opencl.pool import SvmPool

_SPACE = 1 << 44  # between the numbers of two cl_mem
_POOLED = 16  # a context keeps at most this part of the device's memory after it was given back


class MemoryPart(NamedTuple):
    """`bytes` bytes of memory of one of `objects.KINDS`, as a command takes it: from `offset` on in the `cl_mem`
    `handle`, or at the address `handle` of other memory, where `offset` is 0."""

    kind: str
    handle: Handle
    bytes: int
    offset: int = 0

    def part(self, offset: int, size: int) -> MemoryPart:
        if self.kind == "cl_mem":
            return MemoryPart(self.kind, self.handle, size, self.offset + offset)
        return MemoryPart(self.kind, self.handle + offset, size)

    def overlaps(self, other: MemoryPart) -> bool:
        """Whether both have a byte in common, as far as their handles tell."""
        if (self.kind == "cl_mem") != (other.kind == "cl_mem"):
            return False
        begin, start = self.handle, other.handle
        if self.kind == "cl_mem":
            if begin != start:
                return False
            begin, start = self.offset, other.offset
        return begin < start + other.bytes and start < begin + self.bytes


# Each work-item copies a range.
_COPY_ITEMS = 16
_COPY = b"""
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void motet_copy(global const uchar *source, global uchar *target, long size) {
  long n = get_global_size(0), w = get_global_id(0);
  for (long i = w * size / n; i < (w + 1) * size / n; i++) target[i] = source[i];
}
"""


class Context:
    """A new context of a device, or a caller's context `handle`; `name` is for errors. Its memory is shared virtual
    memory, or a `cl_mem` without `svm`."""

    def __init__(self, api: OpenClApi, device: Handle, name: str, handle: Handle = 0, *, svm: bool = True) -> None:
        self.api = api
        self.device = device
        self.name = name
        self.process = os.getpid()
        if handle:
            api.retain("Context", handle)
        self.handle = handle or api.context_create(device)
        self._binaries = Binaries(api, device)
        self._svm = svm
        self._objects = load_objects()
        self._usm = self._objects.usm(device)
        self._alignment = max(1, api.device_number(device, DEVICE_ALIGNMENT) // 8)
        self._addresses = itertools.count(1)
        self._programs: weakref.WeakValueDictionary[tuple[bytes, str], Owned] = weakref.WeakValueDictionary()
        self.constants: dict[int, Memory] = {}  # of an artifact in a caller's context, by number
        self._building = threading.Lock()
        self._largest = api.device_number(device, DEVICE_LARGEST)
        memory = api.device_number(device, DEVICE_MEMORY)
        self._pool = SvmPool(api, self.handle, min(self._largest, memory // _POOLED))
        _at_end_of(self, self.process, _close, api, self.handle, self._pool)

    @property
    def nothing(self) -> MemoryPart:
        """No memory, as an argument of a kernel."""
        return MemoryPart("svm" if self._svm else "cl_mem", 0, 0)

    def allocate(self, size: int) -> Memory:
        """Raises OutOfMemoryError."""
        if size > self._largest:
            raise OutOfMemoryError(size, self.name)
        if not self._svm:
            try:
                handle = self.api.buffer_create(self.handle, max(size, 1))
            except OpenClError as error:
                raise OutOfMemoryError(size, self.name) from error
            return Memory(self, MemoryPart("cl_mem", handle, size), next(self._addresses) * _SPACE)
        address = self._pool.take(size)
        if not address:
            raise OutOfMemoryError(size, self.name)
        return Memory(self, MemoryPart("svm", address, size), address)

    def give_back(self, place: MemoryPart) -> None:
        """Give back memory of `allocate` that no command uses."""
        if place.kind == "cl_mem":
            self.api.release("MemObject", place.handle)
        else:
            self._pool.give(place.handle, place.bytes)

    def program(self, code: bytes, options: str) -> Owned:
        """The program of SPIR-V or OpenCL C `code`, built once as long as it is in use. Raises OpenClError."""
        with self._building:
            program = self._programs.get((code, options))
            if program is None:
                program = self.own("Program", self._binaries.build(self.handle, code, options))
                self._programs[code, options] = program
            return program

    def native_program(self, code: bytes) -> Owned:
        """The program of machine code. Raises OpenClError if the device does not take it."""
        with self._building:
            program = self._programs.get((code, ""))
            if program is None:
                program = self.own("Program", self._binaries.load(self.handle, code))
                self._programs[code, ""] = program
            return program

    # -- commands on memory of any kind -----------------------------------------------------------

    def set_argument(self, kernel: Handle, index: int, place: MemoryPart) -> Handle:
        """Set an argument of a kernel to memory. Returns a part of a `cl_mem` that the caller releases once the kernel
        is enqueued, or 0. Raises DeviceError for a part that the device does not take."""
        kind, handle, size, offset = place
        if kind == "svm":
            self.api.set_pointer(kernel, index, handle)
        elif kind != "cl_mem":
            self._usm.set_pointer(kernel, index, handle)
        elif not offset or not size:
            self.api.set_buffer(kernel, index, handle)
        else:
            try:
                part = self.api.sub_buffer_create(handle, offset, size)
            except OpenClError as error:
                raise DeviceError(f"device {self.name}: {size:,} bytes at byte {offset:,} of a cl_mem: {error}; "
                                  "expected a place that the device can address") from error  # fmt: skip
            self.api.set_buffer(kernel, index, part)
            return part
        return 0

    def takes(self, place: MemoryPart) -> bool:
        """Whether memory can be an argument of a kernel: parts of a `cl_mem` begin where the device can address. With
        shared virtual memory, these are the caller's alone, and `set_argument` refuses them."""
        return self._svm or place.kind != "cl_mem" or not place.bytes or not place.offset % self._alignment

    def transfer(
        self, queue: Handle, place: MemoryPart, address: int, waits: Sequence[Handle] = (), *, write: bool
    ) -> Handle:
        """Copy between memory and memory of the process; returns an event."""
        return self._objects.transfer(queue, self.device, place, address, waits, write=write)

    def fill(self, queue: Handle, place: MemoryPart, byte: int, waits: Sequence[Handle] = ()) -> Handle:
        """Fill memory of `allocate`; returns an event."""
        if place.kind == "cl_mem":
            return self.api.fill_buffer(queue, place.handle, place.offset, byte, place.bytes, waits)
        return self.api.fill(queue, place.handle, byte, place.bytes, waits)

    def copy(self, queue: Handle, source: MemoryPart, target: MemoryPart, waits: Sequence[Handle]) -> Handle:
        """Copy memory of any two kinds; returns an event, 0 if there is nothing to do."""
        size = source.bytes
        if not size or source == target:
            return 0
        kinds = {source.kind, target.kind}
        if kinds == {"svm"}:
            return self.api.copy(queue, target.handle, source.handle, size, waits)
        if kinds == {"cl_mem"}:
            ends = source.handle, source.offset, target.handle, target.offset
            return self.api.copy_buffer(queue, *ends, size, waits)
        if not kinds & {"cl_mem", "svm"}:
            return self._usm.copy(queue, target.handle, source.handle, size, waits)
        return self._copied_by_kernel(queue, source, target, waits)

    def _copied_by_kernel(
        self, queue: Handle, source: MemoryPart, target: MemoryPart, waits: Sequence[Handle]
    ) -> Handle:
        """OpenCL has no command between such kinds of memory; kernels use all of them."""
        self.api.counts.copies += 1
        program = self.program(_COPY, "")
        kernel = self.own("Kernel", self.api.kernel_create(program.handle, "motet_copy"))
        parts = [self.set_argument(kernel.handle, number, place) for number, place in enumerate((source, target))]
        self.api.set_number(kernel.handle, 2, source.bytes)
        try:
            return self.api.launch(queue, kernel.handle, min(source.bytes, _COPY_ITEMS), waits)
        finally:
            self.release_parts(parts)

    def release_parts(self, parts: Sequence[Handle]) -> None:
        """Give back what `set_argument` returned."""
        for part in parts:
            if part:
                self.api.release("MemObject", part)

    def own(self, kind: str, handle: Handle) -> Owned:
        """Take the ownership of a `CommandQueue`, `Program`, `Kernel` or `MemObject`."""
        return Owned(self, kind, handle)


class Memory:
    """A device's buffer. `address` is that of shared virtual memory, the same in kernels and in this process, or else
    a number that tells it from others."""

    def __init__(self, context: Context, place: MemoryPart, address: int) -> None:
        self.context = context
        self.place = place
        self.address = address
        self.bytes = place.bytes
        # `context` is an argument so that it outlives the memory.
        _at_end_of(self, context.process, _free, context, place)


class Owned:
    """A handle of a context."""

    def __init__(self, context: Context, kind: str, handle: Handle) -> None:
        self.handle = handle
        _at_end_of(self, context.process, _release, context, kind, handle)


def _free(context: Context, place: MemoryPart) -> None:
    context.give_back(place)


def _close(api: OpenClApi, handle: Handle, pool: SvmPool) -> None:
    pool.clear()
    api.release("Context", handle)


def _release(context: Context, kind: str, handle: Handle) -> None:
    context.api.release(kind, handle)


def _at_end_of(owner: object, process: int, give_back: Callable[..., None], *arguments: Any) -> None:
    weakref.finalize(owner, _in_process, process, give_back, *arguments).atexit = False


def _in_process(process: int, give_back: Callable[..., None], *arguments: Any) -> None:
    if os.getpid() == process:
        give_back(*arguments)
