"""Replaces what has no elements, whatever computes it, by constants without elements.

Lowerings divide by extents, and guess an extent from the number of elements, neither of which 0 allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx_model import OnnxModel

if TYPE_CHECKING:
    import onnx


def fold_empty(model: OnnxModel) -> bool:
    """In place, in the graph of `model`, whose types are inferred; whether anything changed. A result of the graph
    stays a node, which gives the constant."""
    import onnx

    empty = _empty(model)
    nodes: list[onnx.NodeProto] = []
    changed = False
    results = {value.name for value in model.proto.graph.output}
    for node in model.proto.graph.node:
        named = [name for name in node.output if name]
        if not named or any(name not in empty for name in named) or _gives_constant(model, node):
            nodes.append(node)
            continue
        changed = True
        for name in named:
            held = f"{name}/empty" if name in results else name
            model.constants[held] = empty[name]
            if held != name:
                nodes.append(onnx.helper.make_node("Identity", [held], [name], f"{node.name}/{name}"))
    if changed:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.proto.graph.node[:]
        model.proto.graph.node.extend(copies)
    return changed


def _empty(model: OnnxModel) -> dict[str, np.ndarray]:
    """Values that are known to have no elements, and whose type is known, by name."""
    import onnx

    graph = model.proto.graph
    found: dict[str, np.ndarray] = {}
    for info in (*graph.value_info, *graph.output):
        kind = info.type.tensor_type
        dims = kind.shape.dim
        if not kind.elem_type or kind.elem_type == onnx.TensorProto.STRING:
            continue
        if dims and all(dim.HasField("dim_value") for dim in dims) and any(dim.dim_value == 0 for dim in dims):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[info.name] = np.zeros([dim.dim_value for dim in dims], dtype)
    return found


def _gives_constant(model: OnnxModel, node: onnx.NodeProto) -> bool:
    return node.op_type == "Identity" and node.input[0] in model.constants
