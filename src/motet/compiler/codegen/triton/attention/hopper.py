"""Selects forms of warp-specialised attention for Hopper, with producer warps and several groups of consumer warps.

This module decides where they are faster and chooses tiles; `warp_specialized.py` writes the source. While one group
computes exponentials, the products of another one run. Source: Shah et al., "FlashAttention-3: Fast and Accurate
Attention with Asynchrony and Low-precision", 2024.
"""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.codegen.gpu.attention.space import AttentionSpace, lies_flat
from motet.compiler.codegen.gpu.attention.tiles import OWN, Groups
from motet.compiler.codegen.gpu.tasks import power_of_two, total
from motet.compiler.codegen.triton.attention.operand_layout import may_be_whole
from motet.compiler.codegen.triton.attention.warp_specialized import AttentionProgram
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_LEAST_QUERIES, _LEAST_KEYS = 256, 768  # for fewer, the start-up takes too long
_LEAST_NARROW = 512  # keys, for heads of at most 64
_CACHED = 24 << 20  # bytes of keys and values that stay in the second-level cache next to other data
_HEADS = 8  # minimum number of heads whose tiles are processed together
_LONG = 1024  # keys up to which the start-up of each tile is too long
_FEW, _MANY = 2, 3  # programs of one tile per SM: few enough, or enough, for balance


def forms_of(
    space: AttentionSpace, buffers: tuple[int, ...], symbol: str, about: str, target: GpuTarget
) -> list[Form]:
    """Forms for Hopper, best first; none if tensors are too small or TMA does not support their layout."""
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
    return [AttentionProgram(space, groups, buffers, symbol, about, target.processors).form() for groups in chosen]


def _groups(space: AttentionSpace, target: GpuTarget) -> list[Groups]:
    """Tiles for the shapes, best first, as measured on an H100 in bf16. Figures are microseconds of programs of one
    tile, in parentheses those of persistent programs.

    Heads of 65 and more: 4 x 32 heads of 128, 4096 tokens, causal, 910 to 968 (941 to 954); 1 x 32, 2048 tokens, 79
    (97); 2 x 16 heads of 96, 2048 tokens, whose keys all fit in the cache, 78 (70); 16 x 32 heads of 128, 1024 tokens,
    not causal, 507 to 521 (451 to 458); 8 x 16 heads of 80, 2048 tokens, 457 (387).
    """
    a = space.attention
    heads = max(_HEADS, _CACHED // max(1, space.keys.factor * (space.depth + space.columns) * item_bytes(a.dtype)))
    width = max(power_of_two(space.depth), power_of_two(space.columns))
    if width <= OWN:
        return [replace(groups, heads=heads) for groups in _narrow(space, target)]
    groups = {128: Groups(2, 128, 2, heads=heads), 256: Groups(2, 64, 2, heads=heads)}.get(width)
    if groups is None:
        return []
    stays = a.causal is None or (not a.group and (total(space.batch).known or heads + 1) <= heads)
    both = [replace(groups, stay=True), groups]
    return both if stays else both[::-1]


def _narrow(space: AttentionSpace, target: GpuTarget) -> list[Groups]:
    """Tiles for heads of at most 64, where exponentials take as long as products: independent groups are each in
    another step. Microseconds, those of the form by pointers in brackets: 12 heads, causal, 512 tokens 6.3 [8.2], 1024
    tokens 10.6 [14.2], 2048 tokens 22.0 [42.7]; 8 x 12 heads, 1024 tokens 46.9 [49.9]; 4 x 32 heads, 4096 tokens 676 to
    726 [680 to 764]. Not causal, 4096 tokens 1082 [1246]; 8 x 8 heads, 1500 tokens 87 [98], 8 heads 18.8 [20.3]; 16 x
    16 heads, 512 tokens 53.1 [50.5]. Programs of one tile are for tiles that take long, or that all run at the same
    time: those of 128 queries took 61 for 8 x 12 heads, causal, 1024 tokens."""
    rows, keys = space.row_count.known, space.keys.known
    if rows is None or keys is None:
        return []
    batch = total(space.batch).known or target.processors

    def tiles_per_sm(size: int) -> float:
        """The number of tiles of `size` queries per SM."""
        return batch * -(-rows // size) / target.processors

    if tiles_per_sm(OWN) <= 1:
        return [Groups(1, 128, 2)]
    staying, together = Groups(2, 128, 2, True, True), Groups(2, 128, 2)
    if space.attention.causal is not None:
        return [staying, together] if tiles_per_sm(together.rows) <= _FEW else [staying]
    if keys > _LONG and tiles_per_sm(3 * OWN) >= _MANY:
        return [Groups(3, 128, 2), together]
    if tiles_per_sm(together.rows) <= 1:
        return [together, staying] if keys > _LONG else [staying, together]
    return [staying, together] if keys > _LONG else []
