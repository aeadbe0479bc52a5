"""dynamic-transposed-conv: computes convolutions of images of dynamic extents with inserted zeros without the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2]     %r = convolution of the padded %x
    %y = convolution of %z                           →       r[n, p * F + f, q] += x[n, c, q + t] * k'[p * F + f, c, t]
        y[n, f, h] += z[n, c, h + j] * k[f, c, j]          %y = %r with phases p innermost, cropped

Phases whose windows have equally many elements form a *run*, one convolution: if the step does not divide the window,
the first phases have one element fewer. All read from the same pixel. Phases are numbered such that the pixels are as
few as possible. `transposed-conv-by-phases` does this where extents are known. Source: Shi et al., "Is the
deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, reassociation_attribute
from motet.compiler.ir.create import create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.nests import nest, pad_with_zeros
from motet.compiler.ir.program import parameters_of
from motet.compiler.ir.sizes import constant_index, extent_of, on_indices
from motet.compiler.kernels.roles import Structure, is_convolution, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.normalise.lower_transposed_conv import is_zero, shape_of
from motet.compiler.passes.normalise.repeating import IndexBody, gathered, is_initial, repeated
from motet.compiler.passes.normalise.spread_axes import SpreadAxis, spread_axes
from motet.compiler.passes.normalise.transposed_conv_by_phases import is_constant

_MOST_PHASES = 128


@dataclass(frozen=True)
class DynamicTransposedConv(FunctionPass):
    """Keeps convolutions of known extents, dilated and grouped ones, and those by filters that are computed from
    inputs."""

    name = "dynamic-transposed-conv"

    def run_on(self, function: ir.Operation) -> bool:
        constants, changed = set(parameters_of(function)), False
        for block in function.regions[0].blocks:
            for each in [entry.operation for entry in block.operations]:
                if (upsampling := _match(each, constants)) is not None:
                    _DynamicWriter(each, upsampling).run()
                    changed = True
        if changed:
            erase_unused(function)
        return changed


@dataclass(frozen=True)
class _EqualPhases:
    """Phases from `first` on, `count` of them, whose windows have `taps` elements each."""

    first: int
    count: int
    taps: int


@dataclass(frozen=True)
class _PhasedAxis:
    """A spatial axis: its number in image, result and filters. Pixels are at `offset + step * i` among zeros; the
    window has `window` elements. Point `step * q + phase - crop` of the result reads pixels `q - before` to
    `q - before + taps - 1`, if its run has so many, with elements `step * tap + step - 1 - phase`."""

    image: int
    result: int
    filters: int
    step: int
    offset: int
    window: int

    @property
    def crop(self) -> int:
        return (self.step - 1 - self.offset) % self.step

    @property
    def before(self) -> int:
        return (self.offset + self.crop) // self.step

    @property
    def taps(self) -> int:
        return -(-self.window // self.step)

    @property
    def runs(self) -> list[_EqualPhases]:
        shorter = self.taps * self.step - self.window
        runs = [_EqualPhases(0, shorter, self.taps - 1), _EqualPhases(shorter, self.step - shorter, self.taps)]
        return [run for run in runs if run.count]


@dataclass(frozen=True)
class _Spread:
    """`image` and `filters` are the numbers of the convolution's operands, `source` the tensor between the zeros;
    `filter_axes` are the axes over filters of the filters and of the result."""

    structure: Structure
    image: int
    filters: int
    source: ir.Value
    filter_axes: tuple[int, int]
    axes: tuple[_PhasedAxis, ...]


# -- matching --------------------------------------------------------------------------------------


def _match(operation: ir.Operation, constants: set[ir.Value]) -> _Spread | None:
    if not is_convolution(operation):
        return None
    structure = structure_of(operation)
    if structure is None or len(operation.operands) != 3:  # those of bytes have zero points, too
        return None
    if shape_of(operation.results[0]) or not is_initial(operation.operands[2]):
        return None
    for image, filters in ((0, 1), (1, 0)):
        spread = _spread(operation.operands[image])
        own = structure.maps[filters]
        if spread is None or not shape_of(operation.operands[filters]) or any(entry.single is None for entry in own):
            continue
        if not is_constant(operation.operands[filters], constants):
            continue
        source, offsets, steps = spread
        axes = _phased(spread_axes(structure, image, filters, offsets, steps), operation.operands[filters])
        seen = {d for entry in structure.maps[image] for d in entry.dims}
        columns = [a for a, entry in enumerate(own) if entry.single not in seen]
        if axes is None or len(columns) != 1 or math.prod(axis.step for axis in axes) not in range(2, _MOST_PHASES + 1):
            continue
        places = [a for a, entry in enumerate(structure.maps[-1]) if entry.single == own[columns[0]].single]
        return _Spread(structure, image, filters, source, (columns[0], places[0]), axes)
    return None


def _spread(value: ir.Value) -> tuple[ir.Value, list[int], list[int]] | None:
    """The tensor that is inserted among zeros, with its offsets and steps."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "tensor.insert_slice":
        return None
    insert = value.owner.operation
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(insert.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides"))
    unknown = ir.ShapedType.get_dynamic_size()
    if unknown in (*offsets, *steps) or not is_zero(insert.operands[1]):
        return None
    return (insert.operands[0], offsets, steps) if sizes == list(insert.operands[0].type.shape) else None


def _phased(axes: Sequence[SpreadAxis] | None, filters: ir.Value) -> tuple[_PhasedAxis, ...] | None:
    """The axes with their phases; None if windows are dilated."""
    if axes is None or any(axis.dilation != 1 for axis in axes):
        return None
    window = shape_of(filters)
    return tuple(
        _PhasedAxis(axis.image, axis.result, axis.filters, axis.step, axis.offset, window[axis.filters])
        for axis in axes
    )


# -- rewriting -------------------------------------------------------------------------------------


def _plus(value: ir.Value, number: int) -> ir.Value:
    return on_indices("arith.addi", value, constant_index(number))


class _DynamicWriter:
    """Replaces a convolution by one of each run of phases, whose points it brings in order. A *piece* is a run along
    each axis."""

    def __init__(self, operation: ir.Operation, found: _Spread) -> None:
        self.operation, self.found = operation, found
        self.unknown = ir.ShapedType.get_dynamic_size()
        self.own = list(ir.RankedTensorType(operation.results[0].type).shape)
        self.element = ir.RankedTensorType(operation.results[0].type).element_type
        self.places = {axis.result: number for number, axis in enumerate(found.axes)}
        self.shape = [self.unknown if axis in self.places else size for axis, size in enumerate(self.own)]  # of a phase
        self.groups: list[list[int]] = []  # the axes of `_layout` for each axis of the result
        for axis in range(len(self.own)):
            first = self.groups[-1][-1] + 1 if self.groups else 0
            self.groups.append([first, first + 1] if axis in self.places else [first])

    def run(self) -> None:
        operation, axes, shape = self.operation, self.found.axes, self.shape
        with operation.location, ir.InsertionPoint(operation):
            extents = [extent_of(operation.operands[2], axis) for axis in range(len(self.own))]
            points = {axis.result: self._points(axis, extents[axis.result]) for axis in axes}
            sizes = self._dynamic([points.get(axis, extent) for axis, extent in enumerate(extents)], shape)
            image, pieces = self._bordered(points), list(product(*(axis.runs for axis in axes)))
            parts = [(piece, self._ordered(piece, self._sums(piece, image, sizes, points), sizes)) for piece in pieces
                     if all(run.taps for run in piece)]
            whole = parts[0][1] if len(pieces) == 1 else self._begun(len(parts) < len(pieces), extents, points, sizes)
            for piece, part in parts if len(pieces) > 1 else ():
                begin = {self.groups[axis.result][1]: run.first for axis, run in zip(axes, piece, strict=True)}
                whole = self._slice([part, whole], part.type, begin, sizes)
            kind = ir.RankedTensorType.get(shape, self.element)
            merged = create("tensor.collapse_shape", [kind], [whole], operation, {
                "reassociation": reassociation_attribute(self.groups, operation.context)}).result
            begin = {axis.result: axis.crop for axis in axes}
            result = self._slice([merged], operation.results[0].type, begin, self._dynamic(extents, self.own))
        operation.results[0].replace_all_uses_with(result)
        operation.erase()

    def _begun(
        self, filled: bool, extents: Sequence[ir.Value], points: dict[int, ir.Value], sizes: Sequence[ir.Value]
    ) -> ir.Value:
        """A tensor for the points of all phases, `filled` with their initial values if some read no pixel."""
        layout, full = self._layout([axis.step for axis in self.found.axes]), list(extents)
        if not filled:
            return self._empty(layout, sizes)
        for axis in self.found.axes:
            full[axis.result] = on_indices("arith.muli", points[axis.result], constant_index(axis.step))
        return self._expanded(self._initial(1, self._dynamic(full, self.shape)), layout, self.groups, sizes)

    def _layout(self, counts: Sequence[int]) -> list[int]:
        """The shape of points with `counts` phases, which follow the points along their axes."""
        return [each for axis, size in enumerate(self.shape) for each in (
            [size, counts[self.places[axis]]] if axis in self.places else [size])]

    def _dynamic(self, sizes: Sequence[ir.Value], shape: Sequence[int]) -> list[ir.Value]:
        """Those of the sizes of all axes that are unknown in `shape`."""
        return [size for size, known in zip(sizes, shape, strict=True) if known == self.unknown]

    def _expanded(
        self, value: ir.Value, shape: Sequence[int], groups: Sequence[Sequence[int]], sizes: Sequence[ir.Value]
    ) -> ir.Value:
        return create(
            "tensor.expand_shape", [ir.RankedTensorType.get(shape, self.element)], [value, *sizes], self.operation,
            {"reassociation": reassociation_attribute(groups, self.operation.context),
             "static_output_shape": ir.DenseI64ArrayAttr.get(shape)}).result

    def _empty(self, shape: Sequence[int], sizes: Sequence[ir.Value]) -> ir.Value:
        return create("tensor.empty", [ir.RankedTensorType.get(shape, self.element)], sizes, self.operation).result

    def _sums(
        self, piece: Sequence[_EqualPhases], image: ir.Value, sizes: Sequence[ir.Value], points: dict[int, ir.Value]
    ) -> ir.Value:
        """The convolution of a piece."""
        operands = list(self.operation.operands)
        read = [extent_of(image, axis) for axis in range(ir.RankedTensorType(image.type).rank)]
        for axis, run in zip(self.found.axes, piece, strict=True):
            read[axis.image] = _plus(points[axis.result], run.taps - 1)
        read = self._dynamic(read, ir.RankedTensorType(image.type).shape)
        operands[self.found.image] = self._slice([image], image.type, {}, read)
        operands[self.found.filters] = self._filters(piece)
        operands[2] = self._initial(math.prod(run.count for run in piece), sizes)
        return self._of(self.operation, operands)

    def _of(self, other: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        """The nest `other` of these operands."""
        made = create("linalg.generic", [operands[-1].type], operands, self.operation, {
            name: other.attributes[name] for name in ("indexing_maps", "iterator_types", "operandSegmentSizes")}, 1)
        copy = other.clone(ir.InsertionPoint(self.operation)).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.erase()
        return made.result

    def _ordered(self, piece: Sequence[_EqualPhases], sums: ir.Value, sizes: Sequence[ir.Value]) -> ir.Value:
        """The points of a piece with phases behind them, which `sums` has one after the other along the filters."""
        context, place, counts = self.operation.context, self.found.filter_axes[1], [run.count for run in piece]
        layout, groups = self._layout(counts), self.groups
        if math.prod(counts) == 1:
            return self._expanded(sums, layout, groups, sizes)
        within = [[axis + (axis > place) * len(counts)] for axis in range(len(groups))]
        within[place] = [*range(place, place + len(counts) + 1)]
        split = self._expanded(sums, [*self.shape[:place], *counts, *self.shape[place:]], within, sizes)
        phases = [groups[axis][1] for axis in self.places]
        order = [d for axis, (own, *_) in enumerate(groups) for d in ([*phases, own] if axis == place else [own])]
        read = ir.AffineMap.get(len(layout), 0, [ir.AffineDimExpr.get(d, context) for d in order], context)
        maps, empty = [read, ir.AffineMap.get_identity(len(layout), context)], self._empty(layout, sizes)
        return nest(self.operation, [split], empty, maps, lambda block: block.arguments[0])

    def _slice(
        self, operands: Sequence[ir.Value], part: ir.Type, begin: dict[int, int], sizes: Sequence[ir.Value]
    ) -> ir.Value:
        """The slice of type `part` of an operand, or the first operand inserted there into the second one; it starts at
        `begin`, by axis."""
        shape = list(ir.RankedTensorType(part).shape)
        name, kind = ("extract_slice", part) if len(operands) == 1 else ("insert_slice", operands[1].type)
        return create(f"tensor.{name}", [kind], [*operands, *sizes], self.operation, {
            "static_offsets": ir.DenseI64ArrayAttr.get([begin.get(axis, 0) for axis in range(len(shape))]),
            "static_sizes": ir.DenseI64ArrayAttr.get(shape),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*[1] * len(operands), 0, len(sizes), 0])}).result

    def _points(self, axis: _PhasedAxis, extent: ir.Value) -> ir.Value:
        """The number of points of each phase: those of the result, and those that make the image as long as read."""
        needed = on_indices("arith.divsi", _plus(extent, axis.crop + axis.step - 1), constant_index(axis.step))
        present = _plus(extent_of(self.found.source, axis.image), axis.before - axis.taps + 1)
        return on_indices("arith.maxsi", needed, present)

    def _bordered(self, points: dict[int, ir.Value]) -> ir.Value:
        """The image with a zero border as wide as windows extend."""
        source, at = self.found.source, self.operation
        kind = ir.RankedTensorType(source.type)
        low, high, shape = [0] * kind.rank, [0] * kind.rank, list(kind.shape)
        missing: list[ir.Value] = []
        for axis in self.found.axes:
            low[axis.image], high[axis.image], shape[axis.image] = axis.before, self.unknown, self.unknown
            read = _plus(points[axis.result], axis.taps - 1 - axis.before)
            missing.append(on_indices("arith.subi", read, extent_of(source, axis.image)))
        with at.location, ir.InsertionPoint(at):
            return pad_with_zeros(ir.RankedTensorType.get(shape, self.element), [source, *missing], low, high)

    def _filters(self, piece: Sequence[_EqualPhases]) -> ir.Value:
        """The filters of a piece, one phase after the other."""
        found = self.found
        value = self.operation.operands[found.filters]
        shape, filters = shape_of(value), found.filter_axes[0]
        wide = list(shape)
        wide[filters] *= math.prod(run.count for run in piece)
        for axis, run in zip(found.axes, piece, strict=True):
            wide[axis.filters] = run.taps

        def places(body: IndexBody) -> list[ir.Value]:
            indices = [body.point(a) for a in range(len(wide))]
            phase = body.binary("arith.divui", indices[filters], body.number(shape[filters]))
            indices[filters] = body.binary("arith.remui", indices[filters], body.number(shape[filters]))
            for axis, run in reversed([*zip(found.axes, piece, strict=True)]):
                element = body.binary("arith.muli", indices[axis.filters], body.number(axis.step))
                element = body.binary("arith.addi", element, body.number(axis.step - 1 - run.first))
                own = body.binary("arith.remui", phase, body.number(run.count))
                indices[axis.filters] = body.binary("arith.subi", element, own)
                phase = body.binary("arith.divui", phase, body.number(run.count))
            return indices

        return gathered(value, wide, places, ir.InsertionPoint(self.operation))

    def _initial(self, count: int, sizes: Sequence[ir.Value]) -> ir.Value:
        """The initial sums of `count` phases."""
        at, place = self.operation, self.found.filter_axes[1]
        shape = list(self.shape)
        shape[place] *= count
        empty, begin = self._empty(shape, sizes), at.operands[2].owner.operation
        if begin.name == "tensor.empty":
            return empty
        operands: list[ir.Value] = []
        for operand, each in zip(list(begin.operands)[:-1], maps_of(begin), strict=False):
            dims = [ir.AffineDimExpr(result).position for result in each.results]
            along = place in dims
            operands.append(repeated(operand, dims.index(place), shape[place], ir.InsertionPoint(at)) if along else (
                operand))
        return self._of(begin, [*operands, empty])
