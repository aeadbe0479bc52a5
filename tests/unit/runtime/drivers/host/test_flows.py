"""Commands that wait for one another as one: nothing begins too early, and threads wait for what they need alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.runtime.drivers.host.test_native import compile_ir
from tests.unit.runtime.drivers.host.test_waves import MIX, graphs

from motet.runtime.drivers.host.flows import join_waves, plan_flow
from motet.runtime.drivers.host.loader import load_objects
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.drivers.host.waves import plan_waves

ROWS = 50


@given(graphs(), st.integers(2, 8), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_pieces_are_all_tasks_and_come_behind_what_they_need(graph: tuple, threads: int, data: st.DataObject) -> None:
    tasks, after = graph
    seconds = [data.draw(st.sampled_from([None, 0.0, 1e-6, 2e-5, 1e-3])) for _ in tasks]
    flow = plan_flow(range(len(tasks)), tasks, after, threads, seconds)
    done: dict[int, list[tuple[int, int]]] = {}
    for unit in flow.units:
        for piece in unit:
            for earlier in flow.needs[piece.member]:
                assert len(done.get(earlier, [])) == flow.counts[earlier]
            done.setdefault(piece.member, []).append((piece.begin, piece.end))
    for member, count in enumerate(tasks):
        edges = [0, *(end for _, end in done[member])]
        assert [begin for begin, _ in done[member]] == edges[:-1]
        assert edges[-1] == count
        assert flow.needs[member] == sorted(after[member])


@given(graphs(), st.integers(2, 8))
@settings(max_examples=examples(200), deadline=None)
def test_joined_waves_have_every_command_once_in_an_order_that_runs(graph: tuple, threads: int) -> None:
    tasks, after = graph
    joined = join_waves(plan_waves(tasks, after, threads), tasks, after, threads, [None] * len(tasks))
    done: set[int] = set()
    for members, flow in joined:
        for number in members:
            assert all(earlier in done or (flow is not None and earlier in members) for earlier in after[number])
        done.update(members)
    assert sorted(number for members, _ in joined for number in members) == list(range(len(tasks)))


def test_two_chains_are_two_units_and_long_commands_stay_alone() -> None:
    after = [[], [], [0], [1], [2], [3]]
    ((members, flow),) = join_waves([[0, 1], [2, 3], [4, 5]], [1] * 6, after, 4, [3e-6] * 6)
    assert flow is not None
    units = [[members[piece.member] for piece in unit] for unit in flow.units]
    assert units == [[0, 2, 4], [1, 3, 5]]
    tasks, seconds = [1, 1, 64, 1, 1, 1], [2e-5, 2e-5, 1e-2, 2e-5, 2e-5, 2e-5]
    joined = join_waves([[0, 1], [2], [3], [4, 5]], tasks, after, 4, seconds)
    assert ([2], None) in joined
    # A chain has nothing to gain.
    assert all(flow is None for _, flow in join_waves([[0], [1]], [1, 1], [[], [0]], 4, [2e-5, 2e-5]))


@pytest.fixture(scope="module")
def code():
    return load_objects([compile_ir(MIX)], {})


def program_of(code, seed: int, threads: HostThreads) -> tuple[NativeProgram, np.ndarray, np.ndarray]:
    """A program of small commands, its memory, and what should be there after it ran."""
    random = np.random.default_rng(seed)
    count = int(random.integers(8, 60))
    values = np.zeros((2 + count, ROWS), np.int64)
    values[:2] = random.integers(-1000, 1000, (2, ROWS))
    expected = values.copy()
    commands: list[NativeCommand] = []
    after: list[list[int]] = []
    for number in range(count):
        left, right = (int(n) for n in random.integers(max(0, number - 6), number + 2, 2))
        tasks = int(random.choice([1, 1, 2, 5, ROWS]))
        places = tuple((0, 8 * ROWS * row) for row in (left, right, number + 2))
        commands.append(NativeCommand(code.address("mix"), tasks, places, (number,), 0, 2e-6))
        after.append(sorted({row - 2 for row in (left, right) if row >= 2}))
        expected[number + 2, :tasks] = 3 * expected[left, :tasks] + expected[right, :tasks] + number
    return NativeProgram(threads, commands, 1, 64, (code,), after), values, expected


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_flows_compute_what_the_commands_do_one_after_the_other(seed: int, threads: int, code) -> None:
    program, values, expected = program_of(code, seed, HostThreads(threads))
    assert any(flow is not None for _, flow in program._waves)
    for _ in range(20):
        values[2:] = 0
        program.run([values.ctypes.data])
        np.testing.assert_array_equal(values, expected)


def test_several_callers_run_one_flow_at_the_same_time(code) -> None:
    program, values, expected = program_of(code, 3, HostThreads(4))
    wrong: list[int] = []

    def call() -> None:
        own = values.copy()
        for turn in range(200):
            own[2:] = 0
            program.run([own.ctypes.data])
            if not np.array_equal(own, expected):
                wrong.append(turn)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.parametrize("seed", range(5))
def test_the_log_has_every_command_and_nothing_too_early(seed: int, code) -> None:
    program, values, expected = program_of(code, seed, HostThreads(4))
    pieces = program.run_logged([values.ctypes.data]).pieces
    np.testing.assert_array_equal(values, expected)
    assert len(pieces) == program.count
    assert all(pieces)
    for members, flow in program._waves:
        for number, needs in zip(members, flow.needs if flow is not None else [[]] * len(members), strict=True):
            for index in needs:
                assert max(p.end for p in pieces[members[index]]) <= min(p.begin for p in pieces[number])
