"""Nodes stand apart, in their lanes, under what they follow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from motet.tools.report.layered import Spacing, lay_out, pool


def random_graph(seed: int, count: int, lanes: int) -> tuple[list[float], list[int], list[tuple[int, int]]]:
    random = np.random.default_rng(seed)
    edges = [
        (int(source), target)
        for target in range(1, count)
        for source in random.integers(max(0, target - 12), target, size=int(random.integers(0, 4)))
    ]
    widths = [float(width) for width in random.integers(50, 250, count)]
    return widths, [int(lane) for lane in random.integers(0, lanes, count)], edges


@pytest.mark.parametrize(("seed", "count", "lanes"), [(0, 1, 1), (1, 5, 1), (2, 37, 2), (3, 120, 3), (4, 300, 2)])
def test_nodes_do_not_overlap_and_edges_go_down(seed: int, count: int, lanes: int) -> None:
    widths, lane_of, edges = random_graph(seed, count, lanes)
    spacing = Spacing()
    layout = lay_out(widths, lane_of, edges, spacing)
    for source, target in edges:
        assert layout.tops[source] + spacing.node_height < layout.tops[target]
    rows: dict[float, list[int]] = {}
    for node, top in enumerate(layout.tops):
        rows.setdefault(top, []).append(node)
    for row in rows.values():
        row.sort(key=lambda node: layout.centres[node])
        for left, right in itertools.pairwise(row):
            gap = layout.centres[right] - layout.centres[left] - (widths[left] + widths[right]) / 2
            assert gap >= spacing.between_nodes - 1e-6, f"seed {seed}: nodes {left} and {right}"


@pytest.mark.parametrize("seed", [5, 6])
def test_lanes_hold_their_nodes_and_stand_apart(seed: int) -> None:
    widths, lane_of, edges = random_graph(seed, 60, 3)
    layout = lay_out(widths, lane_of, edges)
    for (_, right), (left, _) in itertools.pairwise(layout.lanes):
        assert right < left
    for node, lane in enumerate(lane_of):
        left, right = layout.lanes[lane]
        assert left - 1e-6 <= layout.centres[node] - widths[node] / 2
        assert layout.centres[node] + widths[node] / 2 <= right + 1e-6
    assert layout.width == layout.lanes[-1][1]


def test_routes_begin_and_end_at_their_nodes_and_never_go_up() -> None:
    widths, lane_of, edges = random_graph(7, 80, 2)
    spacing = Spacing()
    layout = lay_out(widths, lane_of, edges, spacing)
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert route[0] == (layout.centres[source], layout.tops[source] + spacing.node_height)
        assert route[-1] == (layout.centres[target], layout.tops[target])
        assert all(upper[1] <= lower[1] for upper, lower in itertools.pairwise(route))


def test_a_chain_is_a_straight_line() -> None:
    layout = lay_out([100.0] * 6, [0] * 6, [(n, n + 1) for n in range(5)])
    assert np.ptp(layout.centres) < 1e-6


def test_an_input_stands_right_above_its_first_reader() -> None:
    layout = lay_out([10.0] * 4, [0] * 4, [(0, 2), (2, 3), (1, 3)])
    tops = sorted(set(layout.tops))
    assert layout.tops[1] == tops[1]


def test_edges_that_can_be_drawn_without_crossing_are() -> None:
    # Two chains whose nodes alternate: in the order of their numbers every layer would cross the next.
    layout = lay_out([50.0] * 6, [0] * 6, [(0, 3), (1, 2), (3, 4), (2, 5)])
    assert (layout.centres[0] < layout.centres[1]) == (layout.centres[3] < layout.centres[2])
    assert (layout.centres[3] < layout.centres[2]) == (layout.centres[4] < layout.centres[5])


def test_nothing_has_no_size() -> None:
    assert lay_out([], [], []).width == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_pooling_is_the_nearest_ascending_sequence(seed: int) -> None:
    wanted = np.random.default_rng(seed).standard_normal(7)
    found = np.array(pool(list(wanted)))
    assert np.all(np.diff(found) >= -1e-12)
    # The projection onto a convex cone: no other ascending sequence is on the far side of it.
    for other in np.sort(np.random.default_rng(seed + 100).standard_normal((200, 7)), axis=1):
        assert np.dot(wanted - found, other - found) <= 1e-9
