"""Divides a graph into parts for one provider.

    a → b → X → c → d        X unsupported: parts {a, b} and {c, d}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DividedNode:
    """A node: the names that it reads and writes, and whether the provider supports it."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    is_supported: bool


def divide(nodes: Sequence[DividedNode]) -> list[list[int]]:
    """The supported nodes of a graph in parts, as indices; `nodes` are sorted, producers first.

    No part waits for itself: a node's level is the number of changes between supported and unsupported nodes on the
    longest way to it, and a part has the supported nodes of one level. A way that leaves a part and returns crosses an
    unsupported node, and so ends on a higher level.
    """
    levels: dict[str, tuple[int, bool]] = {}
    parts: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        before = [levels[name] for name in node.inputs if name in levels]
        level = max((at + (supported != node.is_supported) for at, supported in before), default=0)
        levels.update({name: (level, node.is_supported) for name in node.outputs if name})
        if node.is_supported:
            parts.setdefault(level, []).append(index)
    return list(parts.values())
