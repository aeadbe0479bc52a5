"""Records plans for one combination of extents: the command buffers of their steps, their order, queues, and the
lifetimes of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Loop, Plan, Schedule, Signature, Step
from motet.errors import ArtifactError
from motet.runtime.device import CommandBuffer, Device
from motet.runtime.device_program import LoadedDevice
from motet.runtime.instantiate import Concrete, Shape, make_concrete
from motet.runtime.lifetimes import lifetimes
from motet.runtime.plans.peers import Peers
from motet.runtime.queues import choose_queues, run_beside, spare_queues
from motet.runtime.selection import HOST
from motet.runtime.submission import submission_order
from motet.runtime.tensors import show_shape


@dataclass(frozen=True)
class RunStep:
    """A recorded step, with the operands that it reads and its resources."""

    step: Step
    concrete: Concrete
    commands: CommandBuffer
    read: frozenset[int]
    queue: int
    destinations: Mapping[int, int]  # maps results computed in an operand's memory to the operand
    leaving: frozenset[int]  # results read by other devices
    beside: bool  # not in the caller's thread, which has other work meanwhile


@dataclass(frozen=True)
class TransferStep:
    """A step that transfers a value, and its queue if no spare queue exists."""

    step: Step
    queue: int


@dataclass(frozen=True)
class SendStep:
    """A step that sends a value to another rank."""

    step: Step


@dataclass(frozen=True)
class ReceiveStep:
    """A step that receives a value from another rank."""

    step: Step


@dataclass(frozen=True)
class LoopStep:
    """A step that is a loop."""

    step: Step
    carried: int
    condition: RecordedPlan
    body: RecordedPlan


@dataclass(frozen=True)
class PlanCode:
    """The code for recording plans: the function's name, the devices, one for each of the artifact's, and the schedules
    of the regions on each. For the part of a plan that one of several ranks executes: `peers`, and the shapes of the
    values received from them."""

    name: str
    regions: Mapping[str, Signature]
    devices: Sequence[LoadedDevice]
    schedules: Sequence[Mapping[str, Schedule]]
    peers: Peers | None = None
    received: Mapping[int, Shape] = field(default_factory=dict[int, Shape])


class RecordedPlan:
    """`inputs` are the shapes of the plan's inputs; `whole` means that it is the plan of a function, rather than a part
    of a loop, whose inputs are used elsewhere, too."""

    def __init__(self, plan: Plan, inputs: Sequence[Shape], code: PlanCode, whole: bool = True) -> None:
        self.plan = plan
        self.code = code
        devices = code.devices
        self.order = submission_order(
            plan.steps, lambda device: devices[device].device.info.family == HOST,
            lambda device: id(devices[device].device),
        )
        queues = choose_queues(
            plan.steps, self.order, lambda device: id(devices[device].device),
            lambda device: devices[device].device.queues,
        )
        self.spare = spare_queues(plan.steps, queues, [loaded.device for loaded in devices])
        self._leaving = _leaving(plan, [loaded.device for loaded in devices])
        self.lifetimes = lifetimes(
            plan, self.order, lambda device: id(devices[device].device), () if whole else plan.inputs
        )
        self._threaded = run_beside(
            plan.steps, self.order, lambda device: devices[device].device.info.family == HOST,
            lambda device: id(devices[device].device),
        )
        self.shapes = dict(zip(plan.inputs, inputs, strict=True))
        entries = [self._recorded(number, queue) for number, queue in enumerate(queues)]
        self.steps = [entries[number] for number in self.order]

    @property
    def results(self) -> list[Shape]:
        return [self.shapes[number] for number in self.plan.results]

    def _recorded(self, number: int, queue: int) -> RunStep | TransferStep | LoopStep | SendStep | ReceiveStep:
        step, shapes = self.plan.steps[number], self.shapes
        if step.op == "send":
            return SendStep(step)
        if step.op == "receive":
            shapes[step.results[0]] = self.code.received[step.results[0]]
            return ReceiveStep(step)
        if step.op == "transfer":
            shapes[step.results[0]] = shapes[step.operands[0]]
            return TransferStep(step, queue)
        if step.loop is not None:
            repeat = self._loop(step, step.loop)
            shapes.update(zip(step.results, repeat.condition.results[1:], strict=True))
            return repeat
        run = self._run(step, queue, number in self._threaded)
        shapes.update(zip(step.results, run.concrete.results, strict=True))
        return run

    def _loop(self, step: Step, loop: Loop) -> LoopStep:
        given = [self.shapes[number] for number in step.operands]
        condition = RecordedPlan(loop.condition, given, self.code, whole=False)
        body = RecordedPlan(loop.body, [*condition.results[1:], *given[loop.carried :]], self.code, whole=False)
        for before, after in zip(given[: loop.carried], body.results, strict=True):
            if before.extents != after.extents:
                raise ArtifactError(
                    f"{self.code.name}: a loop carries {show_shape(after.extents)} to its next iteration; expected "
                    f"{show_shape(before.extents)}, as in the one before"
                )
        return LoopStep(step, loop.carried, condition, body)

    def _run(self, step: Step, queue: int, beside: bool) -> RunStep:
        code, region = self.code, self.code.regions[step.region]
        given = [self.shapes[value] for value in step.operands]
        symbols = {s.name: given[s.input].extents[s.axis] for s in region.symbols}
        loaded = code.devices[step.device]
        concrete = make_concrete(
            region, code.schedules[step.device][step.region], symbols, loaded.parameter_bytes, code.name,
            loaded.agreement, apart=True,
        )
        for value, shape, expected in zip(step.operands, given, concrete.inputs, strict=True):
            if shape.extents != expected.extents:
                raise ArtifactError(
                    f"{code.name}: value {value} of the plan is {show_shape(shape.extents)}; region "
                    f"{step.region!r} expects {show_shape(expected.extents)}"
                )
        commands = loaded.device.record(
            loaded.executable, concrete.work, concrete.externals, concrete.scratch
        )
        read = {reference.external for work in concrete.work for reference in work.references}
        destinations = {i: s.destination for i, s in enumerate(region.results) if s.destination is not None}
        # In an unrolled loop, it is read later, on the queue for transfers.
        deferred = step.turn is not None and id(loaded.device) in self.spare
        leaving = frozenset(i for i, number in enumerate(step.results) if number in self._leaving and not deferred)
        return RunStep(step, concrete, commands, frozenset(read), queue, destinations, leaving, beside)


def copies_from(target: Device, source: Device) -> bool:
    """Whether a device copies from another one's memory directly."""
    can = getattr(target, "copies_from", None)
    return can is not None and can(source)


def _leaving(plan: Plan, devices: Sequence[Device]) -> set[int]:
    """The values that are computed by a step and read on another device that cannot access them directly."""
    makers: dict[int, int] = {}  # the step of each value, including transferred ones
    homes: dict[int, Device] = {}
    leaving: set[int] = set()
    for step in plan.steps:
        if step.op == "loop":  # its iterations request the values that they read
            continue
        there = devices[step.device]
        if step.op == "send":
            leaving.update(makers[value] for value in step.operands if value in makers)
            continue
        for value in step.operands:
            if value in makers and homes[value] is not there and not copies_from(there, homes[value]):
                leaving.add(makers[value])
        for value in step.results:
            if step.op == "run":
                makers[value], homes[value] = value, there
            elif step.op == "transfer" and step.operands[0] in makers:
                makers[value], homes[value] = makers[step.operands[0]], homes[step.operands[0]]
    return leaving
