"""Writes operators whose pads, parts, repeats, counts or sizes are dynamic with other operators.

- Pad: a Slice, then a Pad without negative pads, or a Gather along each axis.
- Split: Slices. TopK: sorts all elements. Range: counts the numbers first. AffineGrid.
- Tile, ConstantOfShape and Expand: assertions that the numbers fit. Reshape: also the extents for 0 and -1.
- Clip: an assertion that a limit of dynamic extents is one number.
- Conv and ConvTranspose with a bias, or filters, whose number is dynamic: the bias is added to the result.

`read_value_extents` makes the computed extents extents of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.extent_demands import Counted, Fixed, Tie
from motet.compiler.frontends.onnx.numbers import Axes, Numbers, given
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, Rule, copy

if TYPE_CHECKING:
    import onnx

_F32, _I64, _F64 = 1, 7, 11  # element types
_LARGE = 1 << 40  # longer than any axis


def _affine_grid(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """AffineGrid: along each axis the centres or corners of the grid's cells, times a column of the matrices; added."""
    kind, rank = facts.types.get(node.input[0]), (facts.shapes.get(node.input[1]) or (0,))[0] - 2
    if not given(node, facts, 1) or kind is None or rank not in (2, 3):
        return None
    n = Numbers(node, facts)
    dtype, matrices = facts.dtype(node.input[0]), node.input[0]

    def number(value: float) -> str:
        return n.constant(np.array(value, dtype), "number")

    size = n.read(node.input[1], [rank + 2])
    terms: list[str] = []
    for axis in range(rank):
        extent = n.add("Gather", size, n.of(axis + 2), axis=0)
        place = n.cast(n.add("Range", n.of(0), extent, n.of(1)), kind)
        count = n.cast(extent, kind)
        middles = n.add("Div", n.plus(n.mul(place, number(2)), number(1)), count)
        if attribute(node, "align_corners", 0):
            corners = n.add("Div", n.mul(place, number(2)), n.add("Max", n.sub(count, number(1)), number(1)))
            middles = n.choose(n.less(n.of(1), extent), corners, middles)
        along = n.reshape(n.sub(middles, number(1)), [1, *(-1 if other == axis else 1 for other in range(rank)), 1])
        columns = n.add("Gather", matrices, n.of(rank - 1 - axis), axis=2)
        terms.append(n.mul(along, n.reshape(columns, [-1, *[1] * rank, rank])))
    columns = n.reshape(n.add("Gather", matrices, n.of(rank), axis=2), [-1, *[1] * rank, rank])
    for term in terms:
        columns = n.plus(columns, term)
    return n.done([columns])


# -- padding ---------------------------------------------------------------------------------------


