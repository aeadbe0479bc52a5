"""OrtValue, with the interface of onnxruntime's: a tensor in the host's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.argument_kinds import check_kind, extents_of, refuse_kind
from motet.errors import CallError, OptionError
from motet.runtime.device_array import dtype_of

_TYPES = {
    "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "complex64": "complex64", "complex128": "complex128",
}


def type_name(dtype: np.dtype[Any]) -> str:
    """The type of tensors of `dtype` as onnxruntime writes it: `tensor(float)`."""
    return f"tensor({_TYPES.get(dtype.name, dtype.name)})"


def array_of(name: str, value: Any) -> np.ndarray:
    """`value`, or the array that numpy makes of it, in place where it can. Raises CallError for what is no tensor."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = None
    if array is None or array.dtype.hasobject:
        refuse_kind(name, value, "an array of numbers", CallError)
    return array


class OrtValue:
    """A tensor in the host's memory, which bindings read and write in place."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array_of("OrtValue", array)

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """The memory of an array."""
        _check_device(device_type)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """New memory."""
        _check_device(device_type)
        return cls(np.zeros(extents_of("OrtValue: shape", shape), dtype_of(element_type)))

    def numpy(self) -> np.ndarray:
        """The tensor as an array, without a copy."""
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return type_name(self._array.dtype)

    def device_name(self) -> str:
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True

    def take(self, array: np.ndarray, name: str) -> None:
        """Copy the elements of output `name`. Raises CallError if it has another shape or dtype."""
        if (array.shape, array.dtype) != (self._array.shape, self._array.dtype):
            raise CallError(f"output {name!r}: a value of {self.data_type()} and shape {self.shape()} is bound; it is "
                            f"of {type_name(array.dtype)} and shape {list(array.shape)}")  # fmt: skip
        np.copyto(self._array, array)


def _check_device(name: str) -> None:
    check_kind("device_type", name, str, "'cpu'")
    if name != "cpu":
        raise OptionError(f"OrtValue: device {name!r}: expected 'cpu'; session.motet takes tensors of other devices")
