"""Writes Resize with dynamic scales, sizes or region, where the extents of operand and result are static, and with
sizes where these extents are dynamic.

Indices and weights, which are constants in `resize.py`, are computed in the call, in float64, for each axis from the
extents and the given numbers:

    y[…, o, …] = Σₖ x[…, place[o, k], …] · weight[o, k]

Scales and sizes that imply other extents than the result's fail in the call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.resize_filter import Filter
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter

if TYPE_CHECKING:
    import onnx

_ROUNDED = {"round_prefer_floor": ("Ceil", -0.5), "round_prefer_ceil": ("Floor", 0.5), "floor": ("Floor", 0.0),
            "ceil": ("Ceil", 0.0)}  # fmt: skip


@dataclass(frozen=True)
class _GivenAxis:
    """An axis of extent `size` resized to `count`, numbers or dynamic float64: its scale and the ends of its region,
    dynamic float64."""

    axis: int
    size: int | str
    count: int | str
    scale: str
    ends: tuple[str, str]


@dataclass(frozen=True)
class _Float64Writer:
    """Writes float64 arithmetic."""

    w: NodeWriter
    said: Filter

    def number(self, value: float | np.ndarray) -> str:
        return self.w.constant(np.asarray(value, np.float64), "number")

    def do(self, op: str, *values: str | float) -> str:
        return self.w.add(op, *(value if isinstance(value, str) else self.number(float(value)) for value in values))

    def positions(self, one: _GivenAxis) -> str:
        """The input coordinates of the result's elements."""
        x, transform = self.indices(one.count), self.said.transform
        width = self.do("Mul", one.scale, one.size)
        if transform == "align_corners":
            spacing = self.do("Div", self.do("Mul", x, self.last(one.size)), self.do("Sub", width, 1.0))
            return self.do("Where", self.do("Equal", width, 1.0), 0.0, spacing)
        if transform == "asymmetric":
            return self.do("Div", x, one.scale)
        if transform == "tf_crop_and_resize" and isinstance(one.size, int) and isinstance(one.count, int):
            start, end = one.ends
            if one.count == 1:
                return self.do("Add", x, self.do("Mul", self.do("Add", start, end), 0.5 * (one.size - 1)))
            step = self.do("Mul", self.do("Sub", end, start), (one.size - 1) / (one.count - 1))
            return self.do("Add", self.do("Mul", start, one.size - 1.0), self.do("Mul", x, step))
        if transform == "pytorch_half_pixel" and one.count == 1:
            return x
        middle = self.do("Sub", self.do("Div", self.do("Add", x, 0.5), one.scale), 0.5)
        if transform == "pytorch_half_pixel" and isinstance(one.count, str):
            return self.do("Where", self.do("Equal", one.count, 1.0), x, middle)
        if transform != "half_pixel_symmetric":
            return middle
        rest = self.do("Sub", 1.0, self.do("Div", one.count, width))
        return self.do("Add", middle, self.do("Mul", rest, self.do("Mul", one.size, 0.5)))

    def indices(self, count: int | str) -> str:
        import onnx

        if isinstance(count, int):
            return self.number(np.arange(count))
        zero, one = (self.w.constant(np.array(number), "number") for number in (0, 1))
        end = self.w.reshape(self.w.cast(count, onnx.TensorProto.INT64), [])
        return self.w.cast(self.w.add("Range", zero, end, one), onnx.TensorProto.DOUBLE)

    def last(self, size: int | str) -> float | str:
        """The last index of an axis, a number or of rank 0."""
        return size - 1.0 if isinstance(size, int) else self.w.reshape(self.do("Sub", size, 1.0), [])

    def nearest(self, position: str, size: int | str) -> str:
        op, moved = _ROUNDED[self.said.nearest]
        return self._inside(self.do(op, self.do("Add", position, moved)), size)

    def taps(self, position: str, one: _GivenAxis) -> tuple[str, str]:
        """Indices and weights, [count, taps]."""
        half = 2 if self.said.mode == "cubic" else 1
        stretch = self.number(1.0)
        reach = half
        if self.said.antialias and isinstance(one.size, int) and isinstance(one.count, int):
            stretch = self.do("Min", one.scale, 1.0)
            reach = math.ceil(half / min(1.0, one.count / one.size)) + 1
        middle = self.w.over("Unsqueeze", position, [1])
        offsets = self.number(np.arange(1 - reach, reach + 1))
        places = self.do("Add", self.do("Floor", middle), offsets)
        weights = self._weight(self.do("Mul", self.do("Abs", self.do("Sub", places, middle)), stretch))
        clipped = self.do("Clip", places, 0.0, self.last(one.size))
        if self.said.exclude:
            weights = self.do("Where", self.do("Equal", clipped, places), weights, 0.0)
        whole = self.w.over("ReduceSum", weights, [1], keepdims=1)
        return self._inside(places, one.size), self.do("Div", weights, whole)

    def _weight(self, distance: str) -> str:
        if self.said.mode == "linear":
            return self.do("Max", self.do("Sub", 1.0, distance), 0.0)
        a = self.said.cubic
        near = self._polynomial(distance, (a + 2, -(a + 3), 0, 1))
        far = self._polynomial(distance, (a, -5 * a, 8 * a, -4 * a))
        outer = self.do("Where", self.do("Less", distance, 2.0), far, 0.0)
        return self.do("Where", self.do("Greater", distance, 1.0), outer, near)

    def _polynomial(self, value: str, factors: Sequence[float]) -> str:
        result = self.number(factors[0])
        for factor in factors[1:]:
            result = self.do("Add", self.do("Mul", result, value), float(factor))
        return result

    def _inside(self, places: str, size: int | str) -> str:
        import onnx

        return self.w.cast(self.do("Clip", places, 0.0, self.last(size)), onnx.TensorProto.INT64)


