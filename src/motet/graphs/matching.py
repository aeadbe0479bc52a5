"""Maximum bipartite matchings.

Source: Hopcroft, Karp: "An n^(5/2) algorithm for maximum matchings in bipartite graphs", SIAM J. Computing 2(4), 1973.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.graphs.order import members


def match(partners: Sequence[int], count: int) -> list[int]:
    """For each member of the left side, its partner among the `count` of the right side, or -1. The matching is
    maximum; `partners[u]` is the set of possible partners of `u`."""
    own = [-1] * len(partners)
    taken_by = [-1] * count
    free = (1 << count) - 1
    while True:
        layers = _layers(partners, own, taken_by, free)
        if not layers:
            return own
        for start in range(len(partners)):
            if own[start] < 0:
                end = _augment(start, partners, own, taken_by, layers)
                if end >= 0:
                    free &= ~(1 << end)


def _layers(partners: Sequence[int], own: Sequence[int], taken_by: Sequence[int], free: int) -> list[int]:
    """The right side by distance from unmatched members of the left, up to the first layer with free members; empty if
    none is reachable."""
    frontier = [u for u, partner in enumerate(own) if partner < 0]
    unseen = (1 << len(taken_by)) - 1
    layers: list[int] = []
    while frontier:
        layer = 0
        for u in frontier:
            layer |= partners[u]
        layer &= unseen
        unseen &= ~layer
        layers.append(layer)
        if layer & free:
            layers[-1] &= free
            return layers
        frontier = [taken_by[v] for v in members(layer)]
    return []


def _augment(
    start: int, partners: Sequence[int], own: list[int], taken_by: list[int], layers: list[int]
) -> int:
    """Find an augmenting path from `start` through the layers and flip its pairs; returns its free end, -1 if there is
    none. Visited members leave their layer, so that a search visits each member once."""
    path: list[tuple[int, int]] = []  # members of the left, and the partner that each would get
    u = start
    while True:
        depth = len(path)
        candidates = partners[u] & layers[depth] if depth < len(layers) else 0
        if candidates:
            lowest = candidates & -candidates
            layers[depth] ^= lowest
            v = lowest.bit_length() - 1
            path.append((u, v))
            if depth == len(layers) - 1:
                for left, right in path:
                    own[left], taken_by[right] = right, left
                return v
            u = taken_by[v]
        elif path:
            u, _ = path.pop()
        else:
            return -1
