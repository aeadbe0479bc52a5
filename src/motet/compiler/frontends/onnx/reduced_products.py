"""Writes ReduceProd over given axes; the torch-mlir wheel supports it over all axes only.

Along static extents, by halving, where products of shape values stay products of elements:

    ReduceProd[axes=[0]](x : [5])    →    y = x[0:2] · x[2:4]; z = y[0:1] · y[1:2]; z · x[4:5]

Along dynamic extents, as a reduction of `linalg` without axes of extent 1 (`_settle`, a rule of `settle_extents.py`).
16-bit floats are multiplied in float32 there, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.tensors import kind_of, replace
from motet.compiler.frontends.onnx.torch_operands import NodeOperands, OperandAxis, builtin, filled, numbers
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.nests import loops

if TYPE_CHECKING:
    import onnx


def _reduce_prod(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents, kind = facts.extents(node.input[0]), facts.types.get(node.input[0])
    if extents is None or kind is None or (places := _axes(node, facts, len(extents))) is None:
        return None
    sizes, keep = [extents[axis] for axis in places], attribute(node, "keepdims", 1)
    if 0 in sizes or not places:
        return None  # empty, or no axes to reduce
    w, value = NodeWriter(node, facts), node.input[0]
    if None in sizes:
        return _reduced(w, places, kind) if keep or kind in _narrow() else None
    for axis, size in zip(places, sizes, strict=True):
        value = _along(w, value, axis, size or 1)
    return w.done([value if keep else w.over("Squeeze", value, places)])


def _axes(node: onnx.NodeProto, facts: ModelFacts, rank: int) -> list[int] | None:
    """The axes in ascending order; None if they are dynamic."""
    name = node.input[1] if len(node.input) > 1 else ""
    axes = facts.model.constants.get(name) if name else np.array(attribute(node, "axes", []), np.int64)
    if axes is None:
        return None
    if not axes.size:
        return [] if attribute(node, "noop_with_empty_axes", 0) else [*range(rank)]
    return sorted(int(axis) % rank for axis in axes.reshape(-1))


def _narrow() -> tuple[int, int]:
    import onnx

    return onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


def _reduced(w: NodeWriter, places: list[int], kind: int) -> list[onnx.NodeProto]:
    """The product without axes of extent 1, in a type that is not narrow; these axes are added afterwards."""
    import onnx

    narrow = kind in _narrow()
    value = w.cast(w.node.input[0], onnx.TensorProto.FLOAT) if narrow else w.node.input[0]
    if w.facts.version < 18:
        value = w.add("ReduceProd", value, axes=places, keepdims=0)
    else:
        value = w.add("ReduceProd", value, w.constant(np.array(places, np.int64), "axes"), keepdims=0)
    value = w.over("Unsqueeze", value, places) if attribute(w.node, "keepdims", 1) else value
    return w.done([w.cast(value, kind) if narrow else value])


def _along(w: NodeWriter, value: str, axis: int, size: int) -> str:
    """The product along an axis, whose extent becomes 1."""
    rest: list[str] = []
    while size > 1:
        half = size // 2
        if size % 2:
            rest.append(w.slice(value, axis, size - 1, size))
        value = w.add("Mul", w.slice(value, axis, 0, half), w.slice(value, axis, half, 2 * half))
        size = half
    for each in rest:
        value = w.add("Mul", value, each)
    return value


# -- in the dialect `torch` --------------------------------------------------------------------------


def _settle(node: NodeOperands) -> None:
    """Lowers a product without keepdims of a tensor with dynamic extents."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    axes = _read_axes(node)
    if result is None or axes is None or node.attribute("keepdims", 1) or not axes:
        return
    if not any(OperandAxis(data, axis).is_dynamic for axis in axes):
        return
    kept = [axis for axis in range(data.rank) if axis not in axes]
    scalar = data.kind.scalar
    one = ir.FloatAttr.get(scalar, 1.0) if data.kind.floating else ir.IntegerAttr.get(scalar, 1)
    made = _multiplied(builtin(data), filled([OperandAxis(data, axis) for axis in kept], scalar, one), kept)
    replace(node.op, create("tensor.cast", result.builtin, [made]) if made.type != result.builtin else made)


def _read_axes(node: NodeOperands) -> list[int] | None:
    rank, given = node.operands[0].rank, node.op.attributes
    if "torch.onnx.axes" in given:
        axes = [ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(given["torch.onnx.axes"])]
    elif node.operand(1) is None:
        axes = [] if node.attribute("noop_with_empty_axes", 0) else [*range(rank)]
    else:
        axes = numbers(node, 1)
    return None if axes is None else sorted(axis % rank for axis in axes)


def _multiplied(source: ir.Value, ones: ir.Value, kept: Sequence[int]) -> ir.Value:
    """The products of the elements of `source` along all axes except `kept`, as a tensor like `ones`."""
    scalar, rank = ir.RankedTensorType(ones.type).element_type, ir.RankedTensorType(source.type).rank
    every = ir.AffineMap.get_identity(rank)
    part = ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(axis) for axis in kept])
    name = "arith.mulf" if isinstance(scalar, ir.FloatType) else "arith.muli"
    return loops([source], ones, [every, part], lambda block: create(name, scalar, [*block.arguments]))


RULES: dict[str, Rule] = {"ReduceProd": _reduce_prod}
SETTLED: dict[str, Callable[[NodeOperands], None]] = {"ReduceProd": _settle}
