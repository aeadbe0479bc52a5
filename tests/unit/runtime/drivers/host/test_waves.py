"""Commands that run at once on the host: which they are, and that running them at once changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.runtime.drivers.host.test_native import compile_ir

from motet.runtime.drivers.host.loader import load_objects
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.drivers.host.waves import FILLING, WORTHWHILE, plan_waves

# out[i] = 3 * left[i] + right[i] + sizes[0], for every task i
MIX = """
define void @mix(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %left = load ptr, ptr %buffers
  %p1 = getelementptr ptr, ptr %buffers, i64 1
  %right = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %buffers, i64 2
  %out = load ptr, ptr %p2
  %addend = load i64, ptr %sizes
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %n, %loop ]
  %pl = getelementptr i64, ptr %left, i64 %i
  %l = load i64, ptr %pl
  %pr = getelementptr i64, ptr %right, i64 %i
  %r = load i64, ptr %pr
  %t = mul i64 %l, 3
  %u = add i64 %t, %r
  %v = add i64 %u, %addend
  %po = getelementptr i64, ptr %out, i64 %i
  store i64 %v, ptr %po
  %n = add i64 %i, 1
  %c = icmp slt i64 %n, %end
  br i1 %c, label %loop, label %done
done:
  ret void
}
"""


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    count = draw(st.integers(0, 30))
    tasks = [draw(st.integers(0, 40)) for _ in range(count)]
    after = [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)]
    return tasks, after


@given(graphs(), st.integers(1, 8))
@settings(max_examples=examples(300), deadline=None)
def test_every_command_is_in_one_wave_after_all_it_waits_for(graph: tuple, threads: int) -> None:
    tasks, after = graph
    waves = plan_waves(tasks, after, threads)
    assert sorted(number for wave in waves for number in wave) == list(range(len(tasks)))
    done: set[int] = set()
    for wave in waves:
        for number in wave:
            assert done.issuperset(after[number])
        assert len(wave) == 1 or sum(tasks[number] for number in wave[:-1]) < FILLING * threads
        done.update(wave)


def test_independent_small_commands_are_one_wave_and_filling_ones_are_not() -> None:
    assert plan_waves([1, 2, 1, 1], [[], [], [], [0, 1, 2]], 4) == [[0, 1, 2], [3]]
    assert plan_waves([100, 100, 1], [[], [], []], 4) == [[0], [1], [2]]
    assert plan_waves([1, 1], [[], [0]], 4) == [[0], [1]]
    assert plan_waves([1, 1], [[], []], 1) == [[0], [1]]


def test_what_takes_less_time_than_threads_take_to_meet_runs_alone() -> None:
    short, long = WORTHWHILE / 2, WORTHWHILE * 2
    free: list[list[int]] = [[], [], []]
    assert plan_waves([1, 1, 1], free, 4, [short, short, short]) == [[0], [1], [2]]
    assert plan_waves([1, 1, 1], free, 4, [long, short, long]) == [[0, 2], [1]]
    assert plan_waves([1, 1, 1], free, 4, [short, long, None]) == [[0], [1, 2]]


@pytest.fixture(scope="module")
def code():
    return load_objects([compile_ir(MIX)], {})


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("threads", [2, 4])
def test_waves_compute_what_the_commands_do_one_after_the_other(seed: int, threads: int, code) -> None:
    random = np.random.default_rng(seed)
    rows, count = 50, int(random.integers(1, 40))
    values = np.zeros((2 + count, rows), np.int64)
    values[:2] = random.integers(-1000, 1000, (2, rows))
    expected = values.copy()
    commands: list[NativeCommand] = []
    after: list[list[int]] = []
    writer: dict[int, int] = {}
    for number in range(count):
        left, right = (int(n) for n in random.integers(0, number + 2, 2))
        tasks = int(random.choice([0, 1, 1, 2, 3, rows]))
        places = tuple((0, 8 * rows * row) for row in (left, right, number + 2))
        commands.append(NativeCommand(code.address("mix"), tasks, places, (number,)))
        after.append(sorted({writer[row] for row in (left, right) if row in writer}))
        writer[number + 2] = number
        expected[number + 2, :tasks] = 3 * expected[left, :tasks] + expected[right, :tasks] + number
    program = NativeProgram(HostThreads(threads), commands, 1, 64, (code,), after)
    for _ in range(3):
        values[2:] = 0
        program.run([values.ctypes.data])
        np.testing.assert_array_equal(values, expected)
    values[2:] = 0
    assert len(program.run_timed([values.ctypes.data])) == count
    np.testing.assert_array_equal(values, expected)


def test_what_waits_for_a_command_without_tasks_waits_for_what_that_waited_for(code) -> None:
    values = np.ones((4, 8), np.int64)
    mix = code.address("mix")
    commands = [
        NativeCommand(mix, 8, ((0, 0), (0, 0), (0, 64)), (0,)),
        NativeCommand(mix, 0, ((0, 64), (0, 64), (0, 128)), (0,)),
        NativeCommand(mix, 8, ((0, 64), (0, 128), (0, 192)), (0,)),
    ]
    for _ in range(50):
        values[1:] = 1
        NativeProgram(HostThreads(4), commands, 1, 0, (code,), [[], [0], [1]]).run([values.ctypes.data])
        np.testing.assert_array_equal(values[3], 3 * 4 + 1)
