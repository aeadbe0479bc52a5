"""Operators that have no lowering, and forms of others that the wheel's is known to get wrong.

Each was found by running ONNX's own node tests against the lowered program: the plain lowering gives the same wrong
numbers, so nothing later could notice. A clear refusal is better than a wrong number; an entry goes when the
wheel gets it right, which a test watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx_bodies import all_nodes, each_body
from motet.compiler.frontends.onnx_model import OnnxModel
from motet.compiler.frontends.onnx_writing import element_types

if TYPE_CHECKING:
    import onnx


def refuse_unknown(model: OnnxModel) -> None:
    """Raise CompileError for the first node of an operator that has no lowering, or whose lowering ends the process.
    To be called when nodes of constants are folded, and types known."""
    import onnx

    short = {kind for name, kind in onnx.TensorProto.DataType.items() if name.startswith("FLOAT8")}
    narrow = {kind for name, kind in onnx.TensorProto.DataType.items() if name in _NARROW}
    types = element_types(model)
    for node in model.proto.graph.node:
        if node.op_type in _CONVERSIONS and any(types.get(name) in short for name in (*node.input, *node.output)):
            raise model.error(
                f"node {node.name!r}: {node.op_type} of 8-bit floats is not supported; expected floats of 16 bits "
                "or more"
            )
        if node.op_type in _TO_NARROW and any(types.get(name) in narrow for name in (*node.input, *node.output)):
            raise model.error(
                f"node {node.name!r}: {node.op_type} of integers of 4 bits and less is not supported; expected 8 bits "
                "or more"
            )
        if node.op_type in UNKNOWN and node.domain in ("", "ai.onnx"):
            raise model.error(f"node {node.name!r}: operator {node.op_type} is not supported: {UNKNOWN[node.op_type]}")
    each_body(model, refuse_unknown)


def refuse_distrusted(model: OnnxModel) -> None:
    """Raise CompileError for the first node of a distrusted form."""
    for node in all_nodes(model.proto.graph):
        rule = RULES.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            continue
        what = rule(node, model.opsets.get("", 0))
        if what is not None:
            name = f"node {node.name!r}" if node.name else f"node that computes {list(node.output)}"
            raise model.error(f"{name}: {node.op_type} {what} is not supported: its lowering gives wrong numbers")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _scan(node: onnx.NodeProto, version: int) -> str | None:
    return "of operator set 8, whose operands are batches," if version < 9 else None


def _max_pool(node: onnx.NodeProto, version: int) -> str | None:
    if len(node.output) > 1 and node.output[1]:
        return "with indices as a result"
    return None


def _recurrent(node: onnx.NodeProto, version: int) -> str | None:
    if node.op_type == "LSTM" and len(node.input) > 7 and node.input[7]:
        return "with peepholes"
    usual = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}[node.op_type]
    named = _attributes(node).get("activations", usual)
    known = b", ".join(usual).decode()
    return None if named == usual * (len(named) // len(usual)) else f"with activations other than {known}"


_CONVERSIONS = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"})
_TO_NARROW = _CONVERSIONS - {"DequantizeLinear"}
_NARROW = frozenset({"INT2", "INT4", "UINT2", "UINT4", "FLOAT4E2M1"})
_COMPLEX = "there are no complex numbers; write it as products with matrices of sines and cosines"
UNKNOWN: dict[str, str] = {
    "BitCast": "it has no lowering; give its operand in the other type",
    "Col2Im": "it has no lowering; write it with ConvTranspose, or Reshape and Pad",
    "CumProd": "it has no lowering; for positive numbers write it as Exp of CumSum of Log",
    "DFT": _COMPLEX,
    "DeformConv": "it has no lowering; write it with GridSample and MatMul",
    "MaxUnpool": "it has no lowering; write it with ScatterElements",
    "RoiAlign": "it has no lowering; write it with GridSample and AveragePool",
    "STFT": _COMPLEX,
    "TensorScatter": "it has no lowering; write it with ScatterND",
}
RULES: dict[str, Callable[[Any, int], str | None]] = {
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "MaxPool": _max_pool,
    "Scan": _scan,
}
