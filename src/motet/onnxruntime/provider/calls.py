"""Calls of compiled parts from onnxruntime, on its tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate_all, symbols_of
from motet.artifact.reader import Artifact
from motet.errors import CallError
from motet.onnxruntime.provider.interface import OnnxruntimeApi
from motet.runtime.session import load

_Array = np.ndarray[Any, np.dtype[Any]]


class PartCall:
    """A part of a model: a call reads the inputs and writes the outputs of a kernel of onnxruntime, in its memory."""

    def __init__(self, api: OnnxruntimeApi, artifact: Artifact, threads: int | None) -> None:
        self._api = api
        self._session = load(artifact, threads=threads)
        self._function = self._session[self._session.signature.name]
        signature = self._function.signature
        self._inputs = [(DTYPES[spec.dtype], _static(spec.shape)) for spec in signature.inputs]
        self._results = [(DTYPES[spec.dtype], spec.shape, _static(spec.shape)) for spec in signature.results]
        self._symbols = [symbol for symbol in signature.symbols if symbol.input < len(signature.inputs)]
        known = {symbol.name for symbol in self._symbols}
        used = {name for spec in signature.results for extent in spec.shape for name in symbols_of(extent)}
        # The results' extents are known before the call, unless they depend on values.
        self._writes = used <= known and all(spec.destination is None for spec in signature.results)
        self._get_input = api.function("KernelContext_GetInput")
        self._get_output = api.function("KernelContext_GetOutput")
        self._get_data = api.function("GetTensorMutableData")

    def __call__(self, context: int) -> None:
        """Run the part for an OrtKernelContext. Raises CallError and other errors of calls."""
        inputs = [self._input(context, index) for index in range(len(self._inputs))]
        if self._writes and self._results:
            symbols = {symbol.name: inputs[symbol.input].shape[symbol.axis] for symbol in self._symbols}
            outputs = [self._output(context, index, static if static is not None else evaluate_all(shape, symbols))
                       for index, (_, shape, static) in enumerate(self._results)]
            self._function(*inputs, out=outputs[0] if len(outputs) == 1 else tuple(outputs))
            return
        made = self._function(*inputs)
        for index, value in enumerate(made if isinstance(made, tuple) else [made] if self._results else []):
            self._output(context, index, value.shape)[...] = value

    def close(self) -> None:
        """Release the session's memory."""
        self._session.close()

    def _input(self, context: int, index: int) -> _Array:
        dtype, shape = self._inputs[index]
        value = c_void_p()
        self._check(self._get_input(context, index, byref(value)))
        if not value.value:
            raise CallError(f"input {index}: not given")
        return self._array(value.value, dtype, self._shape(value.value) if shape is None else shape)

    def _output(self, context: int, index: int, shape: Sequence[int]) -> _Array:
        value = c_void_p()
        extents = (ctypes.c_int64 * len(shape))(*shape)
        self._check(self._get_output(context, index, extents, len(shape), byref(value)))
        return self._array(value.value or 0, self._results[index][0], shape)

    def _array(self, value: int, dtype: np.dtype[Any], shape: Sequence[int]) -> _Array:
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size == 0:
            return np.empty(shape, dtype)
        data = c_void_p()
        self._check(self._get_data(value, byref(data)))
        return np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(data.value or 0)), dtype).reshape(shape)

    def _shape(self, value: int) -> tuple[int, ...]:
        api = self._api
        info = api.pointer("GetTensorTypeAndShape", value)
        try:
            extents = (ctypes.c_int64 * api.pointer("GetDimensionsCount", info))()
            if len(extents):
                api.call("GetDimensions", info, extents, len(extents))
            return tuple(extents)
        finally:
            api.call("ReleaseTensorTypeAndShapeInfo", info)

    def _check(self, status: int | None) -> None:
        if status:
            self._api.refuse("call", status)


def _static(shape: Sequence[Any]) -> tuple[int, ...] | None:
    """The extents if all are numbers."""
    return tuple(shape) if all(isinstance(extent, int) for extent in shape) else None