def resized_in_call(
    node: onnx.NodeProto, facts: ModelFacts, said: Filter, *, dynamic: bool = False
) -> list[onnx.NodeProto] | None:
    """The nodes that replace `node`; None if an extent that changes is dynamic and not all of these are `dynamic`."""
    w = NodeWriter(node, facts)
    numbers = _Float64Writer(w, said)
    axes = _sized(numbers, facts) if dynamic else _axes(numbers, facts)
    if axes is None:
        return None
    kind, rank = facts.types[node.input[0]], facts.rank(node.input[0]) or 0
    wide = calculated_type(facts, node.input[0]) if said.mode != "nearest" else kind
    value = w.cast(node.input[0], wide)
    outside = ""
    for one in axes:
        position = numbers.positions(one)
        if said.transform == "tf_crop_and_resize" and isinstance(one.size, int) and isinstance(one.count, int):
            low, high = numbers.do("Less", position, 0.0), numbers.do("Greater", position, one.size - 1.0)
            beyond = w.reshape(w.add("Or", low, high), [one.count, *[1] * (rank - 1 - one.axis)])
            outside = w.add("Or", outside, beyond) if outside else beyond
        if said.mode == "nearest":
            value = w.add("Gather", value, numbers.nearest(position, one.size), axis=one.axis)
            continue
        places, weights = numbers.taps(position, one)
        shaped = w.over("Unsqueeze", w.cast(weights, wide), list(range(2, rank + 1 - one.axis)))
        shaped = w.cast(weights, wide) if rank - 1 == one.axis else shaped
        terms = w.add("Mul", w.add("Gather", value, places, axis=one.axis), shaped)
        value = w.over("ReduceSum", terms, [one.axis + 1], keepdims=0)
    if outside:
        extrapolated = w.constant(np.array(attribute(node, "extrapolation_value", 0.0), np.float32), "extrapolated")
        value = w.add("Where", outside, w.cast(extrapolated, wide), value)
    return w.done([value if wide == kind else narrowed(w, value, wide)])


def calculated_type(facts: ModelFacts, name: str) -> int:
    """The type of the sums: float64 for integers, to which the result is rounded."""
    import onnx

    narrow = facts.types[name] in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT)
    return onnx.TensorProto.FLOAT if narrow else onnx.TensorProto.DOUBLE


def narrowed(w: NodeWriter, value: str, wide: int) -> str:
    """`value`, of type `wide`, in the operand's type; integers are rounded and clamped."""
    import onnx

    kind = w.facts.types[w.node.input[0]]
    if wide == onnx.TensorProto.DOUBLE:
        bounds = np.iinfo(w.facts.dtype(w.node.input[0]))
        low, high = (w.constant(np.array(bound, np.float64), "bound") for bound in (bounds.min, bounds.max))
        value = w.add("Clip", w.add("Round", value), low, high)
    return w.cast(value, kind)


