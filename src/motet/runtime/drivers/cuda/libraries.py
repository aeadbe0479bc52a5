"""The libraries whose tensors functions on a GPU are called with: their current streams, and their memory for results.

This module imports no library: one that is not loaded has no tensors.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from motet.artifact.dtypes import DTYPES

_TORCH_NAMES = {
    "i1": "bool", "i8": "int8", "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32",
    "i64": "int64", "ui64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E8M0FNU": "float8_e8m0fnu",
}


class Library(Protocol):
    """The operations of a library. `ordinal` is a GPU's number, `stream` a handle."""

    def owns(self, value: Any) -> bool:
        """Whether a value is one of the library's tensors, on any device."""
        ...

    def describe(self, value: Any) -> tuple[int, int, tuple[int, ...], np.dtype[Any] | None, bool]:
        """The GPU, address, extents, dtype and contiguity of a tensor on a GPU."""
        ...

    def contiguous(self, value: Any, ordinal: int, stream: int) -> Any:
        """A contiguous copy, made on the stream."""
        ...

    def current_stream(self, ordinal: int) -> int: ...

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], ordinal: int, stream: int) -> Any:
        """A new tensor for work on the stream."""
        ...


class Torch:
    """PyTorch. Its allocator orders a tensor by the stream that is current when it is created."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch: Any = torch
        names = {name: getattr(torch, other) for name, other in _TORCH_NAMES.items() if hasattr(torch, other)}
        self.dtypes: Mapping[np.dtype[Any], Any] = {DTYPES[name]: dtype for name, dtype in names.items()}
        self._numpy = {dtype: DTYPES[name] for name, dtype in names.items()}
        # Called by PyTorch's own compiler, at a tenth of the cost of the public function.
        self.raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def owns(self, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor)

    def describe(self, value: Any) -> tuple[int, int, tuple[int, ...], np.dtype[Any] | None, bool]:
        contiguous = bool(value.is_contiguous() and not value.is_neg())
        return value.get_device(), value.data_ptr(), tuple(value.shape), self._numpy.get(value.dtype), contiguous

    def contiguous(self, value: Any, ordinal: int, stream: int) -> Any:
        with self._on(ordinal, stream):
            return value.detach().clone(memory_format=self.torch.contiguous_format).resolve_neg()

    def current_stream(self, ordinal: int) -> int:
        if self.raw_stream is not None:
            return self.raw_stream(ordinal)
        return int(self.torch.cuda.current_stream(ordinal).cuda_stream)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], ordinal: int, stream: int) -> Any:
        with self._on(ordinal, stream):
            return self.torch.empty(shape, dtype=self.dtypes[dtype], device=f"cuda:{ordinal}")

    def _on(self, ordinal: int, stream: int) -> contextlib.AbstractContextManager[Any]:
        if stream == self.current_stream(ordinal):
            return contextlib.nullcontext()
        cuda = self.torch.cuda
        return cuda.stream(cuda.ExternalStream(stream, device=f"cuda:{ordinal}"))


class CuPy:
    """CuPy, whose allocator works like PyTorch's. It supports neither bf16 nor fp8."""

    def __init__(self, cupy: ModuleType) -> None:
        self._cupy: Any = cupy

    def owns(self, value: Any) -> bool:
        return isinstance(value, self._cupy.ndarray)

    def describe(self, value: Any) -> tuple[int, int, tuple[int, ...], np.dtype[Any] | None, bool]:
        return value.device.id, int(value.data.ptr), tuple(value.shape), value.dtype, bool(value.flags.c_contiguous)

    def contiguous(self, value: Any, ordinal: int, stream: int) -> Any:
        with self._on(ordinal, stream):
            return value.copy(order="C")

    def current_stream(self, ordinal: int) -> int:
        with self._cupy.cuda.Device(ordinal):
            return int(self._cupy.cuda.get_current_stream().ptr)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], ordinal: int, stream: int) -> Any:
        with self._on(ordinal, stream):
            return self._cupy.empty(shape, dtype)

    @contextlib.contextmanager
    def _on(self, ordinal: int, stream: int) -> Any:
        cuda = self._cupy.cuda
        with cuda.Device(ordinal):
            if stream == int(cuda.get_current_stream().ptr):
                yield
            else:
                with cuda.ExternalStream(stream, ordinal):
                    yield


def torch_library() -> Torch | None:
    torch = sys.modules.get("torch")
    return None if torch is None or not hasattr(torch, "Tensor") else _torch(torch)


@functools.cache
def _torch(torch: ModuleType) -> Torch:
    return Torch(torch)


def cupy_library() -> CuPy | None:
    cupy = sys.modules.get("cupy")
    return None if cupy is None or not hasattr(cupy, "ndarray") else CuPy(cupy)


def loaded() -> list[Library]:
    """The libraries loaded in this process."""
    return [library for library in (torch_library(), cupy_library()) if library is not None]


def has_dtype(library: Library | None, dtype: np.dtype[Any]) -> bool:
    """Whether a library supports a dtype; None, for Motet's own tensors, supports all."""
    if isinstance(library, Torch):
        return dtype in library.dtypes
    return library is None or dtype.isbuiltin == 1
