"""Candidates for schedules: proven like any other, with serial results in every order they allow; and what is chosen
among them for a machine that is a model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.seeds import examples
from tests.unit.compiler.scheduling.random_programs import RandomProgram, load_code, run_in_order, run_on_host
from tests.unit.compiler.scheduling.test_checker import some_order

from motet.artifact.schema import Command, Schedule
from motet.compiler.scheduling.arrangement import ArrangeOptions, Recorded, Storage, arrange
from motet.compiler.scheduling.checker import check_schedule
from motet.compiler.tuning.candidates import PLANNED, make_candidates
from motet.compiler.tuning.schedule import Times, fastest, measure
from motet.runtime.drivers.host.threads import HostThreads


def candidates_of(recorded: list[Recorded], options: ArrangeOptions | None = None) -> dict[str, Schedule]:
    return make_candidates(functools.partial(arrange, recorded, {}, 0), options or ArrangeOptions())


def test_every_candidate_gives_serial_results_in_every_order_it_allows() -> None:
    code, threads = load_code(), HostThreads(4)
    seen: dict[str, int] = {}
    for seed in range(examples(120, 6)):
        program = RandomProgram(seed)
        # Without small arenas: memory then has a price.
        options = ArrangeOptions(streams=(1, 3)[seed % 2], filling=(64, 16)[seed % 3 == 0], small=0)
        for name, schedule in candidates_of(program.recorded, options).items():
            seen[name] = seen.get(name, 0) + 1
            where = f"seed {seed}, {name}"
            check_schedule(schedule, program.signature, where)
            if name.startswith("serial"):  # the addends tell two orders of one program apart, which are both allowed
                results = run_in_order(program, schedule, [*range(len(schedule.commands))])
            else:
                results = run_in_order(program, schedule, some_order(schedule, program.random, seed % 2 == 0))
            for result, expected in zip(results, program.expected, strict=True):
                np.testing.assert_array_equal(result, expected, where)
            for result, expected in zip(run_on_host(program, schedule, code, threads), program.expected, strict=True):
                np.testing.assert_array_equal(result, expected, f"{where}, host")
    assert len(seen) == 6 and min(seen.values()) > 5, seen


def test_a_serial_candidate_leaves_nothing_free() -> None:
    for seed in range(examples(40)):
        for name, schedule in candidates_of(RandomProgram(seed).recorded, ArrangeOptions(streams=4)).items():
            if name.startswith("serial"):
                chain = [list(range(number - 1, number)) if number else [] for number in range(len(schedule.commands))]
                assert [command.after for command in schedule.commands] == chain
                assert {command.stream for command in schedule.commands} <= {0}


def test_memory_that_the_user_limits_is_not_traded() -> None:
    for seed in range(examples(40)):
        recorded = RandomProgram(seed).recorded
        serial = arrange(recorded, {}, 0, ArrangeOptions()).serial
        assert serial is not None
        found = candidates_of(recorded, ArrangeOptions(memory_limit=serial + 64))
        assert all(isinstance(s.arena, int) and s.arena <= serial + 64 for s in found.values())
        assert "concurrent, more memory" not in found


# -- choosing --------------------------------------------------------------------------------------


def branches(seconds: float) -> list[Recorded]:
    """Four chains of three commands of one task each, and one that reads all their ends."""
    given = Storage("input", 640, 0)
    recorded: list[Recorded] = []
    ends: list[Storage] = []
    for _ in range(4):
        value = given
        for _ in range(3):
            out = Storage("arena", 640)
            recorded.append(Recorded(Command("dispatch", [], "step", 1), [value, out], 1, seconds))
            value = out
        ends.append(value)
    last = Recorded(Command("dispatch", [], "join", 1), [*ends, Storage("result", 640, 0)], 4, seconds)
    return [*recorded, last]


def modelled(schedule: Schedule, seconds: float, meeting: float, lanes: int = 4) -> float:
    """What a schedule takes a machine of `lanes` whose commands take `seconds`, and where handing over from one lane
    to another takes `meeting`: each command on the lane of what it waits for where that is free, else on the first."""
    free = [0.0] * lanes
    ends: list[tuple[float, int]] = []
    for command in schedule.commands:
        waits = [ends[earlier] for earlier in command.after]

        def begin(lane: int, waits: list[tuple[float, int]] = waits) -> float:
            return max([free[lane], *(end + meeting * (other != lane) for end, other in waits)])

        lane = min(range(lanes), key=begin)
        free[lane] = begin(lane) + seconds
        ends.append((free[lane], lane))
    return max(end for end, _ in ends)


class Model:
    """A clock that the calls of candidates move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[int] = []

    def call(self, number: int, seconds: float) -> Iterator[Callable[[], None]]:
        def run() -> None:
            self.order.append(number)
            self.now += seconds

        while True:
            yield run


