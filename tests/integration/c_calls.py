"""The library for programs in C, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from motet.artifact.dtypes import DTYPES, spelling


class Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("element_size", ctypes.c_size_t),
        ("rank", ctypes.c_size_t), ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("symbols", ctypes.POINTER(ctypes.c_char_p)), ("destination", ctypes.c_int64), ("state", ctypes.c_char_p),
    ]  # fmt: skip


class CTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_size_t),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
    ]  # fmt: skip


class CError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def tensor_of(array: np.ndarray, dtype: str = "") -> CTensor:
    extents = (ctypes.c_int64 * (array.ndim + 1))(*array.shape)
    return CTensor(array.ctypes.data, (dtype or spelling(array.dtype)).encode(), array.ndim, extents)


@dataclass(frozen=True)
class CLibrary:
    """The library in a file."""

    library: ctypes.CDLL

    @staticmethod
    def load(path: Path) -> CLibrary:
        library = ctypes.CDLL(str(path))
        for name in ("motet_version", "motet_error", "motet_function_name"):
            getattr(library, name).restype = ctypes.c_char_p
        for name in ("motet_function_at", "motet_find_function"):
            getattr(library, name).restype = ctypes.c_void_p
        for name in ("motet_input", "motet_result"):
            getattr(library, name).restype = ctypes.POINTER(Spec)
        return CLibrary(library)

    def check(self, status: int) -> None:
        if status:
            text = self.library.motet_error().decode()
            assert text and "\n" not in text, text
            raise CError(status, text)

    def open(self, source: Path | bytes, threads: int = 1) -> CArtifact:
        handle = ctypes.c_void_p()
        if isinstance(source, bytes):
            size = ctypes.c_size_t(len(source))
            status = self.library.motet_open_memory(source, size, threads, ctypes.byref(handle))
        else:
            status = self.library.motet_open(str(source).encode(), threads, ctypes.byref(handle))
        self.check(status)
        return CArtifact(self, handle)


@dataclass(frozen=True)
class CArtifact:
    c: CLibrary
    handle: ctypes.c_void_p

    def function(self, name: str = "") -> ctypes.c_void_p:
        library = self.c.library
        found = (library.motet_find_function(self.handle, name.encode()) if name
                 else library.motet_function_at(self.handle, ctypes.c_size_t(0)))
        return ctypes.c_void_p(found)

    def specs(self, what: str, name: str = "") -> list[Spec]:
        found: list[Spec] = []
        get = getattr(self.c.library, f"motet_{what}")
        while spec := get(self.function(name), ctypes.c_size_t(len(found))):
            found.append(spec.contents)
        return found

    def results(self, inputs: Sequence[CTensor], name: str = "") -> list[np.ndarray]:
        """Memory for the results of a call, filled with what no call may leave there."""
        given = (CTensor * max(1, len(inputs)))(*inputs)
        results: list[np.ndarray] = []
        for number, spec in enumerate(self.specs("result", name)):
            extents = (ctypes.c_int64 * (spec.rank + 1))()
            self.c.check(self.c.library.motet_result_extents(
                self.function(name), given, ctypes.c_size_t(len(inputs)), ctypes.c_size_t(number), extents))
            dtype = DTYPES[spec.dtype.decode()]
            shape = tuple(extents[: spec.rank])
            size = int(np.prod(shape)) * dtype.itemsize
            results.append(np.full(size, 0xCB, np.uint8).view(dtype).reshape(shape))
        return results

    def call_tensors(self, inputs: Sequence[CTensor], results: Sequence[CTensor], name: str = "") -> None:
        self.c.check(self.c.library.motet_call(
            self.function(name), (CTensor * max(1, len(inputs)))(*inputs), ctypes.c_size_t(len(inputs)),
            (CTensor * max(1, len(results)))(*results), ctypes.c_size_t(len(results))))

    def __call__(self, *inputs: np.ndarray, name: str = "") -> list[np.ndarray]:
        dtypes = [spec.dtype.decode() for spec in self.specs("input", name)]
        given = [tensor_of(array, dtype) for array, dtype in zip(inputs, dtypes, strict=True)]
        results = self.results(given, name)
        destinations = [spec.destination for spec in self.specs("result", name)]
        own = [spec.dtype.decode() for spec in self.specs("result", name)]
        tensors = [tensor_of(array, dtype) for array, dtype in zip(results, own, strict=True)]
        for tensor, destination in zip(tensors, destinations, strict=True):
            if destination >= 0:
                tensor.data = None
        self.call_tensors(given, tensors, name)
        return [array if place < 0 else inputs[place] for array, place in zip(results, destinations, strict=True)]

    def close(self) -> None:
        self.c.library.motet_close(self.handle)
