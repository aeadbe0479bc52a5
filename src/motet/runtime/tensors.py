"""Callers' tensors as numpy arrays, without a copy, and results as the caller's kind of tensor.

Accepted are numpy arrays, objects with DLPack (torch, jax, …) or the buffer protocol (array.array, memoryview, bytes),
and Python numbers for tensors of rank 0. Results are torch tensors if an argument is one, arrays of JAX if one is
JAX's (`jax_arrays.py`), else numpy arrays.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

import motet.runtime.dlpack as dlpack
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.expressions import show
from motet.artifact.schema import Expr, TensorSpec
from motet.errors import CallError, OutOfMemoryError
from motet.runtime.device_array import DeviceArray
from motet.runtime.pointer import Pointer

Array = np.ndarray[Any, Any]
RawBytes = bytes | bytearray | memoryview

_TORCH_NAMES = {
    "bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E8M0FNU": "float8_e8m0fnu",
}  # fmt: skip
_WORK = 100_000  # limit of the test whether two strided arrays share an element


def adopt(value: Any, spec: TensorSpec, where: str, *, writable: bool) -> Array:
    """`value` as an array of the dtype of `spec`, sharing its memory; contiguous and aligned.

    A plain input that is not contiguous is copied; with `writable`, that and read-only memory are errors. Shapes are
    not checked, except that bytes get the shape of `spec` if it is static. Raises CallError, and OutOfMemoryError for
    copies without memory.
    """
    array = view_of(value, spec, where, writable=writable)
    if not (array.flags.c_contiguous and array.flags.aligned):
        if writable:
            raise CallError(
                f"{where}: strides {_strides(array)} given, a destination must be contiguous and aligned"
            )
        array = packed(array)
    return array


def view_of(value: Any, spec: TensorSpec, where: str, *, writable: bool) -> Array:
    """`value` as an array of the dtype of `spec`, sharing its memory, with any strides. Raises CallError."""
    dtype = DTYPES[spec.dtype]
    array = value if type(value) is np.ndarray else _adopt_other(value, dtype, spec, where, writable)
    if array.dtype != dtype:
        array = _reinterpret(array, dtype, spec, where)
    if writable and not array.flags.writeable:
        raise CallError(f"{where}: read-only memory given, a destination must be writable")
    return array


def packed(array: Array) -> Array:
    """The same elements, contiguous and aligned, in separate memory. Raises OutOfMemoryError."""
    try:
        return np.array(array, order="C", subok=False)
    except MemoryError:
        raise OutOfMemoryError(array.nbytes, "host") from None


def adopt_destination(value: Any, spec: TensorSpec, where: str) -> tuple[Array, Array]:
    """A writable tensor of any strides: an array of its elements, and a contiguous array for them, which is the same
    one if it is contiguous. Raises CallError."""
    view = view_of(value, spec, where, writable=True)
    if view.flags.c_contiguous and view.flags.aligned:
        return view, view
    reach = view.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if stride < reach and view.size:
            raise CallError(f"{where}: strides {_strides(view)} given, under which elements of a destination overlap")
        reach += (extent - 1) * stride
    return view, packed(view)


def _adopt_other(value: Any, dtype: np.dtype[Any], spec: TensorSpec, where: str, writable: bool) -> Array:
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if isinstance(value, Pointer) and value.is_host:
        return value.array(where)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return dlpack.adopt(value, where, writable=writable)
    if isinstance(value, numbers.Number) and not spec.shape and not isinstance(value, np.generic):
        return np.array(value).astype(dtype)
    if hasattr(value, "__array_interface__"):
        return _from_interface(value, where)
    buffer: Any = value
    try:
        view = memoryview(buffer)
    except TypeError:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise CallError(
            f"{where}: {kind} given; expected a numpy array, or an object with DLPack, a buffer or an "
            "array interface"
        ) from None
    if isinstance(value, RawBytes) and view.format == "B" and view.ndim == 1 and view.contiguous:
        return _from_bytes(view, dtype, spec, where)
    try:
        return np.asarray(view)
    except (ValueError, TypeError) as error:
        raise CallError(f"{where}: a buffer of format {view.format!r} given: {error}") from error


def _from_interface(value: Any, where: str) -> Array:
    """An object with numpy's array interface, in place."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, AttributeError, BufferError) as error:
        kind = type(value).__qualname__
        raise CallError(f"{where}: {kind} given, with an invalid __array_interface__: {error}") from None


