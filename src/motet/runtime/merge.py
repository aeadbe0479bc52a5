"""Merges a plan whose steps share one memory into one schedule, without transfers and with a single command buffer.

Values that pass between regions are in the arena, each at a separate offset after the regions' own arenas. These share
memory: a region starts when the previous one has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import apply, product, round_up, substitute
from motet.artifact.schema import Command, Expr, Plan, Schedule, ScheduleBuffer, Signature, Step, TensorSpec, Variant
from motet.runtime.instantiate import ALIGNMENT

_BANDWIDTH = 1e10  # estimated bytes per second of one thread
_BRIEF = 50e-6  # seconds by the compiler's estimate, about as long as waking another thread takes
_UNTOLD = "generic"  # the class of kernels whose cost is unknown


@dataclass(frozen=True)
class Merged:
    """A plan as one schedule. `parts` are the plan's device of every step that runs, in order, and the end of its
    commands; commands after the last end are copies of results."""

    schedule: Schedule
    parts: list[tuple[int, int]]


def merge_plan(
    signature: Signature, plan: Plan, regions: Mapping[str, Signature], schedules: Mapping[str, Schedule]
) -> Merged:
    """The schedule of a function with `signature` equivalent to `plan`."""
    return _Merger(signature, plan, regions, schedules).run()


def is_chain(plan: Plan) -> bool:
    """Whether every step that runs depends on the previous one, so that no two can run concurrently."""
    sources: dict[int, frozenset[int]] = {value: frozenset() for value in plan.inputs}
    last = -1
    for number, step in enumerate(plan.steps):
        needed = frozenset[int]().union(*(sources[value] for value in step.operands))
        if step.op == "run":
            if last >= 0 and last not in needed:
                return False
            needed, last = needed | {number}, number
        sources.update(dict.fromkeys(step.results, needed))
    return True


def is_brief(plan: Plan, variant: Callable[[int], Variant]) -> bool:
    """Whether a plan's steps together take less time than handing work to another thread. `variant` is the variant of
    each device. False for dynamic extents and for generic kernels, whose cost is unknown."""
    total = 0.0
    for step in plan.steps:
        if step.op != "run":
            continue
        code = variant(step.device)
        if any(kernel.kind == _UNTOLD for kernel in code.kernels):
            return False
        schedule = code.schedules[step.region]
        for command in schedule.commands:
            moved = schedule.buffers[command.buffers[0]].bytes if command.op == "copy" else 0
            if not isinstance(moved, int) or (command.op == "dispatch" and not command.seconds):
                return False
            total += command.seconds + moved / _BANDWIDTH
    return total < _BRIEF


@dataclass
class _MergedValue:
    """A tensor of the plan: its extents, bytes, and memory."""

    extents: list[Expr]
    place: ScheduleBuffer


@dataclass
class _Merger:
    signature: Signature
    plan: Plan
    regions: Mapping[str, Signature]
    schedules: Mapping[str, Schedule]
    values: dict[int, _MergedValue] = field(default_factory=dict[int, _MergedValue])
    buffers: list[ScheduleBuffer] = field(default_factory=list[ScheduleBuffer])
    commands: list[Command] = field(default_factory=list[Command])
    arena: Expr = 0
    checks: list[list[str]] = field(default_factory=list[list[str]])
    parts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def run(self) -> Merged:
        steps = [step for step in self.plan.steps if step.op == "run"]
        for step, symbols in self._symbols():
            own = substitute(self.schedules[step.region].arena, symbols)
            self.arena = apply("max", self.arena, _aligned(own))
        for index, (number, spec) in enumerate(zip(self.plan.inputs, self.signature.inputs, strict=True)):
            size = _bytes(spec.shape, spec.dtype)
            self.values[number] = _MergedValue(spec.shape, ScheduleBuffer("input", size, index))
        for step in self.plan.steps:
            if step.op == "transfer":
                self.values[step.results[0]] = self.values[step.operands[0]]
            else:
                self._run(step)
                self.parts.append((step.device, len(self.commands)))
        self._return()
        scratch = max((self.schedules[step.region].scratch for step in steps), default=0)
        return Merged(
            Schedule(self.buffers, self.commands, self.arena, scratch, checks=self.checks), self.parts
        )

    def _symbols(self) -> Iterator[tuple[Step, dict[str, Expr]]]:
        """For each region that runs, its symbols as expressions over those of the function."""
        extents = {number: spec.shape for number, spec in zip(self.plan.inputs, self.signature.inputs, strict=True)}
        for step in self.plan.steps:
            if step.op == "transfer":
                extents[step.results[0]] = extents[step.operands[0]]
                continue
            region = self.regions[step.region]
            symbols = {symbol.name: extents[step.operands[symbol.input]][symbol.axis] for symbol in region.symbols}
            for number, spec in zip(step.results, region.results, strict=True):
                extents[number] = [substitute(extent, symbols) for extent in spec.shape]
            yield step, symbols

    def _run(self, step: Step) -> None:
        region, schedule = self.regions[step.region], self.schedules[step.region]
        symbols: dict[str, Expr] = {
            symbol.name: self.values[step.operands[symbol.input]].extents[symbol.axis] for symbol in region.symbols
        }
        for number, spec in zip(step.results, region.results, strict=True):
            self.values[number] = self._new(number, spec, symbols)
        first, before = len(self.buffers), len(self.commands)
        for buffer in schedule.buffers:
            if buffer.kind == "status":
                buffer = replace(buffer, index=len(self.checks) + buffer.index)
            self.buffers.append(self._place(buffer, step, symbols))
        self.checks += schedule.checks
        # The regions' arenas share memory, so that a region waits for the whole previous one.
        awaited = {earlier for command in self.commands for earlier in command.after}
        ends = [index for index in range(before) if index not in awaited]
        for command in schedule.commands:
            after = [before + earlier for earlier in command.after] or ends
            waits = [before + earlier for earlier in command.waits]
            if not command.after:
                waits += [end for end in ends if self.commands[end].stream != command.stream]
            self.commands.append(Command(
                command.op, [first + index for index in command.buffers], command.kernel,
                substitute(command.tasks, symbols), [substitute(size, symbols) for size in command.sizes],
                after, command.reads, command.stream, waits, command.seconds, command.source,
            ))

    def _new(self, number: int, spec: TensorSpec, symbols: Mapping[str, Expr]) -> _MergedValue:
        """Memory for a result of a step: the function's result, if it is one and can be written directly."""
        extents = [substitute(extent, symbols) for extent in spec.shape]
        size = _bytes(extents, spec.dtype)
        if number in self.plan.results:
            index = self.plan.results.index(number)
            if self.signature.results[index].destination is None:
                return _MergedValue(extents, ScheduleBuffer("result", size, index))
        offset = self.arena
        self.arena = apply("+", offset, _aligned(size))
        return _MergedValue(extents, ScheduleBuffer("arena", size, 0, offset))

    def _place(self, buffer: ScheduleBuffer, step: Step, symbols: Mapping[str, Expr]) -> ScheduleBuffer:
        size, offset = substitute(buffer.bytes, symbols), substitute(buffer.offset, symbols)
        if buffer.kind in ("parameter", "arena", "status"):
            return ScheduleBuffer(buffer.kind, size, buffer.index, offset)
        number = (step.operands if buffer.kind == "input" else step.results)[buffer.index]
        base = self.values[number].place
        return ScheduleBuffer(base.kind, size, base.index, apply("+", base.offset, offset))

    def _return(self) -> None:
        """Copy results that are not in the caller's memory yet, after all other commands."""
        end = len(self.commands)
        for index, number in enumerate(self.plan.results):
            place = self.values[number].place
            if (place.kind, place.index) == ("result", index):
                continue
            self.buffers += [place, ScheduleBuffer("result", place.bytes, index)]
            pair = [len(self.buffers) - 2, len(self.buffers) - 1]
            waits = [number for number in range(end) if self.commands[number].stream]
            self.commands.append(Command("copy", pair, after=list(range(end)), reads=1, waits=waits))


def _bytes(extents: list[Expr], dtype: str) -> Expr:
    return product([DTYPES[dtype].itemsize, *extents])


def _aligned(size: Expr) -> Expr:
    return round_up(size, ALIGNMENT)
