"""Places the nodes of a directed graph in layers, top to bottom, and in lanes, left to right.

Layers are longest paths; an edge that spans several layers runs through a point in each, shared by the edges of one
source. The order within a layer is determined by barycentres in several sweeps. Coordinates are the least-squares fit
to those of the neighbours that keeps the order and the gaps, computed exactly by pooling adjacent violators.

Sources: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981;
Barlow et al., "Statistical inference under order restrictions", 1972 (pooling).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SWEEPS = 12
_STRAIGHTENINGS = 24
_GRAVITY = 0.12  # the weight of the lane's middle relative to a neighbour
_BEND = 10.0  # the width of a point of a long edge


@dataclass(frozen=True)
class Spacing:
    """Gaps in pixels: between nodes of a layer, between layers, between lanes."""

    node_height: float = 40.0
    between_nodes: float = 24.0
    between_layers: float = 44.0
    between_lanes: float = 56.0
    least_lane: float = 0.0


Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """`centres` and `tops` of the nodes; for each edge the points that it runs through, from bottom to top; the left
    and right ends of each lane; the total size."""

    centres: list[float]
    tops: list[float]
    routes: list[list[Point]]
    lanes: list[Point]
    width: float
    height: float


def lay_out(
    widths: Sequence[float], lanes: Sequence[int], edges: Sequence[tuple[int, int]], spacing: Spacing | None = None
) -> Layout:
    """The layout of nodes with `widths`, each in a lane (numbered from 0). Nodes must be numbered such that every edge
    goes from a lower number to a higher one. Edges may be repeated."""
    return _Layouter(widths, lanes, edges, spacing or Spacing()).run()


@dataclass
class _Layouter:
    widths: Sequence[float]
    lane_of: Sequence[int]
    edges: Sequence[tuple[int, int]]
    spacing: Spacing
    # For nodes, then for the points of long edges:
    layer: list[int] = field(default_factory=list[int])
    width: list[float] = field(default_factory=list[float])
    lane: list[int] = field(default_factory=list[int])
    above: list[list[int]] = field(default_factory=list[list[int]])
    below: list[list[int]] = field(default_factory=list[list[int]])
    x: list[float] = field(default_factory=list[float])
    rows: list[list[int]] = field(default_factory=list[list[int]])

    def run(self) -> Layout:
        self.layer = _layers(len(self.widths), self.edges)
        self.width, self.lane = list(self.widths), list(self.lane_of)
        self.above = [[] for _ in self.widths]
        self.below = [[] for _ in self.widths]
        chains = [self._chain(source, target) for source, target in dict.fromkeys(self.edges)]
        by_edge = dict(zip(dict.fromkeys(self.edges), chains, strict=True))
        self.rows = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for node, layer in enumerate(self.layer):
            self.rows[layer].append(node)
        self._order()
        self._straighten()
        extents = self._separate_lanes()
        return self._result(by_edge, extents)

    # -- points of long edges --------------------------------------------------------------------

    def _chain(self, source: int, target: int) -> list[int]:
        chain = [source]
        for layer in range(self.layer[source] + 1, self.layer[target]):
            point = self._points.get((source, layer))
            if point is None:
                point = self._points[source, layer] = self._new_point(source, layer)
                self._join(chain[-1], point)
            chain.append(point)
        chain.append(target)
        self._join(chain[-2], target)
        return chain

    _points: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def _new_point(self, source: int, layer: int) -> int:
        self.layer.append(layer)
        self.width.append(_BEND)
        self.lane.append(self.lane[source])
        self.above.append([])
        self.below.append([])
        return len(self.layer) - 1

    def _join(self, upper: int, lower: int) -> None:
        if lower not in self.below[upper]:
            self.below[upper].append(lower)
            self.above[lower].append(upper)

    # -- order -----------------------------------------------------------------------------------

    def _order(self) -> None:
        for row in self.rows:
            row.sort(key=lambda node: (self.lane[node], node))
        best, least = [list(row) for row in self.rows], self._crossings()
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for number in range(1, len(self.rows)) if down else range(len(self.rows) - 2, -1, -1):
                fixed = self.rows[number - 1 if down else number + 1]
                place = {node: index for index, node in enumerate(fixed)}
                self._sort(self.rows[number], self.above if down else self.below, place)
            crossings = self._crossings()
            if crossings < least:
                best, least = [list(row) for row in self.rows], crossings
        self.rows = best

    def _sort(self, row: list[int], neighbours: Sequence[Sequence[int]], place: Mapping[int, int]) -> None:
        centre = {
            node: sum(place[other] for other in neighbours[node]) / len(neighbours[node])
            if neighbours[node] else float(index)
            for index, node in enumerate(row)
        }
        row.sort(key=lambda node: (self.lane[node], centre[node]))

    def _crossings(self) -> int:
        total = 0
        for upper, lower in zip(self.rows, self.rows[1:], strict=False):
            place = {node: index for index, node in enumerate(lower)}
            ends = [place[end] for node in upper for end in sorted(self.below[node], key=place.__getitem__)]
            total += _inversions(ends)
        return total

    # -- coordinates -----------------------------------------------------------------------------

    def _straighten(self) -> None:
        self.x = [0.0] * len(self.layer)
        for row in self.rows:
            self._place(row, [0.0] * len(row))
        for turn in range(_STRAIGHTENINGS):
            sides = (self.above,) if turn % 3 == 0 else (self.below,) if turn % 3 == 1 else (self.above, self.below)
            rows = self.rows if turn % 2 == 0 else self.rows[::-1]
            for row in rows:
                self._place(row, [self._wanted(node, sides) for node in row])

    def _wanted(self, node: int, sides: Sequence[Sequence[Sequence[int]]]) -> float:
        """The mean of the neighbours' coordinates, attracted to the middle of the lane (0); a segment between two
        points of one edge has more weight."""
        total, weight = 0.0, _GRAVITY
        for side in sides:
            for other in side[node]:
                if self.lane[other] == self.lane[node]:
                    own = 4.0 if other >= len(self.widths) and node >= len(self.widths) else 1.0
                    total += own * self.x[other]
                    weight += own
        return total / weight if weight > _GRAVITY else self.x[node]

    def _place(self, row: Sequence[int], wanted: Sequence[float]) -> None:
        """Places the nodes of one layer as close as possible to the wanted coordinates, lane by lane."""
        for lane in {self.lane[node] for node in row}:
            chosen = [index for index, node in enumerate(row) if self.lane[node] == lane]
            offsets = [0.0]
            for left, right in itertools.pairwise(chosen):
                half = (self.width[row[left]] + self.width[row[right]]) / 2
                offsets.append(offsets[-1] + half + self.spacing.between_nodes)
            values = pool([wanted[index] - offset for index, offset in zip(chosen, offsets, strict=True)])
            for index, value, offset in zip(chosen, values, offsets, strict=True):
                self.x[row[index]] = value + offset

    def _separate_lanes(self) -> list[Point]:
        extents: list[Point] = []
        left = 0.0
        for lane in range(max(self.lane, default=-1) + 1):
            nodes = [node for node, own in enumerate(self.lane) if own == lane]
            low = min((self.x[node] - self.width[node] / 2 for node in nodes), default=0.0)
            high = max((self.x[node] + self.width[node] / 2 for node in nodes), default=0.0)
            size = max(high - low, self.spacing.least_lane)
            shift = left - low + (size - (high - low)) / 2
            for node in nodes:
                self.x[node] += shift
            extents.append((left, left + size))
            left += size + self.spacing.between_lanes
        return extents

    def _result(self, chains: Mapping[tuple[int, int], Sequence[int]], extents: list[Point]) -> Layout:
        height = self.spacing.node_height
        tops = [layer * (height + self.spacing.between_layers) for layer in self.layer]
        routes: list[list[Point]] = []
        for edge in self.edges:
            first, *inner, last = chains[edge]
            route = [(self.x[first], tops[first] + height)]
            for point in inner:
                route += [(self.x[point], tops[point]), (self.x[point], tops[point] + height)]
            routes.append([*route, (self.x[last], tops[last])])
        count = len(self.widths)
        return Layout(
            self.x[:count], tops[:count], routes, extents, extents[-1][1] if extents else 0.0,
            max(tops, default=-height) + height,
        )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The length of the longest path to each node; a source node is moved to the layer above its first successor."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        sources[target].append(source)
        targets[source].append(target)
    layer = [0] * count
    for node in range(count):
        layer[node] = max((layer[source] + 1 for source in sources[node]), default=0)
    for node in range(count - 1, -1, -1):
        if not sources[node] and targets[node]:
            layer[node] = min(layer[target] for target in targets[node]) - 1
    return layer


def pool(wanted: Sequence[float]) -> list[float]:
    """The ascending values closest to the wanted ones, by least squares."""
    blocks: list[tuple[float, int]] = []  # mean and count
    for value in wanted:
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, size = blocks.pop()
            mean = (mean * count + before * size) / (count + size)
            count += size
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def _inversions(values: Sequence[int]) -> int:
    """The number of inversions, by merge sort."""
    def count(part: list[int]) -> tuple[list[int], int]:
        if len(part) < 2:
            return part, 0
        left, first = count(part[: len(part) // 2])
        right, second = count(part[len(part) // 2 :])
        merged: list[int] = []
        total, i = first + second, 0
        for value in right:
            while i < len(left) and left[i] <= value:
                merged.append(left[i])
                i += 1
            total += len(left) - i
            merged.append(value)
        return merged + left[i:], total

    return count(list(values))[1]
