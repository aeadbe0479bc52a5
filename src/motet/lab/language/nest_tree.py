"""Nests whose loops have identities, so that what refers to a loop survives changes of the nest.

Trees are values: an edit makes another tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import msgspec

from motet.compiler.kernels.schedule import Nest, NestCopy, NestLoop, NestRegion


@dataclass(frozen=True)
class LoopNode:
    """A loop with its identity."""

    key: int
    loop: NestLoop


@dataclass(frozen=True)
class CopyNode:
    """A copy of `value` at the loop with the identity `at`."""

    value: str
    at: int
    padding: int


@dataclass(frozen=True)
class PartNode:
    """The elements from `begin` to `end` of a dimension."""

    dim: str
    begin: int
    end: int | None
    tree: NestTree


@dataclass(frozen=True)
class NestTree:
    """A nest whose loops have identities."""

    loops: tuple[LoopNode, ...]
    parts: tuple[PartNode, ...] = ()
    packs: tuple[CopyNode, ...] = ()
    buffers: tuple[CopyNode, ...] = ()

    def nodes(self) -> Iterator[LoopNode]:
        """All loops, those of parts included."""
        yield from self.loops
        for part in self.parts:
            yield from part.tree.nodes()

    def edited(self, key: int, edit: Callable[[NestTree, int], NestTree]) -> NestTree:
        """The tree with `edit` applied to the nest that has the loop `key`, and its position there."""
        position = next((n for n, node in enumerate(self.loops) if node.key == key), None)
        if position is not None:
            return edit(self, position)
        return replace(self, parts=tuple(replace(p, tree=p.tree.edited(key, edit)) for p in self.parts))

    def nest(self) -> Nest:
        """The tree as a part of a schedule."""
        labels = {node.key: node.loop.label for node in self.nodes()}

        def copies(nodes: tuple[CopyNode, ...]) -> list[NestCopy]:
            return [NestCopy(each.value, labels.get(each.at, "?"), each.padding) for each in nodes]

        regions = [NestRegion(part.dim, part.begin, part.end, part.tree.nest()) for part in self.parts]
        return Nest([node.loop for node in self.loops], regions, copies(self.packs), copies(self.buffers))


def tree_of(nest: Nest, keys: count[int]) -> NestTree:
    """`nest` with new identities of its loops."""
    loops = tuple(LoopNode(next(keys), loop) for loop in nest.loops)
    named = {node.loop.label: node.key for node in loops}

    def copies(found: list[NestCopy]) -> tuple[CopyNode, ...]:
        return tuple(CopyNode(each.value, named[each.at], each.padding) for each in found)

    parts = tuple(PartNode(each.dim, each.begin, each.end, tree_of(each.nest, keys)) for each in nest.regions)
    return NestTree(loops, parts, copies(nest.packs), copies(nest.buffers))


def with_loop(tree: NestTree, position: int, **changes: bool | int | str | None) -> NestTree:
    """The tree with other fields of the loop at `position`."""
    node = tree.loops[position]
    changed = replace(node, loop=msgspec.structs.replace(node.loop, **changes))
    return replace(tree, loops=(*tree.loops[:position], changed, *tree.loops[position + 1:]))


def with_tile(tree: NestTree, position: int, added: LoopNode, innermost: bool) -> NestTree:
    """The tree with the loop `added` inside the one at `position`: next to it, or innermost."""
    at = len(tree.loops) if innermost else position + 1
    return replace(tree, loops=(*tree.loops[:at], added, *tree.loops[at:]))


def permuted(tree: NestTree, order: tuple[int, ...]) -> NestTree:
    """The tree with the loops `order`, by identity, in this order, at the positions that they have together."""
    by_key = {node.key: node for node in tree.loops}
    moving = iter([by_key[key] for key in order])
    return replace(tree, loops=tuple(next(moving) if node.key in order else node for node in tree.loops))


def divided(tree: NestTree, position: int, cuts: tuple[int, ...], keys: count[int]) -> NestTree:
    """The tree with the loops from `position` inwards once for each part of the dimension of the first of them, which
    is cut at `cuts`. The first part has the loops of before, others have new ones. Copies at the loops move along."""
    moved = tree.loops[position:]
    dim = moved[0].loop.dim
    bounds = [0, *cuts, None]
    inner = {node.key for node in moved}

    def at_moved(copies: tuple[CopyNode, ...]) -> tuple[CopyNode, ...]:
        return tuple(each for each in copies if each.at in inner)

    first = NestTree(moved, tree.parts, at_moved(tree.packs), at_moved(tree.buffers))
    trees = [first, *(tree_of(first.nest(), keys) for _ in cuts)]
    parts = tuple(
        PartNode(dim, begin or 0, end, each) for begin, end, each in zip(bounds, bounds[1:], trees, strict=False)
    )
    return NestTree(
        tree.loops[:position], parts, tuple(each for each in tree.packs if each.at not in inner),
        tuple(each for each in tree.buffers if each.at not in inner),
    )
