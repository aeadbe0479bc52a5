"""Writes GridSample, most forms of which the torch-mlir wheel lacks or lowers wrongly, as a sum of weighted elements.

    y[n, c, p] = Σ x[n, c, place(grid[n, p], tap)] · weight(grid[n, p], tap)

over the interpolation taps of a position: one, two or four along each axis. Coordinates, borders and reflections follow
ONNX's specification (operator set 20). Elements outside are replaced by zero, not multiplied by it, so that infinities
do not spread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_MODES = {b"bilinear": "linear", b"linear": "linear", b"nearest": "nearest", b"bicubic": "cubic", b"cubic": "cubic"}
_CUBIC = -0.75
_LARGEST = 1e30  # a coordinate whose product with an extent is still finite


@dataclass(frozen=True)
class _Tap:
    """An element along one axis: its index, its weight (None: 1), and whether it is inside (None: always)."""

    place: str
    weight: str
    inside: str


@dataclass(frozen=True)
class _Sampler:
    """Writes the nodes of one GridSample; numbers are float32."""

    w: NodeWriter
    mode: str
    padding: str
    aligned: bool

    def number(self, value: float) -> str:
        return self.w.constant(np.array(value, np.float32), "number")

    def calculate(self, op: str, value: str, other: float) -> str:
        return self.w.add(op, value, self.number(other))

    def reflected(self, value: str, size: int) -> str:
        """Reflects at the centres of the outermost elements, or at their outer edges."""
        low = 0.0 if self.aligned else -0.5
        period = 2 * (size - 1 - 2 * low)
        if not period:
            return self.calculate("Mul", value, 0.0)
        distance = self.w.add("Abs", self.calculate("Sub", value, low))
        within = self.w.add("Mod", distance, self.number(period), fmod=1)
        back = self.w.add("Sub", self.number(period), within)
        return self.calculate("Add", self.w.add("Min", within, back), low)

    def clipped(self, value: str, size: int) -> str:
        return self.w.add("Clip", value, self.number(0), self.number(size - 1))

    def position(self, value: str, size: int) -> str:
        """The position among `size` elements of a coordinate in [-1, 1]."""
        scaled = self.calculate("Mul", self.calculate("Add", value, 1), (size - 1) / 2 if self.aligned else size / 2)
        position = scaled if self.aligned else self.calculate("Sub", scaled, 0.5)
        position = self.w.add("Round", position) if self.mode == "nearest" else position
        if self.padding == "border":
            # Positions beyond the outermost elements' edges become their centres; positions in their outer halves stay.
            end = 0.0 if self.aligned else 0.5
            ended = self.w.add("Clip", position, self.number(-end), self.number(size - 1 + end))
            return self.w.add("Where", self.w.add("Equal", position, ended), position, self.clipped(position, size))
        return self.reflected(position, size) if self.padding == "reflection" else position

    def taps(self, value: str, size: int) -> list[_Tap]:
        position = self.position(value, size)
        if self.mode == "nearest":
            return [self._tap(self.w.add("Round", position), "", size)]
        first = self.w.add("Floor", position)
        part = self.w.add("Sub", position, first)
        rest = self.w.add("Sub", self.number(1), part)
        if self.mode == "linear":
            return [self._tap(self.calculate("Add", first, k), weight, size) for k, weight in enumerate((rest, part))]
        a = _CUBIC
        weights = [
            self._polynomial(self.calculate("Add", part, 1), (a, -5 * a, 8 * a, -4 * a)),
            self._polynomial(part, (a + 2, -(a + 3), 0, 1)),
            self._polynomial(rest, (a + 2, -(a + 3), 0, 1)),
            self._polynomial(self.calculate("Add", rest, 1), (a, -5 * a, 8 * a, -4 * a)),
        ]
        return [self._tap(self.calculate("Add", first, k - 1), weight, size) for k, weight in enumerate(weights)]

    def _polynomial(self, value: str, factors: Sequence[float]) -> str:
        result = self.calculate("Mul", value, factors[0])
        for factor in factors[1:-1]:
            result = self.w.add("Mul", self.calculate("Add", result, factor), value)
        return self.calculate("Add", result, factors[-1])

    def _tap(self, place: str, weight: str, size: int) -> _Tap:
        inside = ""
        if self.padding == "zeros":
            inside = self.w.add("Equal", place, self.clipped(place, size))
        elif self.padding == "reflection":
            place = self.w.add("Round", self.reflected(place, size))
        return _Tap(self.w.cast(self.clipped(place, size), 7), weight, inside)


def _grid_sample(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    mode = _MODES[attribute(node, "mode", b"linear")]
    padding, aligned = attribute(node, "padding_mode", b"zeros").decode(), bool(attribute(node, "align_corners", 0))
    shape, grid = facts.extents(node.input[0]), facts.extents(node.input[1])
    known = [extent for extent in (*(shape or [])[1:], *(grid or [])[1:]) if extent]
    if shape is None or grid is None or node.input[0] not in facts.types or len(known) != len(shape) + len(grid) - 2:
        raise facts.model.error(
            f"node {node.name!r}: GridSample is supported with extents that are known when compiling, but for batches"
        )
    w = NodeWriter(node, facts)
    s = _Sampler(w, mode, padding, aligned)
    channels, *sizes = known[: len(shape) - 1]
    points = known[len(shape) - 1 : -1]
    data = w.reshape(w.cast(node.input[0], onnx.TensorProto.FLOAT), [0, channels, math.prod(sizes)])
    flat = w.cast(w.reshape(node.input[1], [0, math.prod(points), len(sizes)]), onnx.TensorProto.FLOAT)
    flat = _bounded(w, flat)
    last = len(sizes) - 1
    along = [
        s.taps(w.over("Squeeze", w.slice(flat, 2, last - axis, last - axis + 1), [2]), size)
        for axis, size in enumerate(sizes)
    ]
    repeats = 0 if shape[0] == grid[0] == 1 else channels
    terms = [_term(s, data, taps, sizes, repeats) for taps in itertools.product(*along)]
    total = terms[0]
    for term in terms[1:]:
        total = w.add("Add", total, term)
    return w.done([w.cast(w.reshape(total, [0, channels, *points]), facts.types[node.input[0]])])


def _bounded(w: NodeWriter, grid: str) -> str:
    """Coordinates clamped to finite values; NaN becomes -1, as in PyTorch."""
    low, high, least = (w.constant(np.array(number, np.float32), "bound") for number in (-_LARGEST, _LARGEST, -1))
    return w.add("Clip", w.add("Where", w.add("IsNaN", grid), least, grid), low, high)


def _term(s: _Sampler, data: str, taps: Sequence[_Tap], sizes: Sequence[int], repeats: int) -> str:
    """The weighted elements of one tap of each axis. `repeats` is the number of channels of several images; 0 for one
    image, all channels of which are read at the same places."""
    w = s.w
    place = taps[0].place
    for tap, size in zip(taps[1:], sizes[1:], strict=True):
        place = w.add("Add", w.add("Mul", place, w.constant(np.array(size, np.int64), "size")), tap.place)
    if repeats:
        times = w.constant(np.array([1, repeats, 1], np.int64), "repeats")
        value = w.add("GatherElements", data, w.add("Tile", w.over("Unsqueeze", place, [1]), times), axis=2)
    else:
        value = w.add("Gather", data, w.over("Squeeze", place, [0]), axis=2)
    if inside := [tap.inside for tap in taps if tap.inside]:
        value = w.add("Where", w.over("Unsqueeze", _joined(w, "And", inside), [1]), value, s.number(0))
    if weights := [tap.weight for tap in taps if tap.weight]:
        value = w.add("Mul", value, w.over("Unsqueeze", _joined(w, "Mul", weights), [1]))
    return value


def _joined(w: NodeWriter, op: str, values: Sequence[str]) -> str:
    result = values[0]
    for value in values[1:]:
        result = w.add(op, result, value)
    return result


RULES: dict[str, Rule] = {"GridSample": _grid_sample}
