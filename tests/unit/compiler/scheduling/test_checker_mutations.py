"""Schedules that are changed at random: the proof fails for every one that does something else in an order that it
allows, which is found by running them in all orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from msgspec import structs
from tests.seeds import examples
from tests.unit.compiler.scheduling.brute_force import BruteForce, allowed
from tests.unit.compiler.scheduling.random_programs import RandomProgram

from motet.artifact.schema import Command, Schedule, ScheduleBuffer
from motet.compiler.scheduling.arrangement import ArrangeOptions, arrange
from motet.compiler.scheduling.checker import check_schedule
from motet.errors import CompileError

Random = np.random.Generator


def with_command(schedule: Schedule, number: int, command: Command) -> Schedule:
    return structs.replace(schedule, commands=[*schedule.commands[:number], command, *schedule.commands[number + 1 :]])


def with_buffer(schedule: Schedule, number: int, buffer: ScheduleBuffer) -> Schedule:
    return structs.replace(schedule, buffers=[*schedule.buffers[:number], buffer, *schedule.buffers[number + 1 :]])


def without_a_dependence(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, command in enumerate(schedule.commands):
        for wait in command.after:
            fewer = [earlier for earlier in command.after if earlier != wait]
            yield with_command(schedule, number, structs.replace(command, after=fewer))


def without_dependences(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, command in enumerate(schedule.commands):
        if command.after:
            yield with_command(schedule, number, structs.replace(command, after=[]))


def with_another_dependence(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, command in enumerate(schedule.commands):
        if command.after:
            moved = [int(random.integers(number)), *command.after[1:]]
            yield with_command(schedule, number, structs.replace(command, after=sorted(set(moved))))


def without_a_wait(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, command in enumerate(schedule.commands):
        for wait in command.waits:
            fewer = [earlier for earlier in command.waits if earlier != wait]
            yield with_command(schedule, number, structs.replace(command, waits=fewer))


def on_another_stream(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, command in enumerate(schedule.commands):
        yield with_command(schedule, number, structs.replace(command, stream=command.stream + 1))


def with_a_buffer_moved(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    for number, buffer in enumerate(schedule.buffers):
        if buffer.kind == "arena":
            for _ in range(3):
                yield with_buffer(schedule, number, structs.replace(buffer, offset=int(random.integers(600))))


def with_a_buffer_on_another(schedule: Schedule, random: Random) -> Iterator[Schedule]:
    arena = [number for number, buffer in enumerate(schedule.buffers) if buffer.kind == "arena"]
    for a in arena:
        for b in arena:
            if a != b:
                other = schedule.buffers[b]
                for offset in {int(str(other.offset)), int(str(other.offset)) + int(str(other.bytes)) - 1}:
                    yield with_buffer(schedule, a, structs.replace(schedule.buffers[a], offset=offset))


Mutation = Callable[[Schedule, Random], Iterator[Schedule]]
MUTATIONS: list[Mutation] = [
    without_a_dependence, without_dependences, with_another_dependence, without_a_wait, on_another_stream,
    with_a_buffer_moved, with_a_buffer_on_another,
]


def is_refused(schedule: Schedule, program: RandomProgram) -> bool:
    try:
        check_schedule(schedule, program.signature)
    except CompileError:
        return True
    return False


def verify(seeds: range) -> tuple[Counter[str], Counter[str]]:
    """Of each mutation, how many changed schedules are wrong; and how many are refused that are not."""
    wrong: Counter[str] = Counter()
    spared: Counter[str] = Counter()
    for seed in seeds:
        program = RandomProgram(seed, most=6)
        schedule = arrange(program.recorded, {}, 0, ArrangeOptions(streams=1 + seed % 3))
        assert not is_refused(schedule, program)
        truth = BruteForce(schedule, program.signature)
        for by_streams in (False, True):
            assert not truth.is_wrong(schedule, allowed(schedule, by_streams=by_streams)), f"seed {seed}"
        for mutation in MUTATIONS:
            for changed in mutation(schedule, program.random):
                name = mutation.__name__
                bad = any(truth.is_wrong(changed, allowed(changed, by_streams=streams)) for streams in (False, True))
                refused = is_refused(changed, program)
                assert refused or not bad, f"seed {seed}: {name}: {changed}"
                wrong[name] += bad
                spared[name] += refused and not bad
    return wrong, spared


def test_every_change_that_makes_a_schedule_wrong_is_found() -> None:
    wrong, spared = verify(range(examples(150)))
    assert all(wrong[mutation.__name__] > 20 for mutation in MUTATIONS), wrong
    # What is refused and does no harm in any order is the exception.
    assert sum(spared.values()) < sum(wrong.values()) / 10, (wrong, spared)


@pytest.mark.slow
def test_every_change_that_makes_one_of_many_schedules_wrong_is_found() -> None:
    verify(range(1000, 4000))
