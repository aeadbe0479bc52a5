"""Schedules of random programs: proven free of races, equal to serial execution in every order they allow; and that
the proof fails where a schedule is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from tests.seeds import examples
from tests.unit.compiler.scheduling.random_programs import (
    RandomProgram,
    load_code,
    run_in_order,
    run_on_host,
    some_order,
)

from motet.artifact.schema import Command, Schedule, ScheduleBuffer, Signature, TensorSpec
from motet.compiler.scheduling.arrangement import ArrangeOptions, arrange
from motet.compiler.scheduling.checker import check_schedule
from motet.errors import CompileError
from motet.runtime.drivers.host.loader import NativeCode
from motet.runtime.drivers.host.threads import HostThreads


@pytest.fixture(scope="module")
def code() -> NativeCode:
    return load_code()


def plan(program: RandomProgram) -> Schedule:
    """With and without streams, chains, another order and limits, by seed."""
    seed = program.seed
    options = ArrangeOptions(
        streams=(1, 2, 5)[seed % 3], filling=(0, 8, 64)[seed // 3 % 3], growth=(1.0, 1.25, 8.0)[seed // 9 % 3],
        chained=seed // 27 % 3 == 2, depth_first=seed // 2 % 3 == 2,
    )
    free = arrange(program.recorded, {}, 0, options)
    if seed % 4 or program.dynamic:
        return free
    assert isinstance(free.serial, int)
    limit = free.serial + seed % 7 * 64
    tight = arrange(program.recorded, {}, 0, replace(options, memory_limit=limit))
    assert isinstance(tight.arena, int) and tight.arena <= limit
    return tight


def verify(seeds: range, code: NativeCode) -> None:
    threads = HostThreads(4)
    for seed in seeds:
        program = RandomProgram(seed, dynamic=seed % 5 == 1)
        schedule = plan(program)
        check_schedule(schedule, program.signature, f"seed {seed}")
        for by_streams in (False, True):
            order = some_order(schedule, program.random, by_streams)
            for result, expected in zip(run_in_order(program, schedule, order), program.expected, strict=True):
                np.testing.assert_array_equal(result, expected, f"seed {seed}, order {order}")
        for result, expected in zip(run_on_host(program, schedule, code, threads), program.expected, strict=True):
            np.testing.assert_array_equal(result, expected, f"seed {seed}, host")


def test_random_programs_give_serial_results_in_every_order_allowed(code: NativeCode) -> None:
    verify(range(examples(300)), code)


@pytest.mark.slow
def test_ten_thousand_random_programs_give_serial_results_in_every_order_allowed(code: NativeCode) -> None:
    verify(range(10_000), code)


def test_results_are_written_over_what_is_read_for_the_last_time() -> None:
    found = 0
    for seed in range(40):
        schedule = arrange(RandomProgram(seed).recorded, {}, 0, ArrangeOptions())
        for command in schedule.commands:
            found += bool({*command.buffers[: command.reads]} & {*command.buffers[command.reads :]})
    assert found > 5


@pytest.mark.parametrize("seed", range(30))
def test_every_dependence_of_a_schedule_is_needed(seed: int) -> None:
    program = RandomProgram(seed)
    schedule = arrange(program.recorded, {}, 0, ArrangeOptions())
    for number, command in enumerate(schedule.commands):
        for wait in command.after:
            fewer = structs.replace(command, after=[earlier for earlier in command.after if earlier != wait])
            commands = [*schedule.commands[:number], fewer, *schedule.commands[number + 1 :]]
            with pytest.raises(CompileError, match=r"may run at once"):
                check_schedule(structs.replace(schedule, commands=commands), program.signature)


@pytest.mark.parametrize("seed", range(30))
def test_buffers_in_use_at_once_that_share_a_byte_are_found(seed: int) -> None:
    program = RandomProgram(seed)
    schedule = arrange(program.recorded, {}, 0, ArrangeOptions())
    uses = [[n for n, c in enumerate(schedule.commands) if b in c.buffers] for b in range(len(schedule.buffers))]
    arena = [number for number, buffer in enumerate(schedule.buffers) if buffer.kind == "arena"]
    for a in arena:
        for b in arena:
            if a == b or uses[a][-1] < uses[b][0] or uses[b][-1] < uses[a][0]:
                continue
            other = schedule.buffers[b]
            moved = structs.replace(schedule.buffers[a], offset=int(str(other.offset)) + int(str(other.bytes)) - 1)
            buffers = [*schedule.buffers[:a], moved, *schedule.buffers[a + 1 :]]
            with pytest.raises(CompileError):
                check_schedule(structs.replace(schedule, buffers=buffers), program.signature)


N = Signature("f", [TensorSpec("x", ["n"], "f32")], [TensorSpec("y", ["n"], "f32")], [])
SIZE = ["*", "n", 4]
SLOT = ["*", ["ceildiv", SIZE, 64], 64]


def chain(offsets: list, sizes: list) -> Schedule:
    """Three commands, each of which reads what the one before made; the two in between lie in the arena."""
    buffers = [
        ScheduleBuffer("input", SIZE), *(
            ScheduleBuffer("arena", size, 0, offset) for size, offset in zip(sizes, offsets, strict=True)
        ),
        ScheduleBuffer("result", SIZE),
    ]
    commands = [
        Command("dispatch", [n, n + 1], "k", "n", after=[n - 1] if n else [], reads=1) for n in range(len(buffers) - 1)
    ]
    return Schedule(buffers, commands, ["*", SLOT, 2])


def test_extents_with_symbols_are_told_apart_where_they_are_for_all_values() -> None:
    check_schedule(chain([0, SLOT], [SIZE, SIZE]), N)
    check_schedule(chain([64, ["+", SLOT, 64]], [SIZE, SIZE]), N)
    check_schedule(chain([0, ["max", SLOT, 640]], [SIZE, 640]), N)
    check_schedule(chain([0, ["*", SLOT, 2]], [["*", "n", 8], SIZE]), N)
    check_schedule(chain([0, 128, ["+", SLOT, 128]], [100, SIZE, SIZE]), N)
    for offsets, sizes in (
        ([0, 0], [SIZE, SIZE]),
        ([0, "n"], [SIZE, SIZE]),
        ([0, ["-", SLOT, 64]], [SIZE, SIZE]),
        ([64, SLOT], [SIZE, SIZE]),
        ([0, SLOT], [["*", "n", 8], SIZE]),
        ([0, ["min", SLOT, 640]], [SIZE, SIZE]),
    ):
        with pytest.raises(CompileError, match=r"share bytes of the arena"):
            check_schedule(chain(offsets, sizes), N)


def test_an_input_that_was_written_over_is_not_read() -> None:
    signature = Signature("f", [TensorSpec("x", [4], "f32")], [TensorSpec("y", [4], "f32", 0)], [])
    buffers = [ScheduleBuffer("input", 16), ScheduleBuffer("result", 16), ScheduleBuffer("arena", 16)]
    over = Command("dispatch", [0, 1], "k", reads=1)
    late = Command("dispatch", [0, 2], "k", after=[0], reads=1)
    with pytest.raises(CompileError, match=r"command 1 reads input buffer 0 after buffer 1 was written over it"):
        check_schedule(Schedule(buffers, [over, late], 64), signature)
    early = [structs.replace(late, after=[]), structs.replace(over, after=[0])]
    check_schedule(Schedule(buffers, early, 64), signature)


def test_what_nothing_wrote_is_not_read() -> None:
    buffers = [ScheduleBuffer("arena", 16), ScheduleBuffer("result", 16)]
    with pytest.raises(CompileError, match=r"command 0 reads buffer 0 before anything writes it"):
        check_schedule(Schedule(buffers, [Command("copy", [0, 1])], 64), Signature("f", [], [N.results[0]], []))


def test_a_stream_without_its_wait_is_found() -> None:
    good = chain([0, SLOT], [SIZE, SIZE])
    moved = [structs.replace(good.commands[0], stream=1), *good.commands[1:]]
    with pytest.raises(CompileError, match=r"streams and waits: commands 0 and 1 may run at once"):
        check_schedule(structs.replace(good, commands=moved), N)
    moved[1] = structs.replace(moved[1], waits=[0])
    check_schedule(structs.replace(good, commands=moved), N)
