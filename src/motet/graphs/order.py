"""Partial orders over numbered work, as bit sets.

Work is numbered in an executable order. `before[v]` has the bit `1 << u` for every `u` that must end before `v` begins;
each is smaller than `v`. A set is one integer, so that unions and tests cost a word per 64 members.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any


def bit_set(members: Iterable[int]) -> int:
    """The set of `members`."""
    result = 0
    for member in members:
        result |= 1 << member
    return result


def members(bits: int) -> Iterator[int]:
    """The members of a set, smallest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def reduce_order(before: Sequence[int]) -> tuple[list[int], list[int]]:
    """The transitive reduction of an order, the fewest pairs that imply all, and its closure. Takes one step for each
    pair of the reduction.

    Source: Aho, Garey, Ullman: "The transitive reduction of a directed graph", SIAM J. Computing 1(2), 1972.
    """
    reduced: list[int] = []
    closure: list[int] = []
    for direct in before:
        kept = implied = 0
        left = direct
        while left:
            last = left.bit_length() - 1  # no remaining member can be after it
            kept |= 1 << last
            implied |= closure[last] | 1 << last
            left &= ~implied
        reduced.append(kept)
        closure.append(implied)
    return reduced, closure


def close_order(before: Sequence[int]) -> list[int]:
    """The transitive closure: all work that must end before each."""
    return reduce_order(before)[1]


def reverse_order(before: Sequence[int]) -> list[int]:
    """The reverse of an order: `after[u]` has the bit of `v` if `before[v]` has that of `u`."""
    after = [0] * len(before)
    for number, earlier in enumerate(before):
        for member in members(earlier):
            after[member] |= 1 << number
    return after


def slacks(before: Sequence[int], times: Sequence[float]) -> list[float]:
    """By how much each piece of work could be delayed without delaying the end of all, with unlimited concurrency; 0 on
    critical paths."""
    begins = [0.0] * len(before)
    for number, earlier in enumerate(before):
        begins[number] = max((begins[m] + times[m] for m in members(earlier)), default=0.0)
    end = critical_path(before, times)
    tails = [0.0] * len(before)  # seconds from the end of each to the end of all
    for number in range(len(before) - 1, -1, -1):
        for member in members(before[number]):
            tails[member] = max(tails[member], times[number] + tails[number])
    return [end - begins[n] - times[n] - tails[n] for n in range(len(before))]


def critical_path(before: Sequence[int], times: Sequence[float]) -> float:
    """The total time with unlimited concurrency."""
    ends: list[float] = []
    for number, earlier in enumerate(before):
        ends.append(times[number] + max((ends[m] for m in members(earlier)), default=0.0))
    return max(ends, default=0.0)


def in_order(needs: Sequence[Collection[int]], keys: Sequence[Any]) -> list[int]:
    """A topological order: every number after those that it needs, and among ready ones the least key first, then the
    least number. Raises ValueError for a cycle."""
    readers: list[list[int]] = [[] for _ in needs]
    for number, sources in enumerate(needs):
        for source in sources:
            readers[source].append(number)
    missing = [len(sources) for sources in needs]
    heap = [(keys[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        _, number = heapq.heappop(heap)
        found.append(number)
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(heap, (keys[reader], reader))
    if len(found) < len(needs):
        raise ValueError("some wait for one another")
    return found
