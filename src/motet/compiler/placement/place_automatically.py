"""place-automatically: assigns every operation the device with which the whole function is estimated to end first.

    %0 = linalg.matmul ins(%x, %w …)              %0 = linalg.matmul … {motet.affinity = "gpu", motet.stage = 1}
    %1 = linalg.exp ins(%x …)              →      %1 = linalg.exp … {motet.affinity = "cpu", motet.stage = 0}
    %2 = linalg.add ins(%0, %1 …)                 %2 = linalg.add … {motet.affinity = "gpu", motet.stage = 2}

Affinities of the program's operations, arguments and results are kept; readers of transfers run on the target of the
transfer. Functions with loops over several devices are not placed by cost. Everything else is placed by a cost model
(`rates.py`, `costs.py`): kernels and transfers take time, devices work concurrently, inputs come from the host's memory
and results go there. Small functions are placed optimally with respect to the model, larger ones by HEFT and local
search (`search/`). By the model, no placement is slower than running everything on any single device. Operations of one
stage are submitted together; stages are numbered in a valid order of submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import (
    AFFINITY,
    ANY_QUEUE,
    LOOP_OP,
    LOOP_PART,
    STAGE,
    TO,
    TRANSFER_OP,
    Affinity,
    join_or,
    parse_affinity,
)
from motet.compiler.ir.find import captured_values, find_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import CONTROL, explicit_affinity, pins
from motet.compiler.placement.machine import ProgramMachine, rates_of_families
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.placement.search.branch_and_bound import best_schedule
from motet.compiler.placement.search.heft import heft, upward_ranks
from motet.compiler.placement.search.local_search import improve
from motet.compiler.placement.search.problem import PlacementSchedule, PlacementTask, Problem, dispatch
from motet.compiler.placement.search.stages import Staging, cut_stages
from motet.compiler.placement.units import PlacementUnit, Units, units_of
from motet.compiler.targets.rates import RateTable

FEW_TASKS = 14  # up to this number, placement is optimal
MOST_SEARCHED = 40_000  # tasks scheduled in total during the local search
MOST_JOINED = 40_000  # tasks scheduled in total while stages are merged
STAGE_WORTH = 0.01  # fraction of the total time that each further stage must save, since it makes estimates less sure,
MOST_WORTH = 0.1  # and the limit for all of them together


@dataclass(frozen=True)
class PlaceAutomatically(ModulePass):
    name = "place-automatically"
    table: RateTable = field(default_factory=rates_of_families)

    def run(self, module: ir.Module) -> None:
        devices, _, links = devices_of(module)
        if not devices:
            return
        machine = ProgramMachine(devices, links, self.table)
        for function in public_functions(module):
            # place-operations reports several blocks; the model does not know how often a loop is executed.
            if len(function.regions[0].blocks) == 1 and not find_operations(function, LOOP_OP) and (
                LOOP_PART not in function.attributes
            ):
                _place(function, machine)


def _place(function: ir.Operation, machine: ProgramMachine) -> None:
    around = explicit_affinity(function)
    solved: list[tuple[Units, int, Sequence[int], Staging]] = []
    for apart in (False, True):
        units = units_of(function, lambda operation: _said(operation, around), apart)
        if solved and len(solved[0][0].units) == len(units.units):
            break
        problem, first = _problem(function, units, machine)
        solved.append((units, first, *solve(problem, machine)))
    units, first, places, staging = min(solved, key=lambda each: _merit(each[3]))
    names = [device.name for device in machine.devices]
    number = ir.IntegerType.get_signless(64)
    for stage, tasks in enumerate(staging.stages):
        for task in tasks:
            unit = units.units[task - first]
            where = ir.StringAttr.get(_term(unit, names[places[task]]))
            for operation in unit.operations:
                if operation.name != TRANSFER_OP:
                    operation.attributes[AFFINITY] = where
                    operation.attributes[STAGE] = ir.IntegerAttr.get(number, stage)


# -- affinities of the program -------------------------------------------------------------------


def _said(operation: ir.Operation, around: Affinity | None) -> str:
    """The affinity that the program gives an operation, as text; empty if none."""
    if operation.name == TRANSFER_OP:
        return _target(operation)
    said = explicit_affinity(operation)
    if said is None and operation.name in CONTROL:
        said = _said_inside(operation)
    if said is None and around is None:
        for value in captured_values(operation):
            if not isinstance(value.owner, ir.Block) and value.owner.operation.name == TRANSFER_OP:
                said = join_or(said, parse_affinity(_target(value.owner.operation)))
    said = said or around
    return "" if said is None else str(said)


def _target(transfer: ir.Operation) -> str:
    return str(parse_affinity(ir.StringAttr(transfer.attributes[TO]).value))


def _said_inside(control: ir.Operation) -> Affinity | None:
    """The affinity of any part of a branch or loop, which runs on one device as a whole."""
    for region in control.regions:
        for block in region.blocks:
            for entry in block.operations:
                operation = entry.operation
                said = explicit_affinity(operation)
                if said is None and operation.name == TRANSFER_OP:
                    said = parse_affinity(_target(operation))
                said = said or (_said_inside(operation) if len(operation.regions) else None)
                if said is not None:
                    return said
    return None


def _term(unit: PlacementUnit, device: str) -> str:
    """A device as an affinity, with the queues that the program requests."""
    if not unit.said:
        return device
    return str(Affinity(tuple(term for term in parse_affinity(unit.said).devices if term[0] == device)))


# -- the problem ---------------------------------------------------------------------------------


def _problem(function: ir.Operation, units: Units, machine: ProgramMachine) -> tuple[Problem, int]:
    """Arguments, units and results as tasks, and the number of the first unit's task."""
    numbers = {device.name: number for number, device in enumerate(machine.devices)}
    block = function.regions[0].blocks[0]
    count = machine.memory + 1
    tasks = [
        PlacementTask(_times({_home(pin, numbers, machine)[0]: 0.0}, count), outside=True)
        for pin in pins(function, "arg_attrs", len(block.arguments))
    ]
    first = len(tasks)
    for unit in units.units:
        said = parse_affinity(unit.said) if unit.said else None
        allowed = [numbers[name] for name, _ in said.devices] if said else machine.usable
        times = {place: unit.seconds(machine.rates[place]) for place in allowed}
        inputs = [*unit.inputs.items(), *((first + source, size) for source, size in unit.reads.items())]
        queues = 0 if said is None or said.devices[0][1] == ANY_QUEUE else said.devices[0][1]
        tasks.append(PlacementTask(_times(times, count), tuple(inputs), queues=queues))
    result_pins = pins(function, "res_attrs", len(units.returned))
    for pin, (unit, argument, size) in zip(result_pins, units.returned, strict=True):
        source = first + unit if unit is not None else argument
        times = dict.fromkeys(_home(pin, numbers, machine), 0.0)
        tasks.append(PlacementTask(_times(times, count), () if source is None else ((source, size),), outside=True))
    return Problem(tuple(tasks), machine.cut_machine), first


