"""Rewrites the indices of GatherND, ScatterND and ScatterElements so that indices out of bounds stay out of bounds.

    GatherND(x: 5x4x3, i: kx2)  →  GatherND(x, Where(-e <= i < e, i, 20)), e = [5, 4]

Indices of GatherND and ScatterND whose last extent is dynamic are first reshaped to the number of axes that follows
from the ranks of data, indices and result (or updates). An assertion compares it with the extent.

The torch-mlir wheel linearises the axes that GatherND and ScatterND index, so that (0, 5) of 5x4 would become (1, 1); a
single axis is left as it is.
It also wraps negative indices of ScatterElements twice, and takes them for 64 bits. This pass replaces an index out of
bounds by the number of indexed elements, which the kernel's own check then reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes
from motet.compiler.frontends.onnx.writing import ModelFacts, refused, replace_nodes

if TYPE_CHECKING:
    import onnx

_OPERATORS = ("GatherND", "ScatterND", "ScatterElements")


def keep_outside(model: OnnxModel) -> bool:
    """Rewrites the indices of such nodes of `model`, whose types must be inferred; returns whether there were any."""
    within = each_body(model, keep_outside)
    if not any(node.op_type in _OPERATORS for node in model.proto.graph.node):
        return within
    facts = ModelFacts.of(model)
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type in _OPERATORS:
            nodes += _marked(node, facts)
        nodes.append(node)
    changed = replace_nodes(model, nodes)
    if changed:
        infer_shapes(model)
    return within or changed


def _marked(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto]:
    """`node`, preceded by the nodes that compute its new indices."""
    import onnx

    w, axes, index = Numbers(node, facts), _axes(node, facts), node.input[1]
    if axes is None or index not in facts.types:
        return []
    if node.op_type != "ScatterElements" and (facts.extents(index) or [0])[-1] is None:
        node.input[1] = _of_depth(w, len(axes))
    if len(axes) == 1 and node.op_type != "ScatterElements":
        return w.nodes  # not linearised: an index out of bounds stays out of bounds
    kind = facts.types[index]
    shape, dtype = facts.shapes.get(node.input[0]), facts.dtype(index)
    if node.op_type == "ScatterElements" and dtype.itemsize < 8:
        kind, dtype = onnx.TensorProto.INT64, np.dtype(np.int64)
        node.input[1] = w.cast(index, kind)
    given = facts.model.constants.get(index)
    if given is not None and shape is not None:
        extents = np.array([shape[axis] for axis in axes])
        if ((given >= -extents) & (given < extents)).all():
            return w.nodes
    if shape is not None:
        extents = w.constant(np.array([shape[axis] for axis in axes], dtype), "extents")
        least = w.constant(-np.array([shape[axis] for axis in axes], dtype), "least")
        number = w.constant(np.array(np.prod([shape[axis] for axis in axes], dtype=np.int64), dtype), "number")
    else:
        places = w.constant(np.array(axes, np.int64), "axes")
        extents = w.add("Gather", w.add("Shape", node.input[0]), places, axis=0)
        extents = w.cast(extents, kind)
        least = w.add("Neg", extents)
        number = w.joined("Mul", [w.slice(extents, 0, place, place + 1) for place in range(len(axes))])
    below = w.add("Less", node.input[1], extents)
    inside = w.add("And", below, w.add("Not", w.add("Less", node.input[1], least)))
    node.input[1] = w.add("Where", inside, node.input[1], number)
    return w.nodes


def _axes(node: onnx.NodeProto, facts: ModelFacts) -> list[int] | None:
    """The axes that an index addresses, one number each; None if unknown."""
    if node.op_type == "ScatterElements":
        rank = facts.rank(node.input[0])
        return None if rank is None else [attribute(node, "axis", 0) % rank]
    extents = facts.extents(node.input[1]) or facts.shapes.get(node.input[1])
    first = attribute(node, "batch_dims", 0) if node.op_type == "GatherND" else 0
    depth = extents[-1] if extents else None
    if extents and depth is None:
        depth = _depth(node, facts, first)
    return [*range(first, first + depth)] if depth else None


def _depth(node: onnx.NodeProto, facts: ModelFacts, first: int) -> int | None:
    """The number of axes that follows from ranks; None if that of the data is unknown. Raises CompileError if the rank
    that depends on it, of the result or the updates, is unknown or impossible."""
    what, name = ("a result", node.output[0]) if node.op_type == "GatherND" else ("updates", node.input[2])
    data, index, left = facts.rank(node.input[0]), facts.rank(node.input[1]), facts.rank(name)
    if data is None or index is None:
        return None
    depth = 1 if data - first == 1 else 0 if left is None else data - first + index - 1 - left
    if not 1 <= depth <= data - first:
        raise refused(
            node, facts, f"by indices of an unknown last extent with {what} of rank {'?' if left is None else left}",
            f"a known last extent, or {what} of a declared rank from {index - 1} to {data - first + index - 2}",
        )
    return depth


def _of_depth(n: Numbers, depth: int) -> str:
    """The indices, reshaped to a last extent of `depth`, which is asserted to be theirs."""
    index = n.node.input[1]
    last = n.facts.ranks[index] - 1
    found = n.extent(index, last)
    said = f"axis {last} of input 1 must be {depth}, the number of axes that the ranks leave to an index"
    return n.reshape(n.require(index, n.add("Equal", found, n.of(depth)), said), [*[0] * last, depth])
