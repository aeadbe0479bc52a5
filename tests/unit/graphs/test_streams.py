"""Queues for partly ordered work: nothing runs too early, no concurrency is lost, few waits and queues."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.graphs.test_order import orders, reachable

from motet.graphs.matching import match
from motet.graphs.order import bit_set, critical_path, members
from motet.graphs.streams import Assignment, assign_queues, estimate

TWO_INTO_ONE = [0, 0, 0b11]


def inception(blocks: int) -> list[int]:
    """Blocks of four branches of 1, 2, 3 and 2 pieces of work that meet in one."""
    before = [0]
    last = 0
    for _ in range(blocks):
        tails = []
        for length in (1, 2, 3, 2):
            source = last
            for _ in range(length):
                before.append(1 << source)
                source = len(before) - 1
            tails.append(source)
        before.append(bit_set(tails))
        last = len(before) - 1
    return before


def orders_of(assignment: Assignment) -> list[int]:
    """What queues and waits ask for."""
    last: dict[int, int] = {}
    before = []
    for number, (queue, waits) in enumerate(zip(assignment.queues, assignment.waits, strict=True)):
        before.append(bit_set(waits) | (1 << last[queue] if queue in last else 0))
        last[queue] = number
    return before


@given(orders())
def test_queues_and_waits_ask_for_the_order_and_no_more(before: list[int]) -> None:
    assignment = assign_queues(before, [1.0] * len(before))
    np.testing.assert_array_equal(reachable(orders_of(assignment)), reachable(before))


@given(orders(14), st.integers(1, 4))
def test_with_fewer_queues_all_that_has_to_wait_still_does(before: list[int], most: int) -> None:
    assignment = assign_queues(before, [1.0] * len(before), most)
    assert set(assignment.queues) <= set(range(most))
    assert not (reachable(before) & ~reachable(orders_of(assignment))).any()
    for number, waits in enumerate(assignment.waits):
        assert all(assignment.queues[earlier] != assignment.queues[number] for earlier in waits)


@given(orders(8))
def test_no_wait_can_be_left_out(before: list[int]) -> None:
    assignment = assign_queues(before, [1.0] * len(before), 2)
    wanted = reachable(orders_of(assignment))
    for number, waits in enumerate(assignment.waits):
        for wait in waits:
            fewer = [[w for w in ws if (n, w) != (number, wait)] for n, ws in enumerate(assignment.waits)]
            assert not np.array_equal(reachable(orders_of(Assignment(assignment.queues, fewer))), wanted)


@given(orders(7))
def test_waits_are_the_fewest_of_all_chains_of_the_reduction(before: list[int]) -> None:
    paths = reachable(before)
    reduced = paths & ~((paths.astype(int) @ paths.astype(int)) > 0)
    pairs = [tuple(map(int, pair)) for pair in np.argwhere(reduced)]
    most = 0
    for size in range(len(pairs), 0, -1):
        for chosen in itertools.combinations(pairs, size):
            if len({u for u, _ in chosen}) == size and len({v for _, v in chosen}) == size:
                most = size
                break
        if most:
            break
    waits = sum(map(len, assign_queues(before, [1.0] * len(before)).waits))
    assert waits <= len(pairs) - most


@given(orders(16))
def test_no_fewer_queues_than_work_that_may_run_at_once_and_no_more_time(before: list[int]) -> None:
    times = [1.0] * len(before)
    assignment = assign_queues(before, times)
    assert estimate(assignment, times) == critical_path(before, times)


def test_known_graphs_get_the_queues_of_their_width() -> None:
    two = assign_queues(TWO_INTO_ONE, [1.0] * 3)
    assert (two.count, sum(map(len, two.waits))) == (2, 1)
    wide = assign_queues(inception(9), [1.0] * 82)
    assert (wide.count, sum(map(len, wide.waits))) == (4, 54)


def test_work_bound_to_queues_is_on_them() -> None:
    before = [0, 0, 0, 0b111]
    allowed = [0b100, 0b010, 0, 0b100]
    assignment = assign_queues(before, [1.0] * 4, 3, allowed)
    assert [assignment.queues[n] for n in (0, 1, 3)] == [2, 1, 2]
    assert assignment.queues[2] == 0
    narrow = assign_queues([0] * 5, [1.0] * 5, 3, [0b011] * 5)
    assert set(narrow.queues) == {0, 1}
    with pytest.raises(ValueError, match=r"work 1: queues 0x8; there are 2"):
        assign_queues([0, 0, 0], [1.0] * 3, 2, [0, 0b1000, 0])


@given(st.lists(st.integers(0, 63), max_size=6))
def test_a_matching_has_as_many_pairs_as_the_best_choice(partners: list[int]) -> None:
    found = match(partners, 6)
    pairs = [v for v in found if v >= 0]
    assert len(set(pairs)) == len(pairs)
    assert all(v < 0 or partners[u] >> v & 1 for u, v in enumerate(found))

    def best(u: int, used: int) -> int:
        if u == len(partners):
            return 0
        return max([best(u + 1, used), *(1 + best(u + 1, used | 1 << v) for v in members(partners[u] & ~used))])

    assert len(pairs) == best(0, 0)


def test_long_augmenting_paths_need_no_deep_stack() -> None:
    count = 3000  # each may have its own and the next one's: greedy choices have to move along the whole row
    partners = [1 << max(0, u - 1) | 1 << u for u in range(count)]
    assert sorted(match(partners, count)) == list(range(count))


@pytest.mark.parametrize("most", [None, 8])
def test_five_thousand_pieces_of_work_take_well_under_a_second(most: int | None) -> None:
    random = np.random.default_rng(0)
    before = [bit_set(random.integers(max(0, v - 40), v, 3).tolist()) if v else 0 for v in range(5000)]
    taken: list[float] = []
    for _ in range(3):
        begin = time.process_time()
        assign_queues(before, [1.0] * 5000, most)
        taken.append(time.process_time() - begin)
    assert min(taken) < 0.8
