"""Plans whose steps all work in one memory, as one schedule: proven free of races, and right in every order allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec import structs
from tests.integration.placed import build_placed, random_program
from tests.integration.placed_text import TextProgram
from tests.unit.compiler.scheduling.random_programs import RandomProgram, run_in_order, some_order

from motet.artifact.expressions import evaluate
from motet.artifact.schema import Plan, Schedule, ScheduleBuffer, Signature, Step, Symbol, TensorSpec
from motet.builder import Graph
from motet.compiler.scheduling.arrangement import ArrangeOptions, arrange
from motet.compiler.scheduling.checker import check_schedule
from motet.errors import CompileError
from motet.runtime.merge import merge_plan


def known(schedule: Schedule, parts: Mapping[str, Schedule], symbols: Mapping[str, int]) -> Schedule:
    """A merged schedule for some extents, as the proof takes it: what lies in one place behind the regions' arenas,
    or in a caller's array, is one value, and so one buffer."""
    behind = max((evaluate(part.arena, symbols) for part in parts.values()), default=0)
    numbers: list[int] = []
    table: dict[tuple[str, int, int, int], int] = {}
    buffers: list[ScheduleBuffer] = []
    for buffer in schedule.buffers:
        place = structs.replace(
            buffer, offset=evaluate(buffer.offset, symbols), bytes=evaluate(buffer.bytes, symbols)
        )
        key = (place.kind, place.index, int(str(place.offset)), int(str(place.bytes)))
        if key not in table or (place.kind == "arena" and key[2] < behind):
            table[key] = len(buffers)
            buffers.append(place)
        numbers.append(table[key])
    commands = [
        structs.replace(command, buffers=[numbers[buffer] for buffer in command.buffers])
        for command in schedule.commands
    ]
    return structs.replace(schedule, buffers=buffers, commands=commands, arena=evaluate(schedule.arena, symbols))


# -- plans over random regions -------------------------------------------------------------------------


@dataclass
class RandomPlan:
    """Some random regions, each reading what those before it made where that is as long as what it takes."""

    seed: int
    inputs: list[np.ndarray] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.schedules: dict[str, Schedule] = {}
        self.regions: dict[str, Signature] = {}
        self._values: list[np.ndarray] = []
        self._given: list[int] = []
        self._steps: list[Step] = []
        for number in range(int(self.random.integers(1, 6))):
            self._add(f"region{number}", RandomProgram(self.seed * 10 + number, most=8))
        made = [value for step in self._steps for value in step.results]
        chosen = [int(self.random.choice(made)) for _ in range(int(self.random.integers(1, 4)))]
        self._returned = [*dict.fromkeys(chosen), self._given[0]]
        self.expected = [self._values[value] for value in self._returned]

    def _add(self, name: str, program: RandomProgram) -> None:
        operands = [self._choose(array) for array in program.inputs]
        found = program.compute([self._values[value] for value in operands])
        results = list(range(len(self._values), len(self._values) + len(found)))
        self._values += found
        self._steps.append(Step("run", 0, operands, results, name))
        if self.random.random() < 0.5:
            self._steps.append(Step("transfer", 1, [results[0]], [len(self._values)]))
            self._values.append(found[0])
        self.regions[name] = program.signature
        self.schedules[name] = arrange(program.recorded, {}, 0, ArrangeOptions(streams=1 + self.seed % 4))

    def _choose(self, like: np.ndarray) -> int:
        fitting = [number for number, value in enumerate(self._values) if len(value) == len(like)]
        if fitting and self.random.random() < 0.8:
            return int(self.random.choice(fitting))
        self._given.append(len(self._values))
        self._values.append(like)
        self.inputs.append(like)
        return self._given[-1]

    @property
    def plan(self) -> Plan:
        return Plan(
            len(self._values), self._given, self._returned, [0] * len(self._given), [0] * len(self._returned),
            self._steps,
        )

    @property
    def signature(self) -> Signature:
        inputs = [TensorSpec(f"i{n}", [len(array)], "i64") for n, array in enumerate(self.inputs)]
        results = [TensorSpec(f"r{n}", [len(array)], "i64") for n, array in enumerate(self.expected)]
        return Signature("f", inputs, results, [])

    def arrays(self) -> list[np.ndarray]:
        return [*(array.copy() for array in self.inputs), *(np.full(len(array), -1) for array in self.expected)]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_merged_random_regions_give_the_same_results_in_every_order_allowed(first: int) -> None:
    for seed in range(first, first + 50):
        program = RandomPlan(seed)
        merged = merge_plan(program.signature, program.plan, program.regions, program.schedules).schedule
        check_schedule(known(merged, program.schedules, {}), program.signature, f"seed {seed}")
        for by_streams in (False, True):
            order = some_order(merged, program.random, by_streams)
            for result, expected in zip(run_in_order(program, merged, order), program.expected, strict=True):
                np.testing.assert_array_equal(result, expected, f"seed {seed}, order {order}")


# -- plans of programs ---------------------------------------------------------------------------------


def check_program(source: str | Graph, flags: tuple[str, ...], inputs: Sequence[np.ndarray]) -> int:
    """Proves every plan of a program for every target; how many there were."""
    manifest = build_placed(source, flags).manifest
    count = 0
    for signature in (function for function in manifest.functions if function.name in manifest.plans):
        plan = manifest.plans[signature.name]
        symbols = {symbol.name: inputs[symbol.input].shape[symbol.axis] for symbol in signature.symbols}
        for variant in manifest.variants:
            if all(step.op == "transfer" or step.region in variant.schedules for step in plan.steps):
                parts = {step.region: variant.schedules[step.region] for step in plan.steps if step.op == "run"}
                merged = merge_plan(signature, plan, manifest.regions, variant.schedules).schedule
                check_schedule(known(merged, parts, symbols), signature)
                count += 1
    return count


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 120), marks=pytest.mark.slow)])
def test_merged_plans_of_random_programs_are_free_of_races(seeds: range) -> None:
    count = 0
    for seed in seeds:
        program = random_program(seed)
        count += check_program(program.graph, ("a=host,null", "b=null,host", "c=null[2],host"), program.inputs)
        try:
            count += check_program(TextProgram(seed).text, (), ())
        except CompileError as error:
            assert "its parts are placed on" in str(error)  # two devices in one branch or loop
    assert count > len(seeds)


def test_arenas_of_regions_are_counted_in_the_extents_that_regions_are_given() -> None:
    """A region of its own `d0_0` by `n` is given `m` by `d0_0` of the function."""
    size = ["*", ["*", "d0_0", "n"], 64]
    schedule = Schedule([ScheduleBuffer("arena", size, 0, 0)], [], size)
    region = Signature(
        "r", [TensorSpec("x", ["d0_0", "n"], "i64")], [TensorSpec("y", ["n", "d0_0"], "i64")],
        [Symbol("d0_0", 0, 0), Symbol("n", 0, 1)],
    )
    signature = Signature(
        "f", [TensorSpec("x", ["m", "d0_0"], "i64")], [TensorSpec("y", ["m", "d0_0"], "i64")],
        [Symbol("m", 0, 0), Symbol("d0_0", 0, 1)],
    )
    steps = [Step("run", 0, [0], [1], "r"), Step("transfer", 1, [1], [2]), Step("run", 0, [2], [3], "r")]
    merged = merge_plan(signature, Plan(4, [0], [3], [0], [0], steps), {"r": region}, {"r": schedule}).schedule
    assert evaluate(merged.arena, {"m": 3, "d0_0": 5}) == 64 * 3 * 5 + 128  # behind it a value of 120 bytes
