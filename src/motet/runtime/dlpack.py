"""Tensors of other libraries as numpy arrays, through DLPack.

numpy's own import is used where possible. It does not support bf16 and fp8, and treats unversioned capsules as
read-only; for those, this module reads the capsule. Source: dlpack.h of DLPack 1.1, https://github.com/dmlc/dlpack.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from motet.errors import CallError

_HOST_DEVICES = (
    1,
    3,
    11,
    13,
)  # CPU, and the CUDA, ROCm and managed kinds of host-addressable memory
_DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
# Array protocols other than DLPack, and the DLPack types of their devices.
ARRAY_INTERFACES = {"__cuda_array_interface__": 2}
# Libraries whose objects have neither, by the name of their package.
_LIBRARIES = {"pyopencl": 4}
_READ_ONLY = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 6: "bool"}
_EXTENDED = {
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (7, 8): np.dtype(ml_dtypes.float8_e3m4),
    (8, 8): np.dtype(ml_dtypes.float8_e4m3),
    (9, 8): np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    (10, 8): np.dtype(ml_dtypes.float8_e4m3fn),
    (11, 8): np.dtype(ml_dtypes.float8_e4m3fnuz),
    (12, 8): np.dtype(ml_dtypes.float8_e5m2),
    (13, 8): np.dtype(ml_dtypes.float8_e5m2fnuz),
    (14, 8): np.dtype(ml_dtypes.float8_e8m0fnu),
}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_DELETER = ctypes.PYFUNCTYPE(
    None, ctypes.c_void_p
)  # with the interpreter's lock, which exporters in Python need
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
# A capsule refers to its name by address, so that these must live as long as the process.
_CONSUMED = ctypes.c_char_p(b"used_dltensor")
_CONSUMED_VERSIONED = ctypes.c_char_p(b"used_dltensor_versioned")


def device_type(value: Any) -> int | None:
    """The DLPack type of the device of a tensor; None for host memory, and for other objects."""
    if hasattr(value, "__dlpack_device__"):
        try:
            kind = int(value.__dlpack_device__()[0])
        except (AttributeError, TypeError, ValueError, RuntimeError, BufferError):
            return None  # the error is raised when the tensor is read
        return None if kind in _HOST_DEVICES else kind
    for name, found in ARRAY_INTERFACES.items():
        if hasattr(value, name):
            return found
    kinds = (_LIBRARIES.get(made.__module__.partition(".")[0]) for made in type(value).__mro__)
    return next((found for found in kinds if found is not None), None)


def adopt(value: Any, where: str, *, writable: bool) -> np.ndarray[Any, Any]:
    """`value`, which has `__dlpack__`, as an array on the same memory, kept alive by the array.

    Raises CallError if it is not in host memory or cannot be exported.
    """
    try:
        kind, number = value.__dlpack_device__()
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise CallError(f"{where}: its device cannot be read through DLPack: {error}") from error
    if kind not in _HOST_DEVICES:
        device = f"{_DEVICE_NAMES.get(int(kind), f'device kind {int(kind)}')}:{number}"
        raise CallError(f"{where}: lies on {device}, host memory expected; copy it to the host")
    try:
        array = np.from_dlpack(value)
        if array.flags.writeable or not writable:
            return array
    except (BufferError, RuntimeError, TypeError, ValueError):
        pass  # types unknown to numpy are handled below; failures repeat there
    try:
        capsule = _export(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise CallError(f"{where}: cannot be taken through DLPack: {error}") from error
    return _consume(capsule, where)


def _export(value: Any) -> Any:
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # the exporter does not know versions
        return value.__dlpack__()


class Exported(NamedTuple):
    """A tensor of another library: the address of its first element, and `strides` in bytes, None for C order. The
    library's memory is released with this object."""

    address: int
    shape: tuple[int, ...]
    strides: list[int] | None
    dtype: np.dtype[Any]
    read_only: bool
    release: object


def export_from(value: Any, where: str, stream: int) -> Exported:
    """A tensor on a device, ready for use on `stream`. Raises CallError if it cannot be exported."""
    try:
        try:
            capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:  # the exporter does not know versions
            capsule = value.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise CallError(f"{where}: cannot be taken through DLPack: {error}") from error
    return _read(capsule, where)


def make_capsule(
    address: int, shape: Sequence[int], dtype: np.dtype[Any], device: tuple[int, int], owner: object, *,
    versioned: bool,
) -> Any:
    """A capsule of a contiguous tensor at `address` for another library, which keeps `owner` alive as long as it uses
    it. `device` is DLPack's type and number. Raises BufferError for a dtype that DLPack does not define."""
    code, bits = _code_of(dtype)
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    tensor = _Tensor(address, *device, len(shape), code, bits, 1, extents, None, 0)
    held = _Held(owner, extents)
    if versioned:
        managed = _Versioned(1, 0, id(held), ctypes.cast(_RELEASE_VERSIONED, ctypes.c_void_p), 0, tensor)
    else:
        managed = _Managed(tensor, id(held), ctypes.cast(_RELEASE_PLAIN, ctypes.c_void_p))
    held.managed = managed
    name = _VERSIONED if versioned else _PLAIN
    capsule = _new_capsule(ctypes.addressof(managed), name, ctypes.cast(_DESTROY, ctypes.c_void_p))
    _increase(held)  # until the deleter is called
    return capsule


