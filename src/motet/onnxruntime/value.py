"""OrtValue, with the interface of onnxruntime's: a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.argument_kinds import check_kind, extents_of, refuse_kind
from motet.errors import CallError, OptionError
from motet.runtime.device_array import DeviceArray, dtype_of

HOST = "cpu"  # onnxruntime's name
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
    """A tensor, which bindings read and write in place: in the host's memory, or an output on a device of a session."""

    def __init__(self, tensor: np.ndarray | DeviceArray) -> None:
        self.tensor = tensor if isinstance(tensor, DeviceArray) else array_of("OrtValue", tensor)

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: np.ndarray, device_type: str = HOST, device_id: int = 0) -> OrtValue:
        """The memory of an array."""
        _check_device(device_type)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = HOST, device_id: int = 0
    ) -> OrtValue:
        """New memory."""
        _check_device(device_type)
        return cls(np.zeros(extents_of("OrtValue: shape", shape), dtype_of(element_type)))

    def numpy(self) -> np.ndarray:
        """The tensor as an array: without a copy, if it is in the host's memory."""
        return self.tensor.numpy() if isinstance(self.tensor, DeviceArray) else self.tensor

    def shape(self) -> list[int]:
        return list(self.tensor.shape)

    def data_type(self) -> str:
        return type_name(self.tensor.dtype)

    def device_name(self) -> str:
        return self.tensor.device.info.family if isinstance(self.tensor, DeviceArray) else HOST

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self.tensor.buffer.address if isinstance(self.tensor, DeviceArray) else self.tensor.ctypes.data

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True


def _check_device(name: str) -> None:
    check_kind("device_type", name, str, "'cpu'")
    if name != HOST:
        raise OptionError(f"OrtValue: device {name!r}: expected 'cpu'; session.motet.put copies an array to a device, "
                          "and bind_cpu_input takes it there")
