"""Estimates the duration of each step of a plan, by the cost model.

    run f_region_0 on gpu, transfer %1 to cpu      →      run f_region_0 on gpu: 120 µs, transfer %1 to cpu: 8 µs

A step includes the transfer of the caller's values that it reads to its device. The estimate of the plan is the time at
which its last result is available. Steps with dynamic extents have no estimate, nor have loops; the steps of one
iteration have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from motet.artifact.schema import Plan, Step
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.placement.costs import bytes_of, is_dynamic
from motet.compiler.placement.machine import ProgramMachine
from motet.compiler.placement.units import units_of


@dataclass(frozen=True)
class EstimateSteps:
    """Reads outlined regions (outline-regions) and updates the plans in `plans`."""

    machine: ProgramMachine
    plans: dict[str, Plan]

    def run(self, module: ir.Module) -> None:
        regions = {symbol_name(function): function for function in public_functions(module)}
        for name, plan in self.plans.items():
            self.plans[name] = _Estimator(self.machine, plan, regions).run()


class _Estimator:
    def __init__(
        self, machine: ProgramMachine, plan: Plan, regions: Mapping[str, ir.Operation],
        places: Sequence[int] | None = None,
    ) -> None:
        """`places` are the locations of the inputs; by default the host's memory."""
        self.machine = machine
        self.plan = plan
        self.regions = regions
        self.where = {
            number: {place}
            for number, place in zip(plan.inputs, places or [machine.memory] * len(plan.inputs), strict=True)
        }
        self.sizes: dict[int, int | None] = {}  # bytes; None if dynamic
        used = {step.device for step in plan.steps} | set(plan.result_devices)
        self.called = len(used) == 1 and all(machine.rates[device].shared for device in used)

    def run(self) -> Plan:
        for step in self.plan.steps:
            if step.op == "run":
                self._read_sizes(step)
        steps = [self._estimated(step) for step in self.plan.steps]
        return structs.replace(self.plan, steps=steps, seconds=self._total(steps))

    def _estimated(self, step: Step) -> Step:
        if step.loop is None:
            return structs.replace(step, seconds=self._run(step) if step.op == "run" else self._transfer(step))
        condition, body = (
            _Estimator(self.machine, plan, self.regions, plan.input_devices).run()
            for plan in (step.loop.condition, step.loop.body)
        )
        return structs.replace(step, loop=structs.replace(step.loop, condition=condition, body=body))

    def _total(self, steps: Sequence[Step]) -> float | None:
        """The end of a call: processors work concurrently, each step by step, and transfer meanwhile."""
        processors = self.machine.machine.processors
        free: dict[int | None, float] = {}
        ends = dict.fromkeys(self.plan.inputs, 0.0)
        for step in steps:
            if step.seconds is None:
                return None
            ready = max((ends[number] for number in step.operands), default=0.0)
            if step.op == "run":
                ready = max(ready, free.get(processors[step.device], 0.0))
                free[processors[step.device]] = ready + step.seconds
            ends.update(dict.fromkeys(step.results, ready + step.seconds))
        returned = [self._returned(number) for number in self.plan.results]
        known = [seconds for seconds in returned if seconds is not None]
        if len(known) < len(returned):
            return None
        return max((ends[n] + back for n, back in zip(self.plan.results, known, strict=True)), default=0.0)

    def _returned(self, number: int) -> float | None:
        """Seconds until a result is in the host's memory, where callers expect it."""
        places = self.where.get(number, {self.machine.memory})
        size = self.sizes.get(number)
        moves = [self.machine.machine.move(place, self.machine.memory, size or 0) for place in places]
        return min(moves) if size is not None or self.machine.memory in places else None

    def _read_sizes(self, step: Step) -> None:
        block = self.regions[step.region].regions[0].blocks[0]
        terminator = block.operations[len(block.operations) - 1].operation
        for values, numbers in ((block.arguments, step.operands), (terminator.operands, step.results)):
            for value, number in zip(values, numbers, strict=False):  # constants follow the operands
                self.sizes[number] = None if is_dynamic(value.type) else bytes_of(value.type)

    def _run(self, step: Step) -> float | None:
        units = units_of(self.regions[step.region], lambda operation: "").units
        rates = self.machine.rates[step.device]
        moves = [self._moved(number, step.device) for number in step.operands]
        for number in step.results:
            self.where[number] = {step.device}
        if not all(unit.known for unit in units):
            return None
        known = [seconds for seconds in moves if seconds is not None]
        if len(known) < len(moves):
            return None
        submit = 0.0 if self.called else rates.submit
        return submit + sum(unit.seconds(rates) for unit in units) + sum(known)

    def _transfer(self, step: Step) -> float | None:
        source, result = step.operands[0], step.results[0]
        if source in self.sizes:
            self.sizes.setdefault(result, self.sizes[source])
        elif result in self.sizes:
            self.sizes[source] = self.sizes[result]
        seconds = self._moved(source, step.device)
        self.where[result] = self.where[source]
        return seconds

    def _moved(self, number: int, device: int) -> float | None:
        """Seconds until a value is on a device, where it then stays."""
        places = self.where.setdefault(number, {self.machine.memory})
        if device in places:
            return 0.0
        size = self.sizes.get(number)
        seconds = None if size is None else min(self.machine.machine.move(place, device, size) for place in places)
        places.add(device)
        return seconds
