"""Commands on several streams: which wait for which."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from motet.runtime.drivers.cuda.lanes import CommandLanes, spread


def closures(after: Sequence[Sequence[int]]) -> list[set[int]]:
    """All commands that each comes after."""
    found: list[set[int]] = []
    for needed in after:
        found.append({*needed}.union(*(found[each] for each in needed)))
    return found


def as_run(after: Sequence[Sequence[int]], lanes: CommandLanes) -> list[list[int]]:
    """What each command waits for: its stream's previous one, and marked ones of other streams."""
    waits: list[list[int]] = []
    for number, needed in enumerate(after):
        others = [each for each in needed if lanes.of[each] != lanes.of[number]]
        assert lanes.marked.issuperset(others)
        previous = lanes.previous[number]
        assert previous is None or lanes.of[previous] == lanes.of[number]
        waits.append(others if previous is None else [*others, previous])
    return waits


@pytest.mark.parametrize(("after", "count", "lanes"), [
    ([(), (), (0, 1)], 4, [0, 1, 0]),
    ([(), (0,), (1,), (2,)], 4, [0, 0, 0, 0]),
    ([(), (), (), ()], 2, [0, 1, 0, 1]),
    ([(), (0,), (0,), (1, 2)], 3, [0, 0, 1, 0]),
    ([], 3, []),
])
def test_commands_are_spread_by_what_they_need(after: list[tuple[int, ...]], count: int, lanes: list[int]):
    assert spread(after, count).of == lanes


@pytest.mark.parametrize("seed", range(60))
def test_commands_wait_for_what_they_need_and_with_enough_streams_for_nothing_else(seed: int):
    chance = random.Random(seed)
    size = chance.randrange(30)
    after = [sorted(chance.sample(range(number), min(number, chance.choice((0, 1, 1, 2))))) for number in range(size)]
    exact = closures(after)
    assert closures(as_run(after, spread(after, max(1, size)))) == exact
    for count in (1, 2, 4):
        lanes = spread(after, count)
        assert all(0 <= lane < count for lane in lanes.of)
        assert all(found >= wanted for found, wanted in zip(closures(as_run(after, lanes)), exact, strict=True))
        tails = {lane: number for number, lane in enumerate(lanes.of)}
        assert sorted(lanes.last) == sorted(tail for lane, tail in tails.items() if lane)


def test_branches_that_meet_again_use_the_same_streams():
    """A command forks, and the branches meet, again and again: two streams are enough."""
    after: list[list[int]] = [[]]
    for _ in range(20):
        fork = len(after) - 1
        after += [[fork], [fork], [fork + 1, fork + 2]]
    lanes = spread(after, 16)
    assert set(lanes.of) == {0, 1}
    assert closures(as_run(after, lanes)) == closures(after)
