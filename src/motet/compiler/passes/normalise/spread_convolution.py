"""Convolutions of images with zeros between the pixels: what they read, and the convolutions of their phases.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2]
    %y = convolution of %z
        y[n, f, h] += z[n, c, h + d * j] * k[f, c, j]

Points of the result whose distance is a multiple of the step use the same elements of the window (`phases.py`). A
*piece* is a run of phases along each axis: one convolution of the pixels, whose filters are those of the phases. All
functions write at the current insertion point. Source: Shi et al., "Is the deconvolution layer the same as a
convolutional layer?", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation, reassociation_attribute
from motet.compiler.ir.current import DYNAMIC, create, recreate
from motet.compiler.ir.nests import pad_with_zeros
from motet.compiler.ir.sizes import constant_index, on_indices
from motet.compiler.kernels.roles import Structure, is_convolution, known_number, structure_of
from motet.compiler.passes.normalise.phases import PhasedAxis, PhaseRun
from motet.compiler.passes.normalise.repeating import Repeating, gathered


@dataclass(frozen=True)
class Spread:
    """A tensor among zeros. `groups` are the axes that each of its own becomes in the image; along these, it has
    `shape`, and is inserted at `offsets` with `steps`."""

    source: ir.Value
    groups: list[list[int]]
    shape: list[int]
    offsets: list[int]
    steps: list[int]

    @property
    def grouped(self) -> bool:
        return len(self.groups) < len(self.shape)

    def pixels(self) -> ir.Value:
        """The tensor of known extents with the axes of the image."""
        if not self.grouped:
            return self.source
        kind = ir.RankedTensorType.get(self.shape, ir.RankedTensorType(self.source.type).element_type)
        return create("tensor.expand_shape", kind, [self.source], {
            "reassociation": reassociation_attribute(self.groups),
            "static_output_shape": ir.DenseI64ArrayAttr.get(self.shape)})


@dataclass(frozen=True)
class SpreadConvolution:
    """`image` and `filters` are the numbers of the convolution's operands, of which the first is `spread` among zeros
    along some of `axes`."""

    operation: ir.Operation
    structure: Structure
    image: int
    filters: int
    spread: Spread
    axes: tuple[PhasedAxis, ...]

    @property
    def known(self) -> bool:
        """Whether all extents are known."""
        return all(shape_of(value) for value in (*self.operation.operands, self.spread.source))

    @property
    def _phased(self) -> list[PhasedAxis]:
        return [axis for axis in self.axes if axis.step > 1]

    @property
    def filter_axes(self) -> tuple[int, ...]:
        """The axes of the filters and of the result along the filters; none if there is not exactly one of each."""
        read = {d for entry in self.structure.maps[self.image] for d in entry.dims}
        axes = [
            (axis, place) for axis, entry in enumerate(self.structure.maps[self.filters]) if entry.single not in read
            for place, out in enumerate(self.structure.maps[-1]) if out.single == entry.single
        ]
        return axes[0] if len(axes) == 1 else ()

    def repeating(
        self, piece: Sequence[PhaseRun], points: Sequence[int], sizes: Sequence[ir.Value] = ()
    ) -> Repeating:
        """The result of a piece, with phases one after the other along the filters; it has `points` along each axis,
        and the unknown extents `sizes`."""
        shape = list(ir.RankedTensorType(self.operation.results[0].type).shape)
        for axis, count in zip(self.axes, points, strict=True):
            shape[axis.result] = count
        shape[self.filter_axes[1]] *= math.prod(run.count for run in piece)
        return Repeating(
            tuple(shape), self.filter_axes[1], frozenset(axis.result for axis in self.axes), tuple(sizes)
        )

    def bordered(self, piece: Sequence[PhaseRun]) -> ir.Value:
        """The image of known extents with a zero border as wide as windows extend."""
        low, high = [0] * len(self.spread.shape), [0] * len(self.spread.shape)
        for axis, run in zip(self.axes, piece, strict=True):
            low[axis.image], high[axis.image] = axis.padding(run)
        return padded(self.spread.pixels(), low, high)

    def filters_of(self, piece: Sequence[PhaseRun], divided: bool = False) -> ir.Value:
        """The filters of a piece. Phases are one after the other or, if `divided`, leading axes; elements that exceed
        the window are zero."""
        value, pairs = self.operation.operands[self.filters], [*zip(self.axes, piece, strict=True)]
        phased = self._phased if divided else []
        if divided and not phased:
            return value
        shape, along = shape_of(value), -1 if divided else self.filter_axes[0]
        wide, low, high = list(shape), [0] * len(shape), [0] * len(shape)
        for axis, run in pairs:
            wide[axis.filters] = run.taps
            low[axis.filters] = max(0, run.count - 1 - run.element)
            high[axis.filters] = max(0, run.element + run.stride * (run.taps - 1) - (axis.window - 1))
            if not divided:
                wide[along] *= run.count

        def element(point: list[ir.Value]) -> list[ir.Value]:
            indices, phases = point[len(phased) :], dict(zip(phased, point, strict=False))
            if not divided:
                filters = constant_index(shape[along])
                phase = on_indices("arith.divui", indices[along], filters)
                indices[along] = on_indices("arith.remui", indices[along], filters)
                for axis, run in reversed(pairs):
                    count = constant_index(run.count)
                    phases[axis] = on_indices("arith.remui", phase, count)
                    phase = on_indices("arith.divui", phase, count)
            for axis, run in pairs:
                place = on_indices("arith.muli", indices[axis.filters], constant_index(run.stride))
                place = on_indices("arith.addi", place, constant_index(run.element + low[axis.filters]))
                indices[axis.filters] = on_indices("arith.subi", place, phases[axis]) if axis in phases else place
            return indices

        return gathered(padded(value, low, high), [*(axis.step for axis in phased), *wide], element)

    def sums(
        self, piece: Sequence[PhaseRun], image: ir.Value, filters: ir.Value, begin: ir.Value, divided: bool = False
    ) -> ir.Value:
        """The convolution of an image by the filters of a piece, added to `begin`. Phases are one after the other along
        the filters or, if `divided`, follow the points along their axes. If extents are known, dimensions of windows of
        one element are left out."""
        structure, context, rank = self.structure, self.operation.context, len(self.structure.sizes)
        pairs = [*zip(self.axes, piece, strict=True)]
        phased = self._phased if divided else []
        single = {axis.tap for axis, run in pairs if run.taps == 1 and self.known}
        dilations = {axis.tap: run.dilation for axis, run in pairs}
        first = min(structure.reduced)
        order = [*range(first), *range(rank, rank + len(phased)), *(d for d in range(first, rank) if d not in single)]
        dims = {d: ir.AffineExpr.get_dim(number, context) for number, d in enumerate(order)}
        phases = {axis.dim: dims[rank + number] for number, axis in enumerate(phased)}
        maps: list[ir.AffineMap] = []
        for number, entries in enumerate(structure.maps):
            results = [*phases.values()] if number == self.filters else []
            for entry in entries:
                result = ir.AffineExpr.get_constant(entry.constant, context)
                for d, factor in entry.terms:
                    if d not in single:
                        result = result + dims[d] * (dilations.get(d, factor) if len(entry.terms) > 1 else factor)
                results += [result, phases[entry.single]] if entry.single in phases else [result]
            maps.append(ir.AffineMap.get(len(order), 0, results, context))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", context)
        iterators = [*ir.ArrayAttr(self.operation.attributes["iterator_types"]), *[parallel] * len(phased)]
        operands = list(self.operation.operands)
        operands[self.image], operands[self.filters], operands[-1] = image, filters, begin
        return recreate(self.operation, operands, maps, [iterators[d] for d in order])


# -- matching --------------------------------------------------------------------------------------


def spread_convolutions(
    function: ir.Operation, takes: Callable[[SpreadConvolution], bool]
) -> Iterator[SpreadConvolution]:
    """Those convolutions of images with inserted zeros, or a zero border, that `takes` accepts. Each is read when it is
    asked for, so that those before may have been rewritten."""
    for block in function.regions[0].blocks:
        for operation in [entry.operation for entry in block.operations if is_convolution(entry.operation)]:
            convolution = _read(operation)
            if convolution is not None and takes(convolution):
                yield convolution


def _read(operation: ir.Operation) -> SpreadConvolution | None:
    """None for other convolutions, and for filters of unknown extents."""
    structure = structure_of(operation)
    if structure is None:
        return None
    for image, filters in ((0, 1), (1, 0)):
        spread = _among_zeros(operation.operands[image])
        single = all(entry.single is not None for entry in structure.maps[filters])
        if spread is not None and single and shape_of(operation.operands[filters]):
            axes = _axes(operation, structure, (image, filters), spread)
            if axes:
                return SpreadConvolution(operation, structure, image, filters, spread, axes)
    return None


def _among_zeros(value: ir.Value) -> Spread | None:
    """The tensor that is inserted among zeros, also where channels are then split into groups."""
    insert, groups = _owner(value), None
    if insert is not None and insert.name == "tensor.expand_shape":
        insert, groups = _owner(insert.operands[0]), reassociation(insert)
    if insert is None or insert.name != "tensor.insert_slice" or known_number(insert.operands[1]) != 0:
        return None
    source = insert.operands[0]
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(insert.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides"))
    if DYNAMIC in (*offsets, *steps) or sizes != list(ir.RankedTensorType(source.type).shape):
        return None
    groups = [[axis] for axis in range(len(sizes))] if groups is None else groups
    whole = ir.RankedTensorType(insert.operands[1].type).shape
    if any(len(group) > 1 and (offsets[a], sizes[a], steps[a]) != (0, whole[a], 1) for a, group in enumerate(groups)):
        return None
    wide, places = ir.RankedTensorType(value.type).shape, [a for a, group in enumerate(groups) for _ in group]
    shape = [sizes[a] if len(groups[a]) == 1 else wide[axis] for axis, a in enumerate(places)]
    return Spread(source, groups, shape, [offsets[a] for a in places], [steps[a] for a in places])


def _owner(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _axes(
    operation: ir.Operation, structure: Structure, numbers: tuple[int, int], spread: Spread
) -> tuple[PhasedAxis, ...]:
    """The axes of operand `numbers[0]` that have zeros inserted, or a window of operand `numbers[1]`; none if one is
    read in another way."""
    wide, window = (ir.RankedTensorType(operation.operands[number].type).shape for number in numbers)
    extents = ir.RankedTensorType(operation.results[0].type).shape
    axes: list[PhasedAxis] = []
    for image, entry in enumerate(structure.maps[numbers[0]]):
        offset, step, pixels = spread.offsets[image], spread.steps[image], spread.shape[image]
        same = pixels == wide[image] or DYNAMIC in (pixels, wide[image])  # no zeros behind them
        if entry.single is not None and (offset, step) == (0, 1) and same:
            continue
        inside = [d for d in entry.dims if d in structure.reduced]
        outside = [d for d in entry.dims if d not in structure.reduced]
        if len(inside) != 1 or len(outside) != 1 or entry.constant or entry.coefficient(outside[0]) != 1:
            return ()
        places = [a for a, out in enumerate(structure.maps[-1]) if out.single == outside[0]]
        taps = [a for a, out in enumerate(structure.maps[numbers[1]]) if out.single == inside[0]]
        dilation = entry.coefficient(inside[0])
        if len(places) != 1 or len(taps) != 1 or dilation < 1:
            return ()
        axes.append(PhasedAxis(
            image, places[0], taps[0], outside[0], inside[0], step, offset, dilation, window[taps[0]], pixels,
            extents[places[0]],
        ))
    return tuple(axes)


def shape_of(value: ir.Value) -> list[int]:
    """The extents of a tensor; empty if one is dynamic, and for a scalar."""
    kind = value.type
    return list(kind.shape) if isinstance(kind, ir.RankedTensorType) and kind.has_static_shape else []


# -- writing ---------------------------------------------------------------------------------------


def padded(
    value: ir.Value, low: Sequence[int], high: Sequence[int], missing: Sequence[ir.Value] = ()
) -> ir.Value:
    """`value` with a border of zeros; `missing` are those sizes of `high` that are dynamic."""
    if not any(low) and not any(high):
        return value
    kind = ir.RankedTensorType(value.type)
    shape = [
        DYNAMIC if DYNAMIC in (size, after) else before + size + after
        for before, size, after in zip(low, kind.shape, high, strict=True)
    ]
    return pad_with_zeros(ir.RankedTensorType.get(shape, kind.element_type), [value, *missing], low, high)


def sliced(
    operands: Sequence[ir.Value], shape: Sequence[int], begin: Mapping[int, int],
    steps: Mapping[int, int] = MappingProxyType({}), sizes: Sequence[ir.Value] = (),
) -> ir.Value:
    """The slice of `shape` of a tensor, or, of two, the first inserted there into the second. It begins at `begin` and
    has `steps`, by axis; `sizes` are its unknown extents."""
    element = ir.RankedTensorType(operands[0].type).element_type
    name, kind = ("insert_slice", operands[1].type) if len(operands) > 1 else (
        "extract_slice", ir.RankedTensorType.get(list(shape), element))
    return create(f"tensor.{name}", kind, [*operands, *sizes], {
        "static_offsets": ir.DenseI64ArrayAttr.get([begin.get(axis, 0) for axis in range(len(shape))]),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(shape)),
        "static_strides": ir.DenseI64ArrayAttr.get([steps.get(axis, 1) for axis in range(len(shape))]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*[1] * len(operands), 0, len(sizes), 0])})