def _from_bytes(view: memoryview, dtype: np.dtype[Any], spec: TensorSpec, where: str) -> Array:
    """Bytes are the content of a tensor of static shape, otherwise a vector of bytes."""
    array = np.frombuffer(view, np.uint8)
    extents = [extent for extent in spec.shape if isinstance(extent, int)]
    if len(extents) != len(spec.shape):
        return array
    expected = math.prod(extents) * dtype.itemsize
    if len(view) != expected:
        raise CallError(f"{where}: {len(view)} bytes given, {expected} expected")
    return array.view(dtype).reshape(extents) if expected else np.empty(extents, dtype)


def _reinterpret(array: Array, dtype: np.dtype[Any], spec: TensorSpec, where: str) -> Array:
    """Reinterpret signed and unsigned integers as signless ones; any other dtype is an error."""
    signless = spec.dtype.startswith("i") and dtype.kind == "i"
    if (
        signless
        and array.dtype.kind in "iu"
        and array.dtype.itemsize == dtype.itemsize
        and array.dtype.isnative
    ):
        return array.view(dtype)
    if array.dtype.newbyteorder("=") == dtype:
        raise CallError(f"{where}: byte order {array.dtype.byteorder!r} given, the machine's expected")
    raise CallError(f"{where}: dtype {spelling(array.dtype)} given, {spec.dtype} expected")


def _strides(array: Array) -> str:
    return "x".join(map(str, array.strides))


# -- checks --------------------------------------------------------------------------------------------------


def as_list(results: Any) -> list[Array]:
    """The results of a call as a list."""
    if results is None:
        return []
    return list(results) if isinstance(results, (tuple, list)) else [results]


def check_shape(array: Array | DeviceArray, shape: Sequence[int], where: str) -> None:
    if array.shape != tuple(shape):
        raise CallError(f"{where}: shape {show_shape(array.shape)} given, {show_shape(shape)} expected")


def show_shape(shape: Sequence[Expr]) -> str:
    """`127x128`, `batchx3`, `scalar`."""
    return "x".join(map(show, shape)) if shape else "scalar"


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share memory; for strided arrays that are expensive to compare, whether they may."""
    if not np.may_share_memory(a, b):  # compares bounds, which is exact for contiguous arrays
        return False
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return True
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # pyright: ignore[reportArgumentType] - any number
    except np.exceptions.TooHardError:
        return True


# -- results -------------------------------------------------------------------------------------------------


def torch_of(values: Sequence[Any]) -> ModuleType | None:
    """The torch module if one of `values` is its tensor; torch is then loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in values):
        return None
    return torch


def torch_dtype(dtype: np.dtype[Any], torch: ModuleType) -> Any:
    """PyTorch's dtype; None if it has none with whole bytes per element."""
    name = dtype.name if dtype.isbuiltin == 1 else _TORCH_NAMES.get(spelling(dtype), "")
    found, kind = getattr(torch, name, None), getattr(torch, "dtype", None)
    return found if kind is not None and isinstance(found, kind) else None


def to_torch(array: Array, torch: ModuleType) -> Any:
    """`array` as a tensor on the same memory; dtypes that numpy's DLPack lacks are passed as bytes or words. `array`
    itself if torch has no dtype with whole bytes per element, as for `i4`."""
    if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1:
        return torch.from_dlpack(array)
    words = np.uint8 if array.dtype.itemsize == 1 else np.int16
    kind = torch_dtype(array.dtype, torch)
    return array if kind is None else torch.from_dlpack(array.view(words)).view(kind)
