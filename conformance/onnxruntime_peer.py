"""ONNX Runtime on the ONNX cases, the models as they stand."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from conformance import onnx_cases
from conformance.onnx_cases import cases
from motet.errors import CompileError

__all__ = ["cases", "check"]

_SETS = re.compile(r"Opset (\d+) is under development.*?till opset (\d+)")
_VERSION = re.compile(r"max supported IR version: (\d+)")
_FOREIGN = ("float8", "bfloat16", "int4", "int2", "float4", "float6")  # types that numpy itself has not
_BITS = {
    TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2,
}


def check(suite: str, case: str) -> str:
    """Runs a case; what ONNX Runtime refuses is a CompileError, as if it were Motet's refusal."""
    return run(onnx_cases.load(suite, case), lowered=False)


def run(case: onnx_cases.Case, lowered: bool) -> str:
    """Runs a case, if need be with its versions lowered to those that ONNX Runtime supports."""
    session = _open(case.model, lowered)
    names = [value.name for value in session.get_inputs()]
    for inputs, expected in case.data:
        try:
            results = _call(session, dict(zip(names, inputs, strict=False)))
        except Exception as error:
            raise CompileError(str(error)) from None
        onnx_cases.judge(case, inputs, results, expected)
    return ""


def _call(session: onnxruntime.InferenceSession, inputs: dict[str, Any]) -> list[Any]:
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if not any(kind.startswith("tensor") and name in kind for kind in kinds for name in _FOREIGN):
        return session.run(None, inputs)
    outputs = [value.name for value in session.get_outputs()]
    values = session.run_with_ort_values(outputs, {name: _value(array) for name, array in inputs.items()})
    return [_read(value) for value in values]


def _value(array: np.ndarray) -> onnxruntime.OrtValue:
    """`array` for ONNX Runtime, which takes types that numpy has not as bytes, those of less than a byte packed."""
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    plain = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    if kind in _BITS:
        packed = np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)
        plain = np.resize(packed, array.shape)  # of which only the first bytes are read
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, kind)


def _read(value: onnxruntime.OrtValue) -> np.ndarray:
    """A result as an array, whatever its type."""
    kind, shape = value.element_type(), value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    size = -(-count * _BITS.get(kind, helper.tensor_dtype_to_np_dtype(kind).itemsize * 8) // 8)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return numpy_helper.to_array(TensorProto(data_type=kind, dims=shape, raw_data=data))


def _open(model: onnx.ModelProto, lowered: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for _ in range(4):  # one version at a time is complained about
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception as error:
            lower = _lowered(model, str(error)) if lowered else None
            if lower is None:
                raise CompileError(str(error)) from None
            model = lower
    raise CompileError("its versions cannot be lowered to any that is supported")


def _lowered(model: onnx.ModelProto, complaint: str) -> onnx.ModelProto | None:
    """`model` with the version that `complaint` is about lowered to the one that it names; None if it names none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if found := _VERSION.search(complaint):
        copy.ir_version = int(found[1])
        return copy
    if found := _SETS.search(complaint):
        for each in copy.opset_import:
            if each.version == int(found[1]):
                each.version = int(found[2])
        return copy
    return None
