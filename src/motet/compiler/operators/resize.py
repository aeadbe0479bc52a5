"""Resizing: each element of the result is a sum of weighted elements of the operand, one axis after the other.

    y[…, o, …] = Σₖ x[…, place[k, o], …] · weight[k, o]

Places and weights of an axis follow from its extents, its scale and the filter: they are constants, or the call
calculates them for each element. One axis after the other reads the fewest elements: axes that shrink come before the
last one, whose elements are gathered, and axes that grow after it. Resizing to the nearest element is one gather, or
elements are repeated.

Sources: ONNX's specification of Resize (operator set 19) and, for the footprint of antialiased filters, its reference;
PyTorch's `aten/src/ATen/native/UpSample.h` and `cpu/UpSampleKernel.cpp`; OpenVINO's specification of Interpolate-11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import as_index, constant_index, element_at, on_indices
from motet.compiler.operators.arithmetic import Arrays, FloatArithmetic, Floats, Number, Real, floats_for
from motet.compiler.operators.pointwise import (
    Read,
    clamped,
    dynamic_sizes,
    known_extent,
    merged,
    pointwise,
    size_of,
    table,
)

MODES = ("nearest", "linear", "cubic")
POSITIONS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
             "tf_crop_and_resize", "tf_half_pixel_for_nn")  # fmt: skip
_FEW = 8
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


@dataclass(frozen=True)
class Filter:
    """What resizing calculates: one of `MODES`, of `POSITIONS` and, for the nearest element, of `ROUNDINGS`; `cubic` is
    the parameter of that filter. An antialiased filter is as wide as the elements of the result are apart. With
    `excludes`, elements outside have no weight. `extrapolated` is taken outside where a region is resized.

    Positions are calculated in f32 if `single`, and `by_steps` by factors rather than quotients: which of two
    elements is the nearest may depend on it. Weights of known axes are always calculated in f64."""

    mode: str
    positions: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    excludes: bool = False
    extrapolated: float = 0.0
    single: bool = False
    by_steps: bool = False

    @property
    def half(self) -> int:
        """How far the filter reaches, in elements of the operand, or of the result where it is antialiased."""
        return 2 if self.mode == "cubic" else 1


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of extent `size` resized to `count`: numbers, or indices of the call. `scale` is their ratio as it was
    given, None for the quotient of both, and `ends` are those of the resized region as shares of the axis: numbers, or
    values of the call, of type f32 if the filter is `single`, else f64."""

    axis: int
    size: int | ir.Value
    count: int | ir.Value
    scale: float | ir.Value | None = None
    ends: tuple[float | ir.Value, float | ir.Value] = (0.0, 1.0)

    @property
    def is_known(self) -> bool:
        return not any(isinstance(each, ir.Value) for each in (self.size, self.count, self.scale, *self.ends))

    @property
    def ratio(self) -> float | None:
        """The scale as far as it is known when compiling."""
        if isinstance(self.size, int) and isinstance(self.count, int) and not isinstance(self.scale, float):
            return self.count / self.size
        return self.scale if isinstance(self.scale, float) else None


def resize(source: ir.Value, axes: Sequence[ResizedAxis], how: Filter, *, unsigned: bool = False) -> ir.Value:
    """`source`, a tensor of floats or integers, resized along `axes`. Sums of integers are rounded to even ones and
    clamped. Raises ValueError for an antialiased filter along an axis whose scale is not known when compiling."""
    kind = ir.RankedTensorType(source.type)
    wide = floats_for(kind.element_type)
    value = source
    if how.mode == "nearest":
        times = {one.axis: found for one in axes if (found := _times(one, how))}
        value = _repeated(source, times) if times else source
        value = _gathered(value, [one for one in axes if one.axis not in times], how)
    else:
        order = _order(axes, kind.rank - 1)
        for number, one in enumerate(order, 1):
            value = _summed(value, one, how, kind.element_type if number == len(order) else wide.kind, unsigned)
    return _extrapolated(value, axes, how, unsigned) if how.positions == "tf_crop_and_resize" else value


