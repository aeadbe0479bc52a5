"""Removes stages whose results later stages overwrite before any stage reads them.

    v1[i, j] = 0                       (fill)
    v1[i, j] = v0[i, j]         →      v1[i, j] = v0[i, j]
    v1[i, j + 3] = v0[i, j]            v1[i, j + 3] = v0[i, j]

The later stages write disjoint boxes that together are the whole value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from motet.compiler.kernels.kernel import Access, Kernel, Stage

Box = tuple[tuple[int, int], ...]  # the first and the last element along each axis


@dataclass
class _Write:
    """What one stage writes of a value: boxes, and the number of their elements. If the boxes are unknown, the number
    is larger than the value's, so that no run of writes that contains this one covers the value."""

    stage: int
    boxes: list[Box]
    elements: int


def without_overwritten(kernel: Kernel) -> Kernel:
    removed = {
        number for value, run in _runs(kernel) for number in _covered(run, _elements(kernel, value))
        if len(kernel.stages[number].outputs) == 1 and not any(scalar.check for scalar in kernel.stages[number].body)
    }
    kept = tuple(stage for number, stage in enumerate(kernel.stages) if number not in removed)
    return replace(kernel, stages=kept) if removed else kernel


def _runs(kernel: Kernel) -> Iterator[tuple[int, list[_Write]]]:
    """The values of static extents, each with its writes in order. A stage that reads the value begins a new run."""
    runs: dict[int, list[_Write]] = {}
    for number, stage in enumerate(kernel.stages):
        for value in _read(stage) & runs.keys():
            yield value, runs.pop(value)
        for value in {output.value for output in stage.outputs}:
            if all(isinstance(size, int) for size in kernel.values[value].shape):
                runs.setdefault(value, []).append(_write(kernel, number, value))
    yield from runs.items()


def _write(kernel: Kernel, number: int, value: int) -> _Write:
    stage = kernel.stages[number]
    boxes = [_box(stage, output) for output in stage.outputs if output.value == value]
    known = [box for box in boxes if box is not None]
    if len(known) < len(boxes):
        return _Write(number, [], _elements(kernel, value) + 1)
    return _Write(number, known, sum(math.prod(last - first + 1 for first, last in box) for box in known))


def _elements(kernel: Kernel, value: int) -> int:
    return math.prod(size for size in kernel.values[value].shape if isinstance(size, int))


def _covered(run: Sequence[_Write], elements: int) -> Iterator[int]:
    """The stages of `run` after which disjoint writes make all `elements` of the value."""
    written = list(accumulate(write.elements for write in run))
    for position, write in enumerate(run):
        end = bisect_left(written, written[position] + elements, position + 1)
        if end == len(run) or written[end] != written[position] + elements:
            continue
        if are_disjoint([box for later in run[position + 1 : end + 1] for box in later.boxes]):
            yield write.stage


def are_disjoint(boxes: Sequence[Box]) -> bool:
    """Whether no two boxes have an element in common. Sweeps along the axis on which boxes begin at the most different
    places, because few boxes are then open at once."""
    rank = len(boxes[0]) if boxes else 0
    if not rank:
        return len(boxes) < 2
    axis = max(range(rank), key=lambda axis: len({box[axis][0] for box in boxes}))
    opened: list[Box] = []
    for box in sorted(boxes, key=lambda box: box[axis][0]):
        opened = [other for other in opened if other[axis][1] >= box[axis][0]]
        if any(_meet(box, other) for other in opened):
            return False
        opened.append(box)
    return True


def _read(stage: Stage) -> set[int]:
    return {access.value for access in (*stage.inputs, *stage.inits) if isinstance(access, Access)}


def _box(stage: Stage, output: Access) -> Box | None:
    """The elements that `output` writes, if they are a box of neighbouring ones."""
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    for entry in output.map:
        if entry.is_constant:
            found.append((entry.constant, entry.constant))
            continue
        (dim, coefficient), *more = entry.terms
        size = stage.sizes[dim]
        if more or coefficient != 1 or dim in seen or not isinstance(size, int):
            return None
        seen.add(dim)
        found.append((entry.constant, entry.constant + size - 1))
    return tuple(found)


def _meet(a: Box, b: Box) -> bool:
    """Whether two boxes have an element in common."""
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))
