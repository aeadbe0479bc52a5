"""Takes optional tensors for tensors, which every call gives.

    x : optional(float[4]); y = OptionalGetElement(x); h = OptionalHasElement(x)    →    x : float[4]; y = x; h = True
    o = Optional(); h = OptionalHasElement(o)                                       →    h = False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx_model import OnnxModel

if TYPE_CHECKING:
    import onnx

_OPERATORS = ("Optional", "OptionalGetElement", "OptionalHasElement")


def resolve_optionals(model: OnnxModel) -> None:
    """In place, in the graph of `model`; optional sequences stay. Raises CompileError for an element that is absent."""
    graph = model.proto.graph
    if not any(node.op_type in _OPERATORS for node in graph.node):
        return
    sequences = {value.name for value in graph.input if not _take(value)}
    for value in graph.output:
        _take(value)
    absent: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type not in _OPERATORS or node.domain or sequences.intersection(node.input):
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
            raise model.error(f"node {node.name!r}: OptionalGetElement of what is absent; expected an element")
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _take(value: onnx.ValueInfoProto) -> bool:
    """Make the type of an optional tensor that of the tensor; False for other types than tensors."""
    kind = value.type
    if kind.WhichOneof("value") == "optional_type" and kind.optional_type.elem_type.HasField("tensor_type"):
        tensor = type(kind).FromString(kind.optional_type.elem_type.SerializeToString())
        kind.CopyFrom(tensor)
    return kind.WhichOneof("value") in (None, "tensor_type")


def _reads(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Identity", [name], list(node.output), node.name)


def _constant(model: OnnxModel, node: onnx.NodeProto, value: bool) -> str:
    name = f"{node.output[0]}/present"
    model.constants[name] = np.array(value)
    return name
