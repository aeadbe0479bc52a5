"""OpenVINO's GPU plug-in on a caller's OpenCL queue, with the caller's `cl_mem` as tensors.

OpenVINO's Python bindings cannot pass the handles, so this calls its C library (`libopenvino_c`) by ctypes.
"""

# openvino need not be installed, and has no types for its bindings.
# pyright: reportMissingImports=false

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openvino as ov

from motet.errors import DeviceError
from motet.openvino.compiled import meaning
from motet.runtime.drivers.opencl.handles import OpenClBuffer

Pointer = ctypes.c_void_p
GPU = b"GPU"
# ov_element_type_e of OpenVINO's C API
_TYPES = {"boolean": 1, "bf16": 2, "f16": 3, "f32": 4, "f64": 5, "i4": 6, "i8": 7, "i16": 8, "i32": 9, "i64": 10,
          "u1": 11, "u2": 12, "u3": 13, "u4": 14, "u6": 15, "u8": 16, "u16": 17, "u32": 18, "u64": 19}  # fmt: skip


class _Shape(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)))


class RemoteContext:
    """A context of the GPU plug-in over `queue` and its `context`, handles of OpenCL that outlive it.

    Raises DeviceError if OpenVINO has no C library or GPU plug-in, or refuses the handles.
    """

    def __init__(self, context: int, queue: int) -> None:
        self.library = _c_library()
        self._core = self._new("ov_core_create", free="ov_core_free")
        told = [*_strings(CONTEXT_TYPE="OCL"), b"OCL_CONTEXT", Pointer(context), b"OCL_QUEUE", Pointer(queue)]
        self._context = self._new(
            "ov_core_create_context", self._core, GPU, ctypes.c_size_t(len(told)),
            told=told, free="ov_remote_context_free")

    def parameters(self) -> str:
        """The handles that the context has, as OpenVINO's text."""
        count, text = ctypes.c_size_t(), ctypes.c_char_p()
        self._call("ov_remote_context_get_params", self._context, ctypes.byref(count), ctypes.byref(text))
        found = (text.value or b"").decode()
        self.library.ov_free(text)
        return found

    def compile(self, path: Path, properties: Mapping[str, str]) -> RemoteRequest:
        """A request for the model of an IR file."""
        model = self._new("ov_core_read_model", self._core, str(path).encode(), None, free="ov_model_free")
        told = _strings(**properties)
        compiled = self._new(
            "ov_core_compile_model_with_context", self._core, model, self._context, ctypes.c_size_t(len(told)),
            told=told, free="ov_compiled_model_free")
        return RemoteRequest(
            self, self._new("ov_compiled_model_create_infer_request", compiled, free="ov_infer_request_free"))

    def tensor(self, buffer: OpenClBuffer, kind: str) -> Pointer:
        """A tensor of element type `kind` over the buffer's `cl_mem`, which OpenVINO retains and does not copy."""
        extents = (ctypes.c_int64 * max(1, len(buffer.shape)))(*buffer.shape)
        told = [*_strings(SHARED_MEM_TYPE="OCL_BUFFER"), b"MEM_HANDLE", Pointer(buffer.handle)]
        return self._new(
            "ov_remote_context_create_tensor", self._context, ctypes.c_int(_TYPES[kind]),
            _Shape(len(buffer.shape), extents), ctypes.c_size_t(len(told)), told=told, free="ov_tensor_free")

    def _new(self, name: str, *arguments: Any, free: str, told: Sequence[Any] = ()) -> Pointer:
        """The object that a function returns by its last parameter, before the variable ones `told`; it is freed with
        the returned pointer."""
        made = Pointer()
        self._call(name, *arguments, ctypes.byref(made), *told)
        weakref.finalize(made, getattr(self.library, free), Pointer(made.value)).atexit = False
        return made

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            last = self.library.ov_get_last_err_msg
            last.restype = ctypes.c_char_p
            text = (last() or b"").decode(errors="replace")
            raise DeviceError(f"OpenVINO: {name}: {meaning(text) or f'error {code}'}")

    def bind(self, request: Pointer, side: str, index: int, tensor: Pointer) -> None:
        """Make `tensor` the input or output `index` of a request."""
        self._call(f"ov_infer_request_set_{side}_tensor_by_index", request, ctypes.c_size_t(index), tensor)

    def infer(self, request: Pointer) -> None:
        """Put a request on the queue."""
        self._call("ov_infer_request_infer", request)


class RemoteRequest:
    """A compiled model with its tensors. One call at a time."""

    def __init__(self, context: RemoteContext, request: Pointer) -> None:
        self._context = context
        self._request = request
        self._kept: dict[tuple[str, int], tuple[int, Pointer]] = {}

    def run(self, inputs: Sequence[tuple[OpenClBuffer, str]], outputs: Sequence[tuple[OpenClBuffer, str]]) -> None:
        """Put the model on the queue, with buffers and their element types in the order of its parameters and results.
        Raises DeviceError."""
        for side, buffers in (("input", inputs), ("output", outputs)):
            for index, (buffer, kind) in enumerate(buffers):
                known = self._kept.get((side, index))
                if known is None or known[0] != buffer.handle:
                    tensor = self._context.tensor(buffer, kind)
                    self._context.bind(self._request, side, index, tensor)
                    self._kept[side, index] = buffer.handle, tensor
        self._context.infer(self._request)


def _strings(**properties: str) -> list[Any]:
    return [text.encode() for pair in properties.items() for text in pair]


def _c_library() -> ctypes.CDLL:
    folder = Path(str(ov.__file__)).parent / "libs"
    for path in sorted(folder.glob("libopenvino_c.so*")):
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(f"OpenVINO: {path.name} cannot be loaded: {error}") from None
    raise DeviceError(f"OpenVINO: no libopenvino_c in {folder}; expected OpenVINO's wheel of pip")
