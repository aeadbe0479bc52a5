"""Replaces an If whose condition is constant by the nodes of the taken branch.

    c = True; y = If(c) { then: z = Squeeze(x) } { else: z = Identity(x) }    →    z = Squeeze(x); y = Identity(z)

Exporters write such an If where the rank of a result depends on an extent, for example for PyTorch's `squeeze`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import graphs_of
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.writing import replace_nodes

if TYPE_CHECKING:
    import onnx


def inline_branches(model: OnnxModel) -> bool:
    """Rewrites the graph of `model` in place; names in bodies must be unique. Returns whether it changed."""
    import onnx

    graph = model.proto.graph
    if not any(node.op_type == "If" and node.input[0] in model.constants for node in graph.node):
        return False
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        condition = model.constants.get(node.input[0]) if node.op_type == "If" and node.input else None
        if condition is None or condition.size != 1:
            nodes.append(node)
            continue
        branch = _branch(node, "then_branch" if condition.any() else "else_branch")
        nodes += branch.node
        nodes += [
            onnx.helper.make_node("Identity", [value.name], [output], f"{node.name}/{output}")
            for value, output in zip(branch.output, node.output, strict=False) if output
        ]
    return replace_nodes(model, nodes)


def _branch(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for item, graph in zip(node.attribute, graphs_of(node), strict=True):
        if item.name == name:
            return graph
    raise ValueError(f"an If without {name}")
