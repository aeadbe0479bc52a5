"""Slices with steps, and the masks of StridedSlice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import LAST, GraphWriter, Rules


def _slice(op: OpenvinoOperation, w: GraphWriter) -> str:
    given = [w.cast(name, np.int64) if op.value(place) is None else w.ints(op.numbers(place, "bounds"))
             for place, name in enumerate(op.inputs) if place]
    start, stop, step, *axes = given
    if not axes:
        count = (op.extents(1) or [None])[0]
        if count is None:
            raise NoLowering("an unknown number of bounds; expected a known one")
        axes = [w.ints(list(range(count)))]
    return w.add("Slice", op.inputs[0], start, stop, axes[0], step)


@dataclass
class _Cuts:
    """What a StridedSlice does to each axis: bounds as names of vectors of one element, axes that vanish or appear."""

    axes: list[int] = field(default_factory=list[int])
    starts: list[str] = field(default_factory=list[str])
    stops: list[str] = field(default_factory=list[str])
    steps: list[int] = field(default_factory=list[int])
    dropped: list[int] = field(default_factory=list[int])
    added: list[int] = field(default_factory=list[int])


def _mask(op: OpenvinoOperation, name: str, count: int) -> list[bool]:
    given = [bool(int(each)) for each in op.attribute(name) or []]
    return (given + [False] * count)[:count]


def _strided_slice(op: OpenvinoOperation, w: GraphWriter) -> str:
    count = (op.extents(1) or [None])[0]
    if count is None:
        raise NoLowering("an unknown number of bounds; expected a known one")
    cuts = _cuts(op, w, count)
    value = op.inputs[0]
    if cuts.axes:
        starts, stops = (w.add("Concat", *names, axis=0) for names in (cuts.starts, cuts.stops))
        value = w.add("Slice", value, starts, stops, w.ints(cuts.axes), w.ints(cuts.steps))
    if cuts.dropped:
        value = w.squeeze(value, *cuts.dropped)
    return w.unsqueeze(value, *cuts.added) if cuts.added else value


def _cuts(op: OpenvinoOperation, w: GraphWriter, count: int) -> _Cuts:
    begins, ends = op.value(1), op.value(2)
    steps = op.numbers(3, "strides") if op.has(3) else [1] * count
    opened, closed = _mask(op, "begin_mask", count), _mask(op, "end_mask", count)
    new, shrunk = _mask(op, "new_axis_mask", count), _mask(op, "shrink_axis_mask", count)
    ellipsis = _mask(op, "ellipsis_mask", count)
    cuts, axis, result = _Cuts(), 0, 0
    taken = sum(1 for place in range(count) if not new[place] and not ellipsis[place])
    for place in range(count):
        if ellipsis[place]:
            skipped = op.rank(0) - taken
            axis, result = axis + skipped, result + skipped
            continue
        if new[place]:
            cuts.added.append(result)
            result += 1
            continue
        step = 1 if shrunk[place] else steps[place]
        start = _bound(op, w, 1, begins, place)
        if shrunk[place]:
            stop = _after(w, begins, place, start)
            cuts.dropped.append(axis)
        else:
            stop = w.ints([LAST if step > 0 else -LAST]) if closed[place] else _bound(op, w, 2, ends, place)
            if opened[place]:
                start = w.ints([0 if step > 0 else LAST])
            result += 1
        if shrunk[place] or not (opened[place] and closed[place] and step == 1):
            cuts.axes.append(axis)
            cuts.starts.append(start)
            cuts.stops.append(stop)
            cuts.steps.append(step)
        axis += 1
    return cuts


def _bound(op: OpenvinoOperation, w: GraphWriter, place: int, values: np.ndarray | None, position: int) -> str:
    if values is not None:
        return w.ints([int(values.reshape(-1)[position])])
    return w.cast(w.slice(op.inputs[place], 0, position, position + 1), np.int64)


def _after(w: GraphWriter, values: np.ndarray | None, position: int, start: str) -> str:
    """The end of a slice of one element from `start`, of which -1 is the last."""
    if values is not None:
        number = int(values.reshape(-1)[position])
        return w.ints([LAST if number == -1 else number + 1])
    following = w.add("Add", start, w.ints([1]))
    return w.add("Where", w.add("Equal", following, w.ints([0])), w.ints([LAST]), following)


RULES: Rules = {"Slice": _slice, "StridedSlice": _strided_slice}
