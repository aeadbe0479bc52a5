"""Writes Loops and Scans that collect uint16 or uint64 as ones that collect signed integers of the same width.

    y = Loop(n, x) { …, z }, z: uint16    →    y = Cast(Loop(n, x) { …, Cast(z, INT16) }, UINT16)

The torch-mlir wheel ends the process over slices of these types. The casts keep all bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx


def _collected(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    types = onnx.TensorProto
    signed: dict[int, int] = {types.UINT16: types.INT16, types.UINT64: types.INT64}
    made = copy(node)
    inner: onnx.GraphProto = attribute(made, "body", None)
    states = len(node.input) - (2 if node.op_type == "Loop" else attribute(node, "num_scan_inputs", 0))
    before = len(inner.output) - len(node.output)  # the condition of a Loop
    w = NodeWriter(node, facts)
    w.nodes.append(made)
    for number in range(states, len(node.output)):
        kind = facts.types.get(node.output[number], 0)
        if kind not in signed:
            continue
        slice_ = inner.output[before + number]
        name = f"{slice_.name}/signed"
        inner.node.append(onnx.helper.make_node("Cast", [slice_.name], [name], f"{node.name}/{name}", to=signed[kind]))
        slice_.name, slice_.type.tensor_type.elem_type = name, signed[kind]
        made.output[number] = f"{node.output[number]}/signed"
        w.nodes.append(onnx.helper.make_node(
            "Cast", [made.output[number]], [node.output[number]], f"{node.name}/{node.output[number]}", to=kind
        ))
    return w.nodes if len(w.nodes) > 1 else None


RULES: dict[str, Rule] = {"Loop": _collected, "Scan": _collected}
