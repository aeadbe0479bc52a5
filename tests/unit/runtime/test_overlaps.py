"""Memory that a call writes and also uses through another tensor."""

from __future__ import annotations

import itertools
import random

import pytest

from motet.errors import CallError
from motet.runtime.overlaps import Range, check_overlaps, is_shared


def overlap(a: Range, b: Range) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def range_of(chance: random.Random) -> Range:
    begin = chance.randrange(40)
    return begin, begin + chance.choice((0, 0, 1, 2, 5))


@pytest.mark.parametrize("seed", range(400))
def test_every_pair_with_a_write_counts(seed: int):
    chance = random.Random(seed)
    reads = [range_of(chance) for _ in range(chance.randrange(5))]
    writes = [range_of(chance) for _ in range(chance.randrange(5))]
    pairs = [*itertools.product(reads, writes), *itertools.combinations(writes, 2)]
    assert is_shared(reads, writes) == any(overlap(a, b) for a, b in pairs)


def test_reads_may_share_memory():
    assert not is_shared([(0, 8), (4, 12), (0, 8)], [(12, 16)])


def test_the_first_pair_is_named():
    a, b, c = (0, 4), (4, 8), (6, 10)
    check_overlaps("main", [None, 1], [None, None], [a, b], [c, b], lambda x, y: False)
    with pytest.raises(CallError, match="main: argument 1, a destination, shares memory with result 0; give memory of"):
        check_overlaps("main", [None, 1], [None, None], [a, b], [c, b], overlap)
    with pytest.raises(CallError, match="main: out for result 0 shares memory with argument 1; give memory of its own"):
        check_overlaps("main", [None, None], [c, None], [a, b], [c, a], overlap)
    check_overlaps("main", [None, None], [None, None], [a, b], [c, a], overlap)  # new memory
