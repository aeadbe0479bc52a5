"""Replaces optional tensors and sequences by tensors and sequences, which every call gives.

    x : optional(float[4]); y = OptionalGetElement(x); h = OptionalHasElement(x)    →    x : float[4]; y = x; h = True
    o = Optional(); h = OptionalHasElement(o)                                       →    h = False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.writing import replace_nodes

if TYPE_CHECKING:
    import onnx

_OPERATORS = ("Optional", "OptionalGetElement", "OptionalHasElement")


def resolve_optionals(model: OnnxModel) -> None:
    """Rewrites the graph of `model`, whose inputs are tensors, in place. Raises CompileError for absent elements."""
    graph = model.proto.graph
    for value in (*graph.input, *graph.output):
        _take(value)
    absent: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type not in _OPERATORS or node.domain:
            nodes.append(node)
            continue
        given = node.input[0] if node.input else ""
        missing = not given or given in absent
        if node.op_type == "OptionalHasElement":
            nodes.append(_reads(node, _constant(model, node, not missing)))
        elif not missing:
            nodes.append(_reads(node, given))
        elif node.op_type == "Optional":
            absent.add(node.output[0])
        else:
            where = f"node {node.name!r}" if node.name else f"node that computes {list(node.output)}"
            raise model.error(f"{where}: OptionalGetElement of what is absent; expected an element")
    replace_nodes(model, nodes)


def _take(value: onnx.ValueInfoProto) -> None:
    """Makes the type of an optional value that of its element."""
    kind = value.type
    if kind.WhichOneof("value") == "optional_type":
        kind.CopyFrom(type(kind).FromString(kind.optional_type.elem_type.SerializeToString()))


def _reads(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Identity", [name], list(node.output), node.name)


def _constant(model: OnnxModel, node: onnx.NodeProto, value: bool) -> str:
    name = f"{node.output[0]}/present"
    model.constants[name] = np.array(value)
    return name
