"""Legality checks for schedules of loop nests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from motet.compiler.codegen.cpu.nest.copies import depth_of, layout_of
from motet.compiler.codegen.cpu.nest.fusion import (
    CannotFuse,
    hosts_of,
    scratch_of,
    with_epilogues,
    with_producers,
)
from motet.compiler.codegen.cpu.nest.plan import FlatNest, NestPlan, flatten, plan_of
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.schedule import Nest, NestLoop, NestSchedule, Reason, in_range
from motet.compiler.targets.cpu import CpuTarget

_MOST_TILE = 1 << 30  # elements
_MOST_PADDING = 4096  # elements of a row
_MOST_SCRATCH = 64 << 20  # bytes of one thread
_MOST_COPIES = 512  # of a body in a register tile
_MOST_CODE = 1 << 14  # operations of all copies


def check(kernel: Kernel, schedule: NestSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `kernel` on `target`; an empty list if it is."""
    names = loop_names(kernel)
    reasons = list(_stages(kernel, schedule))
    for position, each in enumerate(schedule.nests):
        if not reasons:
            place = f"nests[{position}]"
            reasons += _NestCheck(kernel, each.stage, names, target, place).reasons(each.nest)
    return reasons or list(_fused(kernel, schedule, names, target))


def _fused(kernel: Kernel, schedule: NestSchedule, names: LoopNames, target: CpuTarget) -> Iterator[Reason]:
    """Check that stages without a nest can be computed at their loops."""
    shown = [f"{each.stage} at {each.at}" for each in schedule.fused]
    try:
        hosts = hosts_of(kernel, schedule)
        for each in schedule.nests:
            if hosts[each.stage] and each.nest.regions:
                raise CannotFuse(f"no regions of stage {each.stage}")
            for flat in flatten(each.nest):
                plan = plan_of(kernel, each.stage, flat, names, target)
                fused = hosts[each.stage]
                plan, made = with_producers(kernel, with_epilogues(kernel, plan, fused), fused, target)
                local = {kernel.stages[fusion.stage].outputs[0].value for fusion in fused}
                if any(value in local for _, value in plan.packs):
                    raise CannotFuse("no copies of what is computed at a loop")
                if scratch_of(made)[1] > _MOST_SCRATCH:
                    raise CannotFuse(f"a loop inside which results take at most {_MOST_SCRATCH} bytes")
    except CannotFuse as error:
        yield Reason("fused", shown, str(error))


def _stages(kernel: Kernel, schedule: NestSchedule) -> Iterator[Reason]:
    """Check that each stage has one nest or fusion."""
    last = len(kernel.stages) - 1
    given = Counter([*(each.stage for each in schedule.nests), *(each.stage for each in schedule.fused)])
    for stage, count in given.items():
        if not 0 <= stage <= last:
            yield Reason("stage", stage, f"0 to {last}")
        elif count > 1:
            yield Reason("stage", stage, "one nest or fusion for each stage")
    if missing := [stage for stage in range(last + 1) if stage not in given]:
        yield Reason("nests", [each.stage for each in schedule.nests], f"a nest for stage {missing[0]} too")


