"""Writes operators whose axes, ends or steps are dynamic with operators whose axes are static.

- Reductions over dynamic axes: each axis of extent n is split into two, 1 and n if it is reduced, else n and 1; the
  second ones are reduced.
- Squeeze and Unsqueeze: Reshape to computed extents.
- CumSum along a dynamic axis: the axes before it and after it are merged.
- Slice with dynamic axes: begins and ends for every axis. Slice with dynamic steps: Gather. Slice by vectors of dynamic
  length: an assertion of their length.

`read_value_extents` makes the computed extents extents of inputs. Invalid values are refused by assertions (`require`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.extent_demands import Tie
from motet.compiler.frontends.onnx.numbers import Axes, Numbers, given, refused
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx

_BOOL = 9  # element type
_LARGE = 1 << 40  # longer than any axis


def _to(w: NodeWriter, value: str, extents: str) -> str:
    """`value` reshaped to `extents`, any of which may be 0."""
    return w.add("Reshape", value, extents, allowzero=1)


# -- reductions ------------------------------------------------------------------------------------


def _reduce(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    axes, rank = given(node, facts, 1), facts.rank(node.input[0])
    if not axes or rank is None:
        return None
    keep, count = attribute(node, "keepdims", 1), facts.shapes.get(axes)
    n = Numbers(node, facts)
    if rank == 0 or count == (0,):
        made = n.add(node.op_type, node.input[0], n.of([]))
        n.nodes[-1].attribute.extend(node.attribute)
        return n.done([made])
    if count is None:
        raise refused(node, facts, "a number of axes that a call decides")
    if count[0] > rank:
        raise facts.model.error(
            f"node {node.name!r}: {node.op_type} along {count[0]} axes; expected at most {rank}, those of its operand"
        )
    found = Axes(n, axes, rank)
    shape = n.shape(node.input[0])
    reduced = n.choose(n.cast(found.marks, _BOOL), shape, n.of(1))
    kept = n.choose(n.cast(found.marks, _BOOL), n.of(1), shape)
    pairs = n.add("Concat", n.reshape(kept, [-1, 1]), n.reshape(reduced, [-1, 1]), axis=1)
    value = _to(n, node.input[0], n.reshape(pairs, [2 * rank]))
    value = n.over(node.op_type, value, range(1, 2 * rank, 2), keepdims=0)
    if not keep and count == (rank,):  # extents of 1
        value = n.reshape(n.reshape(value, [1]), [])
    elif not keep:
        value = _to(n, value, _without(n, found, shape))
    return n.done([value])


def _without(n: Numbers, axes: Axes, shape: str) -> str:
    """The extents of `shape` along all axes except `axes`."""
    left = axes.rank - (axes.count or 0)
    if left < 1:
        return n.of([])
    rank = axes.rank
    others = n.sub(n.of(1), axes.marks)
    before = n.sum(n.mul(n.of(np.tri(rank, k=-1, dtype=np.int64)), others), 1)  # the kept axes before each axis
    met = n.flag(n.add("Equal", n.reshape(before, [-1, 1]), n.of(range(left))))
    return n.sum(n.mul(n.mul(met, n.reshape(others, [-1, 1])), n.reshape(shape, [-1, 1])), 0)


# -- axes of extent 1 ------------------------------------------------------------------------------


def _squeeze(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    axes, rank = given(node, facts, 1), facts.rank(node.input[0])
    if not axes or not rank:
        return None
    if axes not in facts.shapes:
        raise refused(node, facts, "a number of axes that a call decides")
    n = Numbers(node, facts)
    found, shape = Axes(n, axes, rank), n.shape(node.input[0])
    others = n.mul(found.marks, n.sub(shape, n.of(1)))
    most = n.add("ReduceMax", n.add("Abs", others), keepdims=0)
    fits, text = n.add("Equal", most, n.of(0)), "expected axes of extent 1"
    if rank == found.count:
        return n.done([n.reshape(n.reshape(node.input[0], [1]), [])])
    return n.done([_to(n, node.input[0], n.require(_without(n, found, shape), fits, text))])


def _unsqueeze(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    axes, rank = given(node, facts, 1), facts.rank(node.input[0])
    if not axes or rank is None:
        return None
    if axes not in facts.shapes:
        raise refused(node, facts, "a number of axes that a call decides")
    n = Numbers(node, facts)
    total = rank + int(np.prod(facts.shapes[axes]))
    found = Axes(n, axes, total)
    others = n.sub(n.of(1), found.marks)
    before = n.sum(n.mul(n.of(np.tri(total, k=-1, dtype=np.int64)), others), 1)
    extents = found.marks
    if rank:
        met = n.flag(n.add("Equal", n.reshape(before, [-1, 1]), n.of(range(rank))))
        own = n.sum(n.mul(met, n.reshape(n.shape(node.input[0]), [1, -1])), 1)
        extents = n.plus(extents, n.mul(others, own))
    return n.done([_to(n, node.input[0], extents)])


# -- along one axis --------------------------------------------------------------------------------


def _cumulative(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    axis, rank = given(node, facts, 1), facts.rank(node.input[0])
    if not axis or not rank:
        return None
    n = Numbers(node, facts)
    found, shape = Axes(n, n.reshape(axis, [1]), rank), n.shape(node.input[0])
    place = n.sum(n.mul(found.marks, n.of(range(rank))), 0)
    every = n.of(range(rank))
    parts = [
        n.add("ReduceProd", n.choose(met, shape, n.of(1)), keepdims=1)
        for met in (n.less(every, place), n.add("Equal", every, place), n.less(place, every))
    ]
    value = _to(n, node.input[0], n.add("Concat", *parts, axis=0))
    value = n.add(node.op_type, value, n.of(1))
    n.nodes[-1].attribute.extend(node.attribute)
    return n.done([_to(n, value, shape)])


# -- slices ----------------------------------------------------------------------------------------


def _as_long(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A Slice whose vectors of dynamic length are demanded to be as long as one of known length."""
    numbers = [number for number in range(1, len(node.input)) if node.input[number]]
    known = [number for number in numbers if len(facts.shapes.get(node.input[number], ())) == 1]
    dynamic = [
        number for number in numbers
        if node.input[number] not in facts.shapes and facts.rank(node.input[number]) == 1
    ]
    if not known or not dynamic:
        return None
    n, sliced = Numbers(node, facts), copy(node)
    for number in dynamic:
        vector = n.demanded(Tie(number, 0, known[0], 0))
        sliced.input[number] = n.reshape(vector, facts.shapes[node.input[known[0]]])
    return [*n.nodes, sliced]


