"""Partial orders: reduction, closure and slack, against their definitions."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.graphs.order import (
    bit_set,
    close_order,
    critical_path,
    in_order,
    members,
    reduce_order,
    slacks,
)


@st.composite
def orders(draw: st.DrawFn, most: int = 24) -> list[int]:
    count = draw(st.integers(0, most))
    return [bit_set(draw(st.sets(st.integers(0, v - 1), max_size=5))) if v else 0 for v in range(count)]


def reachable(before: list[int]) -> np.ndarray:
    """[u, v]: a path from u to v; by repeated squaring."""
    count = len(before)
    paths = np.array([[before[v] >> u & 1 for v in range(count)] for u in range(count)], bool).reshape(count, count)
    for _ in range(count.bit_length()):
        paths |= (paths.astype(int) @ paths.astype(int)) > 0
    return paths


@given(orders())
def test_the_closure_is_what_paths_reach(before: list[int]) -> None:
    paths = reachable(before)
    assert close_order(before) == [bit_set(np.nonzero(paths[:, v])[0].tolist()) for v in range(len(before))]


@given(orders())
def test_the_reduction_has_the_pairs_that_no_third_one_implies(before: list[int]) -> None:
    paths = reachable(before)
    through = (paths.astype(int) @ paths.astype(int)) > 0
    expected = paths & ~through
    assert reduce_order(before)[0] == [bit_set(np.nonzero(expected[:, v])[0].tolist()) for v in range(len(before))]


@given(orders(12), st.data())
def test_slack_is_how_much_longer_work_may_take_before_all_does(before: list[int], data: st.DataObject) -> None:
    times = [float(data.draw(st.integers(1, 9))) for _ in before]
    whole = critical_path(before, times)
    for number, slack in enumerate(slacks(before, times)):
        longer = [time + slack * (n == number) for n, time in enumerate(times)]
        later = [time + (slack + 1) * (n == number) for n, time in enumerate(times)]
        assert critical_path(before, longer) == whole < critical_path(before, later)


def test_members_come_in_order() -> None:
    assert list(members(bit_set([70, 3, 0, 1000]))) == [0, 3, 70, 1000]


@pytest.mark.parametrize("fan", [2, 40])
def test_five_thousand_nodes_take_well_under_a_second(fan: int) -> None:
    random = np.random.default_rng(fan)
    before = [bit_set(random.integers(0, v, fan).tolist()) if v else 0 for v in range(5000)]
    taken: list[float] = []
    for _ in range(3):
        begin = time.process_time()
        reduced, _ = reduce_order(before)
        taken.append(time.process_time() - begin)
        assert all(after for after in reduced[1:])
    assert min(taken) < 0.5


@given(orders())
def test_numbers_come_after_what_they_need_and_else_by_their_keys(before: list[int]) -> None:
    needs = [set(members(earlier)) for earlier in before]
    keys = [-number % 3 for number in range(len(before))]
    left, wanted = set(range(len(before))), []
    while left:  # the definition, one after the other
        ready = [number for number in left if not needs[number] & left]
        wanted.append(min(ready, key=lambda number: (keys[number], number)))
        left.remove(wanted[-1])
    assert in_order(needs, keys) == wanted


def test_numbers_that_wait_for_one_another_have_no_order() -> None:
    with pytest.raises(ValueError, match="wait for one another"):
        in_order([{1}, {0}, set()], [0, 1, 2])
