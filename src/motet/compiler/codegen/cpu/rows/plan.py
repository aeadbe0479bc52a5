"""Schedules of element-wise work, reductions and data movement: stages that run together, vectors, and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.emit.addressing import StridedNest, nest_of
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, is_float
from motet.compiler.codegen.cpu.rows import columns
from motet.compiler.codegen.cpu.rows.grouping import RowGroup, group, last_end, multiplied
from motet.compiler.codegen.cpu.task_split import Division, nanoseconds
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import ITEM_BITS, Kernel, Stage, item_bytes
from motet.compiler.kernels.schedule import LoopPhase, LoopsSchedule, Reason, in_range
from motet.compiler.kernels.strides import ONE, ZERO, Extent, physical_order
from motet.compiler.targets.cpu import CpuTarget

_MOST_INTERLEAVED = 8  # vectors that shuffles interleave; the number of shuffles grows with its square
_MANY_READ = 4  # elements that a result takes, from which on reading them costs more than storing the result
_MOST_GRAIN = 1 << 30
_MOST_STRIP = 1 << 24


@dataclass(frozen=True)
class StageLoop:
    """One stage run separately. Vectors run along dimension `along` of the nest and have at most `lanes` elements."""

    nest: StridedNest
    along: int | None
    lanes: int

    @property
    def vectors(self) -> int:
        """The number of vectors per iteration."""
        if self.columns is not None:
            return columns.VECTORS
        heavy = any(scalar.op.startswith("math.") for scalar in self.nest.body)
        return 1 if self.along is None else 2 if heavy or len(self.nest.body) > 24 else 4

    @property
    def columns(self) -> int | None:
        """The dimension of short rows that are read column by column."""
        return columns.column_dimension(self.nest, self.along, self.lanes)

    def transposed(self, lanes: int) -> int | None:
        """The parallel dimension along which all inputs are contiguous that are not contiguous along `along`, if this
        is the only reason why they cannot be read as vectors."""
        nest, along = self.nest, self.along
        if along is None or lanes < 4 or nest.dims_of("reduction") or any(operand.bounds for operand in nest.inputs):
            return None
        skewed = [operand for operand in nest.inputs if operand.strides[along] not in (ZERO, ONE)]
        for d in nest.dims_of("parallel"):
            if d != along and skewed and all(operand.strides[d] == ONE for operand in skewed):
                sizes = (nest.sizes[d], nest.sizes[along])
                if all(size.known is None or size.known >= lanes for size in sizes):
                    return d
        return None

    def interleaved(self, lanes: int) -> int | None:
        """The parallel dimension that vectors run along, if the contiguous dimension `along` of the result is short and
        comes from several of them."""
        nest, along = self.nest, self.along
        if along is None or lanes < 4 or nest.dims_of("reduction") or len(nest.outputs) != 1:
            return None
        count = nest.sizes[along].known
        if count is None or not 2 <= count <= _MOST_INTERLEAVED or any(operand.bounds for operand in nest.inputs):
            return None
        for d in nest.dims_of("parallel"):
            size = nest.sizes[d].known
            suited = nest.outputs[0].strides[d].known == count and (size is None or size >= lanes)
            if d != along and suited and all(operand.strides[d] in (ZERO, ONE) for operand in nest.inputs):
                return d
        return None

    def other(self, lanes: int) -> int | None:
        """The dimension that vectors run along besides `along`, if there is one."""
        found = self.interleaved(lanes)
        return self.transposed(lanes) if found is None else found

    def outer(self, lanes: int) -> list[int]:
        """The parallel dimensions that rows are numbered by."""
        return [d for d in self.nest.dims_of("parallel") if d not in (self.along, self.other(lanes))]


def loop_of(kernel: Kernel, stage: Stage, target: CpuTarget) -> StageLoop:
    nest = nest_of(kernel, stage).arrange(physical_order(kernel, stage)).collapse()
    along = next((d for d in nest.dims_of("parallel") if nest.outputs[0].strides[d] == ONE), None)
    if (read := _read_along(nest, along, target)) is not None:
        along = read
    if along is not None and len(kernel.stages) > 1 and "reduction" not in nest.kinds:
        nest = multiplied(nest, along)
    return StageLoop(nest, along, 1 if along is None else columns.lanes_across(nest, target))


def _read_along(nest: StridedNest, along: int | None, target: CpuTarget) -> int | None:
    """The parallel dimension along which all inputs are contiguous, if a reduction reads so many elements for each
    result that vectors should run along it rather than along `along`: results are then stored one by one."""
    lanes, reduced = columns.lanes_across(nest, target), 1
    for d in nest.dims_of("reduction"):
        reduced *= guess(nest.sizes[d])
    if reduced < _MANY_READ or lanes < 4 or any(operand.bounds for operand in nest.inputs):
        return None
    skewed = [o for o in nest.inputs if along is None or o.strides[along] not in (ZERO, ONE)]
    for d in nest.dims_of("parallel"):
        steps = [operand.strides[d] for operand in nest.inputs]
        enough = guess(nest.sizes[d]) >= lanes
        if d != along and enough and skewed and all(o.strides[d] == ONE for o in skewed) and set(steps) <= {ZERO, ONE}:
            return d
    return None


def row_lanes(found: RowGroup, target: CpuTarget) -> int:
    """The number of lanes that all nests of a group allow."""
    return min(_nest_lanes(nest, target) for nest in found.nests)


def _nest_lanes(nest: StridedNest, target: CpuTarget) -> int:
    bits = [max(32, ITEM_BITS[d]) if is_float(d) else ITEM_BITS[d] for d in nest.varying_dtypes]
    return min(map(target.lanes, bits))


# -- choice --------------------------------------------------------------------------------------------


def choose(kernel: Kernel, target: CpuTarget) -> LoopsSchedule | None:
    """Group the stages in order, each group as long as possible; None if a stage has no code."""
    phases: list[LoopPhase] = []
    first = 0
    try:
        nests = [nest_of(kernel, stage) for stage in kernel.stages]
        while first < len(kernel.stages):
            for end in range(last_end(kernel, first, nests), first, -1):
                if (found := group(kernel, range(first, end), target, nests)) is not None:
                    phases.append(choose_rows(found, end - first, target))
                    first = end
                    break
            else:
                phases.append(_choose_loop(loop_of(kernel, kernel.stages[first], target)))
                first += 1
    except Unsupported:
        return None
    return LoopsSchedule(phases)


def choose_rows(found: RowGroup, stages: int, target: CpuTarget) -> LoopPhase:
    """The schedule of a group of `stages` stages."""
    lanes = row_lanes(found, target)
    rows, segments = row_extents(found)
    cost = sum(nanoseconds(each, lanes) for each in found.nests)
    for size in segments:
        cost *= guess(size)
    if found.across:
        length = guess(found.extents[-1])
        division = Division.of(rows[:-1], rows[-1], cost * length, cut=True, multiple=4 * lanes)
        return LoopPhase(stages, lanes, division.grain, division.strip, by_rows=True)
    division = Division.of(rows, found.extents[-1], cost, cut=not found.reduces, multiple=4 * lanes)
    return LoopPhase(stages, lanes, division.grain, division.strip, by_rows=True)


def row_extents(found: RowGroup) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
    """The extents that rows are numbered by, and those that a row's segments are."""
    outer = len(found.extents) - found.inner
    return found.extents[:outer], found.extents[outer:-1]


