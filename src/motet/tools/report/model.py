"""The model of a function for the report: operations on devices, and the values that pass between them.

A kernel's phases, consecutive commands on the same buffers, are one operation. The writer of a buffer is its first
user, since schedules are in a valid order of execution. Dynamic extents are those of a trace, else `NOMINAL`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate
from motet.artifact.kernels import KernelTable
from motet.artifact.plans import has_loops, one_iteration, whole_plan
from motet.artifact.schema import Command, Expr, KernelInfo, Manifest, Plan, Schedule, ScheduleBuffer, Signature, Step
from motet.errors import CallError
from motet.tools.report.binding import ReportedDevice
from motet.tools.show import show_shape

NOMINAL = 64  # the assumed value of an extent that is only known in a call

Kind = Literal["input", "kernel", "copy", "transfer", "result"]


_ROLES = {"arena": "workspace", "status": "status"}  # of buffers without a tensor


@dataclass(eq=False)
class ReportedValue:
    """A tensor: `type` as text, empty if unknown; `bytes` its size."""

    name: str
    type: str
    bytes: int
    extents: tuple[int, ...] = ()


@dataclass(eq=False)
class GraphNode:
    """A node. `device` is an index of the bound devices; `commands` are the numbers of its commands in the schedule of
    its step, `symbols` theirs; `parameters` are the bytes of constants that it reads."""

    kind: Kind
    name: str
    device: int
    step: int = -1
    commands: list[int] = field(default_factory=list[int])
    symbols: list[str] = field(default_factory=list[str])
    tasks: int = 0
    info: KernelInfo | None = None
    reads: list[ReportedValue] = field(default_factory=list[ReportedValue])
    writes: list[ReportedValue] = field(default_factory=list[ReportedValue])
    parameters: int = 0
    source: int = -1  # of a transfer: the device of the operand
    computes: str = ""  # the names in the source of what it computes

    @property
    def flops(self) -> int:
        return 0 if self.info is None else self.info.flops

    @property
    def bytes(self) -> int:
        """Its memory traffic: the compiler's count, else the bytes of all operands and results."""
        if self.info is not None and self.info.bytes:
            return self.info.bytes
        if self.kind in ("copy", "transfer"):
            return sum(value.bytes for value in self.writes)
        return self.parameters + sum(value.bytes for value in {*self.reads, *self.writes})


@dataclass(eq=False)
class ArenaSlot:
    """A buffer in the arena of a region: its place, and the region's first and last operation that use it."""

    name: str
    type: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(eq=False)
class Region:
    """A region on one device: its operations by number, in order, and its arena."""

    name: str
    device: int
    step: int
    schedule: Schedule
    operations: list[int]
    lives: list[ArenaSlot]
    arena: int


@dataclass(eq=False)
class ReportedFunction:
    """A function: its operations, inputs first, results last, each after its operands."""

    signature: Signature
    devices: Sequence[ReportedDevice]
    plan: Plan
    symbols: Mapping[str, int]
    operations: list[GraphNode] = field(default_factory=list[GraphNode])
    regions: list[Region] = field(default_factory=list[Region])
    values: dict[int, ReportedValue] = field(default_factory=dict[int, ReportedValue])  # of the plan, by number

    def edges(self) -> list[tuple[int, int, ReportedValue]]:
        """The edges from the producer to the readers of each value."""
        makers: dict[ReportedValue, int] = {}
        found: list[tuple[int, int, ReportedValue]] = []
        for number, operation in enumerate(self.operations):
            found += [(makers[value], number, value) for value in dict.fromkeys(operation.reads) if value in makers]
            makers.update(dict.fromkeys(operation.writes, number))
        return found


