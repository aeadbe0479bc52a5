"""Reads the values of ONNX tensors: in the model, in external data files, and sparse.

Data in a file is memory-mapped, each file once, and not copied unless its elements are packed.
"""

from __future__ import annotations

import math
import mmap
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.external_data import InvalidLocation, State, resolve, state_of

if TYPE_CHECKING:
    import onnx

MOST_DENSE_BYTES = 1 << 32  # of a sparse tensor, which is stored densely


class DataError(ValueError):
    """The data of a tensor is invalid. The caller adds which tensor it is."""


class DataFiles:
    """The external data files of the model in the file `model`. If `states` are given, only those files may be read,
    and only in the given state."""

    def __init__(self, model: str, states: Mapping[str, State] | None = None) -> None:
        self._model = model
        self._states = states
        self._opened: dict[str, mmap.mmap | bytes] = {}

    def content(self, location: str) -> mmap.mmap | bytes:
        """The content of the file that `location` names. Raises DataError if it cannot or must not be read."""
        if location not in self._opened:
            self._opened[location] = self._open(location)
        return self._opened[location]

    def _open(self, location: str) -> mmap.mmap | bytes:
        expected = "expected a path below the model's folder, relative to it"
        path: Path | str = location
        try:
            path = resolve(self._model, location)
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"its external data is in {location!r}: {path} is no regular file; expected one")
            if self._states is not None and self._states.get(location) != state_of(status):
                raise DataError(f"its external data file {location!r} was changed while it was compiled; "
                                "compile it again")
            with path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b""
        except InvalidLocation as error:
            raise DataError(f"its external data is in {location!r}: {error}; {expected}") from None
        except FileNotFoundError:
            raise DataError(f"its external data file {location!r} is missing; expected it at {path}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"its external data file {location!r} cannot be read: {reason}: {path}") from None


def read_tensor(tensor: onnx.TensorProto, files: DataFiles | None) -> np.ndarray:
    """The value of `tensor`, whose data may be in one of `files`. Raises DataError."""
    import onnx

    if any(extent < 0 for extent in tensor.dims):
        raise DataError(f"its extents are {list(tensor.dims)}; expected none below 0")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, files)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise unfit(tensor, error) from error


def unfit(tensor: onnx.TensorProto, error: Exception) -> DataError:
    return DataError(f"data does not fit {_kind(tensor)} {list(tensor.dims)}: {error}")


def read_sparse(tensor: onnx.SparseTensorProto, files: DataFiles | None) -> np.ndarray:
    """The dense value of `tensor`. Raises DataError."""
    values = read_tensor(tensor.values, files)
    indices = read_tensor(tensor.indices, files)
    shape = tuple(tensor.dims)
    count, size = len(values) if values.ndim == 1 else -1, math.prod(shape)
    if min(shape, default=0) < 0 or count < 0:
        raise DataError(f"its extents are {list(shape)}, those of its values {list(values.shape)}; "
                        "expected none below 0, and a list of values")
    if size * values.itemsize > MOST_DENSE_BYTES:
        raise DataError(f"sparse of extents {list(shape)}: all its elements are {size * values.itemsize:,} bytes; "
                        f"expected at most {MOST_DENSE_BYTES:,}")
    if indices.shape == (count, len(shape)) and indices.ndim == 2:
        inside = bool(np.all((indices >= 0) & (indices < np.array(shape, np.int64))))
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and count else np.zeros(count, np.int64)
    else:
        inside = indices.shape == (count,) and bool(np.all((indices >= 0) & (indices < size)))
        flat = indices
    if not inside:
        raise DataError(f"sparse of extents {list(shape)}: its indices do not fit; expected [{count}] of a flat tensor "
                        f"or [{count}, {len(shape)}], none outside")
    dense = np.zeros(size, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def plain_dtype(data_type: int) -> np.dtype[Any] | None:
    """The numpy type whose bytes are those of the file; None for packed types and strings."""
    import onnx

    others = (*_PACKED, "FLOAT6E2M3", "FLOAT6E3M2", "STRING", "UNDEFINED")
    if data_type in {getattr(onnx.TensorProto, name) for name in others if hasattr(onnx.TensorProto, name)}:
        return None
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))


_PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}  # bits of an element


def _external(tensor: onnx.TensorProto, files: DataFiles | None) -> np.ndarray:
    import onnx

    where = {entry.key: entry.value for entry in tensor.external_data}
    location = where.get("location", "")
    if files is None:
        raise DataError(f"its data is in the file {location!r}, but the model was given as bytes or as an "
                        "onnx.ModelProto without it; give the path of the model")
    bits = _element_bits(tensor)
    offset = _number(where, "offset", location) or 0
    needed = -(-math.prod(tensor.dims) * bits // 8)
    length = _number(where, "length", location)
    if length is not None and length != needed:
        raise DataError(f"its length in the external data file {location!r} is {length:,}; "
                        f"expected {needed:,} bytes for {_kind(tensor)} {list(tensor.dims)}")
    content = files.content(location)
    if offset + needed > len(content):
        raise DataError(f"its external data file {location!r} is too short: expected {needed:,} bytes at offset "
                        f"{offset:,}, the file has {len(content):,}")
    dtype, shape = plain_dtype(tensor.data_type), tuple(tensor.dims)
    if dtype is None:
        packed = onnx.TensorProto(data_type=tensor.data_type, dims=shape, raw_data=content[offset : offset + needed])
        return onnx.numpy_helper.to_array(packed)
    if needed == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(content, dtype, needed // dtype.itemsize, offset).reshape(shape)


def _element_bits(tensor: onnx.TensorProto) -> int:
    packed = _PACKED.get(_kind(tensor).upper())
    if packed is not None:
        return packed
    try:
        dtype = plain_dtype(tensor.data_type)
    except KeyError:
        dtype = None
    if dtype is None:
        raise DataError(f"external data of type {_kind(tensor)} is not supported; expected numbers")
    return dtype.itemsize * 8


def _kind(tensor: onnx.TensorProto) -> str:
    import onnx

    try:
        return onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    except ValueError:
        return f"number {tensor.data_type}, which is unknown,"


def _number(where: Mapping[str, str], key: str, location: str) -> int | None:
    """A number of bytes in the description of external data."""
    text = where.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise DataError(f"its {key} in the external data file {location!r} is {text!r}; expected a number of bytes")
    return int(text)
