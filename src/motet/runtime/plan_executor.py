"""Executes the plan of a function over several devices, for one combination of extents.

A value is on one device, or on several after transfers; every copy has the points after which it may be read. Steps are
submitted (`plans/steps.py`, in the order of `submission.py`) as soon as their operands are submitted: an asynchronous
device computes while the next step is submitted, and steps that depend on another device wait for its points. Loops
(`plans/loops.py`) wait for their condition. A call ends when all its submissions have ended; a poisoned point ends it
with that point's error. Memory without further readers is reused (`lifetimes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.artifact.schema import Plan, Schedule, Signature
from motet.runtime.device import CommandBuffer, Device
from motet.runtime.device_array import DeviceArray
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.instantiate import Concrete, Shape, check_constraints, shape_of
from motet.runtime.lifetimes import Retired
from motet.runtime.plans.frame import PlanFrame
from motet.runtime.plans.loops import run_loop
from motet.runtime.plans.peers import Peers
from motet.runtime.plans.recorded import PlanCode, RecordedPlan, RunStep
from motet.runtime.plans.returning import return_results
from motet.runtime.plans.steps import Timed, submit_steps
from motet.runtime.plans.underway import Underway
from motet.runtime.plans.values import PlacedCopy, PlacedValue, Tensor
from motet.runtime.queues import Slots
from motet.runtime.selection import HOST
from motet.runtime.trace import CallEvents, Submissions


@dataclass(frozen=True)
class Alone:
    """A function as work of one device. Its first externals are arguments and results of the function, numbered
    together, in the order `places`; `is_whole` if they are all, in their own order. Then come an arena and parameters.
    """

    loaded: LoadedDevice
    concrete: Concrete
    commands: CommandBuffer
    places: tuple[int, ...]
    is_whole: bool
    name: str


@dataclass(frozen=True)
class RankMessages:
    """For a plan that is the part of one of several ranks: the other ranks, and the shapes of values received from
    them."""

    peers: Peers
    received: Mapping[int, Shape]


class PlacedInstance:
    """Runs a plan on `devices`, one for each of the artifact's, possibly equal; `schedules` has the regions of each.
    Thread-safe, except with `messages`, whose calls the caller orders."""

    resident = True

    def __init__(
        self, signature: Signature, plan: Plan, regions: Mapping[str, Signature], devices: Sequence[LoadedDevice],
        symbols: Mapping[str, int], schedules: Sequence[Mapping[str, Schedule]], messages: RankMessages | None = None,
    ) -> None:
        self.signature = signature
        self.plan = plan
        self.devices = devices
        self.prepared: Callable[..., Any] | None = None
        self.direct: list[Any] = []  # at most one: the device's representation of `alone`
        self.staging = Pool()  # host memory for values in transit
        where = signature.name
        check_constraints(signature, symbols, where)
        self.inputs = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.inputs]
        self.results = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.results]
        self.slots = Slots()  # of the calls in progress
        code = PlanCode(where, regions, devices, schedules)
        if messages is not None:
            code = replace(code, peers=messages.peers, received=messages.received)
        self.recorded = RecordedPlan(plan, self.inputs, code)

    def alone(self) -> Alone | None:
        """The function as one piece of work, if it is a single step on arguments and results of the function."""
        runs = [entry for entry in self.recorded.steps if isinstance(entry, RunStep)]
        origin = {step.results[0]: step.operands[0] for step in self.plan.steps if step.op == "transfer"}

        def resolved(value: int) -> int:
            while value in origin:
                value = origin[value]
            return value

        if len(runs) != 1 or any(step.op == "loop" for step in self.plan.steps):
            return None
        step, count = runs[0].step, len(self.plan.inputs)
        results = [resolved(value) for value in self.plan.results]
        operands = [resolved(value) for value in step.operands]
        if sorted(results) != sorted(step.results) or not set(operands) <= set(self.plan.inputs):
            return None
        places = [self.plan.inputs.index(value) for value in operands]
        places += [count + results.index(value) for value in step.results]
        is_whole = places == list(range(count + len(results)))
        name = self.signature.name
        return Alone(self.devices[step.device], runs[0].concrete, runs[0].commands, tuple(places), is_whole, name)

    def run(self, arrays: Sequence[Tensor]) -> None:
        _Call(self, arrays).run(None)

    def run_timed(self, arrays: Sequence[Tensor]) -> list[tuple[str, float]]:
        """The seconds of each step of the plan, including transfers, in sequence."""
        timed: list[tuple[str, float]] = []
        _Call(self, arrays).run(timed)
        return [entry for _, entry in sorted(zip(self.recorded.order, timed, strict=True))]

    def run_traced(self, arrays: Sequence[Tensor]) -> CallEvents:
        """The devices' events of the call, with the recorded submissions."""
        devices = list({id(loaded): loaded.device for loaded in self.devices}.values())
        noted = Submissions({loaded.uri: loaded.parameter_total for loaded in self.devices})
        for device in devices:
            device.profile(True)
        begin = time.perf_counter()
        try:
            _Call(self, arrays, noted).run(None)
        finally:
            end = time.perf_counter()
            recorded = {device.info.uri: device.profile(False) for device in devices}
        return CallEvents(noted.attach(recorded), [(begin, end)])

    def home(self, result: int) -> Device | None:
        """The device on which the program places a result; None for the host."""
        device = self.devices[self.plan.result_devices[result]].device
        return None if device.info.family == HOST else device

    @property
    def kept_bytes(self) -> int:
        return 0

    def prepare(self, fallback: Any) -> None:
        return None


class _Call:
    """One execution of a function; its submissions are recorded in `noted`, if given."""

    def __init__(
        self, instance: PlacedInstance, arrays: Sequence[Tensor], noted: Submissions | None = None
    ) -> None:
        self.slots = instance.slots
        self.underway = Underway(instance.devices, instance.slots, instance.staging, noted)
        count = len(instance.inputs)
        self.results = list(arrays[count:])
        plan = instance.plan
        values = {
            number: _given(shape, tensor, instance.devices)
            for number, shape, tensor in zip(plan.inputs, instance.inputs, arrays[:count], strict=True)
        }
        direct: dict[int, Tensor] = {}
        for number, spec, tensor in zip(plan.results, instance.signature.results, self.results, strict=True):
            if spec.destination is None:
                direct.setdefault(number, tensor)
        recorded = instance.recorded
        self.frame = PlanFrame(recorded, self.underway, values, Retired(recorded.lifetimes), direct)

    def run(self, timed: Timed | None) -> None:
        self.underway.slot = self.slots.take()
        try:
            try:
                submit_steps(self.frame, run_loop, timed)
                return_results(self.frame, self.results)
            except Exception:
                peers = self.frame.recorded.code.peers
                if peers is not None:  # they wait for this rank, which waits for them in `settle`
                    peers.fail()
                self.underway.settle()
                raise
            failure = self.underway.settle()
        except BaseException as error:
            if not isinstance(error, Exception):  # the user's interrupt
                self.underway.abandon()
            raise
        finally:
            self.slots.give_back(self.underway.slot)
        if failure is not None:
            raise failure


def _given(shape: Shape, tensor: Tensor, devices: Sequence[LoadedDevice]) -> PlacedValue:
    """An argument, on its device if that is one of the call's."""
    if not isinstance(tensor, DeviceArray):
        return PlacedValue(shape, array=tensor)
    home = next((n for n, loaded in enumerate(devices) if loaded.device is tensor.device), None)
    if home is None:
        return PlacedValue(shape, array=tensor.numpy())
    return PlacedValue(shape, {home: PlacedCopy(tensor.buffer, [])})
