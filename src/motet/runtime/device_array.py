"""Tensors that stay on a device of a session from call to call, so that calls do not move them.

    weights = session.put(array, "gpu")         # copied there once
    y = session(x, weights)                     # what runs on @gpu reads it in place
    out = session.empty((4, 16), np.float32, "gpu")
    session(x, weights, out=out)                # and the result stays there
    out.numpy()                                 # copied back now
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES, spelling
from motet.errors import CallError
from motet.runtime.device import Buffer, Device

Array = np.ndarray[Any, Any]


class DeviceArray:
    """A contiguous tensor of `shape` and numpy `dtype` in the memory of `device`. It may be an argument of every
    function of its session, and, as `out`, take a result; calls do not copy it where they use it on its device."""

    def __init__(self, device: Device, buffer: Buffer, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.buffer.bytes

    def view(self) -> Array | None:
        """The elements where they are, if this process can address them."""
        data = self.device.view(self.buffer) if self.device.info.host_memory else None
        return None if data is None else data[: self.nbytes].view(self.dtype).reshape(self.shape)

    def numpy(self) -> Array:
        """A copy of the elements. Raises DeviceError."""
        array = np.empty(self.shape, self.dtype)
        self.device.read(self.buffer, array).wait()
        return array

    def write(self, array: Array) -> None:
        """Other elements. Raises CallError for an array of another shape or dtype, DeviceError."""
        if array.shape != self.shape or array.dtype != self.dtype:
            given = f"{'x'.join(map(str, array.shape))} {array.dtype}"
            raise CallError(f"{self!r}: {given} given; expected an array of its own shape and dtype")
        self.device.write(self.buffer, np.ascontiguousarray(array)).wait()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self!r}: its elements are not in this process's memory without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For other libraries, which may use the memory in place while this object is there. Calls have ended when they
        return, so there is nothing to wait for. Only of tensors on NVIDIA's GPUs of dtypes that numpy has."""
        if self.device.info.family != "cuda" or self.dtype.kind not in "biufc":
            raise AttributeError(f"{self!r}: it has no CUDA array interface")
        data = (self.buffer.address if self.nbytes else 0, False)
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": data, "strides": None}

    def __repr__(self) -> str:
        extents = "".join(f"{extent}x" for extent in self.shape)
        return f"<DeviceArray {extents}{spelling(self.dtype)} on {self.device.info.uri}>"


def allocate_on(device: Device, shape: Sequence[int], dtype: Any) -> DeviceArray:
    """Memory for a tensor, not cleared. `dtype` is MLIR's spelling or what numpy takes. Raises CallError for a shape
    or dtype that cannot be, OutOfMemoryError."""
    try:
        kind = DTYPES[dtype] if isinstance(dtype, str) and dtype in DTYPES else np.dtype(dtype)
        spelling(kind)
    except (KeyError, TypeError, ValueError):
        raise CallError(f"dtype {dtype!r}: unknown; expected one of {', '.join(DTYPES)}") from None
    if any(extent < 0 for extent in shape):
        raise CallError(f"shape {'x'.join(map(str, shape))}: expected no negative extent")
    buffer = device.allocate(math.prod(shape) * kind.itemsize)
    return DeviceArray(device, buffer, shape, kind)
