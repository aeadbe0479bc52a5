"""What the code generator for loop nests cannot do, of what `kernels/nest_legality.py` allows on any target.

Register tiles hold their sums in registers, copies have known extents, and fusions need values in registers or scratch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from motet.compiler.codegen.cpu.nest.buffers import buffer_layout, with_buffers
from motet.compiler.codegen.cpu.nest.copies import copies_of, depth_of, layout_of
from motet.compiler.codegen.cpu.nest.fusion import (
    CannotFuse,
    hosts_of,
    scratch_of,
    with_epilogues,
    with_producers,
)
from motet.compiler.codegen.cpu.nest.microkernels import microkernel_reasons
from motet.compiler.codegen.cpu.nest.plan import NestPlan, flatten, plan_of
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nest_legality import nest_reasons
from motet.compiler.kernels.nested_stage import NestLimits
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.schedule import Nest, NestSchedule, Reason
from motet.compiler.targets.cpu import CpuTarget

_LIMITS = NestLimits(copies=512, scratch=64 << 20)
_MOST_CODE = 1 << 14  # operations of all copies


def check(kernel: Kernel, schedule: NestSchedule, target: CpuTarget, complete: bool = True) -> list[Reason]:
    """Why `schedule` is not legal for `kernel` on `target`; an empty list if it is. Loops of a schedule that is not
    `complete` may become copies or vectors, which keep sums in registers."""
    if reasons := nest_reasons(kernel, schedule, _LIMITS):
        return list(reasons)
    names = loop_names(kernel)
    for position, each in enumerate(schedule.nests):
        place = f"nests[{position}]"
        check_nest = _NestCheck(kernel, each.stage, names, target, place, tuple(schedule.microkernels), complete)
        if found := check_nest.reasons(each.nest):
            return found
    return list(_fused(kernel, schedule, names, target))


def _fused(kernel: Kernel, schedule: NestSchedule, names: LoopNames, target: CpuTarget) -> Iterator[Reason]:
    """Check that stages without a nest can be computed at their loops."""
    shown = [f"{each.stage} at {each.at}" for each in schedule.fused]
    try:
        hosts = hosts_of(kernel, schedule)
        for each in schedule.nests:
            if hosts[each.stage] and each.nest.regions:
                raise CannotFuse(f"no regions of stage {each.stage}")
            for flat in flatten(each.nest):
                plan = plan_of(kernel, each.stage, flat, names, target, schedule.microkernels)
                fused = hosts[each.stage]
                plan, made = with_producers(kernel, with_epilogues(kernel, plan, fused), fused, target)
                local = {kernel.stages[fusion.stage].outputs[0].value for fusion in fused}
                if any(value in local for _, value in plan.packs):
                    raise CannotFuse("no copies of what is computed at a loop")
                if scratch_of(made)[1] > _LIMITS.scratch:
                    raise CannotFuse(f"a loop inside which results take at most {_LIMITS.scratch} bytes")
    except CannotFuse as error:
        yield Reason("fused", shown, str(error))


@dataclass(frozen=True)
class _NestCheck:
    """Checks the nest of a stage, which is at `place` in the schedule."""

    kernel: Kernel
    number: int
    names: LoopNames
    target: CpuTarget
    place: str
    microkernels: tuple[Microkernel, ...] = ()
    complete: bool = True

    @property
    def stage(self) -> Stage:
        return self.kernel.stages[self.number]

    @property
    def dims(self) -> tuple[str, ...]:
        return self.names.dims[self.number]

    def reasons(self, nest: Nest) -> list[Reason]:
        found = [*self._written(), *self._regions(nest, self.place)]
        for flat in [] if found else flatten(nest):
            plan = plan_of(self.kernel, self.number, flat, self.names, self.target, self.microkernels)
            tiles = plan if plan.micro is None else plan.remainder
            found += [*self._plan(tiles), *self._packs(plan), *self._buffers(plan)]
            if not found and plan.micro is not None:
                found += self._microkernel(plan)
        return found

    def _microkernel(self, plan: NestPlan) -> Iterator[Reason]:
        """Check the microkernel with operands as copies and buffers leave them."""
        copied = copies_of(self.kernel, plan, self.target, True).plan
        label = plan.tile[0].label
        yield from microkernel_reasons(with_buffers(self.kernel, copied, self.target)[0], label, self.target)

    def _written(self) -> Iterator[Reason]:
        """Check that each iteration of parallel dimensions writes other elements."""
        for d, (kind, size) in enumerate(zip(self.stage.iterators, self.stage.sizes, strict=True)):
            if kind == "parallel" and size != 1 and any(d not in each.dims for each in self.stage.outputs):
                yield Reason(f"{self.place}.stage", self.number, f"a stage whose results depend on {self.dims[d]}")

    def _regions(self, nest: Nest, place: str) -> Iterator[Reason]:
        """Check that nothing depends on loops around several regions: these loops run once for each region."""
        if not nest.regions:
            return
        dim = nest.regions[0].dim
        if self.stage.iterators[self.dims.index(dim)] == "reduction" and match_reductions(self.stage) is None:
            yield Reason(f"{place}.regions[0].dim", dim, "a dimension whose order does not matter")
        if nest.packs or nest.buffers:
            given = [each.value for each in (*nest.packs, *nest.buffers)]
            yield Reason(f"{place}.packs", given, "copies in the regions")
        for number, region in enumerate(nest.regions):
            yield from self._regions(region.nest, f"{place}.regions[{number}].nest")

    def _buffers(self, plan: NestPlan) -> Iterator[Reason]:
        """Check that buffers are outside of reductions and register tiles, and of known sizes."""
        around = len(plan.tasks) + len(plan.outer)
        for number, (copy, value) in enumerate(plan.buffers):
            place = f"{self.place}.buffers[{number}]"
            depth = depth_of(plan, copy.at)
            inside = [loop.label for loop in plan.loops[:around] if loop.dim not in plan.reduced]
            if depth > around or any(loop.dim in plan.reduced for loop in plan.loops[:depth]):
                yield Reason(f"{place}.at", copy.at, f"a loop around all reductions and copies, of {', '.join(inside)}")
            if any(plan.spans[d].begin or plan.spans[d].end is not None for d in plan.reduced):
                yield Reason(f"{place}.value", copy.value, "no buffer in a region of a reduction")
            access = next(each for each in self.stage.outputs if each.value == value)
            layout = buffer_layout(self.kernel, plan, access, copy)
            if layout is None:
                yield Reason(f"{place}.at", copy.at, f"a loop inside which extents of {copy.value} are known")

    def _packs(self, plan: NestPlan) -> Iterator[Reason]:
        """Check that copies are outside of register tiles, and of known sizes."""
        tile = len(plan.loops) - len(plan.tile)
        for number, (copy, value) in enumerate(plan.packs):
            place = f"{self.place}.packs[{number}].at"
            if depth_of(plan, copy.at) > tile:
                outside = [loop.label for loop in plan.loops[:tile]]
                text = f"a loop that is not copies or vectors: {', '.join(outside) or 'there is none'}"
                yield Reason(place, copy.at, text)
                continue
            for access in (each for each in self.stage.inputs if each.value == value):
                if layout_of(plan, access, depth_of(plan, copy.at), copy.padding) is None:
                    yield Reason(place, copy.at, f"a loop inside which extents of {copy.value} are known")

    def _plan(self, plan: NestPlan) -> Iterator[Reason]:
        """Check the sizes of register tiles and of code."""
        field = f"{self.place}.loops"
        counts: dict[str, int] = {}
        for loop in plan.loops:
            if loop.kind not in ("unroll", "vector"):
                continue
            cover = plan.spans[loop.dim].known if loop.span is None else loop.span
            assert cover is not None, "copies of a dynamic extent are not legal on any target"
            step = plan.lanes if loop.kind == "vector" else loop.step
            counts[loop.label] = counts.get(loop.label, 1) * max(1, -(-cover // step))
        shown = ", ".join(f"{label}: {count}" for label, count in counts.items())
        tile = [loop.label for loop in plan.tile]
        copies = prod(counts[label] for label in dict.fromkeys(tile))
        if copies > _LIMITS.copies:
            text = f"at most {_LIMITS.copies} copies of the body in the innermost loop, not {copies}"
            yield Reason(field, shown, text)
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
        buffered = {value for _, value in plan.buffers}
        short = [
            found.dtype for found, output in zip(plan.reductions, self.stage.outputs, strict=False)
            if found.accumulator != found.dtype and output.value not in buffered
        ]
        if self.complete and plan.partial and short:
            name = self.dims[plan.partial[0]]
            text = f"loops of {name} inside all others that are not copies or vectors"
            yield Reason(field, name, f"{text}, or a buffer: sums of {short[0]} are rounded outside of registers")
