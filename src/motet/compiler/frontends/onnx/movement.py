"""Rewrites operators that move elements and that the torch-mlir wheel lacks or lowers wrongly.

- DepthToSpace and SpaceToDepth: of mode CRD, where the wheel confuses a block's rows and columns with channels or
  ignores it, and of dynamic extents.
- Expand to fewer axes than the operand has.
- Pad with negative pads: a Slice, and a Pad without negative pads. MLIR would fold a Pad that grows one side by what it
  removes on the other.
- Pad with mode wrap, whose lowering does not terminate, and with mode reflect beyond the innermost two axes, or by more
  elements than can be reflected, and with mode edge beyond the innermost three axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.extent_demands import Fixed
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.well_formed import label
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

    from motet.errors import CompileError

_TO_THE_END = np.iinfo(np.int64).max


def _depth_to_space(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    block, by_columns = attribute(node, "blocksize", 1), attribute(node, "mode", b"DCR") == b"CRD"
    parts, order = ([0, 1, 4, 4, 2, 3], [0, 1, 4, 2, 5, 3]) if by_columns else ([0, 4, 4, 1, 2, 3], [0, 3, 4, 1, 5, 2])
    return _regrouped(node, facts, [1, block**2, 1, 1], [1, 1, block, block], parts, order)


def _space_to_depth(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    block, by_columns = attribute(node, "blocksize", 1), attribute(node, "mode", b"DCR") == b"CRD"
    order = [0, 1, 3, 5, 2, 4] if by_columns else [0, 3, 5, 1, 2, 4]
    return _regrouped(node, facts, [1, 1, block, block], [1, block**2, 1, 1], [0, 1, 2, 4, 3, 4], order)


def _regrouped(
    node: onnx.NodeProto, facts: ModelFacts, divisors: list[int], factors: list[int], parts: list[int],
    order: list[int],
) -> list[onnx.NodeProto] | None:
    """An image of 4 axes whose extents are divided by `divisors` and multiplied by `factors`. `parts` are the axes of
    the image, so divided, or 4 for those of a block; `order` is the order in which they are joined."""
    n, known, shape = Numbers(node, facts), facts.extents(node.input[0]) or [None] * 4, ""
    if 0 in known and None in known:
        return None  # refused later
    if any((extent or 0) % divisor for extent, divisor in zip(known, divisors, strict=True)):
        raise facts.model.error(
            f"{label(node)}: operator {node.op_type}: the extents of its operand are {known}; "
            f"expected multiples of {divisors}"
        )
    divided: list[str] = []
    for axis, (extent, divisor) in enumerate(zip(known, divisors, strict=True)):
        if extent is None:
            shape = shape or n.add("Shape", node.input[0])
            divided.append(n.add("Div", n.slice_of(shape, 0, axis), n.of([divisor])))
        else:
            divided.append(n.of([extent // divisor]))
    block = n.of([max(divisors[-1], factors[-1])])
    split = n.add("Concat", *((*divided, block)[part] for part in parts), axis=0)
    whole = n.mul(n.add("Concat", *divided, axis=0), n.of(factors))
    zeros = {"allowzero": 1} if facts.version >= 14 else {}
    moved = n.add("Transpose", n.add("Reshape", node.input[0], split, **zeros), perm=order)
    return n.done([n.add("Reshape", moved, whole, **zeros)])


def _expand(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """An Expand to fewer axes than the operand has, with as many."""
    shape, rank = facts.model.constants.get(node.input[1]), facts.rank(node.input[0])
    if shape is None or rank is None or shape.size >= rank:
        return None
    w = NodeWriter(node, facts)
    node.input[1] = w.constant(np.array([1] * (rank - shape.size) + shape.tolist(), np.int64), "shape")
    return [*w.nodes, node]


# -- padding ---------------------------------------------------------------------------------------


def _pad(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if facts.version < 11:
        return _pad_by_attribute(node, facts)
    given, rank = [*node.input, "", ""], facts.rank(node.input[0])
    pads = facts.model.constants.get(given[1])
    axes = facts.model.constants.get(given[3]) if given[3] else np.arange(rank or 0)
    mode = attribute(node, "mode", b"constant").decode()
    if rank is None or pads is None or axes is None:
        if mode in ("constant", "edge"):
            return None  # the pads may follow from extents, and the wheel lowers the Pad
        raise _refused(node, facts, f"Pad with mode {mode}", "pads, and extents above 0, that are known when compiling")
    sides = np.zeros((2, rank), np.int64)
    sides[:, axes] = pads.reshape(2, -1)
    beyond = bool(given[3] or sides[:, : rank - 2].any()) or _exceeds(facts.extents(node.input[0]), sides)
    outer = rank == 1 or bool(sides[:, : max(rank - 3, 0)].any())
    gathered = mode == "wrap" or (mode == "reflect" and beyond) or (mode == "edge" and outer)
    return _pad_by_sides(node, facts, sides, gathered) if gathered or (sides < 0).any() else None


def _exceeds(extents: Sequence[int | None] | None, sides: np.ndarray) -> bool:
    """Whether a pad is longer than one reflection of what remains of the axis."""
    left = [np.inf if size is None else size + less for size, less in
            zip(extents or [None] * sides.shape[1], np.minimum(sides, 0).sum(0).tolist(), strict=True)]
    return bool((sides >= np.array(left)).any())


def _pad_by_sides(node: onnx.NodeProto, facts: ModelFacts, sides: np.ndarray, gathered: bool) -> list[onnx.NodeProto]:
    """Slices off what negative pads remove first, so that no mode repeats it. A slice may be asked for more elements
    than there are, a pad may not."""
    n, extents = Numbers(node, facts), facts.extents(node.input[0])
    negative = np.flatnonzero((sides < 0).any(0)).tolist()
    for axis in negative:
        demand = Fixed(0, axis, -int(sides[:, axis].clip(max=0).sum()), at_least=True, reason=", what its pads remove")
        if (known := extents[axis] if extents else None) is None:
            node.input[0] = n.demanded(demand)
        elif not demand.fits(known):
            raise facts.model.error(f"node {node.name!r}: Pad: {demand}: it is {known}")
    value, wider = node.input[0], np.maximum(sides, 0)
    for axis, (low, high) in zip(negative, sides[:, negative].T.tolist(), strict=True):
        value = n.slice(value, axis, max(0, -low), high if high < 0 else _TO_THE_END)
    if gathered:
        value = _by_gather(n, value, np.minimum(sides, 0).sum(0), wider)
    elif wider.any():
        more = [name for name in node.input[2:3] if name]
        value = n.add("Pad", value, n.constant(wider.reshape(-1), "pads"), *more)
        n.nodes[-1].attribute.extend(node.attribute)
    return n.done([value])


def _by_gather(w: NodeWriter, value: str, removed: np.ndarray, sides: np.ndarray) -> str:
    """Pads by mode wrap, reflect or edge. Along each axis, `value` has as many elements fewer than the operand as
    `removed` says."""
    shape, mode = w.facts.shapes.get(w.node.input[0]), attribute(w.node, "mode", b"").decode()
    left = None if shape is None else [size + less for size, less in zip(shape, removed.tolist(), strict=True)]
    if left is None or any(size < 1 for size in left):
        raise _refused(w.node, w.facts, f"Pad with mode {mode}", "extents above 0 that are known when compiling")
    for axis, (before, after) in enumerate(sides.T.tolist()):
        if before or after:
            places = np.arange(-before, left[axis] + after, dtype=np.int64)
            if mode == "reflect" and left[axis] > 1:
                period = 2 * (left[axis] - 1)
                places = (left[axis] - 1) - np.abs(places % period - (left[axis] - 1))
            elif mode == "edge":
                places = places.clip(0, left[axis] - 1)
            value = w.add("Gather", value, w.constant(places % left[axis], "places"), axis=axis)
    return value


def _pad_by_attribute(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Pad before operator set 11; `settle_pads` handles negative pads with mode constant."""
    mode = attribute(node, "mode", b"constant").decode()
    if mode != "constant" and min(attribute(node, "pads", attribute(node, "paddings", [0]))) < 0:
        raise _refused(node, facts, f"Pad with mode {mode} and negative pads", "operator set 11 or later")


def _refused(node: onnx.NodeProto, facts: ModelFacts, what: str, expected: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {what} is not supported here; expected {expected}")


RULES: dict[str, Rule] = {
    "DepthToSpace": _depth_to_space, "Expand": _expand, "Pad": _pad, "SpaceToDepth": _space_to_depth,
}
