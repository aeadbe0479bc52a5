"""transposed-conv-by-phases: computes convolutions of images with inserted zeros by phases, without the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2]     %r = convolution of %x
    %y = convolution of %z                           →       r[n, p * F + f, q] += x[n, c, q + t] * k'[p * F + f, c, t]
        y[n, f, h] += z[n, c, h + d * j] * k[f, c, j]      %y = tensor.insert_slice of phase 0 of %r … [1, 1, 2], …

Points of the result whose distance is a multiple of the step use the same elements of the window. Neighbouring phases
that use equally many elements, at the same pixels, form a *run*: one convolution whose filters are those of the phases,
one after the other. A phase that uses no element is the initial value. The results are interleaved by one kernel, which
also crops them; element-wise operations on the result run before that. Of images of dynamic extents, %y is %r with
phases innermost, cropped. Source: see `spread_convolution.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation_attribute
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.nests import nest
from motet.compiler.ir.program import parameters_of
from motet.compiler.ir.sizes import constant_index, extent_of, on_indices
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.marks import INTERLEAVED
from motet.compiler.passes.normalise.phases import PhasedAxis, PhaseRun, ResultPhase
from motet.compiler.passes.normalise.repeating import element_wise_users, is_initial
from motet.compiler.passes.normalise.spread_convolution import (
    SpreadConvolution,
    padded,
    shape_of,
    sliced,
    spread_convolutions,
)

_MOST_PHASES = 128  # each is a stage of the kernel that interleaves them


@dataclass(frozen=True)
class TransposedConvByPhases(FunctionPass):
    """Keeps convolutions with filters that are computed from inputs, and with steps of 1; of those with dynamic extents
    also dilated and grouped ones."""

    name = "transposed-conv-by-phases"

    def run_on(self, function: ir.Operation) -> bool:
        constants, number = {*parameters_of(function)}, 0
        for convolution in spread_convolutions(function, lambda each: _is_divided(each, constants)):
            if convolution.known:
                _PhaseWriter(convolution, number).run()
            else:
                _DynamicWriter(convolution).run()
            number += 1
        if number:
            erase_unused(function)
        return number > 0


def _is_divided(convolution: SpreadConvolution, constants: set[ir.Value]) -> bool:
    operation, axes = convolution.operation, convolution.axes
    if len(operation.operands) != 3 or not convolution.filter_axes:  # those of bytes have zero points, too
        return False
    if not convolution.known and (
        shape_of(operation.results[0]) or convolution.spread.grouped or any(axis.dilation != 1 for axis in axes)
    ):
        return False
    initial = is_initial(operation.operands[2], {axis.result for axis in axes})
    constant = initial and _is_constant(operation.operands[convolution.filters], constants)
    return constant and 1 < math.prod(axis.step for axis in axes) <= _MOST_PHASES


def _is_constant(value: ir.Value, constants: set[ir.Value]) -> bool:
    """Whether a tensor is computed from parameters alone."""
    seen: set[ir.Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current in seen or current in constants:
            continue
        seen.add(current)
        if isinstance(current.owner, ir.Block):
            return False
        stack += captured_values(current.owner.operation)
    return True


# -- known extents ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RunPiece:
    """A run along each axis, and the phases of the result that it computes along each."""

    runs: tuple[PhaseRun, ...]
    phases: tuple[tuple[ResultPhase, ...], ...]


class _PhaseWriter:
    """Replaces a convolution, and the element-wise operations on it, by those of the phases; `number` marks them."""

    def __init__(self, convolution: SpreadConvolution, number: int) -> None:
        self.convolution = convolution
        self.operation = convolution.operation
        self.number = number

    def run(self) -> None:
        operation, convolution, pieces = self.operation, self.convolution, list(self._pieces())
        moving = [convolution.repeating(piece.runs, [run.high - run.low for run in piece.runs]) for piece in pieces]
        users = element_wise_users(operation, moving)
        last = users[-1] if users else operation
        with operation.location, ir.InsertionPoint(last):
            whole = create("tensor.empty", last.results[0].type, [])
            for piece, repeating in zip(pieces, moving, strict=True):
                value = repeating.begun(operation.operands[2])
                if all(run.taps for run in piece.runs):
                    image, filters = convolution.bordered(piece.runs), convolution.filters_of(piece.runs)
                    value = convolution.sums(piece.runs, image, filters, value)
                for user in users:
                    value = repeating.moved(user, value)
                whole = self._inserted(piece, value, whole)
        last.results[0].replace_all_uses_with(whole)
        for each in reversed([operation, *users]):
            each.erase()

    def _pieces(self) -> Iterator[_RunPiece]:
        split = [axis.split() for axis in self.convolution.axes]
        for numbers in product(*(range(len(runs)) for runs, _ in split)):
            phases = tuple(
                tuple(phase for phase in phases if phase.run == number)
                for number, (_, phases) in zip(numbers, split, strict=True)
            )
            if all(phases):
                yield _RunPiece(tuple(runs[n] for n, (runs, _) in zip(numbers, split, strict=True)), phases)

    def _inserted(self, piece: _RunPiece, value: ir.Value, whole: ir.Value) -> ir.Value:
        """`whole` with the phases of a piece, which `value` has one after the other along the filters."""
        shape, (_, filters) = shape_of(self.operation.results[0]), self.convolution.filter_axes
        for chosen in product(*piece.phases):
            count, begin, place, number = list(shape), {}, {}, 0
            for axis, run, phase in zip(self.convolution.axes, piece.runs, chosen, strict=True):
                number = number * run.count + phase.number
                count[axis.result], begin[axis.result], place[axis.result] = phase.count, phase.begin, phase.place
            begin[filters] = number * shape[filters]
            part = sliced([value], count, begin)
            whole = sliced([part, whole], count, place, {axis.result: axis.step for axis in self.convolution.axes})
            mark = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.number)
            whole.owner.operation.attributes[INTERLEAVED] = mark
        return whole


# -- dynamic extents -------------------------------------------------------------------------------


def _plus(value: ir.Value, number: int) -> ir.Value:
    return on_indices("arith.addi", value, constant_index(number))


class _DynamicWriter:
    """Replaces a convolution by one of each piece, whose points it brings in order. All pieces read from the first
    pixel on; the last run along an axis has the longest windows."""

    def __init__(self, convolution: SpreadConvolution) -> None:
        self.convolution, self.operation = convolution, convolution.operation
        kind = ir.RankedTensorType(self.operation.results[0].type)
        self.element, self.whole = kind.element_type, list(kind.shape)
        self.places = {axis.result: number for number, axis in enumerate(convolution.axes)}
        self.shape = [DYNAMIC if axis in self.places else size for axis, size in enumerate(self.whole)]  # of a phase
        self.groups: list[list[int]] = []  # the axes of `_layout` for each axis of the result
        for axis in range(len(self.whole)):
            first = self.groups[-1][-1] + 1 if self.groups else 0
            self.groups.append([first, first + 1] if axis in self.places else [first])

    def run(self) -> None:
        operation, axes = self.operation, self.convolution.axes
        with operation.location, ir.InsertionPoint(operation):
            extents = [extent_of(operation.operands[2], axis) for axis in range(len(self.whole))]
            points = {axis.result: self._points(axis, extents[axis.result]) for axis in axes}
            sizes = self._dynamic([points.get(axis, extent) for axis, extent in enumerate(extents)], self.shape)
            image, pieces = self._bordered(points), list(product(*(axis.runs for axis in axes)))
            parts = [(piece, self._ordered(piece, self._sums(piece, image, sizes, points), sizes)) for piece in pieces
                     if all(run.taps for run in piece)]
            whole = parts[0][1] if len(pieces) == 1 else self._begun(len(parts) < len(pieces), extents, points, sizes)
            for piece, part in parts if len(pieces) > 1 else ():
                begin = {self.groups[axis.result][1]: run.first for axis, run in zip(axes, piece, strict=True)}
                whole = sliced([part, whole], ir.RankedTensorType(part.type).shape, begin, sizes=sizes)
            merged = create("tensor.collapse_shape", ir.RankedTensorType.get(self.shape, self.element), [whole], {
                "reassociation": reassociation_attribute(self.groups)})
            begin = {axis.result: axis.crop for axis in axes}
            result = sliced([merged], self.whole, begin, sizes=self._dynamic(extents, self.whole))
        operation.results[0].replace_all_uses_with(result)
        operation.erase()

    def _points(self, axis: PhasedAxis, extent: ir.Value) -> ir.Value:
        """The number of points of each phase: those of the result, and those that make the image as long as read."""
        needed = on_indices("arith.divsi", _plus(extent, axis.crop + axis.step - 1), constant_index(axis.step))
        pixels, run = extent_of(self.convolution.spread.source, axis.image), axis.runs[-1]
        return on_indices("arith.maxsi", needed, _plus(pixels, 1 - run.shift - run.taps))

    def _dynamic(self, sizes: Sequence[ir.Value], shape: Sequence[int]) -> list[ir.Value]:
        """Those of the sizes of all axes that are unknown in `shape`."""
        return [size for size, known in zip(sizes, shape, strict=True) if known == DYNAMIC]

    def _bordered(self, points: Mapping[int, ir.Value]) -> ir.Value:
        """The image with a zero border as wide as windows extend."""
        source = self.convolution.spread.source
        low, high = [0] * len(self.convolution.spread.shape), [0] * len(self.convolution.spread.shape)
        missing: list[ir.Value] = []
        for axis in self.convolution.axes:
            run = axis.runs[-1]
            low[axis.image], high[axis.image] = -run.shift, DYNAMIC
            read = _plus(points[axis.result], run.taps - 1 + run.shift)
            missing.append(on_indices("arith.subi", read, extent_of(source, axis.image)))
        return padded(source, low, high, missing)

    def _sums(
        self, piece: Sequence[PhaseRun], image: ir.Value, sizes: Sequence[ir.Value], points: Mapping[int, ir.Value]
    ) -> ir.Value:
        """The convolution of a piece."""
        convolution, shape = self.convolution, ir.RankedTensorType(image.type).shape
        read = [extent_of(image, axis) for axis in range(len(shape))]
        for axis, run in zip(convolution.axes, piece, strict=True):
            read[axis.image] = _plus(points[axis.result], run.taps - 1)
        part = sliced([image], shape, {}, sizes=self._dynamic(read, shape))
        filters = convolution.filters_of(piece)
        return convolution.sums(piece, part, filters, self._initial(piece, sizes))

    def _initial(self, piece: Sequence[PhaseRun], sizes: Sequence[ir.Value]) -> ir.Value:
        extents = [DYNAMIC] * len(self.places)
        return self.convolution.repeating(piece, extents, sizes).begun(self.operation.operands[2])

    def _ordered(self, piece: Sequence[PhaseRun], sums: ir.Value, sizes: Sequence[ir.Value]) -> ir.Value:
        """The points of a piece with phases behind them, which `sums` has one after the other along the filters."""
        context, counts = self.operation.context, [run.count for run in piece]
        layout, groups, (_, place) = self._layout(counts), self.groups, self.convolution.filter_axes
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

    def _begun(
        self, filled: bool, extents: Sequence[ir.Value], points: Mapping[int, ir.Value], sizes: Sequence[ir.Value]
    ) -> ir.Value:
        """A tensor for the points of all phases, `filled` with their initial values if some read no pixel."""
        layout, full = self._layout([axis.step for axis in self.convolution.axes]), list(extents)
        if not filled:
            return self._empty(layout, sizes)
        for axis in self.convolution.axes:
            full[axis.result] = on_indices("arith.muli", points[axis.result], constant_index(axis.step))
        return self._expanded(self._initial((), self._dynamic(full, self.shape)), layout, self.groups, sizes)

    def _layout(self, counts: Sequence[int]) -> list[int]:
        """The shape of points with `counts` phases, which follow the points along their axes."""
        return [each for axis, size in enumerate(self.shape) for each in (
            [size, counts[self.places[axis]]] if axis in self.places else [size])]

    def _expanded(
        self, value: ir.Value, shape: Sequence[int], groups: Sequence[Sequence[int]], sizes: Sequence[ir.Value]
    ) -> ir.Value:
        return create("tensor.expand_shape", ir.RankedTensorType.get(shape, self.element), [value, *sizes], {
            "reassociation": reassociation_attribute(groups),
            "static_output_shape": ir.DenseI64ArrayAttr.get(shape)})

    def _empty(self, shape: Sequence[int], sizes: Sequence[ir.Value]) -> ir.Value:
        return create("tensor.empty", ir.RankedTensorType.get(shape, self.element), sizes)
