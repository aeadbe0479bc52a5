"""Decompositions of bucketize and searchsorted to their forms of tensors, which the compiler lowers
(`compiler/frontends/torch/searches.py`)."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.bucketize.Tensor: _bucketize,
        aten.bucketize.Scalar: _bucketize,
        aten.searchsorted.Tensor: _searchsorted,
        aten.searchsorted.Scalar: _searchsorted,
    }


def _bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(boundaries, x, out_int32=out_int32, right=right, is_own=False)


def _searchsorted(
    sequence: Any, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None, is_own: bool = True,
) -> Any:
    """Of tensors and numbers; `is_own` if the operator itself is this one."""
    if is_own and isinstance(x, torch.Tensor) and side is None and sorter is None:
        return NotImplemented
    ordered = sequence if sorter is None else torch.gather(sequence, -1, sorter)
    values = x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=sequence.dtype, device=sequence.device)
    return torch.ops.aten.searchsorted.Tensor(ordered, values, out_int32=out_int32, right=right or side == "right")
