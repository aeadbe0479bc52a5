"""transposed-conv-by-phases: computes convolutions of images with inserted zeros by phases, without the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2]     %r = convolution of %x
    %y = convolution of %z                           →       r[n, p * F + f, q] += x[n, c, q + t] * k'[p * F + f, c, t]
        y[n, f, h] += z[n, c, h + d * j] * k[f, c, j]      %y = tensor.insert_slice of phase 0 of %r … [1, 1, 2], …

Points of the result whose distance is a multiple of the step use the same elements of the window. Neighbouring phases
that use equally many elements, at the same pixels, form a *run*: one convolution whose filters are those of the phases,
one after the other. A phase that uses no element is the initial value. The results are interleaved by one kernel, which
also crops them; element-wise operations on the result run before that. Source: Shi et al., "Is the deconvolution layer
the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.program import parameters_of
from motet.compiler.kernels.roles import Structure, is_convolution, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.group import INTERLEAVED
from motet.compiler.passes.normalise.lower_transposed_conv import padded, shape_of, spread_of
from motet.compiler.passes.normalise.phases import PhasedAxis, PhaseRun, ResultPhase
from motet.compiler.passes.normalise.repeating import (
    IndexBody,
    Repeating,
    element_wise_users,
    gathered,
    is_initial,
)
from motet.compiler.passes.normalise.spread_axes import SpreadAxis, spread_axes

_MOST_PHASES = 128  # each is a stage of the kernel that interleaves them


@dataclass(frozen=True)
class TransposedConvByPhases(FunctionPass):
    """Keeps convolutions with dynamic extents (see `dynamic-transposed-conv`), with filters that are computed from
    inputs, and with steps of 1."""

    name = "transposed-conv-by-phases"

    def run_on(self, function: ir.Operation) -> bool:
        constants = set(parameters_of(function))
        found = 0
        for block in function.regions[0].blocks:
            while (upsampling := _first(block, constants)) is not None:  # a rewriting erases other operations
                _PhaseWriter(*upsampling, found).run()
                found += 1
        if found:
            erase_unused(function)
        return found > 0


@dataclass(frozen=True)
class _Transposed:
    """`image` and `filters` are the numbers of the convolution's operands, `source` the tensor between the zeros.
    `filter_dim` is the dimension over filters, `filter_axis` their axis in the result."""

    structure: Structure
    image: int
    filters: int
    source: ir.Value
    filter_dim: int
    filter_axis: int
    axes: tuple[PhasedAxis, ...]


def _first(block: ir.Block, constants: set[ir.Value]) -> tuple[ir.Operation, _Transposed] | None:
    for each in block.operations:
        found = _match(each.operation, constants)
        if found is not None:
            return each.operation, found
    return None


# -- matching --------------------------------------------------------------------------------------


def _match(operation: ir.Operation, constants: set[ir.Value]) -> _Transposed | None:
    if not is_convolution(operation):
        return None
    structure = structure_of(operation)
    shaped = all(isinstance(value.type, ir.RankedTensorType) for value in operation.operands)
    if structure is None or not shaped or not all(shape_of(value) for value in operation.operands):
        return None
    for image, filters in ((0, 1), (1, 0)):
        inserted = _among_zeros(operation.operands[image])
        if inserted is None or any(entry.single is None for entry in structure.maps[filters]):
            continue
        source, offsets, steps = inserted
        axes = spread_axes(structure, image, filters, offsets, steps)
        own = {entry.single for entry in structure.maps[filters]}
        seen = {d for entry in structure.maps[image] for d in entry.dims}
        found = [a for a, entry in enumerate(structure.maps[-1]) if entry.single in own - seen]
        if axes is None or len(found) != 1 or all(axis.step == 1 for axis in axes):
            continue
        known = is_constant(operation.operands[filters], constants) and is_initial(operation.operands[2])
        if known and math.prod(axis.step for axis in axes) <= _MOST_PHASES:
            filter_dim = structure.maps[-1][found[0]].single
            assert filter_dim is not None
            phased = _phased(axes, source, operation.operands[filters], operation.results[0])
            return _Transposed(structure, image, filters, source, filter_dim, found[0], phased)
    return None


def _among_zeros(value: ir.Value) -> tuple[ir.Value, list[int], list[int]] | None:
    """The tensor that is inserted among zeros, with its offsets and steps, also where channels are then split into
    groups."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None:
        return None
    if owner.name != "tensor.expand_shape":
        found = spread_of(owner)
        return None if found is None else (owner.operands[0], *found)
    inner = _among_zeros(owner.operands[0])
    if inner is None:
        return None
    source, offsets, steps = inner
    groups = [list(group) for group in reassociation(owner)]
    if any(len(group) > 1 and (offsets[a] or steps[a] != 1) for a, group in enumerate(groups)):
        return None
    wide, narrow = shape_of(value), shape_of(source)
    shape = [size for a, group in enumerate(groups) for size in (
        [narrow[a]] if len(group) == 1 else [wide[axis] for axis in group])]
    kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(source.type).element_type)
    with owner.location:
        expanded = ir.Operation.create(
            "tensor.expand_shape", results=[kind], operands=[source],
            attributes={
                "reassociation": owner.attributes["reassociation"],
                "static_output_shape": ir.DenseI64ArrayAttr.get(shape),
            }, ip=ir.InsertionPoint(owner),
        ).result
    where = [a for a, group in enumerate(groups) for _ in group]
    return expanded, [offsets[a] for a in where], [steps[a] for a in where]


