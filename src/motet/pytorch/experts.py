"""Decompositions for mixtures of experts and recommenders: histograms, grouped products, bags of embeddings."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {
        aten.histc.default: _histc,
        aten._grouped_mm.default: _grouped_mm,
        aten._embedding_bag.default: _embedding_bag,
        aten._embedding_bag_forward_only.default: _embedding_bag,
    }
    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return table | ({fallback.default: _grouped_mm} if fallback is not None else {})


def _histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """The number of elements in each of `bins` equal intervals; the last one includes its end."""
    flat = x.reshape(-1)
    low, high = (torch.full((), value, dtype=x.dtype, device=x.device) for value in (min, max))
    if min == max:
        if not flat.shape[0]:
            return torch.zeros(bins, dtype=x.dtype, device=x.device)
        low, high = torch.amin(flat), torch.amax(flat)
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    real = flat if x.dtype.is_floating_point else flat.to(torch.float32)
    place = torch.clamp(torch.floor((real - low) * bins / (high - low)), 0, bins - 1)
    inside = (flat >= low) & (flat <= high)
    numbers = torch.arange(bins, dtype=place.dtype, device=x.device)
    counted = (place.unsqueeze(0) == numbers.unsqueeze(-1)) & inside
    return counted.to(torch.int64).sum(-1).to(x.dtype)


def _grouped_mm(
    x: Any, weight: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Multiplies each group of rows of `x`, whose ends are in `offs`, by the matrix of its group; zeros after the last.

    Few rows gather their matrices; many rows are multiplied by all matrices, which reads each matrix once.
    """
    if x.ndim == 3 and weight.ndim == 3:
        found = torch.bmm(x, weight)
    elif x.ndim == 2 and weight.ndim == 3 and offs is not None:
        found = _by_groups(x, weight, offs)
    else:
        return NotImplemented
    found = found if bias is None else found + bias
    return found if out_dtype is None else found.to(out_dtype)


def _by_groups(x: Any, weight: Any, offs: Any) -> Any:
    rows, groups = x.shape[0], weight.shape[0]
    row = torch.arange(rows, dtype=offs.dtype, device=x.device)
    group = (offs.unsqueeze(0) <= row.unsqueeze(-1)).to(torch.int64).sum(-1)
    if isinstance(rows, int) and rows <= groups:
        taken = weight.index_select(0, torch.clamp(group, max=groups - 1))
        found = torch.bmm(x.unsqueeze(1), taken).squeeze(1)
        return torch.where((group < groups).unsqueeze(-1), found, 0.0)
    products = torch.bmm(x.unsqueeze(0).expand(groups, -1, -1), weight)
    mine = group.unsqueeze(0) == torch.arange(groups, device=x.device).unsqueeze(-1)
    return torch.where(mine.unsqueeze(-1), products, 0.0).sum(0).to(x.dtype)


# The parameters are those of aten._embedding_bag.
def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means or maxima of the rows in each bag, and the results for gradients: the bag of each row, and
    the number of rows of each bag."""
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts.shape[0]
    place = torch.arange(indices.shape[0], dtype=starts.dtype, device=indices.device)
    bag = (starts.unsqueeze(0) <= place.unsqueeze(-1)).to(torch.int64).sum(-1) - 1
    member = bag.unsqueeze(0) == torch.arange(bags, device=indices.device).unsqueeze(-1)
    if padding_idx >= 0:
        member = member & (indices != padding_idx)
    if include_last_offset:
        member = member & (place < offsets[-1])
    rows = weight.index_select(0, indices)
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
    sizes = member.to(torch.int64).sum(-1)
    if mode == 2:
        chosen = torch.where(member.unsqueeze(-1), rows.unsqueeze(0), float("-inf"))
        found = torch.where((sizes == 0).unsqueeze(-1), 0.0, torch.amax(chosen, 1))
    else:
        found = torch.where(member.unsqueeze(-1), rows.unsqueeze(0), 0.0).sum(1)
        found = found / torch.clamp(sizes, min=1).unsqueeze(-1).to(found.dtype) if mode == 1 else found
    places = torch.zeros_like(sizes)
    return found.to(weight.dtype), bag.to(indices.dtype), sizes.to(indices.dtype), places.to(indices.dtype)
