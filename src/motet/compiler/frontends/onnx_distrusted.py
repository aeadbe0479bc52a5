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

if TYPE_CHECKING:
    import onnx


def refuse_unknown(model: OnnxModel) -> None:
    """Raise CompileError for the first node of an operator that has no lowering, or whose lowering ends the process.
    To be called when nodes of constants are folded, and types known."""
    for node in model.proto.graph.node:
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


def _recurrent(node: onnx.NodeProto, version: int) -> str | None:
    if node.op_type == "LSTM" and len(node.input) > 7 and node.input[7]:
        return "with peepholes"
    if "clip" in _attributes(node):
        return "with clip"
    if node.op_type == "RNN":
        return None
    usual = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}[node.op_type]
    named = _attributes(node).get("activations", usual)
    known = b", ".join(usual).decode()
    return None if named == usual * (len(named) // len(usual)) else f"with activations other than {known}"


UNKNOWN: dict[str, str] = {
    "ImageDecoder": "images are decoded before a call; give it the pixels",
}
RULES: dict[str, Callable[[Any, int], str | None]] = {
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
}