def read_program(
    manifest: Manifest, signature: Signature, devices: Sequence[ReportedDevice],
    shapes: Sequence[Sequence[int]] | None = None,
) -> ReportedFunction:
    """The model of the function with `signature`; `shapes` are those of its inputs in a call, if known."""
    symbols = {symbol.name: NOMINAL for symbol in signature.symbols}
    for symbol in signature.symbols:
        if shapes is not None and symbol.input < len(shapes) and symbol.axis < len(shapes[symbol.input]):
            symbols[symbol.name] = int(shapes[symbol.input][symbol.axis])
    plan = manifest.plans.get(signature.name)
    regions = manifest.regions
    if plan is None:
        plan, regions = whole_plan(signature), {signature.name: signature}
    elif has_loops(plan):  # the steps of loops are shown once
        plan = one_iteration(plan)
    return _ModelReader(ReportedFunction(signature, devices, plan, symbols), regions).run()


@dataclass(frozen=True)
class _RegionRun:
    """Step `number` of a plan, which runs a region by `schedule`: `buffers` are the schedule's as values, `symbols` its
    extents."""

    number: int
    step: Step
    schedule: Schedule
    buffers: Sequence[ReportedValue]
    symbols: Mapping[str, int]

    def operation(self, group: Sequence[int], table: KernelTable, made: set[ReportedValue]) -> GraphNode:
        """The commands of `group` as one operation; `made` are the values written so far, to which its are added."""
        commands = [self.schedule.commands[index] for index in group]
        first = commands[0]
        info = table.find(first.kernel) if first.op == "dispatch" else None
        name = "copy" if first.op == "copy" else first.kernel if info is None else info.name
        found = GraphNode(
            "copy" if first.op == "copy" else "kernel", name, self.step.device, self.number, list(group),
            [command.kernel or "copy" for command in commands],
            max(_number(command.tasks, self.symbols) for command in commands), info,
            computes=first.source,
        )
        for position, index in enumerate(first.buffers):
            buffer, value = self.schedule.buffers[index], self.buffers[index]
            if buffer.kind == "parameter":
                found.parameters += value.bytes
            elif buffer.kind == "input" or value in made or (first.op == "copy" and position == 0):
                found.reads.append(value)
            else:
                found.writes.append(value)
        made.update(found.writes)
        return found

    def lives(self, operations: Sequence[GraphNode], numbers: Sequence[int]) -> list[ArenaSlot]:
        """The slots of the arena; `numbers` are those of the region's operations."""
        used: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            for command in operations[number].commands:
                for index in self.schedule.commands[command].buffers:
                    used.setdefault(index, []).append(place)
        values, buffers = self.buffers, self.schedule.buffers
        return [
            ArenaSlot(values[index].name, values[index].type, _number(buffers[index].offset, self.symbols),
                      values[index].bytes, min(places), max(places))
            for index, places in used.items() if buffers[index].kind == "arena"
        ]