def _order(axes: Sequence[ResizedAxis], last: int) -> list[ResizedAxis]:
    """The order in which the gathered elements are fewest, as far as extents are known."""
    def rank(one: ResizedAxis) -> int:
        return 1 if one.axis == last else 0 if one.is_known and (one.ratio or 1) < 1 else 2

    return sorted(axes, key=lambda one: (rank(one), one.axis))


# -- positions and weights, known when compiling or in the call --------------------------------------------------------


@dataclass(frozen=True)
class _Formula:
    """Where the elements of an axis lie in the operand, as ONNX says it."""

    f: FloatArithmetic
    how: Filter
    size: Number
    count: Number
    scale: Number
    step: Number  # of the operand's elements, between two of the result
    width: Number  # of the result, which `scale` need not make a whole number
    ends: tuple[Number, Number]

    def positions(self, x: Number) -> Number:
        select, how = self.f.select, self.how.positions
        if how == "asymmetric":
            return self._scaled(x)
        if how == "tf_half_pixel_for_nn":
            return self._scaled(x + 0.5)
        last = self.size - 1
        if how == "align_corners":
            return self._quotient(x * last, self.width - 1, 0)
        if how == "tf_crop_and_resize":
            start, end = self.ends
            middle = 0.5 * (start + end) * last
            moved = self._quotient(x * (end - start) * last, self.count - 1, middle)
            return select(self.count == 1, middle, start * last + moved)
        middle = self._scaled(x + 0.5) - 0.5
        if how == "pytorch_half_pixel":
            return select(self.count == 1, 0, middle)
        if how == "half_pixel_symmetric":
            rest = 1 - self.count / self.width
            return 0.5 * self.size * rest + middle
        return middle

    def _scaled(self, x: Number) -> Number:
        return x * self.step if self.how.by_steps else x / self.scale

    def _quotient(self, a: Number, b: Number, otherwise: Number) -> Number:
        """`a` / `b`; `otherwise` for a divisor of 0."""
        zero = b == 0
        return self.f.select(zero, otherwise, a / self.f.select(zero, 1, b))

    def nearest(self, x: Number) -> Number:
        f, at = self.f, self.positions(x)
        if self.how.rounding == "round_prefer_floor":
            return f.ceil(at - 0.5)
        if self.how.rounding == "round_prefer_ceil":
            return f.floor(at + 0.5)
        if self.how.rounding == "simple":
            return f.select(self.scale < 1, f.ceil(at), f.floor(at))
        return f.ceil(at) if self.how.rounding == "ceil" else f.floor(at)

    def tap(self, x: Number, offset: float) -> tuple[Number, Number]:
        """The element `offset` after the one at or before a position, and its weight."""
        f, at = self.f, self.positions(x)
        place = f.floor(at) + offset
        distance = abs(place - at)
        if self.how.antialias:
            distance = distance * f.least(self.scale, 1)
        if self.how.mode == "linear":
            weight = f.most(1 - distance, 0)
        else:
            outer = f.select(distance < 2, f.far_cubic(distance, self.how.cubic), 0)
            near = f.near_cubic(distance, self.how.cubic)
            weight = f.select(distance > 1, outer, near)
        if self.how.excludes:
            weight = f.select(self.inside(place) == place, weight, 0)
        return place, weight

    def inside(self, place: Number) -> Number:
        return self.f.clip(place, 0, self.size - 1)


def _offsets(one: ResizedAxis, how: Filter) -> range:
    """The offsets of the elements that may have a weight."""
    reach = how.half
    if how.antialias:
        if one.ratio is None:
            raise ValueError("an antialiased filter along an axis whose scale is not known when compiling")
        reach = math.ceil(how.half / min(1.0, one.ratio)) + 1
    return range(1 - reach, reach + 1)


def _formula(one: ResizedAxis, how: Filter, f: FloatArithmetic) -> _Formula:
    size, count, ends = f.of(one.size), f.of(one.count), (f.of(one.ends[0]), f.of(one.ends[1]))
    if one.scale is None:
        return _Formula(f, how, size, count, count / size, size / count, count, ends)
    scale = f.of(one.scale)
    # That of a known scale is rounded once, as PyTorch rounds it.
    step = 1 / scale if isinstance(one.scale, ir.Value) else f.of(1 / one.scale if one.scale else math.inf)
    return _Formula(f, how, size, count, scale, step, scale * size, ends)