@dataclass(frozen=True)
class _NestCheck:
    """Checks the nest of a stage, which is at `place` in the schedule."""

    kernel: Kernel
    number: int
    names: LoopNames
    target: CpuTarget
    place: str

    @property
    def stage(self) -> Stage:
        return self.kernel.stages[self.number]

    @property
    def dims(self) -> tuple[str, ...]:
        return self.names.dims[self.number]

    def reasons(self, nest: Nest) -> list[Reason]:
        found = list(self._written()) or list(self._regions(nest, self.place))
        for flat in [] if found else flatten(nest):
            found = found or list(self._loops(flat)) or [*self._kinds(flat), *self._copied(flat)]
            if not found:
                plan = plan_of(self.kernel, self.number, flat, self.names, self.target)
                found = [*self._plan(plan), *self._packs(plan, flat)]
        return found

    def _written(self) -> Iterator[Reason]:
        """Check that each iteration of parallel dimensions writes other elements."""
        for d, (kind, size) in enumerate(zip(self.stage.iterators, self.stage.sizes, strict=True)):
            if kind == "parallel" and size != 1 and any(d not in each.dims for each in self.stage.outputs):
                yield Reason(f"{self.place}.stage", self.number, f"a stage whose results depend on {self.dims[d]}")

    def _regions(self, nest: Nest, place: str) -> Iterator[Reason]:
        """Check that the regions of a nest are one after the other and cover one dimension."""
        if not nest.regions:
            return
        dim = nest.regions[0].dim
        if dim not in self.dims:
            yield Reason(f"{place}.regions[0].dim", dim, self._dimensions())
            return
        if self.stage.iterators[self.dims.index(dim)] == "reduction" and match_reductions(self.stage) is None:
            yield Reason(f"{place}.regions[0].dim", dim, "a dimension whose order does not matter")
        if nest.packs or nest.buffers:
            given = [each.value for each in (*nest.packs, *nest.buffers)]
            yield Reason(f"{place}.packs", given, "copies in the regions")
        if any(loop.dim == dim for loop in nest.loops):
            yield Reason(f"{place}.loops", dim, f"loops of {dim} in its regions, not around them")
        end: int | None = 0
        for number, region in enumerate(nest.regions):
            here = f"{place}.regions[{number}]"
            if region.dim != dim:
                yield Reason(f"{here}.dim", region.dim, f"{dim}, as of the first region")
            if end is None or region.begin != end:
                yield Reason(f"{here}.begin", region.begin, "no more regions" if end is None else str(end))
                return
            if region.end is not None and region.end <= region.begin:
                yield Reason(f"{here}.end", region.end, f"more than {region.begin}")
            end = region.end
            yield from self._regions(region.nest, f"{here}.nest")
        if end is not None and end != self.stage.sizes[self.dims.index(dim)]:
            yield Reason(f"{place}.regions[{len(nest.regions) - 1}].end", end, "null or the extent: the last region")

    def _dimensions(self) -> str:
        return f"one of {', '.join(self.dims)}" if self.dims else "no loops: the stage has no dimensions"

    def _loops(self, flat: FlatNest) -> Iterator[Reason]:
        """Check that each dimension has a loop over all of it, outside those over smaller and smaller tiles."""
        tiles: dict[str, list[int | None]] = {}
        for loop in flat.loops:
            field = f"{self.place}.loops"
            if loop.dim not in self.dims:
                yield Reason(field, loop.label, self._dimensions())
                continue
            found = tiles.setdefault(loop.dim, [])
            if not found and loop.tile is not None:
                yield Reason(field, loop.label, f"a loop {loop.dim} around it, without a size")
            elif found and loop.tile is None:
                yield Reason(field, loop.label, f"one loop {loop.dim} without a size; tiles are {loop.dim}#SIZE")
            elif loop.tile is not None and not 1 <= loop.tile <= _MOST_TILE:
                yield Reason(field, loop.label, f"a tile of 1 to {_MOST_TILE}")
            elif found and found[-1] is not None and loop.tile is not None and loop.tile >= found[-1]:
                yield Reason(field, loop.label, f"a tile smaller than {found[-1]}, that of the loop around it")
            found.append(loop.tile)
        for name, size in zip(self.dims, self.stage.sizes, strict=True):
            if name not in tiles and size != 1:
                labels = [loop.label for loop in flat.loops]
                yield Reason(f"{self.place}.loops", labels, f"a loop {name} too")

    def _kinds(self, flat: FlatNest) -> Iterator[Reason]:
        """Check what the loops are: tasks, vectors, copies."""
        field, seen = f"{self.place}.loops", dict[str, NestLoop]()
        vectors = [loop for loop in flat.loops if loop.vectorize]
        for number, loop in enumerate(flat.loops):
            reduction = self.stage.iterators[self.dims.index(loop.dim)] == "reduction"
            if loop.tensorize:
                yield Reason(field, f"{loop.label} tensorize={loop.tensorize}", "a loop without a microkernel")
            if sum((loop.parallel, loop.vectorize, loop.unroll is not None)) > 1:
                yield Reason(field, loop.label, "one of parallelize, vectorize and unroll")
            if loop.unroll is not None and loop.unroll < 0:
                yield Reason(field, f"{loop.label} unroll={loop.unroll}", "0 (all) or a number of copies")
            if loop.parallel and reduction:
                yield Reason(field, f"{loop.label} parallelize", "a parallel dimension: iterations add to one result")
            if loop.parallel and loop.dim in seen and not seen[loop.dim].parallel:
                text = f"a parallel loop {seen[loop.dim].label} around it, or a loop that is not parallel"
                yield Reason(field, f"{loop.label} parallelize", text)
            if loop.vectorize and loop is not vectors[0]:
                yield Reason(field, f"{loop.label} vectorize", f"one loop of vectors; {vectors[0].label} is one")
            if loop.vectorize and any(other.dim == loop.dim for other in flat.loops[number + 1 :]):
                yield Reason(field, f"{loop.label} vectorize", f"the innermost loop of {loop.dim}")
            if loop.vectorize and reduction and match_reductions(self.stage) is None:
                yield Reason(field, f"{loop.label} vectorize", "a dimension whose order does not matter")
            seen[loop.dim] = loop
        if match_reductions(self.stage) is None:
            order = [d for d in (self.dims.index(loop.dim) for loop in flat.loops) if d in self.stage.reductions]
            if order != sorted(order):
                labels = [loop.label for loop in flat.loops]
                yield Reason(field, labels, "loops of reductions in their order, which matters for this body")

    def _copied(self, flat: FlatNest) -> Iterator[Reason]:
        """Check that copies are of operands, one for each, at loops."""
        labels = [loop.label for loop in flat.loops]
        inputs, outputs = (
            [self.names.values[value] for value in dict.fromkeys(access.value for access in accesses)]
            for accesses in (self.stage.inputs, self.stage.outputs)
        )
        if flat.buffers:
            yield Reason(f"{self.place}.buffers", [each.value for each in flat.buffers], "no buffers: they have no code")
        for field, copies, names in (("packs", flat.packs, inputs), ("buffers", flat.buffers, outputs)):
            for number, copy in enumerate(copies):
                place = f"{self.place}.{field}[{number}]"
                if copy.value not in names:
                    yield Reason(f"{place}.value", copy.value, f"one of {', '.join(names)}")
                elif any(copy.value == other.value for other in copies[:number]):
                    yield Reason(f"{place}.value", copy.value, f"one copy of {copy.value}")
                if copy.at not in labels:
                    yield Reason(f"{place}.at", copy.at, f"one of the loops {', '.join(labels)}")
                yield from in_range(f"{place}.padding", copy.padding, 0, _MOST_PADDING)

    def _packs(self, plan: NestPlan, flat: FlatNest) -> Iterator[Reason]:
        """Check that copies are outside of register tiles, of known sizes, and fit in scratch memory."""
        tile = len(plan.loops) - len(plan.tile)
        sizes: dict[str, int] = {}
        for number, (copy, value) in enumerate(plan.packs):
            place = f"{self.place}.packs[{number}].at"
            if depth_of(plan, copy.at) > tile:
                outside = [loop.label for loop in plan.loops[:tile]]
                text = f"a loop that is not copies or vectors: {', '.join(outside) or 'there is none'}"
                yield Reason(place, copy.at, text)
                continue
            for access in (each for each in self.stage.inputs if each.value == value):
                layout = layout_of(plan, access, depth_of(plan, copy.at), copy.padding)
                if layout is None:
                    yield Reason(place, copy.at, f"a loop inside which extents of {copy.value} are known")
                else:
                    bits = layout.elements * item_bytes(self.kernel.values[value].dtype)
                    sizes[copy.value] = sizes.get(copy.value, 0) + bits
        if sum(sizes.values()) > _MOST_SCRATCH:
            yield Reason(f"{self.place}.packs", sizes, f"smaller copies: at most {_MOST_SCRATCH} bytes for each thread")

    def _plan(self, plan: NestPlan) -> Iterator[Reason]:
        """Check the sizes of register tiles and of code."""
        field = f"{self.place}.loops"
        counts: dict[str, int] = {}
        for loop in plan.loops:
            if loop.kind not in ("unroll", "vector"):
                continue
            cover = plan.spans[loop.dim].known if loop.span is None else loop.span
            if cover is None:
                yield Reason(field, f"{loop.label} unroll", "a number of copies: the extent is not known")
                return
            step = plan.lanes if loop.kind == "vector" else loop.step
            counts[loop.label] = counts.get(loop.label, 1) * max(1, -(-cover // step))
        shown = ", ".join(f"{label}: {count}" for label, count in counts.items())
        tile = [loop.label for loop in plan.tile]
        copies = prod(counts[label] for label in dict.fromkeys(tile))
        if copies > _MOST_COPIES:
            yield Reason(field, shown, f"at most {_MOST_COPIES} copies of the body in the innermost loop, not {copies}")
        code = prod(counts.values()) * max(1, len(self.stage.body))
        if code > _MOST_CODE:
            yield Reason(field, shown, f"fewer copies: {code} operations, at most {_MOST_CODE}")
        yield from self._sums(plan, counts)

    def _sums(self, plan: NestPlan, counts: dict[str, int]) -> Iterator[Reason]:
        """Check that the sums of a tile fit in registers, and are not rounded on the way."""
        field = f"{self.place}.loops"
        if not plan.reduced:
            return
        held = dict.fromkeys(
            loop.label for loop in plan.tile if loop.dim not in plan.reduced or loop.kind == "vector"
        )
        sums = prod(counts[label] for label in held) * len(self.stage.outputs)
        most = self.target.vector_registers
        if sums > most:
            text = f"at most {most} sums, one for each vector register, not {sums}"
            yield Reason(field, [f"{label}: {counts[label]}" for label in held], text)
        if plan.partial and any(found.accumulator != found.dtype for found in plan.reductions):
            name = self.dims[plan.partial[0]]
            text = f"loops of {name} inside all others that are not copies or vectors"
            yield Reason(field, name, f"{text}: sums of {plan.reductions[0].dtype} are rounded outside of registers")
