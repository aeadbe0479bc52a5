"""A tensor at an address: for callers who have memory of a device, and no library that describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from motet.errors import DeviceError
from motet.runtime.foreign import dlpack_type


@dataclass(frozen=True)
class Pointer:
    """A contiguous tensor at an address of a device, as an argument or `out` of a call, or for `Session.wrap`. `dtype`
    is MLIR's spelling or what numpy takes; `owner` is kept while the tensor is used, so that the memory is there.

        session(Pointer(address, (64, 128), "f32"), stream=handle)
    """

    address: int
    shape: tuple[int, ...]
    dtype: Any
    device: str = "cuda:0"
    owner: object = None

    def __dlpack_device__(self) -> tuple[int, int]:
        """Raises BufferError for a device whose driver takes no tensors of others."""
        family, _, number = self.device.partition(":")
        try:
            kind = dlpack_type(family)
        except DeviceError:
            kind = None
        if kind is None or not number.isdigit():
            raise BufferError(f"a pointer on {self.device}: expected a GPU, such as cuda:0")
        return kind, int(number)