def _choose_loop(loop: StageLoop) -> LoopPhase:
    nest, lanes = loop.nest, _tile_lanes(loop)
    if (spread := loop.interleaved(loop.lanes)) is not None and loop.along is not None:
        cost = nanoseconds(nest, loop.lanes) * guess(nest.sizes[loop.along]) * 2
        sizes = [nest.sizes[d] for d in loop.outer(loop.lanes)]
        division = Division.of(sizes, nest.sizes[spread], cost, cut=True, multiple=loop.lanes * loop.vectors)
        return LoopPhase(1, loop.lanes, division.grain, division.strip)
    reduced = 1
    for d in nest.dims_of("reduction"):
        reduced *= guess(nest.sizes[d])
    other = loop.transposed(lanes)
    cost = nanoseconds(nest, lanes) * reduced * (2 if other is not None else 1)
    if other is not None and loop.along is not None:
        # Rows are bands of `other`, a few tiles wide, so that whole cache lines are used.
        band, points = 4 * lanes, cost * guess(nest.sizes[loop.along])
        return LoopPhase(1, lanes, max(1, int(20_000 / max(1.0, points * band))), band)
    last = None if loop.along is None else nest.sizes[loop.along]
    sizes = [nest.sizes[d] for d in loop.outer(lanes)]
    division = Division.of(sizes, last, cost, cut=True, multiple=lanes * loop.vectors)
    return LoopPhase(1, lanes, division.grain, division.strip)