def _pad(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Pad: first a Slice for negative pads; modes other than constant gather the elements axis by axis."""
    rank, names = facts.rank(node.input[0]), [*node.input, "", ""]
    if facts.version < 11 or rank is None or all(name in facts.model.constants for name in names[1:4:2] if name):
        return None
    if not (given(node, facts, 1) or given(node, facts, 3)) and (
        0 in facts.shapes.get(node.input[0], (0,)) or node.output[0] not in facts.shapes
    ):
        return None  # the pads follow from extents, and the wheel lowers most of such
    n = Numbers(node, facts)
    if not rank:
        return n.done([node.input[0]])
    pads = n.read(node.input[1], [2, -1])
    if names[3]:
        rows = n.over("Unsqueeze", Axes(n, names[3], rank).checked_rows(n), [0])
        pads = n.sum(n.mul(n.over("Unsqueeze", pads, [2]), rows), 1)
    pads = n.within(pads, n.of(-_LARGE), n.of(_LARGE))
    shape, zero, mode = n.shape(node.input[0]), n.of(0), attribute(node, "mode", b"constant").decode()
    removed = n.add("Max", n.add("Neg", pads), zero)
    left = n.sub(shape, n.sum(removed, 0))
    added = n.add("Max", pads, zero)
    low, high = (n.add("Gather", removed, n.of(side), axis=0) for side in (0, 1))
    least = n.add("ReduceMin", left, keepdims=0)
    low = n.require(low, n.less(n.of(-1), least), "more is removed than there is")
    every, ones = n.of(range(rank)), n.of([1] * rank)
    value = n.add("Slice", node.input[0], low, n.sub(shape, high), every, ones)
    if mode == "constant":
        return n.done([n.add("Pad", value, n.reshape(added, [2 * rank]), *[name for name in names[2:3] if name])])
    filled = n.add("Or", n.less(zero, left), n.add("Equal", n.sum(added, 0), zero))
    enough = n.add("Equal", n.add("ReduceMin", n.flag(filled), keepdims=0), n.of(1))
    added = n.require(added, enough, f"mode {mode} along an axis without elements")
    for axis in range(rank):
        before, after = (n.add("Gather", n.add("Gather", added, n.of(s), axis=0), n.of(axis), axis=0) for s in (0, 1))
        count = n.add("Gather", left, n.of(axis), axis=0)
        own = n.add("Range", zero, n.plus(count, n.plus(before, after)), n.of(1))
        value = n.add("Gather", value, _source(n, n.sub(own, before), count, mode), axis=axis)
    return n.done([value])


def _source(n: Numbers, place: str, count: str, mode: str) -> str:
    """The index into `count` elements that `place`, possibly out of bounds, maps to in `mode`."""
    one = n.of(1)
    count = n.add("Max", count, one)
    last = n.sub(count, one)
    if mode == "wrap":
        return n.add("Mod", place, count)
    if mode == "edge":
        return n.within(place, n.of(0), last)
    period = n.add("Max", n.plus(last, last), one)
    return n.sub(last, n.add("Abs", n.sub(n.add("Mod", place, period), last)))


# -- shapes, parts and counts ------------------------------------------------------------------------


def _tile(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if facts.version < 6 or not given(node, facts, 1) or not (rank := facts.rank(node.input[0])):
        return None
    return _bounded(node, facts, 1, 0, "a number of repeats", rank)


def _reshape(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Reshape: an extent of 0 is that of the input, unless `allowzero`, and one of -1 is what the others leave."""
    count, rank = facts.shapes.get(node.input[1]), facts.rank(node.input[0])
    if not given(node, facts, 1) or count in (None, (0,)) or rank is None:
        return None
    n = Numbers(node, facts)
    asked, own, one = n.read(node.input[1], [count[0]]), n.shape(node.input[0]), n.of(1)
    fits = n.less(n.of(-2), n.add("ReduceMin", asked, keepdims=0))
    asked = n.require(asked, fits, "an extent is less than -1")
    if rank and not attribute(node, "allowzero", 0):
        kept = own if rank == count[0] else n.slice(own, 0, 0, count[0])
        if rank < count[0]:
            kept = n.add("Concat", own, n.of([0] * (count[0] - rank)), axis=0)
        asked = n.choose(n.add("Equal", asked, n.of(0)), kept, asked)
    is_open = n.add("Equal", asked, n.of(-1))
    others = n.add("ReduceProd", n.choose(is_open, one, asked), keepdims=0)
    total = n.add("ReduceProd", own, keepdims=0) if rank else one
    asked = n.choose(is_open, n.add("Div", total, n.add("Max", others, one)), asked)
    asked = n.require(asked, n.less(n.sum(n.flag(is_open), 0), n.of(2)), "more than one extent is -1")
    made = n.add("Reshape", node.input[0], _with_known(asked, n, facts.extents(node.output[0])), allowzero=1)
    n.nodes[-1].name = node.name
    return n.done([made])


def _with_known(asked: str, n: Numbers, extents: Sequence[int | None] | None) -> str:
    """The extents `asked`, of which those that are known when compiling are constants."""
    if extents is None or all(extent is None for extent in extents):
        return asked
    parts = [n.add("Gather", asked, n.of([axis]), axis=0) if extent is None else n.of([extent])
             for axis, extent in enumerate(extents)]
    return n.add("Concat", *parts, axis=0)


def _constant_of_shape(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if not given(node, facts, 0) or facts.shapes.get(node.input[0]) in (None, (0,)):
        return None
    return _bounded(node, facts, 0, 0, "an extent")


def _bounded(
    node: onnx.NodeProto, facts: ModelFacts, number: int, least: int, what: str, count: int | None = None
) -> list[onnx.NodeProto]:
    """`node` with the assertions that the elements of input `number` are at least `least`, and that there are `count`
    of them."""
    n = Numbers(node, facts)
    name = node.input[number]
    if count is not None and name not in facts.shapes:
        name = n.reshape(n.demanded(Fixed(number, 0, count)), [count])
    fits = n.less(n.of(least - 1), n.add("ReduceMin", n.cast(name, _I64), keepdims=0))
    made = n.add(node.op_type, *node.input[:number], n.require(name, fits, f"{what} is less than {least}"))
    n.nodes[-1].attribute.extend(node.attribute)
    n.nodes[-1].name = node.name
    return n.done([made])


def _clip(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    n, clipped = Numbers(node, facts), copy(node)
    for number in (number for number, name in enumerate(node.input) if number and name and name not in facts.shapes):
        rank = facts.rank(node.input[number])
        if rank is None:
            return None
        clipped.input[number] = n.reshape(n.reshape(n.demanded(Counted(number, rank, 1)), [1]), [])
    return [*n.nodes, clipped] if n.nodes else None


def _biased(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, transposed = facts.rank(node.input[0]), node.op_type == "ConvTranspose"
    if facts.version < 9 or len(node.input) < 3 or not node.input[2] or not rank or facts.rank(node.input[2]) != 1:
        return None  # before 9, there is no Where for the assertion
    filters, bias = (facts.extents(name) for name in node.input[1:3])
    if filters is None or bias is None or None not in (filters[transposed], bias[0]):
        return None
    n = Numbers(node, facts)
    tie = Tie(2, 0, 1, 1, times=attribute(node, "group", 1)) if transposed else Tie(2, 0, 1, 0)
    result = n.add(node.op_type, *node.input[:2])
    n.nodes[-1].attribute.extend(node.attribute)
    return n.done([n.plus(result, n.reshape(n.demanded(tie), [1, -1, *[1] * (rank - 2)]))])


def _expand(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, count = facts.rank(node.input[0]), facts.shapes.get(node.input[1])
    if not given(node, facts, 1) or rank is None or count in (None, (0,)):
        return None
    n = Numbers(node, facts)
    asked, own, one = node.input[1], n.shape(node.input[0]), n.of(1)
    total = max(rank, count[0])
    if count[0] < total:
        asked = n.add("Concat", n.of([1] * (total - count[0])), asked, axis=0)
    if rank < total:
        own = n.add("Concat", n.of([1] * (total - rank)), own, axis=0) if rank else n.of([1] * total)
    stretched = n.add("Equal", own, one)
    kept = n.add("Or", n.add("Equal", own, asked), n.add("Equal", asked, one))
    fits = n.add("Or", kept, n.add("And", stretched, n.less(n.of(-1), asked)))
    every = n.add("Equal", n.add("ReduceMin", n.flag(fits), keepdims=0), one)
    shape = n.require(n.choose(stretched, asked, own), every, "expected extents of its input, or 1")
    return n.done([n.add("Expand", node.input[0], shape)])


def _split(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, count = facts.rank(node.input[0]), len(node.output)
    lengths = node.input[1] if len(node.input) > 1 else ""
    if not lengths or lengths in facts.model.constants or not rank:
        return None
    n = Numbers(node, facts)
    axis = attribute(node, "axis", 0) % rank
    parts = n.read(node.input[1], [count])
    extent = n.add("Gather", n.shape(node.input[0]), n.of(axis), axis=0)
    least = n.add("ReduceMin", parts, keepdims=0)
    fits = n.add("And", n.less(n.of(-1), least), n.add("Equal", n.sum(parts, 0), extent))
    parts = n.require(parts, fits, f"expected parts that are axis {axis} of its input together, none negative")
    ends = n.sum(n.mul(n.of(np.tri(count, dtype=np.int64)), parts), 1)
    begins = n.sub(ends, parts)
    along, one, found = n.of([axis]), n.of([1]), list[str]()
    for number in range(count):
        begin, end = (n.add("Gather", places, n.of([number]), axis=0) for places in (begins, ends))
        found.append(n.add("Slice", node.input[0], begin, end, along, one))
    return n.done(found)


def _top_k(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """TopK: sorts all elements, then takes the requested number."""
    rank = facts.rank(node.input[0])
    if not given(node, facts, 1) or not rank:
        return None
    n = Numbers(node, facts)
    axis = attribute(node, "axis", -1) % rank
    known = (facts.extents(node.input[0]) or [None] * rank)[axis]
    extent = n.add("Gather", n.shape(node.input[0]), n.of([axis]), axis=0) if known is None else n.of([known])
    asked = n.reshape(n.read(node.input[1], [1]), [])
    fits = n.add("And", n.less(n.of(-1), asked), n.less(asked, n.plus(n.reshape(extent, []), n.of(1))))
    most = f"the extent of axis {axis}" if known is None else known
    asked = n.require(asked, fits, f"expected k from 0 to {most}")
    found = n.add_all("TopK", 2, node.input[0], extent)
    n.nodes[-1].attribute.extend(node.attribute)
    places = n.add("Range", n.of(0), asked, n.of(1))
    return n.done([n.add("Gather", value, places, axis=axis) for value in found])


def _range(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Range: counts the numbers before the limit; none if the step leads away from it."""
    kind = facts.types.get(node.input[0])
    if kind is None or not any(given(node, facts, number) for number in range(3)):
        return None
    n = Numbers(node, facts)
    whole = facts.dtype(node.input[0]).kind in "iu"
    wide = _I64 if whole else _F64 if kind == _F64 else _F32
    start, limit, step = (n.cast(n.reshape(name, []), wide) for name in node.input)
    zero = n.constant(np.array(0, np.int64 if whole else np.float64 if wide == _F64 else np.float32), "zero")
    if whole:
        distance = n.add("Max", n.mul(n.sub(limit, start), n.add("Sign", step)), zero)
        size = n.add("Max", n.add("Abs", step), n.of(1))
        left = n.sub(distance, n.mul(n.add("Div", distance, size), size))
        count = n.plus(n.add("Div", distance, size), n.flag(n.less(zero, left)))
        fits = n.add("Not", n.add("Equal", step, zero))
    else:
        count = n.add("Ceil", n.add("Div", n.sub(limit, start), step))
        most = n.constant(np.array(_LARGE, np.float64 if wide == _F64 else np.float32), "most")
        fits = n.less(count, most)  # false for NaN
        count = n.cast(n.add("Max", count, zero), _I64)
    count = n.require(count, fits, "expected a step that leads to the limit, in fewer than 2^40 steps")
    places = n.cast(n.add("Range", n.of(0), count, n.of(1)), wide)
    return n.done([n.cast(n.plus(start, n.mul(places, step)), kind)])


RULES: dict[str, Rule] = {
    "AffineGrid": _affine_grid, "Clip": _clip, "ConstantOfShape": _constant_of_shape, "Conv": _biased,
    "ConvTranspose": _biased, "Expand": _expand, "Pad": _pad, "Range": _range, "Reshape": _reshape, "Split": _split,
    "Tile": _tile, "TopK": _top_k,
}  # fmt: skip
