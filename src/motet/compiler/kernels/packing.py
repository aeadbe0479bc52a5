"""Applies a `Packing` to a constant, once when compiling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from motet.compiler.kernels.kernel import Kernel, Packing, row_major


def reorder_constants(kernel: Kernel, orders: Mapping[int, tuple[int, ...]]) -> tuple[Kernel, dict[int, Packing]]:
    """`kernel` with the constants that `orders` names stored in these orders of their axes, and the packings that store
    them so."""
    values = tuple(replace(value, order=orders.get(i, value.order)) for i, value in enumerate(kernel.values))
    packings = {
        i: Packing(order, (1,) * len(order), tuple(range(2 * len(order))))
        for i, order in orders.items() if order != row_major(len(order))
    }
    return replace(kernel, values=values), packings


def apply_packing(array: np.ndarray, packing: Packing) -> np.ndarray:
    """`array` in the layout of `packing`: contiguous, same dtype, incomplete blocks padded with zeros."""
    moved = np.transpose(array, packing.permutation)
    moved = moved.reshape(_merged(moved.shape, packing))
    multiples = packing.multiples or packing.blocks
    widths = [(0, -size % multiple) for size, multiple in zip(moved.shape, multiples, strict=True)]
    padded = np.pad(moved, widths) if any(after for _, after in widths) else moved
    split: list[int] = []
    for size, block in zip(padded.shape, packing.blocks, strict=True):
        split += [size // block, block]
    return np.ascontiguousarray(np.transpose(padded.reshape(split), packing.split_permutation))


def packed_elements(shape: tuple[int, ...], packing: Packing) -> int:
    """The number of elements of a packed constant of `shape`."""
    count = 1
    moved = _merged(tuple(shape[axis] for axis in packing.permutation), packing)
    for size, multiple in zip(moved, packing.multiples or packing.blocks, strict=True):
        count *= -(-size // multiple) * multiple
    return count


def _merged(shape: tuple[int, ...], packing: Packing) -> tuple[int, ...]:
    """A transposed array's shape with its last `packing.merged` axes as one."""
    kept = len(shape) - packing.merged
    return shape if packing.merged == 1 else (*shape[:kept], math.prod(shape[kept:]))