def _phased(
    axes: Sequence[SpreadAxis], source: ir.Value, filters: ir.Value, result: ir.Value
) -> tuple[PhasedAxis, ...]:
    """The axes with the extents of the pixels `source`, the window and the result."""
    pixels, window, extents = shape_of(source), shape_of(filters), shape_of(result)
    return tuple(
        PhasedAxis(
            axis.dim, axis.tap, axis.result, axis.image, axis.step, axis.offset, pixels[axis.image], axis.dilation,
            window[axis.filters], extents[axis.result],
        )
        for axis in axes
    )


def is_constant(value: ir.Value, constants: set[ir.Value]) -> bool:
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


# -- rewriting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RunPiece:
    """A run along each axis, and the phases of the result that it computes along each."""

    runs: tuple[PhaseRun, ...]
    phases: tuple[tuple[ResultPhase, ...], ...]

    @property
    def count(self) -> int:
        return math.prod(run.count for run in self.runs)


class _PhaseWriter:
    """Replaces a convolution, and the element-wise operations on it, by those of the phases; `number` marks them."""

    def __init__(self, operation: ir.Operation, found: _Transposed, number: int) -> None:
        self.operation = operation
        self.found = found
        self.number = number
        self.own = shape_of(operation.results[0])
        self.spatial = frozenset(axis.result for axis in found.axes)

    def run(self) -> None:
        pieces = list(self._pieces())
        moving = [self._repeating(piece) for piece in pieces]
        users = element_wise_users(self.operation, moving)
        last = users[-1] if users else self.operation
        at = ir.InsertionPoint(last)
        with self.operation.location:
            kind = ir.RankedTensorType(last.results[0].type)
            whole = ir.Operation.create("tensor.empty", results=[kind], ip=at).result
            for piece, repeating in zip(pieces, moving, strict=True):
                value = self._computed(piece, repeating, at)
                for user in users:
                    value = repeating.moved(user, value, at)
                whole = self._inserted(piece, value, whole, at)
        last.results[0].replace_all_uses_with(whole)
        for each in reversed([self.operation, *users]):
            each.erase()

    def _pieces(self) -> Iterator[_RunPiece]:
        split = [axis.split() for axis in self.found.axes]
        for numbers in product(*(range(len(runs)) for runs, _ in split)):
            phases = tuple(
                tuple(phase for phase in own if phase.run == number)
                for number, (_, own) in zip(numbers, split, strict=True)
            )
            if all(phases):
                yield _RunPiece(tuple(runs[n] for n, (runs, _) in zip(numbers, split, strict=True)), phases)

    def _repeating(self, piece: _RunPiece) -> Repeating:
        shape = list(self.own)
        for axis, run in zip(self.found.axes, piece.runs, strict=True):
            shape[axis.result] = run.high - run.low
        filters = self.own[self.found.filter_axis]
        shape[self.found.filter_axis] = filters * piece.count
        return Repeating(tuple(shape), self.found.filter_axis, filters, self.spatial)

    def _computed(self, piece: _RunPiece, repeating: Repeating, at: ir.InsertionPoint) -> ir.Value:
        """The convolution of a piece; its initial value if no pixel is read."""
        found, initial = self.found, self.operation.operands[2]
        owner = initial.owner.operation
        if owner.name == "tensor.empty":
            kind = ir.RankedTensorType.get(repeating.shape, ir.RankedTensorType(initial.type).element_type)
            begin = ir.Operation.create("tensor.empty", results=[kind], ip=at).result
        else:
            begin = repeating.moved(owner, None, at)
        if not all(run.taps for run in piece.runs):
            return begin
        operands = [begin] * 3
        operands[found.image] = self._bordered(piece, at)
        operands[found.filters] = self._filters(piece, at)
        made = ir.Operation.create(
            "linalg.generic", results=[begin.type], operands=operands, attributes=self._nest(piece), regions=1, ip=at,
        )
        copy = self.operation.clone(at).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.erase()
        return made.result

    def _bordered(self, piece: _RunPiece, at: ir.InsertionPoint) -> ir.Value:
        """The image with a zero border as wide as windows extend."""
        rank = len(shape_of(self.found.source))
        low, high = [0] * rank, [0] * rank
        for axis, run in zip(self.found.axes, piece.runs, strict=True):
            low[axis.image], high[axis.image] = axis.padding(run)
        return padded(self.found.source, low, high, at)

    def _filters(self, piece: _RunPiece, at: ir.InsertionPoint) -> ir.Value:
        """The filters of a piece, one phase after the other."""
        found = self.found
        value = self.operation.operands[found.filters]
        own = {entry.single: axis for axis, entry in enumerate(found.structure.maps[found.filters])}
        shape = shape_of(value)
        filters, wide = own[found.filter_dim], list(shape)
        wide[filters] *= piece.count
        for axis, run in zip(found.axes, piece.runs, strict=True):
            wide[own[axis.tap]] = run.taps

        def places(body: IndexBody) -> list[ir.Value]:
            indices = [body.point(a) for a in range(len(wide))]
            number = indices[filters]
            indices[filters] = body.binary("arith.remui", number, body.number(shape[filters]))
            phase = body.binary("arith.divui", number, body.number(shape[filters]))
            for axis, run in reversed(list(zip(found.axes, piece.runs, strict=True))):
                tap = own[axis.tap]
                element = body.binary("arith.muli", indices[tap], body.number(run.stride))
                element = body.binary("arith.addi", element, body.number(run.element))
                within = body.binary("arith.remui", phase, body.number(run.count))
                indices[tap] = body.binary("arith.subi", element, within)
                phase = body.binary("arith.divui", phase, body.number(run.count))
            return indices

        return gathered(value, wide, places, at)

    def _nest(self, piece: _RunPiece) -> dict[str, ir.Attribute]:
        """The attributes of a piece's convolution, without dimensions of windows of one element."""
        found, structure, context = self.found, self.found.structure, self.operation.context
        single = {axis.tap for axis, run in zip(found.axes, piece.runs, strict=True) if run.taps == 1}
        steps = {axis.tap: run.dilation for axis, run in zip(found.axes, piece.runs, strict=True)}
        kept = [d for d in range(len(structure.sizes)) if d not in single]
        maps: list[ir.AffineMap] = []
        for entries in structure.maps:
            results: list[ir.AffineExpr] = []
            for entry in entries:
                result = ir.AffineExpr.get_constant(entry.constant, context)
                for d, factor in entry.terms:
                    if d not in single:
                        windowed = len(entry.terms) > 1 and d in steps
                        step = steps[d] if windowed else factor
                        result = result + ir.AffineExpr.get_dim(kept.index(d), context) * step
                results.append(result)
            maps.append(ir.AffineMap.get(len(kept), 0, results, context))
        iterators = list(ir.ArrayAttr(self.operation.attributes["iterator_types"]))
        return {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps], context),
            "iterator_types": ir.ArrayAttr.get([iterators[d] for d in kept], context),
            "operandSegmentSizes": self.operation.attributes["operandSegmentSizes"],
        }

    def _inserted(self, piece: _RunPiece, value: ir.Value, whole: ir.Value, at: ir.InsertionPoint) -> ir.Value:
        """`whole` with the phases of a piece, which `value` has one after the other along the filters."""
        rank, filters = len(self.own), self.own[self.found.filter_axis]
        for chosen in product(*piece.phases):
            begin, count, place, step = [0] * rank, list(self.own), [0] * rank, [1] * rank
            number = 0
            for axis, run, phase in zip(self.found.axes, piece.runs, chosen, strict=True):
                number = number * run.count + phase.number
                begin[axis.result], count[axis.result] = phase.begin, phase.count
                place[axis.result], step[axis.result] = phase.place, axis.step
            begin[self.found.filter_axis] = number * filters
            part = _slice("tensor.extract_slice", [value], count, begin, [1] * rank, at)
            whole = _slice("tensor.insert_slice", [part, whole], count, place, step, at)
            mark = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.number)
            whole.owner.operation.attributes[INTERLEAVED] = mark
        return whole


# Parameters: those of both operations.
def _slice(
    name: str, operands: Sequence[ir.Value], sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int],
    at: ir.InsertionPoint,
) -> ir.Value:
    element = ir.RankedTensorType(operands[0].type).element_type
    kind = operands[1].type if len(operands) > 1 else ir.RankedTensorType.get(list(sizes), element)
    return ir.Operation.create(
        name, results=[kind], operands=list(operands),
        attributes={
            "static_offsets": ir.DenseI64ArrayAttr.get(list(offsets)),
            "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
            "static_strides": ir.DenseI64ArrayAttr.get(list(strides)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1] * len(operands) + [0, 0, 0]),
        }, ip=at,
    ).result
