"""dynamic-transposed-conv: computes convolutions of images of dynamic extents with inserted zeros without the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2]     %r = convolution of the padded %x
    %y = convolution of %z                           →       r[n, p * F + f, q] += x[n, c, q + t] * k'[p * F + f, c, t]
        y[n, f, h] += z[n, c, h + j] * k[f, c, j]          %y = %r with phases p innermost, cropped

All phases read equally many pixels at the same places, where filters with fewer elements have zeros. Phases are
numbered such that these pixels are as few as possible. `transposed-conv-by-phases` omits such zeros where extents are
known. Source: Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, reassociation_attribute, zero_attribute
from motet.compiler.ir.create import binary, create, index_constant
from motet.compiler.ir.erase import erase_unused
from motet.compiler.kernels.roles import Role, Structure, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.dequantised import nest
from motet.compiler.passes.normalise.lower_transposed_conv import is_zero, padded, shape_of
from motet.compiler.passes.normalise.repeating import IndexBody, gathered, is_initial, repeated
from motet.compiler.passes.normalise.spread_axes import SpreadAxis, spread_axes
from motet.compiler.passes.normalise.transposed_conv_by_phases import is_constant, parameters_of

_MOST_PHASES = 128


@dataclass(frozen=True)
class DynamicTransposedConv(FunctionPass):
    """Keeps convolutions of known extents, dilated and grouped ones, and those by filters that are computed from
    inputs."""

    name = "dynamic-transposed-conv"

    def run_on(self, function: ir.Operation) -> bool:
        constants, changed = parameters_of(function), False
        for block in function.regions[0].blocks:
            for each in [entry.operation for entry in block.operations]:
                if (upsampling := _match(each, constants)) is not None:
                    _DynamicWriter(each, upsampling).run()
                    changed = True
        if changed:
            erase_unused(function)
        return changed


@dataclass(frozen=True)
class _PhasedAxis:
    """A spatial axis: its number in image, result and filters. Pixels are at `offset + step * i` among zeros; the
    window has `window` elements. Point `step * q + phase - crop` of the result reads pixels `q - before` to
    `q - before + taps - 1`, with elements `step * tap + step - 1 - phase`."""

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

    @property
    def phases(self) -> int:
        return math.prod(axis.step for axis in self.axes)


# -- matching --------------------------------------------------------------------------------------


def _match(operation: ir.Operation, constants: set[ir.Value]) -> _Spread | None:
    if operation.name != "linalg.generic" or role_of(operation) is not Role.CONVOLUTION:
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
    """The axes with what all phases of each read; None if windows are dilated."""
    if axes is None or any(axis.dilation != 1 for axis in axes):
        return None
    window = shape_of(filters)
    return tuple(
        _PhasedAxis(axis.image, axis.result, axis.filters, axis.step, axis.offset, window[axis.filters])
        for axis in axes
    )


# -- rewriting -------------------------------------------------------------------------------------


class _DynamicWriter:
    """Replaces a convolution by that of all phases, whose points it brings in order."""

    def __init__(self, operation: ir.Operation, found: _Spread) -> None:
        self.operation, self.found = operation, found
        self.unknown = ir.ShapedType.get_dynamic_size()
        self.own = list(ir.RankedTensorType(operation.results[0].type).shape)
        self.element = ir.RankedTensorType(operation.results[0].type).element_type

    def run(self) -> None:
        found, operation = self.found, self.operation
        with operation.location:
            extents = [self._extent(operation.operands[2], axis) for axis in range(len(self.own))]
            points = {axis.result: self._points(axis, extents[axis.result]) for axis in found.axes}
            operands = list(operation.operands)
            operands[found.image] = self._bordered(points)
            operands[found.filters] = self._filters()
            operands[2] = self._initial(extents, points)
            sums = create(
                "linalg.generic", [operands[2].type], operands, operation,
                {name: operation.attributes[name] for name in (
                    "indexing_maps", "iterator_types", "operandSegmentSizes")}, 1)
            copy = operation.clone(ir.InsertionPoint(operation)).operation
            copy.regions[0].blocks[0].append_to(sums.regions[0])
            copy.erase()
            result = self._ordered(sums.result, extents, points)
        operation.results[0].replace_all_uses_with(result)
        operation.erase()

    def _extent(self, value: ir.Value, axis: int) -> ir.Value:
        size = ir.RankedTensorType(value.type).shape[axis]
        if size != self.unknown:
            return index_constant(size, self.operation)
        index = index_constant(axis, self.operation)
        return create("tensor.dim", [ir.IndexType.get()], [value, index], self.operation).result

    def _plus(self, value: ir.Value, number: int) -> ir.Value:
        return binary("arith.addi", value, index_constant(number, self.operation), self.operation)

    def _points(self, axis: _PhasedAxis, extent: ir.Value) -> ir.Value:
        """The number of points of each phase: those of the result, and those that make the image as long as read."""
        at = self.operation
        needed = binary("arith.divsi", self._plus(extent, axis.crop + axis.step - 1), index_constant(axis.step, at), at)
        present = self._plus(self._extent(self.found.source, axis.image), axis.before - axis.taps + 1)
        return binary("arith.maxsi", needed, present, at)

    def _bordered(self, points: dict[int, ir.Value]) -> ir.Value:
        """The image with a zero border as wide as windows extend."""
        source, at = self.found.source, self.operation
        kind = ir.RankedTensorType(source.type)
        low, high, shape = [0] * kind.rank, [0] * kind.rank, list(kind.shape)
        missing: list[ir.Value] = []
        for axis in self.found.axes:
            low[axis.image], high[axis.image], shape[axis.image] = axis.before, self.unknown, self.unknown
            read = self._plus(points[axis.result], axis.taps - 1 - axis.before)
            missing.append(binary("arith.subi", read, self._extent(source, axis.image), at))
        zero = create("arith.constant", [self.element], [], at, {"value": zero_attribute(self.element)}).result
        pad = create(
            "tensor.pad", [ir.RankedTensorType.get(shape, kind.element_type)], [source, *missing], at,
            {"static_low": ir.DenseI64ArrayAttr.get(low), "static_high": ir.DenseI64ArrayAttr.get(high),
             "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(missing)])}, 1)
        body = ir.Block.create_at_start(pad.regions[0], [ir.IndexType.get()] * kind.rank, [at.location] * kind.rank)
        ir.Operation.create("tensor.yield", operands=[zero], ip=ir.InsertionPoint(body))
        return pad.result

    def _filters(self) -> ir.Value:
        """The filters of all phases, one phase after the other, with zeros where a phase has fewer elements."""
        found, at = self.found, ir.InsertionPoint(self.operation)
        value = self.operation.operands[found.filters]
        shape, filters = shape_of(value), found.filter_axes[0]
        high = [0] * len(shape)
        wide = list(shape)
        wide[filters] *= found.phases
        for axis in found.axes:
            high[axis.filters], wide[axis.filters] = axis.taps * axis.step - axis.window, axis.taps
        bordered = padded(value, [0] * len(shape), high, at)

        def places(body: IndexBody) -> list[ir.Value]:
            indices = [body.point(a) for a in range(len(wide))]
            phase = body.binary("arith.divui", indices[filters], body.number(shape[filters]))
            indices[filters] = body.binary("arith.remui", indices[filters], body.number(shape[filters]))
            for axis in reversed(found.axes):
                step = body.number(axis.step)
                element = body.binary("arith.muli", indices[axis.filters], step)
                element = body.binary("arith.addi", element, body.number(axis.step - 1))
                indices[axis.filters] = body.binary("arith.subi", element, body.binary("arith.remui", phase, step))
                phase = body.binary("arith.divui", phase, step)
            return indices

        return gathered(bordered, wide, places, at)

    def _initial(self, extents: Sequence[ir.Value], points: dict[int, ir.Value]) -> ir.Value:
        """The initial sums of all phases."""
        at, place = self.operation, self.found.filter_axes[1]
        shape = [self.unknown if axis in points else size for axis, size in enumerate(self.own)]
        shape[place] *= self.found.phases
        sizes = [points.get(axis, extents[axis]) for axis, size in enumerate(shape) if size == self.unknown]
        empty = create("tensor.empty", [ir.RankedTensorType.get(shape, self.element)], sizes, at).result
        begin = at.operands[2].owner.operation
        if begin.name == "tensor.empty":
            return empty
        operands: list[ir.Value] = []
        for operand, each in zip(list(begin.operands)[:-1], maps_of(begin), strict=False):
            dims = [ir.AffineDimExpr(result).position for result in each.results]
            along = place in dims
            operands.append(repeated(operand, dims.index(place), shape[place], ir.InsertionPoint(at)) if along else (
                operand))
        made = create("linalg.generic", [empty.type], [*operands, empty], at, {
            name: begin.attributes[name] for name in ("indexing_maps", "iterator_types", "operandSegmentSizes")}, 1)
        copy = begin.clone(ir.InsertionPoint(at)).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.erase()
        return made.result

    def _ordered(self, sums: ir.Value, extents: Sequence[ir.Value], points: dict[int, ir.Value]) -> ir.Value:
        """The points of all phases in the order of the result, cropped."""
        found, at, context = self.found, self.operation, self.operation.context
        place, by_place = found.filter_axes[1], {axis.result: axis for axis in found.axes}
        steps = [axis.step for axis in found.axes]
        split: list[int] = []  # phases come before the filters
        groups: list[list[int]] = []
        where: dict[int, int] = {}
        for axis, size in enumerate(self.own):
            first = len(split)
            split += [*steps, size] if axis == place else [self.unknown if axis in points else size]
            groups.append(list(range(first, len(split))))
            where[axis] = len(split) - 1
        sizes = [points.get(axis, extents[axis]) for axis in range(len(self.own)) if split[where[axis]] == self.unknown]
        expanded = create("tensor.expand_shape", [ir.RankedTensorType.get(split, self.element)], [sums, *sizes], at, {
            "reassociation": reassociation_attribute(groups, context),
            "static_output_shape": ir.DenseI64ArrayAttr.get(split)}).result
        order: list[int] = []
        joined: list[list[int]] = []
        for axis in range(len(self.own)):
            own = [where[axis]]
            if axis in by_place:
                own.append(where[place] - len(steps) + found.axes.index(by_place[axis]))
            joined.append(list(range(len(order), len(order) + len(own))))
            order += own
        shape = [split[d] for d in order]
        empty = create("tensor.empty", [ir.RankedTensorType.get(shape, self.element)], sizes, at).result
        rank = len(order)
        read = ir.AffineMap.get(rank, 0, [
            ir.AffineDimExpr.get(order.index(d), context) for d in range(rank)], context)
        identity = ir.AffineMap.get_identity(rank, context)
        moved = nest(at, [expanded], empty, [read, identity], lambda block: block.arguments[0])
        whole = [self.unknown if axis in points else size for axis, size in enumerate(self.own)]
        merged = create("tensor.collapse_shape", [ir.RankedTensorType.get(whole, self.element)], [moved], at, {
            "reassociation": reassociation_attribute(joined, context)}).result
        return self._cropped(merged, extents)

    def _cropped(self, value: ir.Value, extents: Sequence[ir.Value]) -> ir.Value:
        begin = [0] * len(self.own)
        for axis in self.found.axes:
            begin[axis.result] = axis.crop
        sizes = [extents[axis] for axis, size in enumerate(self.own) if size == self.unknown]
        return create("tensor.extract_slice", [self.operation.results[0].type], [value, *sizes], self.operation, {
            "static_offsets": ir.DenseI64ArrayAttr.get(begin), "static_sizes": ir.DenseI64ArrayAttr.get(self.own),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(self.own)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(sizes), 0])}).result

