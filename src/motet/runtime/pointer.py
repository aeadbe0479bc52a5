"""Tensors given by address, for callers with memory and no library that describes it."""

from __future__ import annotations

import ctypes
import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.errors import CallError, DeviceError

_DLPACK_HOST = 1  # kDLCPU
_END = 1 << 63  # no address of a process is beyond


@dataclass(frozen=True)
class Pointer:
    """A contiguous tensor at an address of a device, or of this process (`device="host"`), as an argument or `out` of a
    call, or for `Session.wrap`. `dtype` is MLIR's spelling or anything that numpy accepts; `owner`, which owns the
    memory, is kept alive while the tensor is used.

        session(Pointer(address, (64, 128), "f32"), stream=handle)
        session(Pointer(address, (64, 128), "f32", "host"))
    """

    address: int
    shape: tuple[int, ...]
    dtype: Any
    device: str = "cuda:0"
    owner: object = None

    @property
    def is_host(self) -> bool:
        """Whether it is memory of this process."""
        return self.device.partition(":")[0] in ("host", "cpu")

    def array(self, where: str) -> np.ndarray[Any, Any]:
        """The memory of this process as an array, in place. Raises CallError."""
        try:
            dtype = DTYPES.get(self.dtype) if isinstance(self.dtype, str) else None
            dtype = np.dtype(self.dtype) if dtype is None else dtype
        except TypeError:
            raise CallError(f"{where}: a pointer to {self.dtype!r} given; expected a dtype such as f32") from None
        if dtype.hasobject:
            raise CallError(f"{where}: a pointer to objects of Python given; expected a dtype such as f32")
        address, shape = self._numbers(where)
        if min((address, *shape)) < 0:
            raise CallError(f"{where}: a pointer to {address:#x} of shape {shape} given; no number of these may be "
                            "negative")
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        if not address:
            raise CallError(f"{where}: a null pointer given for {size} bytes")
        if address + size > _END:
            raise CallError(f"{where}: a pointer to {address:#x} given for {size} bytes, which no process has")
        if address % dtype.alignment:
            raise CallError(f"{where}: address {address:#x} is not a multiple of {dtype.alignment}")
        memory = memoryview((ctypes.c_char * size).from_address(address))
        return np.frombuffer(memory, dtype).reshape(shape)

    def _numbers(self, where: str) -> tuple[int, tuple[int, ...]]:
        """The address and the shape as integers. Raises CallError."""
        try:
            return operator.index(self.address), tuple(map(operator.index, self.shape))
        except TypeError:
            raise CallError(f"{where}: a pointer to {self.address!r} of shape {self.shape!r} given; expected an "
                            "integer and a tuple of integers") from None

    def __dlpack_device__(self) -> tuple[int, int]:
        """Raises BufferError for a device whose driver accepts no tensors of other libraries."""
        from motet.runtime.foreign import dlpack_type  # loads drivers, which use this module

        if self.is_host:
            return _DLPACK_HOST, 0
        family, _, number = self.device.partition(":")
        try:
            kind = dlpack_type(family)
        except DeviceError:
            kind = None
        if kind is None or not number.isdigit():
            raise BufferError(f"a pointer on {self.device}: expected a GPU, such as cuda:0")
        return kind, int(number)
