"""Tensors given by address, for callers with device memory and no library that describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from motet.errors import DeviceError
from motet.runtime.foreign import dlpack_type


@dataclass(frozen=True)
class Pointer:
    """A contiguous tensor at an address of a device, as an argument or `out` of a call, or for `Session.wrap`. `dtype`
    is MLIR's spelling or anything that numpy accepts; `owner`, which owns the memory, is kept alive while the tensor is
    used.

        session(Pointer(address, (64, 128), "f32"), stream=handle)
    """

    address: int
    shape: tuple[int, ...]
    dtype: Any
    device: str = "cuda:0"
    owner: object = None

    def __dlpack_device__(self) -> tuple[int, int]:
        """Raises BufferError for a device whose driver accepts no tensors of other libraries."""
        family, _, number = self.device.partition(":")
        try:
            kind = dlpack_type(family)
        except DeviceError:
            kind = None
        if kind is None or not number.isdigit():
            raise BufferError(f"a pointer on {self.device}: expected a GPU, such as cuda:0")
        return kind, int(number)
