"""What callers give: buffers with the kind of their memory, queues and events; and the event of a call.

    motet.opencl.Buffer(mem, "cl_mem", (64, 128), "f32")
    motet.opencl.Buffer(address, "usm_device", (64, 128), "f32")

A handle is an int, a ctypes pointer, or an object with `int_ptr`, such as pyopencl's.
"""

from __future__ import annotations

import ctypes
import math
import numbers
import operator
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.artifact.dtypes import spelling
from motet.errors import CallError, DeviceError
from motet.runtime.device_array import dtype_of
from motet.runtime.drivers.opencl.api import DEVICE_NAME, EVENT_STATUS, Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.context import MemoryPart
from motet.runtime.drivers.opencl.objects import KINDS, USM_KINDS, Objects, QueueFacts, load_objects

DLPACK_OPENCL = 4


class OpenClBuffer:
    """A contiguous tensor in OpenCL memory of the caller, as an argument or `out` of a call.

    `kind` is `cl_mem`, `usm_host`, `usm_device`, `usm_shared`, `svm`, or `host` for memory of the process that calls
    copy; `handle` is the `cl_mem` or the address. `dtype` is MLIR's spelling or anything that numpy accepts. A `cl_mem`
    is kept until the buffer is collected; other memory must stay allocated as long as a call uses it, `owner` is kept
    alive so long. Raises CallError if `handle` is not a `cl_mem` that is large enough, and DeviceError without OpenCL.
    Memory of other kinds is checked by calls.
    """

    def __init__(
        self, handle: Any, kind: str, shape: Sequence[int], dtype: Any, *, owner: object = None
    ) -> None:
        self.kind = kind
        self.shape = _extents(shape, "opencl.Buffer")
        self.dtype = dtype_of(dtype)
        self.owner = owner
        self.bytes = math.prod(self.shape) * self.dtype.itemsize
        _check_kind(kind, "opencl.Buffer")
        found = handle_of(handle)
        if found is None:
            raise CallError(f"{self!r}: handle: {type(handle).__name__} given; expected an int, a ctypes pointer or an "
                            "object with int_ptr")  # fmt: skip
        self.handle = found
        self.place = MemoryPart(kind, found, self.bytes)
        self.context: Handle = 0
        self.is_kept = kind == "cl_mem"  # whether the buffer keeps its memory
        if kind == "cl_mem":
            self._keep()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def _keep(self) -> None:
        objects = load_objects()
        self.context, size = objects.buffer(self.handle, self)
        if size < self.bytes:
            raise CallError(f"{self!r}: the cl_mem has {size:,} bytes; expected {self.bytes:,}")
        objects.api.retain("MemObject", self.handle)
        weakref.finalize(self, objects.api.release, "MemObject", self.handle).atexit = False

    def read(self, queue: Any) -> np.ndarray[Any, Any]:
        """A copy of the elements, after the queue's work. Raises CallError, DeviceError."""
        array = np.empty(self.shape, self.dtype)
        self._transfer(array, queue, write=False)
        return array

    def write(self, array: Any, queue: Any) -> None:
        """Replace the elements, after the queue's work. Raises CallError for an array of another shape or dtype."""
        given = np.ascontiguousarray(array)
        if given.shape != self.shape or given.dtype != self.dtype:
            raise CallError(f"{self!r}: {given.shape} of {given.dtype} given; expected its shape and dtype")
        self._transfer(given, queue, write=True)

    def _transfer(self, array: np.ndarray[Any, Any], queue: Any, *, write: bool) -> None:
        objects = load_objects()
        api = objects.api
        own = objects.queue(_handle(queue, repr(self)), repr(self))
        api.finish(own.handle)
        if not self.bytes:
            return
        address = array.ctypes.data
        if self.kind == "host":
            ctypes.memmove(*((self.handle, address) if write else (address, self.handle)), self.bytes)
            return
        if self.kind != "cl_mem":
            objects.check_pointer(self.handle, self.kind, self.bytes, own, repr(self))
        event = objects.transfer(own.handle, own.device, self.place, address, (), write=write)
        try:
            api.wait([event])
        finally:
            api.release("Event", event)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_OPENCL, 0

    def __repr__(self) -> str:
        extents = "".join(f"{extent}x" for extent in self.shape)
        return f"<opencl.Buffer {extents}{spelling(self.dtype)} in {self.kind}>"


