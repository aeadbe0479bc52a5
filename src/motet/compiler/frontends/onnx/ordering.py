"""Writes operators that order unsigned integers, which the torch-mlir wheel orders as signed, on wider signed integers.

    TopK(x: u8)  →  Cast(TopK(Cast(x: i32)))

64-bit integers have no wider type: subtracting 2⁶³ maps their order to that of signed integers. The wheel has no TopK
whose elements may have any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx

# The numbers of the inputs that are ordered, and of the results with their elements.
_ORDERED: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "ArgMax": ((0,), ()), "ArgMin": ((0,), ()), "MaxPool": ((0,), (0,)), "ReduceMax": ((0,), (0,)),
    "ReduceMin": ((0,), (0,)), "ScatterND": ((0, 2), (0,)), "TopK": ((0,), (0,)),
}  # fmt: skip


def _on_signed(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if node.input[0] not in facts.types or facts.dtype(node.input[0]).kind != "u":
        return None
    if node.op_type == "ScatterND" and attribute(node, "reduction", b"none") not in (b"max", b"min"):
        return None
    kind = facts.dtype(node.input[0])
    wide = onnx.TensorProto.INT32 if kind.itemsize < 4 else onnx.TensorProto.INT64
    w = NodeWriter(node, facts)
    least = w.constant(np.array(-(2**63)), "least") if kind.itemsize == 8 else ""
    inputs = list(node.input)
    ordered, results = _ORDERED[node.op_type]
    for number in ordered:
        value = w.cast(inputs[number], wide)
        inputs[number] = w.add("Add", value, least) if least else value
    values = w.add_all(node.op_type, len(node.output), *inputs)
    w.nodes[-1].attribute.extend(node.attribute)
    for number in results:
        value = w.add("Add", values[number], least) if least else values[number]
        values[number] = w.cast(value, facts.types[node.input[0]])
    return w.done(values)


def _top_k(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Elements that may have any order get that of their sizes."""
    if attribute(node, "sorted", 1):
        return _on_signed(node, facts)
    ordered = copy(node)
    del ordered.attribute[:]
    ordered.attribute.extend(item for item in node.attribute if item.name != "sorted")
    return [ordered]


RULES: dict[str, Rule] = {**dict.fromkeys(_ORDERED, _on_signed), "TopK": _top_k}
