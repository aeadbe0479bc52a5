"""lower-resizing: in the `torch` dialect, lowers resizing, as `motet.pytorch.resizing` writes it, to weighted sums.

    torch.operator "torch.motet.resize"(%x, [56, 56], [none, none], "linear", …)
 →  %a = linalg.generic … Σₖ %x[n, c, i, places[k, j]] · weights[k, j]
    %y = linalg.generic … Σₖ %a[n, c, places[k, i], j] · weights[k, i]

Indices and weights follow from the extents, and are constants. One axis after the other reads the fewest elements: axes
that shrink come before the last one, whose elements are gathered, and axes that grow after it. Resizing to the nearest
element is one gather.

Source of the positions and the filters: PyTorch's `aten/src/ATen/native/UpSample.h` and `cpu/UpSampleKernel.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.compiler.frontends.onnx.tensors import create, know_operations
from motet.compiler.frontends.torch import operands
from motet.compiler.frontends.torch.pointwise import Read, builtin, floats_for, pointwise, replace, size_of, table
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import constant_index

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
class _Taps:
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
    sizes, scales = operands.integers(operator.operands[1]), operands.numbers(operator.operands[2])
    mode = str(operands.constant(operator.operands[3]))
    aligned, antialias = (bool(operands.constant(operand)) for operand in operator.operands[4:6])
    before = ir.RankedTensorType(source.type).shape
    first = len(before) - len(sizes)
    axes = [
        _Axis(first + k, before[first + k], count, _step(before[first + k], count, scale, aligned))
        for k, (count, scale) in enumerate(zip(sizes, scales, strict=True))
    ]
    axes = [one for one in axes if one.size != one.count or one.step != 1]
    element = ir.RankedTensorType(source.type).element_type
    if mode.startswith("nearest"):
        replace(operator, _gathered(source, axes, exact=mode == "nearest-exact"))
        return
    value = source
    order = _order(axes, len(before) - 1)
    for number, one in enumerate(order):
        taps = _antialiased(mode, one) if antialias else _interpolated(mode, one, aligned)
        value = _summed(value, one, taps, element if number == len(order) - 1 else floats_for(element).kind)
    replace(operator, value)


def _step(size: int, count: int, scale: float, aligned: bool) -> float:
    if aligned:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1 / scale if scale > 0 else size / count


def _order(axes: Sequence[_Axis], last: int) -> list[_Axis]:
    """The order in which the gathered elements are fewest."""
    return sorted(axes, key=lambda one: (1 if one.axis == last else 0 if one.count < one.size else 2, one.axis))


# -- the elements of each result, and their weights --------------------------------------------------------------------


def _nearest(one: _Axis, *, exact: bool) -> np.ndarray:
    """In float32, like PyTorch, which decides which of two equally near elements is taken."""
    x = np.arange(one.count, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return np.minimum((x * np.float32(one.step)).astype(np.int64), one.size - 1)


def _interpolated(mode: str, one: _Axis, aligned: bool) -> _Taps:
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
    return _Taps(np.clip(places, 0, one.size - 1).astype(np.int64), weights)


def _antialiased(mode: str, one: _Axis) -> _Taps:
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
    return _Taps(np.minimum(places, end - 1), weights / weights.sum(0))


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


# -- loops -------------------------------------------------------------------------------------------------------------


def _resized(source: ir.Value, axes: Sequence[_Axis], element: ir.Type) -> tuple[ir.RankedTensorType, list[ir.Value]]:
    """The type of `source` with other extents along `axes`, and its dynamic extents."""
    extents = list(ir.RankedTensorType(source.type).shape)
    for one in axes:
        extents[one.axis] = one.count
    kind = ir.RankedTensorType.get(extents, element)
    return kind, [size_of(source, axis) for axis in range(len(extents)) if kind.is_dynamic_dim(axis)]


def _gathered(source: ir.Value, axes: Sequence[_Axis], *, exact: bool) -> ir.Value:
    element, word = ir.RankedTensorType(source.type).element_type, ir.IntegerType.get_signless(64)
    reads = [Read(table(_nearest(one, exact=exact), word), (one.axis,)) for one in axes]

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        places = list(loops)
        for one, value in zip(axes, values, strict=True):
            places[one.axis] = _as_index(value, one.size)
        return _extracted(source, places)

    return pointwise(*_resized(source, axes, element), reads, body) if axes else source


def _summed(source: ir.Value, one: _Axis, taps: _Taps, result: ir.Type) -> ir.Value:
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
