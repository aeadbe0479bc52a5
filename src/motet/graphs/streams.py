"""Queues for work that is partly ordered: as few waits as there can be, and no concurrency lost.

    0 → 1 → 3,  0 → 2 → 3      queue 0: 0 1 3, queue 1: 2; 2 waits for 0, 3 for 2

A queue runs its work in the order in which it is numbered; what else an order asks for is a wait for what is on
another queue. Chains of the order's transitive reduction, as few as can be, need the fewest waits; chains of which one
ends before the other begins share a queue; waits that follow from others and from the queues' own order are left out.

Source: Kwon, Yu, Jeong, Chun: "Nimble: lightweight and parallel GPU task scheduling for deep learning", NeurIPS 2020,
for the matching; the second one is of the chains' own order, as in Dilworth's theorem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.graphs.matching import match
from motet.graphs.order import members, reduce_order


@dataclass(frozen=True)
class Assignment:
    """The queue of each piece of work, and the pieces on other queues that it waits for. `count` queues are used."""

    queues: list[int]
    waits: list[list[int]]

    @property
    def count(self) -> int:
        return len(set(self.queues))


def assign_queues(
    before: Sequence[int], times: Sequence[float], most: int | None = None, allowed: Sequence[int] | None = None
) -> Assignment:
    """Queues for work with the order `before`, at most `most` of them, where given. `allowed[v]` is the set of queues
    that `v` may be on, 0 for any; `times` say what is worth waiting for where there are fewer queues than chains.

    Raises: ValueError: work that may be on none of the queues.
    """
    reduced, closure = reduce_order(before)
    masks = list(allowed) if allowed is not None else [0] * len(before)
    chains = _join_chains(_chains(reduced, masks), closure, masks)
    queues = _queues_of(chains, masks, most)
    if queues is None:
        queues = _share_queues(reduced, times, masks, most or 0)
    return Assignment(queues, find_waits(reduced, queues))


def find_waits(before: Sequence[int], queues: Sequence[int]) -> list[list[int]]:
    """What each piece of work has to wait for on other queues, the fewest: all other pairs of the order follow."""
    last: dict[int, int] = {}
    ordered: list[int] = []
    for number, (earlier, queue) in enumerate(zip(before, queues, strict=True)):
        ordered.append(earlier | 1 << last[queue] if queue in last else earlier)
        last[queue] = number
    reduced, _ = reduce_order(ordered)
    return [[m for m in members(kept) if queues[m] != queues[number]] for number, kept in enumerate(reduced)]


def estimate(assignment: Assignment, times: Sequence[float], wait: float = 0.0) -> float:
    """Seconds until all has ended, each wait for another queue costing `wait`."""
    free: dict[int, float] = {}
    ends: list[float] = []
    for number, (queue, waits) in enumerate(zip(assignment.queues, assignment.waits, strict=True)):
        begin = max([free.get(queue, 0.0), *(ends[m] for m in waits)]) + wait * len(waits)
        ends.append(begin + times[number])
        free[queue] = ends[-1]
    return max(ends, default=0.0)


def _chains(reduced: Sequence[int], masks: Sequence[int]) -> list[list[int]]:
    """The work as chains of the reduction, as few as there can be of work that may be on the same queues."""
    partners = [0] * len(reduced)
    for number, earlier in enumerate(reduced):
        for member in members(earlier):
            if masks[member] == masks[number]:
                partners[member] |= 1 << number
    return _follow(match(partners, len(reduced)))


def _join_chains(chains: list[list[int]], closure: Sequence[int], masks: Sequence[int]) -> list[list[int]]:
    """Chains one after the other where all of one is before all of the other."""
    firsts = [chain[0] for chain in chains]
    partners = [0] * len(chains)
    for number, first in enumerate(firsts):
        for other, chain in enumerate(chains):
            if closure[first] >> chain[-1] & 1 and masks[first] == masks[chain[0]]:
                partners[other] |= 1 << number
    return [[v for chain in joined for v in chains[chain]] for joined in _follow(match(partners, len(chains)))]


def _follow(following: Sequence[int]) -> list[list[int]]:
    """The chains that pairs make."""
    heads = set(range(len(following))) - set(following)
    found: list[list[int]] = []
    for head in sorted(heads):
        chain = [head]
        while following[chain[-1]] >= 0:
            chain.append(following[chain[-1]])
        found.append(chain)
    return found


def _queues_of(chains: Sequence[Sequence[int]], masks: Sequence[int], most: int | None) -> list[int] | None:
    """A queue of its own for each chain; None where there are too few."""
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
    """Each piece of work where it could begin first, and then where least has to be waited for."""
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
            # Of queues that are free in time, the one that was busy last leaves the others for what is ready earlier.
            foreign = sum(queues[m] != queue for m in sources)
            return max(ready, free[queue]), foreign, -free[queue], queue

        best = min(members(usable), key=cost)
        free[best] = max(ready, free[best]) + times[number]
        ends.append(free[best])
        queues.append(best)
    return queues
