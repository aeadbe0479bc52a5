"""Decomposes the gradients of convolutions in groups: torch-mlir gives those of the weights a wrong shape."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_MOST = 8  # groups that are compiled one by one


def decompositions() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.convolution_backward.default: _convolution_backward}


def _convolution_backward(gradient: Any, x: Any, weight: Any, *options: Any) -> Any:
    """The gradients of operand, weights and bias. `options` are bias_sizes, stride, padding, dilation, transposed,
    output_padding, groups and output_mask, as PyTorch passes them."""
    sizes, *windows, groups, wanted = options
    if groups == 1:
        return NotImplemented
    if groups > _MOST:
        raise NotImplementedError(f"aten.convolution_backward of {groups} groups; expected at most {_MOST}")
    part = None if sizes is None else [sizes[0] // groups]
    each = zip(gradient.chunk(groups, 1), x.chunk(groups, 1), weight.chunk(groups), strict=True)
    made: Sequence[Any] = [
        torch.ops.aten.convolution_backward(*tensors, part, *windows, 1, wanted) for tensors in each
    ]
    return tuple(
        torch.cat([parts[i] for parts in made], dim) if wanted[i] else None for i, dim in enumerate((1, 0, 0))
    )
