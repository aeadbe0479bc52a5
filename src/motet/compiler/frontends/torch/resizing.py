"""lower-resizing: in the `torch` dialect, lowers resizing, as `motet.pytorch.resizing` writes it, to weighted sums.

    torch.operator "torch.motet.resize"(%x, [56, 56], [none, none], "linear", …)
 →  %a = linalg.generic … Σₖ %x[n, c, i, places[k, j]] · weights[k, j]
    %y = linalg.generic … Σₖ %a[n, c, places[k, i], j] · weights[k, i]

Indices and weights follow from the extents: they are constants, or computed for each element if an extent is dynamic.
One axis after the other reads the fewest elements: axes that shrink come before the last one, whose elements are
gathered, and axes that grow after it. Resizing to the nearest element is one gather.

Source of the positions and the filters: PyTorch's `aten/src/ATen/native/UpSample.h` and `cpu/UpSampleKernel.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, know_operations, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index
from motet.compiler.operators.pointwise import EQUAL, Floats, Read, floats_for, known_extent, pointwise, size_of, table

_OPERATOR = "torch.motet.resize"
_CUBIC, _CUBIC_ANTIALIASED = -0.75, -0.5


@dataclass(frozen=True)
class _Axis:
    """An axis of extent `size` resized to `count`; `step` is the distance of two results' places in the source."""

    axis: int
    size: int
    count: int
    step: float


@dataclass(frozen=True)
class _DynamicAxis:
    """The same, known in a call; indices, and a number of the type of `floats`."""

    axis: int
    size: ir.Value
    count: ir.Value
    step: ir.Value
    floats: Floats

    def inside(self, place: ir.Value) -> ir.Value:
        """A whole number as an index of the source; places outside become the outermost ones."""
        f = self.floats
        last = create("arith.subi", self.size.type, [self.size, constant_index(1)])
        index = f.index(f.most(place, f.of(0)))
        return create("arith.minsi", index.type, [index, last])

    def taps(self, loop: ir.Value, mode: str, aligned: bool) -> list[tuple[ir.Value, ir.Value]]:
        """The elements that a result is the weighted sum of, and their weights."""
        f = self.floats
        x = f.of_index(loop)
        at = f.mul(x, self.step) if aligned else f.sub(f.mul(f.add(x, f.of(0.5)), self.step), f.of(0.5))
        at = f.most(at, f.of(0)) if mode == "linear" else at
        first = f.floor(at)
        part = f.sub(at, first)
        rest = f.sub(f.of(1), part)
        if mode == "linear":
            return [(self.inside(first), rest), (self.inside(f.add(first, f.of(1))), part)]
        weights = f.cubic(part, rest, _CUBIC)
        return [(self.inside(f.add(first, f.of(k - 1))), weight) for k, weight in enumerate(weights)]


@dataclass(frozen=True)
class _Neighbours:
    """The elements along an axis that each result is the weighted sum of, and their weights, [taps, count]."""

    places: np.ndarray
    weights: np.ndarray