def _code_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    for (code, bits), extended in _EXTENDED.items():
        if dtype == extended:
            return code, bits
    for code, kind in ((0, "i"), (1, "u"), (2, "f"), (6, "b")):
        if dtype.kind == kind:
            return code, 8 * dtype.itemsize
    raise BufferError(f"DLPack has no dtype for {dtype}")


class _Held:
    """The data kept alive for an exported capsule."""

    def __init__(self, owner: object, extents: object) -> None:
        self.owner = owner
        self.extents = extents
        self.managed: object = None


def _release_plain(managed: int) -> None:
    _release(_Managed, managed)


def _release_versioned(managed: int) -> None:
    _release(_Versioned, managed)


def _release(kind: type[_Managed | _Versioned], managed: int) -> None:
    try:
        _decrease(ctypes.cast(kind.from_address(managed).context, ctypes.py_object).value)
    except (AttributeError, TypeError):  # at the end of the process modules have lost their names
        return


def _destroy(capsule: int) -> None:
    """Release the tensor of a capsule that was not consumed."""
    for name, release in ((_PLAIN, _release_plain), (_VERSIONED, _release_versioned)):
        if _is_valid_at(capsule, name):
            release(_get_pointer_at(capsule, name))


# Callable by any library: from any thread, with or without the interpreter's lock.
_RELEASE_PLAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_release_plain)
_RELEASE_VERSIONED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_release_versioned)
_DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_destroy)
_PLAIN, _VERSIONED = ctypes.c_char_p(b"dltensor"), ctypes.c_char_p(b"dltensor_versioned")
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_increase = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_decrease = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def read_cuda_interface(interface: Mapping[str, Any], owner: object, where: str) -> Exported:
    """Read the CUDA array interface of `owner`. Raises CallError. Source:
    https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html."""
    if interface.get("mask") is not None:
        raise CallError(f"{where}: it has a mask; expected none")
    address, read_only = interface["data"]
    strides = interface.get("strides")
    return Exported(
        int(address or 0), tuple(map(int, interface["shape"])),
        None if strides is None else [int(stride) for stride in strides], np.dtype(interface["typestr"]),
        bool(read_only), owner,
    )


def contiguous_strides(exported: Exported) -> list[int]:
    """The strides in bytes of a tensor of these extents in C order."""
    shape = exported.shape
    return [math.prod(shape[axis + 1 :]) * exported.dtype.itemsize for axis in range(len(shape))]


def is_contiguous(exported: Exported) -> bool:
    """Whether the elements are in C order without gaps."""
    if exported.strides is None or 0 in exported.shape:
        return True
    triples = zip(exported.shape, exported.strides, contiguous_strides(exported), strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in triples)


def _consume(capsule: Any, where: str) -> np.ndarray[Any, Any]:
    exported = _read(capsule, where)
    if 0 in exported.shape:
        return np.empty(exported.shape, exported.dtype)
    low, high = _extent(exported.shape, exported.strides, exported.dtype.itemsize)
    memory: Any = (ctypes.c_char * (high - low)).from_address(exported.address + low)
    weakref.finalize(memory, _drop, exported).atexit = False
    array = np.ndarray(exported.shape, exported.dtype, memory, -low, exported.strides)
    if exported.read_only:
        array.flags.writeable = False
    return array


def _drop(exported: Exported) -> None:
    """Drop a reference, possibly the last one."""


class _Release:
    """Calls a capsule's deleter when it is collected, unless the process ends."""

    __slots__ = ("_deleter", "_managed")

    def __init__(self, deleter: int, managed: int) -> None:
        self._deleter = deleter
        self._managed = managed

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            _DELETER(self._deleter)(self._managed)


def _read(capsule: Any, where: str) -> Exported:
    if _is_valid(capsule, b"dltensor_versioned"):
        managed: Any = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        read_only = bool(managed.flags & _READ_ONLY)
        used = _CONSUMED_VERSIONED
    elif _is_valid(capsule, b"dltensor"):
        managed = _Managed.from_address(_get_pointer(capsule, b"dltensor"))
        read_only = False
        used = _CONSUMED
    else:
        raise CallError(f"{where}: what its __dlpack__ returns is not a DLPack capsule, or was used before")
    tensor = managed.tensor
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    if dtype is None:
        raise CallError(f"{where}: DLPack dtype code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes "
                        "is not supported; expected whole bytes, as numpy arrays of ml_dtypes have them")  # fmt: skip
    rank: int = tensor.ndim
    shape = tuple(tensor.shape[:rank])
    strides = [stride * dtype.itemsize for stride in tensor.strides[:rank]] if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    if 0 in shape:
        return Exported(address, shape, strides, dtype, read_only, None)  # the capsule frees itself
    _set_name(capsule, used)
    release = _Release(managed.deleter, ctypes.addressof(managed)) if managed.deleter else None
    return Exported(address, shape, strides, dtype, read_only, release)


def _extent(shape: tuple[int, ...], strides: list[int] | None, itemsize: int) -> tuple[int, int]:
    """The range of bytes, relative to the first element, that a tensor with these strides covers."""
    if strides is None:
        return 0, int(np.prod(shape, dtype=np.int64)) * itemsize
    reaches = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(min(reach, 0) for reach in reaches), sum(max(reach, 0) for reach in reaches) + itemsize


@functools.cache
def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any] | None:
    """The dtype that DLPack describes so; None if numpy has none."""
    if lanes != 1:
        return None
    if code in _KINDS and bits % 8 == 0:
        name = "bool" if code == 6 else f"{_KINDS[code]}{bits}"
        return np.dtype(name) if name in np.sctypeDict else None
    return _EXTENDED.get((code, bits))
