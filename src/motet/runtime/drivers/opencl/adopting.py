"""Arguments of calls on a caller's queue: Motet's buffers, and pyopencl's arrays, buffers and shared virtual memory,
used in place; arrays of the host, which a call copies."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import motet.runtime.tensors as tensors
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.schema import TensorSpec
from motet.errors import CallError
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.context import MemoryPart
from motet.runtime.drivers.opencl.handles import OpenClBuffer
from motet.runtime.drivers.opencl.objects import Objects, QueueFacts
from motet.runtime.pointer import Pointer

_LIBRARY = "pyopencl"


class Adopted(NamedTuple):
    """An argument or a result. `place` is None for an array of the host; `waits` are the events that compute it."""

    value: Any
    place: MemoryPart | None
    shape: tuple[int, ...]
    array: np.ndarray[Any, Any] | None = None
    waits: tuple[Handle, ...] = ()

    @property
    def ndim(self) -> int:
        return len(self.shape)


def is_opencl(value: Any) -> bool:
    """Whether a value is in OpenCL memory of the caller."""
    return type(value) is OpenClBuffer or is_of_library(value)


def is_of_library(value: Any) -> bool:
    """Whether a value is pyopencl's, or of a class made from one of its classes."""
    return any(kind.__module__.partition(".")[0] == _LIBRARY for kind in type(value).__mro__)


def adopt(
    objects: Objects, queue: QueueFacts, value: Any, spec: TensorSpec, where: str, *, writable: bool
) -> Adopted:
    """An argument of a call on `queue`. Raises CallError."""
    if type(value) is OpenClBuffer:
        found = _of_buffer(value, where, writable)
    elif is_of_library(value):
        found = _of_library(objects, value, spec, where)
    elif type(value) is DeviceArray:
        raise CallError(f"{where}: {value!r} is in the session's own context; expected memory of the queue's context")
    elif type(value) is Pointer:
        raise CallError(f"{where}: a Pointer has no kind of memory; expected motet.opencl.Buffer(address, kind, …)")
    else:
        array = tensors.adopt(value, spec, where, writable=writable)
        _check_kind(spec, "host", where)
        return Adopted(value, None, array.shape, array)
    _check_dtype(found[1], spec, where)
    place, _, shape, context, waits = found
    _check_kind(spec, "host" if place is None else place.kind, where)
    if place is None:  # memory of the host that is given by its address
        return Adopted(value, None, shape, _array_at(value.handle, shape, found[1]))
    if context and context != queue.context:
        raise CallError(f"{where}: its memory is of another context than the call's queue; expected one context")
    if place.kind != "cl_mem" and place.bytes:
        objects.check_pointer(place.handle, place.kind, place.bytes, queue, where)
    return Adopted(value, place, shape, None, waits)


_Found = tuple[MemoryPart | None, np.dtype[Any], tuple[int, ...], Handle, tuple[Handle, ...]]


def _of_buffer(value: OpenClBuffer, where: str, writable: bool) -> _Found:
    if value.kind == "host":
        return None, value.dtype, value.shape, 0, ()
    return value.place, value.dtype, value.shape, value.context, ()


def _of_library(objects: Objects, value: Any, spec: TensorSpec, where: str) -> _Found:
    """pyopencl's arrays know their shape; other memory has the argument's, if that is static."""
    if hasattr(value, "base_data"):
        if not value.flags.c_contiguous:
            raise CallError(f"{where}: strides of {value.strides} bytes given; expected a contiguous array")
        place, context = _memory(objects, value.base_data, value.nbytes, int(value.offset), where)
        waits = tuple(int(event.int_ptr) for event in value.events)
        return place, value.dtype, tuple(value.shape), context, waits
    if any(not isinstance(extent, int) for extent in spec.shape):
        raise CallError(f"{where}: a {type(value).__name__} has no shape; expected a pyopencl.array.Array or a "
                        "motet.opencl.Buffer, as its extents are dynamic")  # fmt: skip
    shape = tuple(int(extent) for extent in spec.shape if isinstance(extent, int))
    dtype = DTYPES[spec.dtype]
    place, context = _memory(objects, value, math.prod(shape) * dtype.itemsize, 0, where)
    return place, dtype, shape, context, ()


def _memory(objects: Objects, given: Any, size: int, offset: int, where: str) -> tuple[MemoryPart, Handle]:
    """`size` bytes of pyopencl's memory, and its context, if that can be asked."""
    if given is None and not size:
        return MemoryPart("svm", 0, 0), 0
    value: Any = given
    try:
        if hasattr(value, "svm_ptr"):
            held = int(value.size) if value.size is not None else offset + size
            place, context = MemoryPart("svm", int(value.svm_ptr) + offset, size), 0
        else:
            handle = int(value.int_ptr)
            context, held = objects.buffer(handle, where)
            place = MemoryPart("cl_mem", handle, size, offset)
    except (AttributeError, TypeError, RuntimeError, ValueError) as error:  # pyopencl's errors for released memory
        raise CallError(f"{where}: its memory cannot be used: {type(error).__name__}: {error}") from None
    if held < offset + size:
        raise CallError(f"{where}: {held - offset:,} bytes given; expected {size:,}")
    return place, context


def _check_dtype(given: np.dtype[Any], spec: TensorSpec, where: str) -> None:
    expected = DTYPES[spec.dtype]
    signless = spec.dtype.startswith("i") and expected.kind == "i"
    same_width = signless and given.kind in "iu" and given.itemsize == expected.itemsize
    if given != expected and not same_width:
        raise CallError(f"{where}: dtype {spelling(given)} given, {spec.dtype} expected")


def _check_kind(spec: TensorSpec, kind: str, where: str) -> None:
    """The kind of memory that the program states for an argument; `global` is any of the device's."""
    if spec.memory and kind != spec.memory and (spec.memory != "global" or kind == "host"):
        expected = "memory of the device" if spec.memory == "global" else spec.memory
        raise CallError(f"{where}: {kind} memory given; the program states {expected}")


def _array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = math.prod(shape) * dtype.itemsize
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(tuple(shape), dtype, memory)
