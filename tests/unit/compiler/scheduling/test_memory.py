"""Memory plans over orders of commands: nothing in use at once overlaps, little is wasted, concurrency costs little."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.graphs.test_order import orders, reachable

from motet.artifact.expressions import evaluate
from motet.artifact.schema import Expr
from motet.compiler.scheduling.concurrency import GROWTH, SMALL, plan_concurrent
from motet.compiler.scheduling.memory import BufferLifetime, MemoryPlan, lower_bound, needed_at_once, plan_memory
from motet.errors import CompileError
from motet.graphs.order import bit_set, close_order, members


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[BufferLifetime]]:
    """An order, and buffers written by a command and read by some that have to wait for it."""
    before = draw(orders(16))
    paths = reachable(before)
    lives = []
    for writer in range(len(before)):
        readers = np.nonzero(paths[writer])[0].tolist()
        chosen = draw(st.sets(st.sampled_from(readers), max_size=3)) if readers else set()
        lives.append(BufferLifetime(draw(st.integers(0, 500)), bit_set({writer, *chosen})))
    return before, lives


def ordered(before: list[int], first: BufferLifetime, second: BufferLifetime) -> bool:
    """By the definition: every command of one is before the first of the other."""
    paths = reachable(before)
    return any(
        all(paths[use, other.first] for use in members(one.uses)) for one, other in ((first, second), (second, first))
    )


def extent(plan: MemoryPlan, lives: list[BufferLifetime], number: int) -> tuple[int, int]:
    begin = int(str(plan.offsets[number]))
    return begin, begin + int(str(lives[number].bytes))


@given(programs())
def test_buffers_share_bytes_only_where_the_order_separates_them(
    program: tuple[list[int], list[BufferLifetime]]
) -> None:
    before, lives = program
    plan = plan_memory(lives, close_order(before))
    for a in range(len(lives)):
        begin, end = extent(plan, lives, a)
        assert begin % 64 == 0 and end <= int(str(plan.total))
        for b in range(a):
            other_begin, other_end = extent(plan, lives, b)
            if max(begin, other_begin) < min(end, other_end):
                assert ordered(before, lives[a], lives[b])


@given(programs())
def test_what_is_needed_at_once_is_what_no_order_separates(program: tuple[list[int], list[BufferLifetime]]) -> None:
    before, lives = program
    if not lives:
        return
    found = needed_at_once(lives, close_order(before))
    for a in range(len(lives)):
        for b in range(len(lives)):
            assert a == b or found[a, b] == (not ordered(before, lives[a], lives[b]))


@given(programs())
def test_one_after_the_other_is_the_order_of_the_list(program: tuple[list[int], list[BufferLifetime]]) -> None:
    before, lives = program
    if not lives:
        return
    total = [bit_set(range(number)) for number in range(len(before))]
    np.testing.assert_array_equal(needed_at_once(lives), needed_at_once(lives, total))
    alive = [
        sum(-(-int(str(life.bytes)) // 64) * 64 for life in lives if life.first <= moment <= life.last)
        for moment in range(len(before))
    ]
    assert lower_bound(lives) == max(alive) <= int(str(plan_memory(lives).total))


@given(programs(), st.sampled_from([None, 1, 1.1, 3]))
def test_concurrency_costs_no_more_than_it_may(
    program: tuple[list[int], list[BufferLifetime]], factor: float | None
) -> None:
    before, small = program
    lives = [BufferLifetime(int(str(life.bytes)) * SMALL, life.uses) for life in small]
    serial = int(str(plan_memory(lives).total))
    limit = None if factor is None else int(serial * factor)
    memory = plan_concurrent(before, [1.0] * len(before), [False] * len(before), lives, limit)
    assert memory.serial == serial and memory.least is not None
    assert int(str(memory.plan.total)) <= max(serial, GROWTH * memory.least if limit is None else limit)


@given(programs())
def test_a_small_arena_keeps_all_concurrency(program: tuple[list[int], list[BufferLifetime]]) -> None:
    before, lives = program  # 8 KiB at most
    memory = plan_concurrent(before, [1.0] * len(before), [False] * len(before), lives)
    assert memory.plan.total == plan_memory(lives, close_order(before)).total


def test_branches_share_memory_only_where_there_is_too_little() -> None:
    # a: 0 → 1 → 2, b: 3 → 4 → 5, joined by 6; 0 and 3 are far smaller than what they make in between.
    unit = SMALL // 8
    before = [0, 1 << 0, 1 << 1, 0, 1 << 3, 1 << 4, 1 << 2 | 1 << 5]
    lives = [
        BufferLifetime(unit, bit_set([0, 1])), BufferLifetime(
            10 * unit, bit_set([1, 2])
        ), BufferLifetime(unit, bit_set([2, 6])),
        BufferLifetime(unit, bit_set([3, 4])), BufferLifetime(
            10 * unit, bit_set([4, 5])
        ), BufferLifetime(unit, bit_set([5, 6])),
    ]
    times, fills = [1.0] * 7, [False] * 7

    def shares(limit: int | None, full: list[bool] = fills) -> bool:
        plan = plan_concurrent(before, times, full, lives, limit).plan
        (a, a_end), (b, b_end) = extent(plan, lives, 1), extent(plan, lives, 4)
        return max(a, b) < min(a_end, b_end)

    assert shares(None)
    assert not shares(32 * unit)
    # What fills a machine anyway does not take memory to run at once.
    assert shares(32 * unit, [True] * 7)
    least = 12 * unit
    with pytest.raises(CompileError, match=rf"takes {least} bytes at least.*expected memory-limit={least} or more"):
        shares(least - 1)
    assert shares(least)  # at command 4: what it makes, what it reads, and the result of 2


def test_slack_is_spent_before_the_critical_path_is() -> None:
    # A long chain 0 → … → 4, and two short pieces of work beside it, 5 and 6, joined by 7.
    before = [0, *(1 << n for n in range(4)), 0, 0, bit_set([4, 5, 6])]
    lives = [BufferLifetime(SMALL, bit_set([n, n + 1])) for n in range(4)]
    lives += [
        BufferLifetime(SMALL, bit_set([4, 7])), BufferLifetime(SMALL, bit_set([5, 7])),
        BufferLifetime(SMALL, bit_set([6, 7]))
    ]
    # Workspaces that only 5 and 6 use: together they are what is too large.
    lives += [BufferLifetime(4 * SMALL, bit_set([5])), BufferLifetime(4 * SMALL, bit_set([6]))]
    memory = plan_concurrent(before, [9.0] * 5 + [1.0] * 3, [False] * 8, lives)
    assert memory.serial is not None
    assert int(str(memory.plan.total)) <= GROWTH * memory.serial
    assert memory.plan.offsets[7] == memory.plan.offsets[8]


@given(programs(), st.integers(0, 3))
def test_slots_of_extents_with_symbols_hold_all_their_buffers(
    program: tuple[list[int], list[BufferLifetime]], n: int
) -> None:
    before, lives = program
    sizes: list[Expr] = [["*", "n", int(str(life.bytes))] if k % 3 else life.bytes for k, life in enumerate(lives)]
    symbolic = [BufferLifetime(size, life.uses) for size, life in zip(sizes, lives, strict=True)]
    plan = plan_memory(symbolic, close_order(before))
    symbols = {"n": 37 * n}

    def at(expression: Expr) -> int:
        return evaluate(expression, symbols)

    extents = [(at(o), at(o) + at(life.bytes)) for o, life in zip(plan.offsets, symbolic, strict=True)]
    assert all(begin % 64 == 0 and end <= at(plan.total) for begin, end in extents)
    for a in range(len(lives)):
        for b in range(a):
            if max(extents[a][0], extents[b][0]) < min(extents[a][1], extents[b][1]):
                assert ordered(before, lives[a], lives[b])


@pytest.mark.parametrize("count", [1000, 5000])
def test_plans_of_thousands_of_buffers_are_made_in_time(count: int) -> None:
    random = np.random.default_rng(0)
    before = [bit_set(random.integers(max(0, v - 20), v, 2).tolist()) if v else 0 for v in range(count)]
    uses: list[list[int]] = [[v] for v in range(count)]
    for v in range(1, count):
        for source in members(before[v]):
            uses[source].append(v)
    lives = [BufferLifetime(int(random.integers(1, 1 << 20)), bit_set(u)) for u in uses]
    begin = time.process_time()
    memory = plan_concurrent(before, [1.0] * count, [False] * count, lives)
    assert time.process_time() - begin < count / 300
    assert memory.least is not None and int(str(memory.plan.total)) <= 1.3 * memory.least


def test_sizes_of_many_symbols_stay_shallow() -> None:
    lives = [BufferLifetime(f"n{number}", 0b11 << number % 7) for number in range(200)]
    plan = plan_memory(lives)
    assert max(map(_depth, [plan.total, *plan.offsets])) < 24
    values = {f"n{number}": number for number in range(200)}
    ends = [evaluate(offset, values) + number for number, offset in enumerate(plan.offsets)]
    assert evaluate(plan.total, values) >= max(ends)


def _depth(expression: Expr) -> int:
    return 1 + max(map(_depth, expression[1:])) if isinstance(expression, list) else 0