def choose(recorded: list[Recorded], seconds: float, meeting: float) -> str:
    found = candidates_of(recorded)
    clock = Model()
    calls = [clock.call(n, modelled(s, seconds, meeting)) for n, s in enumerate(found.values())]
    times = measure(calls, clock=lambda: clock.now)
    return [*found][fastest(times, [schedule.arena for schedule in found.values()])]


def test_long_branches_run_at_once() -> None:
    assert choose(branches(1e-3), 1e-3, 1e-6).startswith(PLANNED)


def test_where_handing_over_costs_more_than_it_brings_commands_follow_one_another() -> None:
    found = candidates_of(branches(1e-6))
    free = {name: modelled(schedule, 1e-6, 0.0) for name, schedule in found.items()}
    assert free[PLANNED] < free["serial"]  # it would pay, did threads not have to meet where two commands do
    clock = Model()
    costs = [
        1e-6 * len(schedule.commands)
        + 1e-5 * sum(command.after != [n - 1] for n, command in enumerate(schedule.commands) if n)
        for schedule in found.values()
    ]
    times_taken = measure([clock.call(n, cost) for n, cost in enumerate(costs)], clock=lambda: clock.now)
    taken = [*found][fastest(times_taken, [schedule.arena for schedule in found.values()])]
    assert taken == "serial"


def test_the_planned_schedule_stays_unless_another_is_clearly_faster() -> None:
    planned = Times(1.0, 1.1)
    assert fastest([planned, Times(0.99, 1.0)], [100, 100]) == 0
    assert fastest([planned, Times(0.9, 1.2)], [100, 100]) == 0  # one lucky call
    assert fastest([planned, Times(0.9, 1.0)], [100, 100]) == 1
    assert fastest([planned, Times(0.9, 1.0), Times(0.8, 0.9)], [100, 100, 100]) == 2


def test_more_memory_has_to_pay() -> None:
    assert fastest([Times(1.0, 1.1), Times(0.96, 1.0)], [100, 101]) == 0
    assert fastest([Times(1.0, 1.1), Times(0.96, 1.0)], [100, 100]) == 1
    assert fastest([Times(1.0, 1.1), Times(0.94, 1.0)], [100, 101]) == 1


def test_candidates_take_turns_and_each_begins_some_rounds() -> None:
    clock = Model()
    measure([clock.call(number, 5e-3) for number in range(3)], clock=lambda: clock.now)
    rounds = clock.order[9:]  # after those that warm up
    assert [rounds[place : place + 3] for place in (0, 3, 6)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def test_short_calls_are_timed_together_unless_inputs_have_to_be_fresh() -> None:
    clock = Model()
    times = measure([clock.call(0, 1e-5)], clock=lambda: clock.now)
    assert times[0].fastest == pytest.approx(1e-5)
    together = len(clock.order)
    clock = Model()
    measure([clock.call(0, 1e-5)], anew=True, clock=lambda: clock.now)
    assert len(clock.order) < together / 10
