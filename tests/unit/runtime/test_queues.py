"""Which queues the steps of a plan run on, and that steps that need nothing of one another then overlap."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.concurrency import GRAPHS, LAUNCH, NODES, Graph, compile_sum, layered, measure
from hypothesis import given
from hypothesis import strategies as st

from motet.artifact.reader import Artifact
from motet.artifact.schema import Step
from motet.runtime.queues import Slots, choose_queues, spare_queues


class Queues:
    """A device of which no more is known than its queues."""

    def __init__(self, queues: int) -> None:
        self.queues = queues


def run(device: int, operands: list[int], result: int, queues: int = 0) -> Step:
    return Step("run", device, operands, [result], "r", queues)


def choose(steps: list[Step], queues: int) -> list[int]:
    return choose_queues(steps, range(len(steps)), lambda device: device, lambda device: queues)


@given(st.lists(st.integers(0, 9)))
def test_a_call_gets_the_smallest_number_that_no_other_has(ended: list[int]) -> None:
    """Calls begin one after the other; before each, that of a number ends if there is one."""
    slots, taken = Slots(), set[int]()
    for number in ended:
        if number in taken:
            slots.give_back(number)
            taken.remove(number)
        expected = min(set(range(len(taken) + 1)) - taken)
        assert slots.take() == expected
        taken.add(expected)
        assert slots.several == (len(taken) > 1)


def test_steps_that_need_nothing_of_one_another_are_on_different_queues() -> None:
    steps = [run(0, [0], 1), run(0, [1], 2), run(0, [0], 3), run(0, [2, 3], 4)]
    first, second, other, last = choose(steps, 3)
    assert first == second == last != other
    assert choose(steps, 1) == [0, 0, 0, 0]


def test_what_a_step_needs_by_way_of_another_device_counts() -> None:
    there, back = Step("transfer", 1, [1], [2]), Step("transfer", 0, [3], [4])
    steps = [run(0, [0], 1), there, run(1, [2], 3), back, run(0, [4], 5)]
    assert choose(steps, 2)[0] == choose(steps, 2)[4]


def test_a_step_is_on_a_queue_that_it_may_be_on_if_the_device_has_one() -> None:
    steps = [run(0, [0], 1, 0b10), run(0, [0], 2, 0b10), run(0, [0], 3), run(0, [0], 4, 1 << 40)]
    queues = choose(steps, 2)
    assert queues[:2] == [1, 1]
    assert set(queues) <= {0, 1}


def test_a_transfer_is_on_the_queue_of_who_reads_it() -> None:
    steps = [run(0, [0], 1, 0b01), Step("transfer", 0, [5], [2]), run(0, [2], 3, 0b10)]
    assert choose(steps, 2) == [0, 1, 1]


def test_devices_that_are_one_share_queues() -> None:
    steps = [run(0, [0], 1), run(1, [0], 2)]
    assert choose(steps, 2) == [0, 0]
    assert sorted(choose_queues(steps, [0, 1], lambda device: 0, lambda device: 2)) == [0, 1]


def test_the_spare_queue_is_one_where_nothing_runs() -> None:
    a, b = Queues(3), Queues(1)
    steps = [run(0, [0], 1), run(1, [0], 2)]
    assert spare_queues(steps, [0, 0], [a, b]) == {id(a): 2}  # type: ignore[list-item]
    assert spare_queues(steps, [2, 0], [a, b]) == {id(a): 1}  # type: ignore[list-item]


@given(st.data(), st.integers(1, 5))
def test_a_queue_never_makes_a_step_wait_for_one_submitted_later(data: st.DataObject, queues: int) -> None:
    """Queues keep the order of submission, so all that can go wrong is a number that is out of range."""
    count = data.draw(st.integers(1, 12))
    steps = []
    for number in range(count):
        sources = data.draw(st.sets(st.integers(0, number), max_size=3))
        steps.append(run(data.draw(st.integers(0, 2)), sorted(sources), number + 1, data.draw(st.integers(0, 7))))
    for step, queue in zip(steps, choose(steps, queues), strict=True):
        own = step.queues & ((1 << queues) - 1)
        assert 0 <= queue < queues
        assert not own or own >> queue & 1


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_sum()


def test_more_queues_let_a_device_do_more_at_once(artifact: Artifact) -> None:
    wide: Graph = layered(200, 50, np.random.default_rng(1))
    one, two, four = (measure(artifact, wide, queues) for queues in (1, 2, 4))
    assert two.makespan < 0.75 * one.makespan
    assert four.makespan < 0.75 * two.makespan
    assert all(outcome.bound <= outcome.makespan + LAUNCH / 2 for outcome in (one, two, four))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_thousand_steps_on_eight_devices_are_scheduled_in_under_a_second(name: str, artifact: Artifact) -> None:
    outcome = measure(artifact, GRAPHS[name](NODES, np.random.default_rng(3)), 4)
    assert outcome.scheduling < 1.0
    assert outcome.makespan < 2.5 * outcome.bound
