"""Writes RoiAlign and DeformConv as sums of elements at computed positions.

    RoiAlign:    y[r, c, i, j] = mean or maximum of the samples in cell (i, j) of region r
    DeformConv:  y[n, o, p] = Σ w[o, c, k] · mask[n, k, p] · x[n, c] between the pixels around p + k + offset[n, k, p]

Each sample interpolates between 2ᵃ pixels of `a` axes. Samples outside are replaced by zero, not multiplied by it. If
sampling_ratio is 0, the number of samples depends on the region's size: as many as fit in the image are read, and
superfluous ones dropped; larger regions are refused in the call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx


def _refused(node: onnx.NodeProto, facts: ModelFacts, expected: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {node.op_type} is supported where {expected}")


@dataclass(frozen=True)
class _Floats:
    """Writes arithmetic in `kind`, float32 or float64."""

    w: NodeWriter
    kind: np.dtype[Any]

    def number(self, value: float | np.ndarray) -> str:
        return self.w.constant(np.asarray(value, self.kind), "number")

    def do(self, op: str, *values: str | float) -> str:
        return self.w.add(op, *(value if isinstance(value, str) else self.number(value) for value in values))

    def all(self, op: str, values: Sequence[str]) -> str:
        found = values[0]
        for value in values[1:]:
            found = self.w.add(op, found, value)
        return found

    def cast(self, value: str) -> str:
        import onnx

        return self.w.cast(value, onnx.helper.np_dtype_to_tensor_dtype(self.kind))

    def whole(self, value: str) -> str:
        import onnx

        return self.w.cast(value, onnx.TensorProto.INT64)


def _floats(node: onnx.NodeProto, facts: ModelFacts) -> _Floats:
    import onnx

    double = facts.types[node.input[0]] == onnx.TensorProto.DOUBLE
    return _Floats(NodeWriter(node, facts), np.dtype(np.float64 if double else np.float32))


# -- RoiAlign --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """The samples of each region along one axis, [regions, cells · samples]: two pixel indices and their weights,
    whether they are inside, and, if regions differ, which exist and how many each cell has, [regions, 1]."""

    taps: list[tuple[str, str]]
    inside: str
    present: str
    count: str


def _roi_align(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents = facts.extents(node.input[0])
    if extents is None or len(extents) != 4 or None in extents[1:] or node.input[0] not in facts.types:
        raise _refused(node, facts, "the extents of its image, but for the batch, are known")
    channels, *sizes = [extent or 0 for extent in extents[1:]]
    f = _floats(node, facts)
    w = f.w
    cells = [attribute(node, "output_height", 1), attribute(node, "output_width", 1)]
    ratio = attribute(node, "sampling_ratio", 0)
    grids = [ratio or -(-size // cell) + 1 for size, cell in zip(sizes, cells, strict=True)]
    lines = [_line(f, axis, sizes[axis], cells[axis], grids[axis]) for axis in range(2)]
    rows = w.reshape(w.add("Transpose", f.cast(node.input[0]), perm=[0, 2, 3, 1]), [-1, channels])
    first = f.whole(w.reshape(node.input[2], [-1, 1, 1]))
    first = w.add("Mul", first, w.constant(np.array(sizes[0] * sizes[1]), "pixels"))
    inside = w.add("And", _upright(w, lines[0].inside), _level(w, lines[1].inside))
    terms: list[str] = []
    for (y, down), (x, right) in itertools.product(lines[0].taps, lines[1].taps):
        place = w.add("Add", w.add("Mul", _upright(w, y), w.constant(np.array(sizes[1]), "width")), _level(w, x))
        value = w.add("Gather", rows, w.add("Add", place, first), axis=0)
        weight = w.add("Mul", _upright(w, down), _level(w, right))
        value = w.add("Mul", value, w.over("Unsqueeze", weight, [3]))
        terms.append(w.add("Where", w.over("Unsqueeze", inside, [3]), value, f.number(0.0)))
    found = _pooled(f, terms, lines, cells, grids, channels)
    return w.done([w.cast(w.add("Transpose", found, perm=[0, 3, 1, 2]), facts.types[node.input[0]])])


def _upright(w: NodeWriter, value: str) -> str:
    return w.over("Unsqueeze", value, [2])


def _level(w: NodeWriter, value: str) -> str:
    return w.over("Unsqueeze", value, [1])


def _line(f: _Floats, axis: int, size: int, cells: int, grid: int) -> _Line:
    w, node = f.w, f.w.node
    default = b"half_pixel" if w.facts.version >= 16 else b"output_half_pixel"
    half = attribute(node, "coordinate_transformation_mode", default) == b"half_pixel"
    scale = float(attribute(node, "spatial_scale", 1.0))
    ends = [w.slice(f.cast(node.input[1]), 1, column, column + 1) for column in (1 - axis, 3 - axis)]
    low, high = (f.do("Sub", f.do("Mul", end, scale), 0.5 if half else 0.0) for end in ends)
    length = f.do("Sub", high, low)
    length = length if half else f.do("Max", length, 1.0)
    cell, number = np.repeat(np.arange(cells), grid), np.tile(np.arange(grid), cells)
    width = f.do("Div", length, float(cells))
    present, count = "", ""
    if attribute(node, "sampling_ratio", 0) > 0:
        middles = f.number(cell + (number + 0.5) / grid)
    else:
        count = f.do("Ceil", width)
        fits = w.over("ReduceMin", f.cast(f.do("LessOrEqual", count, float(grid))), [0, 1], keepdims=0)
        said = f"{node.input[1]} must have regions that are not larger than the image, where sampling_ratio is 0"
        fine = w.required(f.do("Greater", fits, 0.0), said)
        count = f.do("Where", fine, f.do("Max", count, 0.0), 0.0)
        present = f.do("Less", f.number(number.astype(float)), count)
        parts = f.do("Div", f.number(number + 0.5), f.do("Max", count, 1.0))
        middles = f.do("Add", f.number(cell.astype(float)), parts)
    at = f.do("Add", low, f.do("Mul", width, middles))
    inside = w.add("And", f.do("GreaterOrEqual", at, -1.0), f.do("LessOrEqual", at, float(size)))
    at = f.do("Where", inside, f.do("Max", at, 0.0), 0.0)
    first = f.do("Min", f.do("Floor", at), size - 1.0)
    rest = f.do("Min", f.do("Sub", at, first), 1.0)
    rest = f.do("Where", f.do("Less", first, size - 1.0), rest, 0.0)
    second = f.do("Min", f.do("Add", first, 1.0), size - 1.0)
    return _Line([(f.whole(first), f.do("Sub", 1.0, rest)), (f.whole(second), rest)], inside, present, count)


def _pooled(
    f: _Floats, terms: Sequence[str], lines: Sequence[_Line], cells: Sequence[int], grids: Sequence[int], channels: int
) -> str:
    """The mean or maximum of the samples in each cell, [regions, rows, columns, channels]."""
    w = f.w
    mean = attribute(w.node, "mode", b"avg") == b"avg"
    found = f.all("Add" if mean else "Max", terms)
    split = [-1, cells[0], grids[0], cells[1], grids[1], channels]
    adaptive = bool(lines[0].present)
    if adaptive:
        present = w.add("And", _upright(w, lines[0].present), _level(w, lines[1].present))
        found = f.do("Where", w.over("Unsqueeze", present, [3]), found, 0.0 if mean else -math.inf)
    found = w.reshape(found, split)
    if not mean:
        found = w.over("ReduceMax", found, [2, 4], keepdims=0)
        return f.do("Where", f.do("Greater", found, -math.inf), found, 0.0) if adaptive else found
    total = w.over("ReduceSum", found, [2, 4], keepdims=0)
    if not adaptive:
        return f.do("Div", total, float(grids[0] * grids[1]))
    count = f.do("Max", f.do("Mul", lines[0].count, lines[1].count), 1.0)
    return f.do("Div", total, w.over("Unsqueeze", count, [2, 3]))


# -- DeformConv ------------------------------------------------------------------------------------


def _deform_conv(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    image, filters, moves = (facts.extents(name) for name in node.input[:3])
    if image is None or filters is None or moves is None or node.input[0] not in facts.types:
        raise _refused(node, facts, "the ranks of its operands are known")
    known = [*image[1:], *filters, *moves[1:]]
    if None in known:
        raise _refused(node, facts, "the extents of its operands, but for the batch, are known")
    channels, *sizes = [extent or 0 for extent in image[1:]]
    outputs, per_group, *kernel = [extent or 0 for extent in filters]
    made = [extent or 0 for extent in moves[2:]]
    groups, offsets = attribute(node, "group", 1), attribute(node, "offset_group", 1)
    taps, points = math.prod(kernel), math.prod(made)
    if channels != per_group * groups or channels % offsets or moves[1] != offsets * taps * len(sizes):
        raise _refused(
            node, facts, f"its operands fit: {channels} channels, {moves[1]} offsets, filters of {list(known)}"
        )
    f = _floats(node, facts)
    w = f.w
    lines = [_moved(f, axis, offsets, kernel, sizes, made) for axis in range(len(sizes))]
    flat = w.reshape(f.cast(node.input[0]), [-1, offsets, channels // offsets, math.prod(sizes)])
    terms: list[str] = []
    for chosen in itertools.product(*lines):
        place, weight = chosen[0][0], f.all("Mul", [each[1] for each in chosen])
        for (each, _, _), size in zip(chosen[1:], sizes[1:], strict=True):
            place = w.add("Add", w.add("Mul", place, w.constant(np.array(size), "size")), each)
        repeats = w.constant(np.array([1, 1, channels // offsets, 1]), "repeats")
        value = w.add("GatherElements", flat, w.add("Tile", place, repeats), axis=3)
        value = w.add("Mul", value, weight)
        terms.append(w.add("Where", f.all("And", [each[2] for each in chosen]), value, f.number(0.0)))
    columns = f.all("Add", terms)
    if len(node.input) > 4 and node.input[4]:
        columns = w.add("Mul", columns, w.reshape(f.cast(node.input[4]), [-1, offsets, 1, taps * points]))
    columns = w.reshape(columns, [-1, groups, per_group * taps, points])
    matrices = w.reshape(f.cast(node.input[1]), [groups, outputs // groups, per_group * taps])
    result = w.reshape(w.add("MatMul", matrices, columns), [-1, outputs, *made])
    if len(node.input) > 3 and node.input[3]:
        result = w.add("Add", result, w.reshape(f.cast(node.input[3]), [-1, *[1] * len(made)]))
    return w.done([w.cast(result, facts.types[node.input[0]])])


def _moved(
    f: _Floats, axis: int, offsets: int, kernel: Sequence[int], sizes: Sequence[int], made: Sequence[int]
) -> list[tuple[str, str, str]]:
    """For each sample the two pixel indices along one axis, their weights, and whether they are inside, of
    [batch, groups of offsets, 1, filter elements · points]."""
    w, rank, size = f.w, len(sizes), sizes[axis]
    strides, dilations = (list(attribute(w.node, name, [1] * rank)) for name in ("strides", "dilations"))
    before = list(attribute(w.node, "pads", [0] * 2 * rank))[axis]
    taps, points = math.prod(kernel), math.prod(made)
    tap = np.indices(kernel)[axis].reshape(-1, 1) * dilations[axis]
    point = np.indices(made)[axis].reshape(1, -1) * strides[axis]
    own = w.reshape(f.cast(w.node.input[2]), [-1, offsets, taps, rank, points])
    own = w.reshape(w.slice(own, 3, axis, axis + 1), [-1, offsets, 1, taps * points])
    at = f.do("Add", own, f.number((tap + point - before).reshape(-1).astype(float)))
    near = w.add("And", f.do("Greater", at, -1.0), f.do("Less", at, float(size)))
    at = f.do("Where", near, at, -1.0)
    first = f.do("Floor", at)
    rest = f.do("Sub", at, first)
    found: list[tuple[str, str, str]] = []
    for each, weight in ((first, f.do("Sub", 1.0, rest)), (f.do("Add", first, 1.0), rest)):
        clipped = f.do("Clip", each, 0.0, size - 1.0)
        inside = w.add("And", near, f.do("Equal", clipped, each))
        found.append((f.whole(clipped), weight, inside))
    return found


RULES: dict[str, Rule] = {"DeformConv": _deform_conv, "RoiAlign": _roi_align}