def lower_resizing(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        found = operands.operators(module, _OPERATOR)
        if found:
            know_operations(module)
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                _lower(operator)


def _lower(operator: ir.Operation) -> None:
    source = builtin(operator.operands[0])
    kind = ir.RankedTensorType(source.type)
    factors, mode = operands.numbers(operator.operands[2]), str(operands.constant(operator.operands[3]))
    aligned, antialias = (bool(operands.constant(operand)) for operand in operator.operands[4:6])
    result = kind_of(operator.results[0])
    if result is None:
        raise ValueError("expected a result of known rank")
    first = kind.rank - len(factors)
    axes: list[_Axis | _DynamicAxis] = []
    for axis, factor in enumerate(factors, first):
        size, count = kind.shape[axis], result.extents[axis]
        if DYNAMIC in (size, count):
            given = operator.operands[1]
            wanted = None if operands.is_none(given) else operands.elements(given)[axis - first]
            f = Floats(ir.F32Type.get()) if mode.startswith("nearest") else floats_for(kind.element_type)
            counted = _count(source, axis, count, factor, wanted)
            axes.append(_dynamic_axis(f, axis, size_of(source, axis), counted, factor, aligned))
        elif size != count or _step(size, count, factor, aligned) != 1:
            axes.append(_Axis(axis, size, count, _step(size, count, factor, aligned)))
    if mode.startswith("nearest"):
        replace(operator, _gathered(source, axes, exact=mode == "nearest-exact"))
        return
    value = source
    order = _order(axes, kind.rank - 1)
    for number, one in enumerate(order):
        calculated = kind.element_type if number == len(order) - 1 else floats_for(kind.element_type).kind
        if isinstance(one, _DynamicAxis):
            value = _computed(value, one, mode, aligned, calculated)
        else:
            taps = _antialiased(mode, one) if antialias else _interpolated(mode, one, aligned)
            value = _summed(value, one, taps, calculated)
    replace(operator, value)


def _step(size: int, count: int, factor: float, aligned: bool) -> float:
    if aligned:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1 / factor if factor > 0 else size / count


def _order(axes: Sequence[_Axis | _DynamicAxis], last: int) -> list[_Axis | _DynamicAxis]:
    """The order in which the gathered elements are fewest, as far as extents are known."""
    def rank(one: _Axis | _DynamicAxis) -> int:
        shrinks = isinstance(one, _Axis) and one.count < one.size
        return 1 if one.axis == last else 0 if shrinks else 2

    return sorted(axes, key=lambda one: (rank(one), one.axis))


def _count(source: ir.Value, axis: int, known: int, factor: float, wanted: ir.Value | None) -> ir.Value:
    """The extent of the result: known, given by the program, or the source's times `factor`."""
    if known != DYNAMIC:
        return constant_index(known)
    word = ir.IntegerType.get_signless(64)
    if wanted is not None:
        return create("arith.index_cast", ir.IndexType.get(), [create("torch_c.to_i64", word, [wanted])])
    size = size_of(source, axis)
    if factor == int(factor):
        return create("arith.muli", size.type, [size, constant_index(int(factor))])
    f = Floats(ir.F64Type.get())
    product = f.mul(f.of_index(size), f.of(factor))
    return create("arith.index_cast", size.type, [create("arith.fptosi", word, [product])])


def _dynamic_axis(
    f: Floats, axis: int, size: ir.Value, count: ir.Value, factor: float, aligned: bool
) -> _DynamicAxis:
    before, after = f.of_index(size), f.of_index(count)
    if aligned:
        one = f.of(1)
        single = f.compare(EQUAL, after, one)
        others = f.select(single, one, f.sub(after, one))
        step = f.select(single, f.of(0), f.div(f.sub(before, one), others))
    else:
        step = f.of(1 / factor) if factor > 0 else f.div(before, after)
    return _DynamicAxis(axis, size, count, step, f)


# -- the elements of each result, and their weights --------------------------------------------------------------------


def _nearest(one: _Axis, *, exact: bool) -> np.ndarray:
    """In float32, like PyTorch, which decides which of two equally near elements is taken."""
    x = np.arange(one.count, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return np.minimum((x * np.float32(one.step)).astype(np.int64), one.size - 1)


def _interpolated(mode: str, one: _Axis, aligned: bool) -> _Neighbours:
    x = np.arange(one.count, dtype=np.float64)
    at = x * one.step if aligned else (x + 0.5) * one.step - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
        first = np.minimum(np.floor(at), one.size - 1)
        part = np.clip(at - first, 0, 1)
        places, weights = np.stack([first, first + 1]), np.stack([1 - part, part])
    else:
        first = np.floor(at)
        part = at - first
        offsets = np.arange(-1, 3)[:, None]
        places, weights = first + offsets, _cubic(np.abs(offsets - part), _CUBIC)
    return _Neighbours(np.clip(places, 0, one.size - 1).astype(np.int64), weights)


def _antialiased(mode: str, one: _Axis) -> _Neighbours:
    """The elements under the filter, which is as wide as the step; those outside are left out."""
    stretch, half = max(one.step, 1.0), 1 if mode == "linear" else 2
    middle = (np.arange(one.count) + 0.5) * one.step
    reach = half * stretch
    begin = np.maximum((middle - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((middle + reach + 0.5).astype(np.int64), one.size)
    places = begin + np.arange(int((end - begin).max()))[:, None]
    distance = np.abs(places - middle + 0.5) / stretch
    weights = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, _CUBIC_ANTIALIASED)
    weights = np.where(places < end, weights, 0.0)
    return _Neighbours(np.minimum(places, end - 1), weights / weights.sum(0))


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


# -- loops -------------------------------------------------------------------------------------------------------------


def _resized(
    source: ir.Value, axes: Sequence[_Axis | _DynamicAxis], element: ir.Type
) -> tuple[ir.RankedTensorType, list[ir.Value]]:
    """The type of `source` with other extents along `axes`, and its dynamic extents."""
    extents = list(ir.RankedTensorType(source.type).shape)
    counts: dict[int, ir.Value] = {}
    for one in axes:
        extents[one.axis] = one.count if isinstance(one, _Axis) else known_extent(one.count)
        if isinstance(one, _DynamicAxis):
            counts[one.axis] = one.count
    kind = ir.RankedTensorType.get(extents, element)
    dynamic = [axis for axis in range(len(extents)) if kind.is_dynamic_dim(axis)]
    return kind, [counts[axis] if axis in counts else size_of(source, axis) for axis in dynamic]


def _gathered(source: ir.Value, axes: Sequence[_Axis | _DynamicAxis], *, exact: bool) -> ir.Value:
    element, word = ir.RankedTensorType(source.type).element_type, ir.IntegerType.get_signless(64)
    static = [one for one in axes if isinstance(one, _Axis)]
    reads = [Read(table(_nearest(one, exact=exact), word), (one.axis,)) for one in static]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        places = list(loops)
        for one, value in zip(static, values, strict=True):
            places[one.axis] = _as_index(value, one.size)
        for one in axes:
            if isinstance(one, _DynamicAxis):
                x = one.floats.of_index(loops[one.axis])
                x = one.floats.add(x, one.floats.of(0.5)) if exact else x
                places[one.axis] = one.inside(one.floats.mul(x, one.step))
        return _extracted(source, places)

    return pointwise(*_resized(source, axes, element), reads, body) if axes else source


def _computed(source: ir.Value, one: _DynamicAxis, mode: str, aligned: bool, result: ir.Type) -> ir.Value:
    """The weighted sums along one axis, of the type `result`, with places and weights computed for each."""
    f = one.floats

    def body(_: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        terms: list[ir.Value] = []
        for place, weight in one.taps(loops[one.axis], mode, aligned):
            at = [place if axis == one.axis else loop for axis, loop in enumerate(loops)]
            terms.append(f.mul(f.wide(_extracted(source, at)), weight))
        return f.narrowed(f.total(terms), result)

    return pointwise(*_resized(source, [one], result), [], body)


def _summed(source: ir.Value, one: _Axis, taps: _Neighbours, result: ir.Type) -> ir.Value:
    """The weighted sums along one axis, of the type `result`."""
    word, floats = ir.IntegerType.get_signless(64), floats_for(result)
    reads = [Read(table(places, word), (one.axis,)) for places in taps.places]
    reads += [Read(table(weights, floats.kind), (one.axis,)) for weights in taps.weights]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        terms: list[ir.Value] = []
        count = len(values) // 2
        for place, weight in zip(values[:count], values[count:], strict=True):
            at = [_as_index(place, one.size) if axis == one.axis else loop for axis, loop in enumerate(loops)]
            terms.append(floats.mul(floats.wide(_extracted(source, at)), weight))
        return floats.narrowed(floats.total(terms), result)

    return pointwise(*_resized(source, [one], result), reads, body)


def _as_index(value: ir.Value, size: int) -> ir.Value:
    """A place as an index, below `size` also for the compiler, which then adds no check."""
    index = create("arith.index_cast", ir.IndexType.get(), [value])
    above = create("arith.maxsi", index.type, [index, constant_index(0)])
    return create("arith.minsi", index.type, [above, constant_index(size - 1)])


def _extracted(source: ir.Value, places: Sequence[ir.Value]) -> ir.Value:
    return create("tensor.extract", ir.RankedTensorType(source.type).element_type, [source, *places])