def _floats(how: Filter) -> Floats:
    return Floats(ir.F32Type.get() if how.single else ir.F64Type.get())


# -- what is known of an axis ------------------------------------------------------------------------------------------


def _known_nearest(one: ResizedAxis, how: Filter) -> np.ndarray:
    formula = cast("Any", _formula(one, how, Arrays(np.float32 if how.single else np.float64)))
    x = np.arange(one.count, dtype=formula.f.of(0).dtype)  # type: ignore[arg-type]
    return formula.inside(formula.nearest(x)).astype(np.int64)


def _times(one: ResizedAxis, how: Filter) -> int:
    """How often each element of an axis is taken, one after the other; 0 if not all are taken as often. In f64, a few
    elements say it for an axis of any extent: the margins of a whole scale are far above the error of a quotient."""
    if not one.is_known and not how.single and isinstance(one.scale, float) and one.scale.is_integer():
        one = ResizedAxis(one.axis, _FEW, int(one.scale) * _FEW, one.scale)
    if not (isinstance(one.size, int) and isinstance(one.count, int) and one.is_known) or one.count % one.size:
        return 0
    times = one.count // one.size
    return times if (_known_nearest(one, how) == np.arange(one.count) // times).all() else 0


def _known_taps(one: ResizedAxis, how: Filter) -> list[tuple[np.ndarray, np.ndarray]]:
    """Without those that have no weight in any result; weights have the sum 1."""
    formula = cast("Any", _formula(one, how, Arrays()))
    x = np.arange(one.count, dtype=np.float64)  # type: ignore[arg-type]
    taps = [formula.tap(x, k) for k in _offsets(one, how)]
    places = np.stack([formula.inside(place) for place, _ in taps]).astype(np.int64)
    weights = np.stack([weight for _, weight in taps])
    order = np.argsort(weights == 0, axis=0, kind="stable")[: int((weights != 0).sum(0).max(initial=1))]
    weights = weights / weights.sum(0)
    return list(zip(np.take_along_axis(places, order, 0), np.take_along_axis(weights, order, 0), strict=True))


# -- loops over the result ---------------------------------------------------------------------------------------------


def _extents(counts: Sequence[int | ir.Value]) -> tuple[list[int], list[ir.Value]]:
    """The extents of a type, and the dynamic ones of them."""
    known = [known_extent(count) if isinstance(count, ir.Value) else count for count in counts]
    return known, [count for count, extent in zip(counts, known, strict=True) if extent == DYNAMIC]  # type: ignore[misc]


def _resized(
    source: ir.Value, axes: Sequence[ResizedAxis], element: ir.Type
) -> tuple[ir.RankedTensorType, list[ir.Value]]:
    """The type of `source` with other extents along `axes`, and its dynamic extents."""
    counts: list[int | ir.Value] = [size_of(source, axis) for axis in range(ir.RankedTensorType(source.type).rank)]
    for one in axes:
        counts[one.axis] = one.count
    extents, sizes = _extents(counts)
    return ir.RankedTensorType.get(extents, element), sizes


def _index(place: ir.Value, size: int | ir.Value) -> ir.Value:
    """A place as an index, below `size` also for the compiler, which then adds no check."""
    last = constant_index(size - 1) if isinstance(size, int) else on_indices("arith.subi", size, constant_index(1))
    return clamped(place, last)


def _repeated(source: ir.Value, times: Mapping[int, int]) -> ir.Value:
    """`source` with each element repeated along the axes that are keys of `times`, without a table."""
    kind = ir.RankedTensorType(source.type)
    loops = [axis + sum(other < axis for other in times) for axis in range(kind.rank)]
    extents: list[int] = []
    for axis, extent in enumerate(kind.shape):
        extents += [extent, times[axis]] if axis in times else [extent]
    sizes = dynamic_sizes(source)
    wide = ir.RankedTensorType.get(extents, kind.element_type)
    value = pointwise(wide, sizes, [Read(source, loops)], lambda values, _: values[0])
    for axis in sorted(times, reverse=True):
        value = merged(value, loops[axis], 2)
    return value


def _gathered(source: ir.Value, axes: Sequence[ResizedAxis], how: Filter) -> ir.Value:
    element, word, f = ir.RankedTensorType(source.type).element_type, ir.IntegerType.get_signless(64), _floats(how)
    known = [one for one in axes if one.is_known]
    formulas = [(one, _formula(one, how, f)) for one in axes if not one.is_known]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        places = list(loops)
        for one, value in zip(known, values, strict=True):
            places[one.axis] = _index(as_index(value), one.size)
        for one, formula in formulas:
            nearest = formula.inside(formula.nearest(f.of_index(loops[one.axis])))
            places[one.axis] = _index(f.index(nearest), one.size)
        return element_at(source, places)

    reads = [Read(table(_known_nearest(one, how), word), (one.axis,)) for one in known]
    return pointwise(*_resized(source, axes, element), reads, body) if axes else source


def _summed(source: ir.Value, one: ResizedAxis, how: Filter, result: ir.Type, unsigned: bool) -> ir.Value:
    """The weighted sums along one axis, of the type `result`."""
    word, f, wide = ir.IntegerType.get_signless(64), _floats(how), floats_for(result)
    known = _known_taps(one, how) if one.is_known else []
    formula = None if one.is_known else _formula(one, how, f)
    tables = [each for places, weights in known for each in (table(places, word), table(weights, wide.kind))]
    reads = [Read(each, (one.axis,)) for each in tables]

    def taps(values: Sequence[ir.Value], loop: ir.Value) -> list[tuple[ir.Value, Real]]:
        if formula is None:
            return [(as_index(place), Real(weight)) for place, weight in zip(values[::2], values[1::2], strict=True)]
        found = [formula.tap(f.of_index(loop), offset) for offset in _offsets(one, how)]
        total = f.total([weight for _, weight in found]) if how.antialias or how.excludes else None
        return [
            (f.index(formula.inside(place)), f.converted(weight if total is None else weight / total, wide.kind))
            for place, weight in found
        ]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        terms: list[Real] = []
        for place, weight in taps(values, loops[one.axis]):
            at = [_index(place, one.size) if axis == one.axis else loop for axis, loop in enumerate(loops)]
            terms.append(_as_float(wide, element_at(source, at), unsigned) * weight)
        return _as_element(wide, wide.total(terms), result, unsigned)

    return pointwise(*_resized(source, [one], result), reads, body)


def _extrapolated(value: ir.Value, axes: Sequence[ResizedAxis], how: Filter, unsigned: bool) -> ir.Value:
    """`value`, and the extrapolated number where the position along one of `axes` is outside."""
    kind, f = ir.RankedTensorType(value.type), _floats(how)
    formulas = [(one.axis, _formula(one, how, f)) for one in axes]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        wide = floats_for(kind.element_type)
        element = values[0]
        other = _as_element(wide, wide.of(how.extrapolated), kind.element_type, unsigned)
        for axis, formula in formulas:
            at = formula.positions(f.of_index(loops[axis]))
            element = create("arith.select", kind.element_type, [formula.inside(at) == at, element, other])
        return element

    return pointwise(kind, dynamic_sizes(value), [Read(value, range(kind.rank))], body)


def _as_float(wide: Floats, value: ir.Value, unsigned: bool) -> Real:
    return wide.of_integer(value, unsigned=unsigned) if isinstance(value.type, ir.IntegerType) else wide.wide(value)


def _as_element(wide: Floats, value: ir.Value, kind: ir.Type, unsigned: bool) -> ir.Value:
    """A number as an element: an integer is the nearest one, the even one of two, that both types have."""
    if not isinstance(kind, ir.IntegerType):
        return wide.narrowed(value, kind)
    low, high = (0, 2**kind.width - 1) if unsigned else (-(2 ** (kind.width - 1)), 2 ** (kind.width - 1) - 1)
    most = float(high) if float(high) <= high else math.nextafter(high, 0)  # 2⁶³ - 1 is none of f64's
    whole = wide.clip(wide.round(value), wide.of(low), wide.of(most))
    return create("arith.fptoui" if unsigned else "arith.fptosi", kind, [whole])
