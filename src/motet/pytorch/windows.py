"""Decompositions of operators over windows: fold (col2im), unfold (im2col), and pools of images without a batch.

PyTorch writes the first two as gathers and scatters by tables of places. Here they are views, which become part of the
kernels that read them, and sums of views. torch-mlir lowers pools of batches only.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_map

_TERMS = 16  # more shifted parts than this are summed along one axis first


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    pools = {
        aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3, aten.max_pool2d_with_indices.default: 2,
        aten.max_pool3d_with_indices.default: 3,
    }
    batched = {pool: _as_batch(pool, rank) for pool, rank in pools.items()}
    return {aten.col2im.default: _fold, aten.im2col.default: _unfold, **batched}


def _as_batch(pool: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """`pool`, over `rank` axes, of a single image."""

    def run(x: Any, *options: Any, **named: Any) -> Any:
        if x.ndim != rank + 1:
            return NotImplemented
        return tree_map(lambda result: result.squeeze(0), pool(x.unsqueeze(0), *options, **named))

    return run


@dataclass(frozen=True)
class _FoldAxis:
    """An axis of an image that is covered by blocks: block `b` begins at `b` · `step` − `before`, and its elements
    are `spread` apart. The step or the spread is 1."""

    size: int
    taps: int
    spread: int
    before: int
    step: int

    @property
    def blocks(self) -> int:
        return (self.size + 2 * self.before - self.spread * (self.taps - 1) - 1) // self.step + 1

    @property
    def parts(self) -> int:
        """The number of parts, of `step` elements each, that a block is cut into."""
        return -(-self.taps // self.step)

    @property
    def lines(self) -> int:
        """The number of parts from the beginning of the first block to the end of the last one."""
        return self.blocks + self.spread * (self.parts - 1)

    def shifted(self, part: int) -> tuple[int, int]:
        """The lines before and after the part `part` of all blocks."""
        return self.spread * part, self.spread * (self.parts - 1 - part)

    @property
    def cut(self) -> tuple[int, int]:
        """The pad that makes the lines the axis."""
        return -self.before, self.size + self.before - self.lines * self.step


def _fold(
    x: Any, output_size: Sequence[Any], kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """As torch.nn.functional.fold: blocks are cut into parts as long as the step between blocks. Equal parts of all
    blocks are next to each other, so that the image is the sum of one shifted view for each part."""
    rows, columns = (_FoldAxis(*each) for each in zip(output_size, kernel_size, dilation, padding, stride, strict=True))
    is_static = all(isinstance(extent, int) for extent in (*x.shape, *output_size))
    if not is_static or any(axis.step > 1 and axis.spread > 1 for axis in (rows, columns)):
        return decomposition_table[torch.ops.aten.col2im.default](
            x, output_size, kernel_size, dilation, padding, stride
        )
    blocks = x if x.ndim == 3 else x.unsqueeze(0)
    blocks = blocks.reshape(blocks.shape[0], -1, rows.taps, columns.taps, rows.blocks, columns.blocks)
    ends = (0, columns.parts * columns.step - columns.taps, 0, rows.parts * rows.step - rows.taps)
    blocks = _padded(blocks, (0, 0, 0, 0, *ends))
    shape = (rows.parts, rows.step, columns.parts, columns.step, rows.blocks, columns.blocks)
    total = _overlaid(blocks.reshape(*blocks.shape[:2], *shape), rows, columns).permute(0, 1, 4, 2, 5, 3)
    total = total.reshape(*total.shape[:2], rows.lines * rows.step, columns.lines * columns.step)
    total = _padded(total, (*columns.cut, *rows.cut))
    return total if x.ndim == 3 else total.squeeze(0)


def _overlaid(blocks: Any, rows: _FoldAxis, columns: _FoldAxis) -> Any:
    """The sum of the parts of `blocks`, [N, C, row parts, row step, column parts, column step, rows, columns]."""
    if rows.parts * columns.parts <= _TERMS:
        pairs = itertools.product(range(rows.parts), range(columns.parts))
        return _total([_padded(blocks[:, :, t, :, u], (*columns.shifted(u), *rows.shifted(t))) for t, u in pairs])
    wide = _total([_padded(blocks[:, :, :, :, u], columns.shifted(u)) for u in range(columns.parts)])
    return _total([_padded(wide[:, :, t], (0, 0, *rows.shifted(t))) for t in range(rows.parts)])


def _total(terms: Sequence[Any]) -> Any:
    return functools.reduce(torch.add, terms)


def _padded(x: Any, amounts: Sequence[int]) -> Any:
    return torch.constant_pad_nd(x, list(amounts)) if any(amounts) else x


def _unfold(
    x: Any, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """As torch.nn.functional.unfold; the compiler lowers those without padding (`compiler/frontends/torch/blocks.py`).
    """
    if not all(isinstance(extent, int) for extent in x.shape):
        return decomposition_table[torch.ops.aten.im2col.default](x, kernel_size, dilation, padding, stride)
    if not any(padding):
        return NotImplemented
    padded = _padded(x, (padding[1], padding[1], padding[0], padding[0]))
    return torch.ops.aten.im2col.default(padded, kernel_size, dilation, [0, 0], stride)