def _axes(numbers: _Float64Writer, facts: ModelFacts) -> list[_GivenAxis] | None:
    """The axes that are computed; the given numbers must leave the others unchanged."""
    import onnx

    w, node = numbers.w, numbers.w.node
    legacy = node.op_type == "Upsample" or facts.version < 11
    given = [*node.input, *[""] * 3]
    part, scales, sizes = ("", given[1], "") if legacy else (given[1], given[2], given[3])
    before, after = facts.extents(node.input[0]), facts.extents(node.output[0])
    if before is None or after is None or len(before) != len(after):
        return None
    named = [axis % len(before) for axis in attribute(node, "axes", list(range(len(before))))]
    cropped = numbers.said.transform == "tf_crop_and_resize"
    found: list[_GivenAxis] = []
    agrees: list[str] = []
    ratios = _ratios(numbers, scales, sizes, [before[axis] for axis in named])
    for number, axis in enumerate(named):
        size, count = before[axis], after[axis]
        ratio = w.slice(ratios, 0, number, number + 1)
        if size is None or count is None:
            if size is not count or (axis > 1 and not scales):
                return None
            agrees.append(numbers.do("Equal", ratio, 1.0))
            continue
        if not size or not count:
            return None
        product = numbers.do("Mul", ratio, float(size))
        if scales and not cropped:
            rounded = w.cast(w.cast(product, onnx.TensorProto.FLOAT), onnx.TensorProto.DOUBLE)
            fits = [numbers.do("Equal", numbers.do("Floor", each), float(count)) for each in (product, rounded)]
            agrees.append(w.add("Or", *fits))
        elif sizes:
            agrees.append(numbers.do("Equal", numbers.do("Floor", numbers.do("Add", product, 0.5)), float(count)))
        if axis < 2 and size == count and not cropped:
            agrees.append(numbers.do("Equal", ratio, 1.0))
        elif size > 1 or count > 1 or cropped:
            ends = ("", "")
            if cropped:
                low, high = (w.slice(part, 0, each, each + 1) for each in (number, number + len(named)))
                ends = w.cast(low, onnx.TensorProto.DOUBLE), w.cast(high, onnx.TensorProto.DOUBLE)
            found.append(_GivenAxis(axis, size, count, ratio, ends))
    return _held(numbers, found, agrees, f"{scales or sizes} must lead to extents {after}")


def _sized(numbers: _Float64Writer, facts: ModelFacts) -> list[_GivenAxis] | None:
    """The axes that are computed if `sizes` gives their extents in the call; batches and channels must stay."""
    import onnx

    w, node, said = numbers.w, numbers.w.node, numbers.said
    sizes = [*node.input, *[""] * 3][3] if node.op_type == "Resize" and facts.version >= 11 else ""
    before = facts.extents(node.input[0])
    policy = attribute(node, "keep_aspect_ratio_policy", b"stretch")
    if not sizes or before is None or said.antialias or said.transform == "tf_crop_and_resize" or policy != b"stretch":
        return None
    extents, counts = (w.cast(value, onnx.TensorProto.DOUBLE) for value in (w.add("Shape", node.input[0]), sizes))
    found: list[_GivenAxis] = []
    agrees: list[str] = []
    for number, named in enumerate(attribute(node, "axes", list(range(len(before))))):
        axis = named % len(before)
        size, count = w.slice(extents, 0, axis, axis + 1), w.slice(counts, 0, number, number + 1)
        if len(before) > 2 and axis < 2:
            agrees.append(numbers.do("Equal", size, count))
        else:
            found.append(_GivenAxis(axis, size, count, numbers.do("Div", count, size), ("", "")))
    return _held(numbers, found, agrees, f"{sizes} must keep the extents of the first two axes")


def _ratios(numbers: _Float64Writer, scales: str, sizes: str, before: Sequence[int | None]) -> str:
    """The scales of the axes that the node names."""
    import onnx

    w = numbers.w
    if scales:
        return w.cast(scales, onnx.TensorProto.DOUBLE)
    extents = numbers.number(np.array([extent or 1 for extent in before], np.float64))
    ratios = numbers.do("Div", w.cast(sizes, onnx.TensorProto.DOUBLE), extents)
    policy = attribute(w.node, "keep_aspect_ratio_policy", b"stretch")
    if policy == b"stretch":
        return ratios
    least = w.over("ReduceMin" if policy == b"not_larger" else "ReduceMax", ratios, [0], keepdims=1)
    return w.add("Expand", least, w.constant(np.array([len(before)], np.int64), "count"))


def _held(
    numbers: _Float64Writer, found: list[_GivenAxis], agrees: Sequence[str], said: str
) -> list[_GivenAxis] | None:
    """`found` with scales guarded by the conditions `agrees`, which must hold in the call; None if there is no
    scale."""
    if not agrees:
        return found
    if not found:
        return None
    w = numbers.w
    whole = agrees[0]
    for each in agrees[1:]:
        whole = w.add("And", whole, each)
    fine = w.required(w.reshape(whole, []), said)
    return [
        _GivenAxis(one.axis, one.size, one.count, numbers.do("Where", fine, one.scale, 1.0), one.ends) for one in found
    ]
