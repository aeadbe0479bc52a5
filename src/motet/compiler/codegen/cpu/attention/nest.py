"""Reads kernels as attention over strided accesses.

Queries that share keys and values are rows of one product: those of several heads (grouped-query attention) follow
each other, so that shared keys are read once and never copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.kernels.attention.description import LARGEST_HEAD, Attention
from motet.compiler.kernels.attention.matching import match as match_attention
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.strides import Extent, StridedAccess, place_of, product_of
from motet.compiler.targets.cpu import CpuTarget

Loop = tuple[Extent, int]  # an extent and its dimension

_NOT_ALONG_KEYS = ("max", "sum", "all", "any")


@dataclass(frozen=True)
class KeyRange:
    """Keys `[first, first + size)` and their values; both accesses are by position among all keys."""

    first: int
    size: Extent
    keys: StridedAccess
    values: StridedAccess


@dataclass(frozen=True)
class AttentionNest:
    """An attention with strided accesses over its space. `loads` are the tensors that scores depend on, by term;
    `computed` is the dtype of scores, weights and sums."""

    attention: Attention
    query: StridedAccess
    ranges: tuple[KeyRange, ...]
    loads: Mapping[int, StridedAccess]
    computed: str

    @property
    def kernel(self) -> Kernel:
        return self.attention.kernel

    @property
    def outer(self) -> list[Loop]:
        """The loops over independent problems."""
        return [(Extent.of(self.attention.sizes[dim]), dim) for dim in self.attention.batch]

    @property
    def rows(self) -> list[Loop]:
        """The loops over queries that share keys, the position along the sequence last."""
        a = self.attention
        dims = [*a.group, *([a.row] if a.row is not None else [])]
        return [(Extent.of(a.sizes[dim]), dim) for dim in dims]

    @property
    def row_count(self) -> Extent:
        return product_of(self.rows)

    @property
    def key_count(self) -> Extent:
        return Extent.of(self.attention.sizes[self.attention.key])

    @property
    def depth(self) -> int:
        return _known(self.attention, self.attention.depth)

    @property
    def columns(self) -> int:
        return _known(self.attention, self.attention.column)


def _known(attention: Attention, dim: int) -> int:
    size = attention.sizes[dim]
    assert isinstance(size, int)
    return size


def match(kernel: Kernel, target: CpuTarget) -> AttentionNest | None:
    """Read `kernel` as attention; None if it is not, or if its heads or masks have no code."""
    a = match_attention(kernel)
    if a is None:
        return None
    heads = [a.sizes[dim] for dim in (a.depth, a.column)]
    if any(not isinstance(size, int) or size > LARGEST_HEAD for size in heads):
        return None
    needed = a.needed()
    if any(a.terms[number].op in _NOT_ALONG_KEYS for number in needed):
        return None
    rank = len(a.sizes)
    accesses = {number: a.terms[number].access for number in needed if a.terms[number].op == "load"}
    loads = {
        number: place for number, access in accesses.items()
        if access is not None and access.padding is None and (place := place_of(kernel, access, rank)) is not None
    }
    query = place_of(kernel, a.query, rank)
    ranges: list[KeyRange] = []
    for piece in a.pieces:
        keys, values = place_of(kernel, piece.keys, rank), place_of(kernel, piece.values, rank)
        if keys is None or values is None:
            return None
        ranges.append(KeyRange(piece.first, Extent.of(piece.size), keys, values))
    if query is None or len(loads) != len(accesses):
        return None
    computed = "f64" if a.dtype == "f64" else "f32"
    if target.lanes(64 if computed == "f64" else 32) < 2:
        return None
    return AttentionNest(a, query, tuple(ranges), loads, computed)