def _home(pin: Affinity | None, numbers: dict[str, int], machine: ProgramMachine) -> list[int]:
    """The possible places of an argument or result: the host's memory, unless the program specifies another."""
    return [machine.memory] if pin is None else [numbers[name] for name, _ in pin.devices]


def _times(known: dict[int, float], count: int) -> tuple[float, ...]:
    return tuple(known.get(place, float("inf")) for place in range(count))


# -- its solution --------------------------------------------------------------------------------


def solve(problem: Problem, machine: ProgramMachine) -> tuple[Sequence[int], Staging]:
    """The places of all tasks and their stages: the best of the schedules that the search found and those that run
    everything on one device, measured with their stages' submissions."""
    ranks = upward_ranks(problem)
    single = [dispatch(problem, _all_on(problem, device), ranks) for device in machine.usable]
    candidates = _alike_once([*single, *_search(problem, ranks, single)])
    plain = replace(problem, machine=machine.machine)
    submit = [rates.submit for rates in machine.rates]
    staged: list[tuple[Sequence[int], Staging]] = []
    for schedule in candidates:
        staging = cut_stages(plain, schedule, submit, MOST_JOINED)
        place = schedule.places[staging.stages[0][0]] if len(staging.stages) == 1 else None
        if place is not None and machine.rates[place].shared:  # called, not submitted
            staging = replace(staging, makespan=staging.makespan - submit[place])
        staged.append((schedule.places, staging))
    return min(staged, key=lambda each: _merit(each[1]))


def _merit(staging: Staging) -> float:
    """The objective, to be minimised: the end of the schedule, plus the required worth of each further stage."""
    return staging.makespan * (1 + min(MOST_WORTH, STAGE_WORTH * max(0, len(staging.stages) - 1)))


def _search(problem: Problem, ranks: Sequence[float], single: Sequence[PlacementSchedule]) -> list[PlacementSchedule]:
    """Schedules over several devices, each better than the previous one or constructed differently."""
    listed = [heft(problem, ranks), heft(problem, ranks, look_ahead=True)]
    best = min((*single, *listed), key=lambda schedule: schedule.makespan)
    best = improve(problem, best, ranks, MOST_SEARCHED)
    work = sum(not task.outside for task in problem.tasks)
    return [*listed, best, best_schedule(problem, best)[0]] if work <= FEW_TASKS else [*listed, best]


def _all_on(problem: Problem, device: int) -> list[int]:
    """Everything on one device, except what the program places elsewhere."""
    return [device if device in allowed else allowed[0] for allowed in problem.allowed]


def _alike_once(schedules: Sequence[PlacementSchedule]) -> list[PlacementSchedule]:
    return list({schedule.places: schedule for schedule in schedules}.values())