class OpenClQueue:
    """A caller's queue, for calls whose arguments do not tell that they are for OpenCL. The caller keeps it alive."""

    def __init__(self, handle: Any) -> None:
        self.int_ptr = _handle(handle, "opencl.Queue")


class CallerEvent:
    """The end of a call. `pyopencl.Event.from_int_ptr(event.int_ptr)` is the same event for pyopencl; the handle is
    released with this object."""

    def __init__(self, api: OpenClApi, handle: Handle, raise_failed: Callable[[], None]) -> None:
        self.int_ptr = handle
        self._api = api
        self._raise_failed = raise_failed
        self._process = os.getpid()

    def __del__(self) -> None:
        if getattr(self, "_process", 0) == os.getpid():  # not in a fork, and not half made
            self._api.release("Event", self.int_ptr)

    @property
    def handle(self) -> Handle:
        return self.int_ptr

    @property
    def done(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._api.describe("Event", self.int_ptr, EVENT_STATUS) & 0xFFFFFFFF in _ENDED

    def wait(self) -> None:
        """Block until the call has ended. Raises DeviceError if a command failed, CallError for a failed check."""
        self._api.wait([self.int_ptr])
        self._raise_failed()


_ENDED = {0, *range(0xFFFFFF00, 1 << 32)}  # complete, or a negative code


def empty(queue: Any, kind: str, shape: Sequence[int], dtype: Any) -> OpenClBuffer:
    """New memory of a kind in the context of `queue`, uninitialised; it is freed with the buffer, which must live until
    the calls that use it have ended. Raises CallError, DeviceError."""
    objects = load_objects()
    own = objects.queue(_handle(queue, "opencl.empty"), "opencl.empty")
    extents = _extents(shape, "opencl.empty")
    _check_kind(kind, "opencl.empty")
    size = max(1, math.prod(extents) * dtype_of(dtype).itemsize)
    try:
        return _allocated(objects, own, kind, size, extents, dtype)
    except OpenClError as error:
        name = objects.api.device_text(own.device, DEVICE_NAME)
        raise DeviceError(f"opencl.empty: {size:,} bytes of {kind} memory of {name}: {error}; expected less, or a kind "
                          "of memory that it has") from error  # fmt: skip


def _allocated(
    objects: Objects, queue: QueueFacts, kind: str, size: int, shape: tuple[int, ...], dtype: Any
) -> OpenClBuffer:
    """Raises OpenClError."""
    api, usm = objects.api, objects.usm(queue.device)
    if kind == "cl_mem":
        handle = api.buffer_create(queue.context, size)
        try:
            return OpenClBuffer(handle, kind, shape, dtype)
        finally:
            api.release("MemObject", handle)
    if kind == "host":
        array = np.empty(size, np.uint8)
        return OpenClBuffer(array.ctypes.data, kind, shape, dtype, owner=array)
    if kind in USM_KINDS.values():
        address, free = usm.allocate(kind, queue.context, queue.device, size), usm.free
    else:
        address, free = api.allocate(queue.context, size), api.free
        if not address:
            raise OpenClError("there is not enough memory")
    made = OpenClBuffer(address, kind, shape, dtype)
    made.context, made.is_kept = queue.context, True
    api.retain("Context", queue.context)
    weakref.finalize(made, _free, api, free, queue.context, address).atexit = False
    return made


def _extents(shape: Sequence[int], where: str) -> tuple[int, ...]:
    """Raises CallError for anything but extents."""
    try:
        extents = tuple(map(operator.index, shape))
    except TypeError:
        raise CallError(f"{where}: shape {shape!r}; expected a sequence of integers") from None
    if any(extent < 0 for extent in extents):
        raise CallError(f"{where}: shape {'x'.join(map(str, extents))}; expected no negative extent")
    return extents


def _check_kind(kind: str, where: str) -> None:
    if kind not in KINDS:
        raise CallError(f"{where}: kind {kind!r}; expected one of {', '.join(KINDS)}")


def _free(api: OpenClApi, free: Callable[[Handle, int], None], context: Handle, address: int) -> None:
    free(context, address)
    api.release("Context", context)


def handle_of(value: Any) -> Handle | None:
    """The handle of an object of OpenCL, of a library or as a number; None for anything else."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    found = getattr(value, "int_ptr", None)
    return int(found) if isinstance(found, numbers.Integral) else None


def _handle(value: Any, where: str) -> Handle:
    found = handle_of(value)
    if found is None:
        raise CallError(f"{where}: {type(value).__name__} given; expected a command queue: pyopencl's, or a handle")
    return found
