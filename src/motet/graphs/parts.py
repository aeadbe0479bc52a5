"""Divides an acyclic graph into the largest parts that one compiled function can replace.

    a → b → c → d          supported: a, c, d, e      parts: {a}, {c, d, e} or {a, e}, {c, d}
     ↘        ↗
        e                  never {a, c, d, e}: b would wait for the part, and the part for b

A part is connected and convex: no path leaves it and returns. All parts together leave the graph acyclic. Nodes are
numbered in an executable order; sets of nodes are bit sets (`motet.graphs.order`).

First, each supported node gets the number of alternations between unsupported and supported nodes on a path to it.
Connected nodes of one number form a part, which is convex because the number only grows along a path. Then parts that
an edge connects are merged, large ones first, as long as no other path leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.graphs.order import bit_set, members


def partition(producers: Sequence[int], supported: int) -> list[int]:
    """The parts of the nodes `supported`, in an executable order. `producers[v]` is the set of nodes whose results `v`
    reads, all smaller than `v`."""
    parts = _components(producers, supported, _alternations(producers, supported))
    while (merged := _merge_two(producers, parts)) is not None:
        parts = merged
    return _ordered(producers, parts)


def _alternations(producers: Sequence[int], supported: int) -> list[int]:
    """For each node, how often a path to it goes from an unsupported to a supported node, at most."""
    numbers: list[int] = []
    for node, direct in enumerate(producers):
        is_supported = supported >> node & 1
        numbers.append(max(
            (numbers[p] + (1 if is_supported and not supported >> p & 1 else 0) for p in members(direct)), default=0
        ))
    return numbers


def _components(producers: Sequence[int], supported: int, numbers: Sequence[int]) -> list[int]:
    """The connected sets of supported nodes of equal numbers."""
    part_of: dict[int, int] = {}
    for node in members(supported):
        joined = {p for p in members(producers[node] & supported) if numbers[p] == numbers[node]}
        whole = bit_set([node])
        for part in {part_of[p] for p in joined}:
            whole |= part
        for member in members(whole):
            part_of[member] = whole
    return sorted(set(part_of.values()))


def _merge_two(producers: Sequence[int], parts: Sequence[int]) -> list[int] | None:
    """The parts with two of them merged, the largest possible; None if no two can be merged."""
    consumers, order = _quotient(producers, parts)
    reached = [0] * len(consumers)
    for number in reversed(order):
        for consumer in members(consumers[number]):
            reached[number] |= reached[consumer] | 1 << consumer
    size = [part.bit_count() for part in parts]
    pairs = [(size[a] + size[b], a, b) for a in range(len(parts)) for b in members(consumers[a]) if b < len(parts)]
    for _, first, second in sorted(pairs, key=lambda pair: (-pair[0], pair[1:])):
        others = members(consumers[first] & ~(1 << second))
        if not any(reached[other] >> second & 1 for other in others):
            rest = [part for number, part in enumerate(parts) if number not in (first, second)]
            return [parts[first] | parts[second], *rest]
    return None


def _quotient(producers: Sequence[int], parts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The graph whose nodes are the parts, then the nodes outside parts: the consumers of each, and an executable
    order. Raises ValueError if the parts make a cycle."""
    number = {member: index for index, part in enumerate(parts) for member in members(part)}
    for node in range(len(producers)):
        number.setdefault(node, len(parts) + node)
    numbers = sorted(set(number.values()))
    dense = {old: new for new, old in enumerate(numbers)}
    consumers, waits = [0] * len(numbers), [0] * len(numbers)
    for node, direct in enumerate(producers):
        own = dense[number[node]]
        for producer in members(direct):
            other = dense[number[producer]]
            if other != own:
                consumers[other] |= 1 << own
                waits[own] |= 1 << other
    order: list[int] = []
    ready = [index for index, wait in enumerate(waits) if not wait]
    while ready:
        index = ready.pop()
        order.append(index)
        for consumer in members(consumers[index]):
            waits[consumer] &= ~(1 << index)
            if not waits[consumer]:
                ready.append(consumer)
    if len(order) != len(numbers):
        raise ValueError("the parts make a cycle")
    return consumers, order


def _ordered(producers: Sequence[int], parts: list[int]) -> list[int]:
    _, order = _quotient(producers, parts)
    return [parts[index] for index in order if index < len(parts)]
