"""Parts of a graph by the modules of the source, so that large graphs can be read: `layer1.0`, `/encoder/layer.3/`.

    conv1   layer1.0.conv1   layer1.0.conv2   layer1.1.conv1   …      depth 1: conv1, layer1 (8 kernels), …
                                                                      depth 2: conv1, layer1.0 (4), layer1.1 (4), …

A part is a run of operations, in the order of the program, of one module on one device: every edge between parts goes
forward, so that the graph of parts has no cycle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from motet.tools.report.model import GraphNode

READABLE = 60  # nodes of a graph that is shown as a whole at first
_MOST_LEVELS = 4


@dataclass(frozen=True)
class GraphPart:
    """Operations by number, and their module; "" for a single operation."""

    operations: tuple[int, ...]
    module: str = ""


@dataclass(frozen=True)
class GraphLevel:
    """The graph with the modules of one depth as nodes; 0: all operations."""

    depth: int
    parts: list[GraphPart]


def levels(operations: Sequence[GraphNode]) -> list[GraphLevel]:
    """The levels of a graph, the whole graph last; only this one if modules make it no smaller."""
    whole = GraphLevel(0, [GraphPart((number,)) for number in range(len(operations))])
    found: list[GraphLevel] = []
    for depth in range(1, _MOST_LEVELS + 1):
        level = GraphLevel(depth, _parts(operations, depth))
        if len(level.parts) < 0.8 * len(operations) and (not found or len(level.parts) > len(found[-1].parts)):
            found.append(level)
    return [*found, whole]


def first_level(known: Sequence[GraphLevel]) -> int:
    """The index of the level that is shown first: the most detailed one that can be read."""
    readable = [index for index, level in enumerate(known) if len(level.parts) <= READABLE]
    return readable[-1] if readable else 0


def _parts(operations: Sequence[GraphNode], depth: int) -> list[GraphPart]:
    runs: list[tuple[str, int, list[int]]] = []
    for number, operation in enumerate(operations):
        module = module_at(operation.computes, depth) if operation.kind in ("kernel", "copy") else ""
        if runs and module and runs[-1][:2] == (module, operation.device):
            runs[-1][2].append(number)
        else:
            runs.append((module, operation.device, [number]))
    return [GraphPart(tuple(numbers), module if len(numbers) > 1 else "") for module, _, numbers in runs]


def module_at(computes: str, depth: int) -> str:
    """The first `depth` modules of the first name in `computes`; "" for a name in fewer modules, or in none."""
    first = computes.split(" + ")[0]
    if re.search(r":\d+:\d+: ", first):  # a place in a file is no module
        return ""
    ends = [match.start() for match in re.finditer(r"(?<=[^./])[./](?=[^./])", first)]
    if not ends:
        return ""
    return first[: ends[min(depth, len(ends)) - 1]]
