"""The parts of a graph against their definition, by search over all paths."""

from __future__ import annotations

import random

import pytest

from motet.graphs.order import bit_set, members
from motet.graphs.parts import partition


def _paths(producers: list[int]) -> list[int]:
    """For each node, the nodes that a path leads to."""
    after = [0] * len(producers)
    for node in reversed(range(len(producers))):
        for producer in members(producers[node]):
            after[producer] |= after[node] | 1 << node
    return after


def _is_cyclic(producers: list[int], parts: list[int]) -> bool:
    """Whether a part waits for itself when each part is one node: by removing nodes that wait for nothing."""
    name = {member: part for part in parts for member in members(part)}
    waits: dict[int, set[int]] = {}
    for node, direct in enumerate(producers):
        own = name.get(node, 1 << node)
        waits.setdefault(own, set()).update(name.get(p, 1 << p) for p in members(direct))
        waits[own].discard(own)
    while waits:
        ready = [own for own, others in waits.items() if not others & waits.keys()]
        if not ready:
            return True
        for own in ready:
            del waits[own]
    return False


def _is_connected(producers: list[int], part: int) -> bool:
    reached = part & -part
    while True:
        more = reached
        for node in members(part):
            neighbours = producers[node] & part
            if reached >> node & 1:
                more |= neighbours
            elif neighbours & reached:
                more |= 1 << node
        if more == reached:
            return reached == part
        reached = more


@pytest.mark.parametrize("seed", range(150))
def test_parts_are_connected_acyclic_and_maximal(seed: int) -> None:
    chance = random.Random(seed)
    count, share = chance.randint(1, 40), chance.choice((0.2, 0.6, 0.8, 0.95))
    producers = [bit_set(chance.sample(range(v), min(v, chance.randint(0, 3)))) for v in range(count)]
    supported = bit_set(v for v in range(count) if chance.random() < share)
    parts = partition(producers, supported)
    assert sum(parts) == supported and sum(map(int.bit_count, parts)) == supported.bit_count()
    assert all(_is_connected(producers, part) for part in parts)
    assert not _is_cyclic(producers, parts)
    after = _paths(producers)
    for part in parts:  # convex: what a path leaves the part for does not lead back
        outside = bit_set(v for u in members(part) for v in members(after[u]) if not part >> v & 1)
        assert not any(after[v] & part for v in members(outside))
    for a in parts:  # maximal: two parts with an edge between them cannot be one
        for b in parts:
            if a != b and any(producers[v] & a for v in members(b)):
                assert _is_cyclic(producers, [a | b, *(part for part in parts if part not in (a, b))])


def test_an_unsupported_node_between_two_paths_divides_the_graph() -> None:
    #           0 → 1 → 2 → 3, 0 → 4 → 3, without 1: 0 and 3 in one part would wait for 1, which waits for 0
    producers = [0, 0b1, 0b10, 0b10100, 0b1]
    order = [0, 1, 2, 4, 3]  # 4 is numbered before 3, which reads it
    renamed = [bit_set(order.index(p) for p in members(producers[node])) for node in order]
    assert partition(renamed, 0b11101) == [0b01001, 0b10100] or partition(renamed, 0b11101) == [0b00001, 0b11100]


def test_parts_are_in_an_executable_order() -> None:
    producers = [0, 0b1, 0b10, 0b100, 0b1000]
    assert partition(producers, 0b11011) == [0b00011, 0b11000]


def test_a_branch_of_an_early_number_joins_the_part_that_reads_it() -> None:
    # 0 (unsupported) → 1 → 2; 3 reads nothing and is read by 2 alone
    producers = [0, 0b1, 0, 0b110]
    assert partition(producers, 0b1110) == [0b1110]


def test_a_graph_without_supported_nodes_has_no_parts() -> None:
    assert partition([0, 0b1], 0) == []
    assert partition([], 0) == []
