"""Assigns partially ordered work to queues with the fewest waits and without loss of concurrency.

    0 → 1 → 3,  0 → 2 → 3      queue 0: 0 1 3, queue 1: 2; 2 waits for 0, 3 for 2

A queue runs its work in numerical order; other dependences become waits for work on other queues. A minimum cover by
chains of the order's transitive reduction needs the fewest waits. Chains of which one ends before the other begins
share a queue; waits implied by other waits and by the queues' own order are omitted.

Source: Kwon, Yu, Jeong, Chun: "Nimble: lightweight and parallel GPU task scheduling for deep learning", NeurIPS 2020,
for the matching; the second matching is on the order of chains, as in Dilworth's theorem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.graphs.matching import match
from motet.graphs.order import members, reduce_order


@dataclass(frozen=True)
class Assignment:
    """The queue of each piece of work, and the pieces on other queues for which it waits. `count` queues are used."""

    queues: list[int]
    waits: list[list[int]]

    @property
    def count(self) -> int:
        return len(set(self.queues))


def assign_queues(
    before: Sequence[int], times: Sequence[float], most: int | None = None, allowed: Sequence[int] | None = None
) -> Assignment:
    """Assign work with the order `before` to at most `most` queues, if given. `allowed[v]` is the set of queues for
    `v`, 0 for any; `times` are used to share queues if there are fewer than chains.

    Raises: ValueError for work that is allowed on none of the queues.
    """
    reduced, closure = reduce_order(before)
    masks = list(allowed) if allowed is not None else [0] * len(before)
    chains = _join_chains(_chains(reduced, masks), closure, masks)
    queues = _queues_of(chains, masks, most)
    if queues is None:
        queues = _share_queues(reduced, times, masks, most or 0)
    return Assignment(queues, find_waits(reduced, queues))


def find_waits(before: Sequence[int], queues: Sequence[int]) -> list[list[int]]:
    """The fewest waits of each piece of work for other queues that imply all pairs of the order."""
    last: dict[int, int] = {}
    ordered: list[int] = []
    for number, (earlier, queue) in enumerate(zip(before, queues, strict=True)):
        ordered.append(earlier | 1 << last[queue] if queue in last else earlier)
        last[queue] = number
    reduced, _ = reduce_order(ordered)
    return [[m for m in members(kept) if queues[m] != queues[number]] for number, kept in enumerate(reduced)]


def estimate(assignment: Assignment, times: Sequence[float], wait: float = 0.0) -> float:
    """The seconds until all work has ended, if each wait for another queue costs `wait`."""
    free: dict[int, float] = {}
    ends: list[float] = []
    for number, (queue, waits) in enumerate(zip(assignment.queues, assignment.waits, strict=True)):
        begin = max([free.get(queue, 0.0), *(ends[m] for m in waits)]) + wait * len(waits)
        ends.append(begin + times[number])
        free[queue] = ends[-1]
    return max(ends, default=0.0)


def _chains(reduced: Sequence[int], masks: Sequence[int]) -> list[list[int]]:
    """The work as a minimum number of chains of the reduction, each of work allowed on the same queues."""
    partners = [0] * len(reduced)
    for number, earlier in enumerate(reduced):
        for member in members(earlier):
            if masks[member] == masks[number]:
                partners[member] |= 1 << number
    return _follow(match(partners, len(reduced)))


def _join_chains(chains: list[list[int]], closure: Sequence[int], masks: Sequence[int]) -> list[list[int]]:
    """Concatenate chains if all of one is before all of the other."""
    firsts = [chain[0] for chain in chains]
    partners = [0] * len(chains)
    for number, first in enumerate(firsts):
        for other, chain in enumerate(chains):
            if closure[first] >> chain[-1] & 1 and masks[first] == masks[chain[0]]:
                partners[other] |= 1 << number
    return [[v for chain in sequence for v in chains[chain]] for sequence in _follow(match(partners, len(chains)))]


def _follow(following: Sequence[int]) -> list[list[int]]:
    """The chains formed by pairs."""
    heads = set(range(len(following))) - set(following)
    found: list[list[int]] = []
    for head in sorted(heads):
        chain = [head]
        while following[chain[-1]] >= 0:
            chain.append(following[chain[-1]])
        found.append(chain)
    return found


def _queues_of(chains: Sequence[Sequence[int]], masks: Sequence[int], most: int | None) -> list[int] | None:
    """A separate queue for each chain; None if there are too few."""
    widest = max((mask.bit_length() for mask in masks), default=0)
    count = most if most is not None else max(widest, 0) + len(chains)
    there = (1 << count) - 1
    own = match([there & (masks[chain[0]] or there) for chain in chains], count)
    if any(queue < 0 for queue in own):
        return None
    queues = [0] * sum(map(len, chains))
    for chain, queue in zip(chains, own, strict=True):
        for member in chain:
            queues[member] = queue
    return queues


def _share_queues(reduced: Sequence[int], times: Sequence[float], masks: Sequence[int], most: int) -> list[int]:
    """Put each piece of work on the queue where it can begin first, and among those where it needs the fewest waits."""
    there = (1 << most) - 1
    free = [0.0] * most
    ends: list[float] = []
    queues: list[int] = []
    for number, earlier in enumerate(reduced):
        usable = masks[number] & there if masks[number] else there
        if not usable:
            raise ValueError(f"work {number}: queues {masks[number]:#x}; there are {most}")
        sources = list(members(earlier))
        ready = max((ends[m] for m in sources), default=0.0)

        def cost(queue: int, ready: float = ready, sources: list[int] = sources) -> tuple[float, int, float, int]:
            # Of queues that are free in time, take the one that was busy last: the others remain for work that is ready
            # earlier.
            foreign = sum(queues[m] != queue for m in sources)
            return max(ready, free[queue]), foreign, -free[queue], queue

        best = min(members(usable), key=cost)
        free[best] = max(ready, free[best]) + times[number]
        ends.append(free[best])
        queues.append(best)
    return queues
