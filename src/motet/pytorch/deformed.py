"""Decomposition of torchvision's deform_conv2d: samples of the image for each tap, and a product with the weights.

    deform_conv2d(x, w, offsets, mask)  →  matmul(w, grid_sample(x, places + offsets) · mask)
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Empty until torchvision, which defines the operator, is imported."""
    packet = getattr(torch.ops.torchvision, "deform_conv2d", None)
    return {} if packet is None else {packet.default: _deformed}


# Parameters: those of torchvision's operator. The options are strides, pads and dilations of both axes, the numbers of
# groups and of groups of offsets, and whether there is a mask.


def _deformed(x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *options: Any) -> Any:
    steps, pads, spreads = options[:2], options[2:4], options[4:6]
    groups, offset_groups, use_mask = options[6:]
    batch, channels, *sizes = x.shape
    outputs, _, *taps = weight.shape
    blocks, count = offset.shape[-2:], taps[0] * taps[1]
    kind = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    moves = offset.to(kind).reshape(batch * offset_groups, *taps, 2, *blocks)
    ends: list[Any] = []
    for axis, (size, many, block, step, before, spread) in enumerate(
        zip(sizes, taps, blocks, steps, pads, spreads, strict=True)
    ):
        tap = torch.arange(many, dtype=kind, device=x.device).reshape([-1, 1] if axis == 0 else [1, -1]) * spread
        first = torch.arange(block, dtype=kind, device=x.device).reshape([-1, 1] if axis == 0 else [1, -1]) * step
        at = moves[:, :, :, axis] + (tap[:, :, None, None] + (first - before))
        ends.append((2 * at + 1) / size - 1)
    grid = torch.stack([ends[1], ends[0]], -1).reshape(batch * offset_groups, count * blocks[0], blocks[1], 2)
    image = x.reshape(batch * offset_groups, channels // offset_groups, *sizes).to(kind)
    samples = torch.nn.functional.grid_sample(image, grid, align_corners=False)
    samples = samples.reshape(batch, offset_groups, channels // offset_groups, count, *blocks)
    if use_mask:
        samples = samples * mask.to(kind).reshape(batch, offset_groups, 1, count, *blocks)
    lines = samples.reshape(batch, groups, channels // groups * count, blocks[0] * blocks[1])
    found = torch.matmul(weight.to(kind).reshape(groups, outputs // groups, -1), lines)
    found = found.reshape(batch, outputs, *blocks) + bias.to(kind).reshape(-1, 1, 1)
    return found.to(x.dtype)
