"""Attention on Hopper: warps that fetch keys and values ahead, and groups of warps that have a tile of queries each.

This says where that is faster, and with which tiles; `attention_groups.py` has the source. While one group calculates
powers, the products of another one run. Source: Shah et al., "FlashAttention-3: Fast and Accurate Attention with
Asynchrony and Low-precision", 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.kernel import item_bytes
from motet.compiler.codegen.triton.attention import Space, lies_flat
from motet.compiler.codegen.triton.attention_groups import MOVING, OWN, Program
from motet.compiler.codegen.triton.attention_matrices import may_be_whole
from motet.compiler.codegen.triton.loops import power_of_two, total
from motet.compiler.codegen.triton.program import Form
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_LEAST_QUERIES, _LEAST_KEYS = 256, 768  # for fewer it takes too long to begin
_LEAST_NARROW = 512  # keys, for heads of 64 and less
_REGISTERS, _MOST = 65536, 240  # of a processor, and those of a thread that attends
_CACHED = 24 << 20  # bytes of keys and values that the second-level cache has beside others
_HEADS = 8  # that go together at least
_LONG = 2048  # keys; for more of them programs of one tile are as fast as those that stay
_WAVES = 4  # programs for each processor, of which no one waits long for the last


@dataclass(frozen=True)
class Groups:
    """`count` groups of warps, tiles of `keys`, and places for `stages` tiles of keys and values. A group has 64
    queries; all together have a tile of queries and the same keys, or, where they are `apart`, each has its own.
    Programs that `stay` take tile after tile of queries: while one is finished, the keys of the next are fetched. Where
    queries hide keys, tiles of `heads` heads go together. A program has a processor for itself."""

    count: int
    keys: int
    stages: int
    stay: bool = False
    apart: bool = False
    heads: int = 8

    @property
    def at_once(self) -> int:
        """Tiles of queries that a program has at a time."""
        return self.count if self.apart else 1

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return self.count // self.at_once * OWN

    @property
    def places(self) -> int:
        """For tiles of keys, and of values."""
        return self.stages * self.at_once

    @property
    def label(self) -> str:
        apart = f" apart={self.count}" if self.apart else ""
        return f"groups {self.rows}x{self.keys} stages={self.stages}{apart}{' stay' if self.stay else ''}"

    def attending(self, movers: int) -> int:
        """Registers of each thread that attends, beside `movers` warps that move tiles: they are given out to four
        warps at a time."""
        moving = -(-movers // 4)
        share = _REGISTERS // (128 * (self.count + moving)) // 8 * 8
        return min(_MOST, (share * (self.count + moving) - MOVING * moving) // self.count // 8 * 8)


def forms_of(
    space: Space, buffers: tuple[int, ...], symbol: str, about: str, target: GpuTarget
) -> list[Form]:
    """Forms for Hopper, the best first; none where tensors do not lie so that the copying unit takes tiles of them, or
    are too small."""
    a = space.attention
    if target.architecture != _HOPPER or not target.is_cuda or item_bytes(a.dtype) != 2 or len(space.rows) != 1:
        return []
    least = _LEAST_NARROW if max(space.depth, space.columns) <= OWN else _LEAST_KEYS
    if (space.row_count.known or _LEAST_QUERIES) < _LEAST_QUERIES or (space.keys.known or least) < least:
        return []
    if a.row is None or a.whole is None:
        return []
    flat = [(a.query, a.row, a.depth), (a.whole.keys, a.key, a.depth), (a.whole.values, a.key, a.column)]
    if not all(lies_flat(a, access, outer, inner) for access, outer, inner in flat):
        return []
    chosen = [each for each in _groups(space, target) if not each.stay or may_be_whole(space, each.rows, each.keys)]
    return [Program(space, groups, buffers, symbol, about, target.processors).form() for groups in chosen]


def _groups(space: Space, target: GpuTarget) -> list[Groups]:
    """Tiles for the shapes, the best first, by measurement on an H100, in bf16 (microseconds; by pointers in brackets).

    Heads of 65 and more: 4 x 32 heads of 128, 4096 tokens, causal 942 (staying 988), one batch, 2048 tokens, 77 (108);
    16 batches, 1024 tokens, not causal, staying 478, 502 where each tile is a program.
    """
    a = space.attention
    heads = max(_HEADS, _CACHED // max(1, space.keys.factor * (space.depth + space.columns) * item_bytes(a.dtype)))
    width = max(power_of_two(space.depth), power_of_two(space.columns))
    if width <= OWN:
        return [replace(groups, heads=heads) for groups in _narrow(space, target)]
    groups = {128: Groups(2, 128, 2, heads=heads), 256: Groups(2, 64, 2, heads=heads)}.get(width)
    if groups is None:
        return []
    both = [replace(groups, stay=True), groups]
    return both if a.causal is None else both[::-1]


def _narrow(space: Space, target: GpuTarget) -> list[Groups]:
    """For heads of 64 and less, which take as long for powers as for products: groups that are apart are each at
    another step. 12 heads, causal, 512 tokens 6.4 [8.2], 2048 tokens 22.5 [42.7]; 4 x 32 heads, 4096 tokens, causal 687
    [764], 1128 otherwise [1309]; 8 heads, 1500 tokens 18.0 [19.6]; 16 x 16 heads, 512 tokens 52.0 [51.7]. Programs of
    one tile want long sequences, or that all run at once: for 16 x 16 heads, 512 tokens, they take 72."""
    rows, keys = space.row_count.known, space.keys.known
    if rows is None or keys is None:
        return []
    batch = total(space.batch).known or target.processors

    def tiles(size: int) -> int:
        return batch * -(-rows // size)

    if tiles(OWN) <= target.processors:
        return [Groups(1, 128, 2)]
    together = Groups(2, 128, 2)
    long, many = keys > _LONG, tiles(3 * OWN) >= _WAVES * target.processors
    if space.attention.causal is not None:
        return [Groups(3, 64, 3, True, True) if long and many else Groups(2, 128, 2, True, True), together]
    if long:
        return [Groups(3, 128, 2), together] if many else [together]
    staying = Groups(2, 128, 2, True, True)
    return [staying, together] if tiles(together.rows) <= target.processors else [staying]