def _tile_lanes(loop: StageLoop) -> int:
    """The most lanes with which inputs are transposed in registers; those of the loop if they cannot be. Vectors of 32
    bytes are faster than longer ones, whose stores rarely fit cache lines."""
    widest = max((item_bytes(operand.dtype) for operand in loop.nest.inputs), default=1)
    lanes = min(loop.lanes, max(4, 32 // widest))
    while lanes >= 4:
        if loop.transposed(lanes) is not None:
            return lanes
        lanes //= 2
    return loop.lanes


# -- legality ------------------------------------------------------------------------------------------


def check(kernel: Kernel, schedule: LoopsSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `kernel` on `target`; an empty list if it is."""
    total = sum(max(1, phase.stages) for phase in schedule.phases)
    if total != len(kernel.stages) or any(phase.stages < 1 for phase in schedule.phases):
        return [Reason("phases", [phase.stages for phase in schedule.phases],
                       f"numbers of stages that add up to {len(kernel.stages)}")]
    reasons: list[Reason] = []
    first = 0
    for number, phase in enumerate(schedule.phases):
        try:
            found = _check_phase(kernel, range(first, first + phase.stages), phase, target)
            reasons += [replace(each, field=f"phases[{number}].{each.field}") for each in found]
        except Unsupported as unsupported:
            reasons.append(Reason("class", "loops", f"another class: {unsupported}"))
        first += phase.stages
    return reasons


def _check_phase(kernel: Kernel, stages: range, phase: LoopPhase, target: CpuTarget) -> Iterator[Reason]:
    step, band = 4 * phase.lanes, False  # strips are multiples of this, so that all begin with the same alignment
    if phase.by_rows:
        found = group(kernel, stages, target)
        if found is None:
            yield Reason("by_rows", True, "false: these stages do not go over the same rows")
            return
        cut, most = not found.reduces or found.across, row_lanes(found, target)
    elif phase.stages != 1:
        yield Reason("stages", phase.stages, "1, without by_rows")
        return
    else:
        loop = loop_of(kernel, kernel.stages[stages.start], target)
        spread = loop.interleaved(phase.lanes)
        cut, most = loop.along is not None, loop.lanes
        band = spread is None and loop.transposed(phase.lanes) is not None
        step = phase.lanes * (4 if band else loop.vectors)
    allowed = [1 << i for i in range(most.bit_length())]
    if phase.lanes not in allowed:
        yield Reason("lanes", phase.lanes, f"one of {', '.join(map(str, allowed))}")
        return
    yield from in_range("grain", phase.grain, 1, _MOST_GRAIN)
    if phase.strip is None:
        if band:
            yield Reason("strip", None, f"a multiple of {step}: inputs are transposed in bands")
    elif not cut:
        yield Reason("strip", phase.strip, "null: these rows cannot be cut")
    elif phase.strip < 1 or phase.strip % step or phase.strip > _MOST_STRIP:
        yield Reason("strip", phase.strip, f"null, or a multiple of {step} up to {_MOST_STRIP}")
