"""Decomposes the gradients of convolutions that torch-mlir does not lower, those in groups and transposed ones, to
convolutions.

Source: PyTorch's documentation of torch.nn.grad; the sums over a batch are those of the channels of a convolution whose
batch are the channels.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.convolution_backward.default: _convolution_backward}


# The parameters are those of aten.convolution_backward.
def _convolution_backward(
    gradient: Any, x: Any, weight: Any, bias_sizes: Any, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, wanted: Sequence[bool],
) -> Any:
    """The gradients of operand, weights and bias."""
    if groups == 1 and not transposed:
        return NotImplemented
    count = x.dim() - 2
    stride, padding, dilation = ([*given] * (count if len(given) == 1 else 1) for given in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if wanted[0] and transposed:
        of_x = torch.ops.aten.convolution(gradient, weight, None, stride, padding, dilation, False, [0] * count, groups)
        of_x = _first(of_x, x.shape)
    elif wanted[0]:
        reached = [
            (gradient.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1
            for i in range(count)
        ]
        rest = [size - end for size, end in zip(x.shape[2:], reached, strict=True)]
        of_x = torch.ops.aten.convolution(gradient, weight, None, stride, padding, dilation, True, rest, groups)
    if wanted[1]:
        image, filters = (gradient, x) if transposed else (x, gradient)
        image = image.unflatten(1, (groups, -1)).transpose(0, 2).flatten(1, 2)
        made = torch.ops.aten.convolution(
            image, filters.transpose(0, 1), None, dilation, padding, stride, False, [0] * count, groups
        )
        of_weight = _first(made.transpose(0, 1), weight.shape)
    if wanted[2]:
        of_bias = gradient.sum([0, *range(2, count + 2)])
    return of_x, of_weight, of_bias


def _first(x: Any, shape: Sequence[int]) -> Any:
    """The first elements of the dimensions of windows, where strides leave some that no window reaches."""
    for axis in range(2, x.dim()):
        x = x.narrow(axis, 0, shape[axis])
    return x
