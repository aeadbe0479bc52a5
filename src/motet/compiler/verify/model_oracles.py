"""Oracles that run a model itself: onnx's reference evaluator in numpy and ONNX Runtime for ONNX, OpenVINO for its IR.
Unlike `oracle.py`, they also check the frontend."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motet.compiler.frontends.kinds import kind_of
from motet.compiler.job import Oracle
from motet.compiler.protobuf import Content
from motet.errors import CallError, OptionError

_FOREIGN = ("float8", "bfloat16", "int4", "int2", "float4", "float6")  # types that numpy itself lacks
_KINDS = {
    "openvino": "OpenVINO's IR", "onnx": "an ONNX model", "mlir": "MLIR", "stablehlo": "StableHLO",
    "graph": "a graph of motet.builder", "archive": "a .pt2 of PyTorch",
}


def model_oracle(
    oracle: Oracle, path: str, source: Content, format: str, model: str
) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """A function that runs the oracle `numpy`, `onnxruntime` or `openvino` on inputs of the model `source`, read from
    the file `model`, if any. Raises OptionError for a source that it does not support, and if its package is
    missing."""
    kind = kind_of(source, path, format)
    if kind != ("openvino" if oracle == "openvino" else "onnx"):
        runs = "OpenVINO's IR" if oracle == "openvino" else "ONNX models"
        raise OptionError(f"--oracle {oracle} runs {runs}; the source is {_KINDS[kind]}; "
                          "use --oracle upstream")
    if oracle == "openvino":
        return lambda inputs: _run_openvino(source, path, model, inputs)
    if oracle == "numpy":
        return lambda inputs: _run_reference(source, model, inputs)
    if importlib.util.find_spec("onnxruntime") is None:
        raise OptionError("--oracle onnxruntime needs ONNX Runtime; install it with: pip install onnxruntime")
    return lambda inputs: _run_onnxruntime(source, model, inputs)


def _run_reference(source: Content, model: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load(model) if model else onnx.load_from_string(bytes(source[:]))
    held = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in held]
    try:
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(proto).run(None, dict(zip(names, inputs, strict=True)))
    except Exception as error:  # of any class that an evaluator in Python may raise
        raise _refusal("numpy", error) from error
    return [np.asarray(each) for each in found]


def _run_onnxruntime(source: Content, model: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(model or bytes(source[:]), options, ["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        found = call_session(session, dict(zip(names, inputs, strict=True)))
    except Exception as error:  # ONNX Runtime has a class for each status
        raise _refusal("onnxruntime", error) from error
    return [np.asarray(each) for each in found]


def _run_openvino(source: Content, path: str, model: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    from motet.compiler.frontends.openvino.files import read_ir
    from motet.compiler.frontends.openvino.package import require_openvino

    try:
        read = read_ir(source, path, model)
        run = require_openvino(path).compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = run(list(inputs))
    except RuntimeError as error:
        raise _refusal("openvino", error) from error
    return [np.array(found[place]) for place in range(len(read.outputs))]


def _refusal(oracle: str, error: Exception) -> CallError:
    text = " ".join(str(error).split())
    return CallError(f"--oracle {oracle} cannot run the model: {type(error).__name__}: {text[:400]}; "
                     "use --oracle upstream")


def call_session(session: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """The results of an ONNX Runtime session, including those of types that numpy itself lacks."""
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if not any(kind.startswith("tensor") and name in kind for kind in kinds for name in _FOREIGN):
        return session.run(None, dict(inputs))
    outputs = [value.name for value in session.get_outputs()]
    values = session.run_with_ort_values(outputs, {name: _value(array) for name, array in inputs.items()})
    return [_read(value) for value in values]


def _bits(kind: int) -> int:
    """The bits of an element of ONNX's type `kind`, in packed memory."""
    from onnx import TensorProto, helper

    packed: dict[int, int] = {TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4,
                              TensorProto.UINT2: 2, TensorProto.INT2: 2}
    return packed.get(kind) or helper.tensor_dtype_to_np_dtype(kind).itemsize * 8


def _value(array: np.ndarray) -> Any:
    """`array` for ONNX Runtime, with types that numpy lacks as bytes, and sub-byte types packed."""
    from onnx import helper, numpy_helper

    values: Any = importlib.import_module("onnxruntime").OrtValue
    if array.dtype.isbuiltin == 1:
        return values.ortvalue_from_numpy(array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    plain = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    if _bits(kind) < 8:
        packed = np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)
        plain = np.resize(packed, array.shape)  # only the first bytes are read
    return values.ortvalue_from_numpy_with_onnx_type(plain, kind)


def _read(value: Any) -> np.ndarray:
    """A result as an array, of any type."""
    from onnx import TensorProto, numpy_helper

    kind, shape = value.element_type(), value.shape()
    size = -(-int(np.prod(shape, dtype=np.int64)) * _bits(kind) // 8)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return numpy_helper.to_array(TensorProto(data_type=kind, dims=shape, raw_data=data))