def _slice(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if facts.version < 10 or not rank:
        return None
    if (sliced := _as_long(node, facts)) is not None:
        return sliced
    axes, steps = given(node, facts, 3), given(node, facts, 4)
    starts = facts.shapes.get(node.input[1])
    known = [facts.model.constants.get(name) for name in node.input[4:5] if name]
    backwards = any(array is not None and (array != 1).any() for array in known)
    of_data = given(node, facts, 1) or given(node, facts, 2)
    if not (axes or steps or (of_data and backwards)):
        return None
    if starts is None:
        raise refused(node, facts, "a number of axes that a call decides")
    n = Numbers(node, facts)
    count = starts[0]
    if axes:
        by_axis = Axes(n, axes, rank)
        rows, marks = by_axis.by_axis, by_axis.marks
    else:
        named = len(node.input) > 3 and node.input[3]
        places = facts.model.constants[node.input[3]] % rank if named else np.arange(count)
        one_hot = (places.reshape(-1, 1) == np.arange(rank)).astype(np.int64)
        rows, marks = n.of(one_hot), n.of(one_hot.sum(0))
    others = n.sub(n.of(1), marks)

    def spread(number: int, default: int) -> str:
        """One number for each axis."""
        if len(node.input) <= number or not node.input[number]:
            return n.of([default] * rank)
        own = n.read(node.input[number], [count, 1])
        # Models write the largest integers for "to the end"; clamp, so that sums do not overflow.
        own = n.within(own, n.of(-_LARGE), n.of(_LARGE))
        return n.plus(n.sum(n.mul(rows, own), 0), n.mul(others, n.of(default)))

    begins, ends = spread(1, 0), spread(2, _LARGE)
    if not steps and not backwards:
        every = n.of(range(rank))
        return n.done([n.add("Slice", node.input[0], begins, ends, every, n.of([1] * rank))])
    strides = spread(4, 1)
    nonzero = n.add("ReduceMin", n.add("Abs", strides), keepdims=0)
    strides = n.require(strides, n.less(n.of(0), nonzero), "a step is 0; expected none")
    return n.done([_gathered(n, node.input[0], rank, (begins, ends, strides))])


def _gathered(n: Numbers, value: str, rank: int, numbers: tuple[str, str, str]) -> str:
    """`value` along each axis from begin to end by steps of any sign, with the semantics of Slice."""
    shape = n.shape(value)
    begins, ends, strides = numbers
    zero, one = n.of(0), n.of(1)
    forward = n.less(zero, strides)
    last = n.choose(forward, shape, n.sub(shape, one))
    begin = n.within(n.from_start(begins, shape), zero, last)
    end = n.within(n.from_start(ends, shape), n.choose(forward, zero, n.of(-1)), last)
    distance = n.mul(n.sub(end, begin), n.add("Sign", strides))
    size = n.add("Abs", strides)
    counts = n.add("Div", n.plus(n.add("Max", distance, zero), n.sub(size, one)), size)
    for axis in range(rank):
        place = n.of(axis)
        first, stride, count = (n.add("Gather", each, place, axis=0) for each in (begin, strides, counts))
        along = n.add("Range", zero, count, one)
        value = n.add("Gather", value, n.plus(first, n.mul(along, stride)), axis=axis)
    return value


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduce), "CumProd": _cumulative, "CumSum": _cumulative, "Slice": _slice,
    "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
}  # fmt: skip