class _ModelReader:
    def __init__(self, program: ReportedFunction, regions: Mapping[str, Signature]) -> None:
        self.program = program
        self.regions = regions
        self.values = program.values
        self.where: dict[int, int] = {}  # value → the device that makes it

    def run(self) -> ReportedFunction:
        program = self.program
        plan, signature = program.plan, program.signature
        for number, spec, device in zip(plan.inputs, signature.inputs, plan.input_devices, strict=True):
            name = spec.name or f"input {plan.inputs.index(number)}"
            self.values[number] = self._value(name, spec.shape, spec.dtype, program.symbols)
            self.where[number] = device
            program.operations.append(GraphNode("input", name, device, writes=[self.values[number]]))
        for number, step in enumerate(plan.steps):
            if step.op == "transfer":
                self._transfer(number, step)
            else:
                self._run(number, step)
        for index, (number, spec) in enumerate(zip(plan.results, signature.results, strict=True)):
            name = spec.name or f"result {index}"
            if spec.destination is not None:
                name += f" in {program.operations[spec.destination].name}"
            program.operations.append(
                GraphNode("result", name, plan.result_devices[index], reads=[self.values[number]])
            )
        return program

    def _transfer(self, number: int, step: Step) -> None:
        given = self.values[step.operands[0]]
        made = self.values[step.results[0]] = ReportedValue(given.name, given.type, given.bytes, given.extents)
        self.where[step.results[0]] = step.device
        self.program.operations.append(GraphNode(
            "transfer", "transfer", step.device, number, reads=[given], writes=[made],
            source=self.where[step.operands[0]],
        ))

    def _run(self, number: int, step: Step) -> None:
        region, variant = self.regions[step.region], self.program.devices[step.device].variant
        schedule = variant.schedules.get(step.region, Schedule([], []))
        symbols = {
            symbol.name: _extent(self.values[step.operands[symbol.input]], symbol.axis) for symbol in region.symbols
        }
        if self.regions[step.region] is self.program.signature:
            symbols = dict(self.program.symbols)
        for place, (value, spec) in enumerate(zip(step.results, region.results, strict=True)):
            name = spec.name or f"result {place}"
            self.values[value] = self._value(name, spec.shape, spec.dtype, symbols)
            self.where[value] = step.device
        buffers = [self._buffer(index, buffer, step, symbols) for index, buffer in enumerate(schedule.buffers)]
        first = len(self.program.operations)
        table = KernelTable([variant])
        ran = _RegionRun(number, step, schedule, buffers, symbols)
        made: set[ReportedValue] = set()
        for group in _phases(schedule.commands, table):
            self.program.operations.append(ran.operation(group, table, made))
        if not schedule.commands:  # no code here for it, or nothing to do
            self.program.operations.append(GraphNode(
                "kernel", step.region, step.device, number, reads=[self.values[v] for v in step.operands],
                writes=[self.values[v] for v in step.results],
            ))
        numbers = list(range(first, len(self.program.operations)))
        lives = ran.lives(self.program.operations, numbers)
        arena = _number(schedule.arena, symbols)
        self.program.regions.append(Region(step.region, step.device, number, schedule, numbers, lives, arena))

    def _buffer(self, index: int, buffer: ScheduleBuffer, step: Step, symbols: Mapping[str, int]) -> ReportedValue:
        if buffer.kind == "input":
            return self.values[step.operands[buffer.index]]
        if buffer.kind == "result":
            return self.values[step.results[buffer.index]]
        if buffer.dtype:
            return self._value(f"buffer {index}", buffer.shape, buffer.dtype, symbols)
        return ReportedValue(f"{_ROLES.get(buffer.kind, 'constant')} {index}", "",
                     _number(buffer.bytes, symbols))

    def _value(self, name: str, shape: Sequence[Expr], dtype: str, symbols: Mapping[str, int]) -> ReportedValue:
        extents = tuple(_number(extent, symbols) for extent in shape)
        size = DTYPES[dtype].itemsize if dtype in DTYPES else 8
        text = show_shape(shape, dtype)
        return ReportedValue(name, text, math.prod(extents) * size, extents)


def _phases(commands: Sequence[Command], table: KernelTable) -> list[list[int]]:
    """The commands by number, grouped by kernel if on the same buffers."""
    groups: list[list[int]] = []
    for number, command in enumerate(commands):
        if groups and command.op == "dispatch":
            first = commands[groups[-1][0]]
            same = first.op == "dispatch" and first.buffers == command.buffers
            symbols = {commands[each].kernel for each in groups[-1]}
            known = table.find(command.kernel)
            if same and command.kernel not in symbols and known is not None and known == table.find(first.kernel):
                groups[-1].append(number)
                continue
        groups.append([number])
    return groups


def _number(expression: Expr, symbols: Mapping[str, int]) -> int:
    """The value of an expression; 0 if it is undefined for these extents."""
    try:
        return max(0, evaluate(expression, symbols))
    except CallError:
        return 0


def _extent(value: ReportedValue, axis: int) -> int:
    return value.extents[axis] if axis < len(value.extents) else NOMINAL
