"""Tensors as matrices that a GPU's copy engine can move tile by tile, by descriptors.

An engine takes lines of elements side by side; their beginning, their distance and all else that a tile may begin at
are multiples of 16 bytes. What of a tile lies outside is read as zeros, and not written. Source: CUDA C++ Programming
Guide, "Tensor Memory Access".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.tasks import Loop
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess

_ALIGNMENT = 16  # bytes
_LONGEST = 1 << 31  # elements of a line, and lines


@dataclass(frozen=True)
class Matrix:
    """`lines` times `length` elements at `place`, `stride` elements from line to line, for each point of the loops that
    are neither. `across` says that the first of the loops that it was asked for walks along lines."""

    place: StridedAccess
    lines: Extent
    length: Extent
    stride: Extent
    across: bool


def matrix_of(
    place: StridedAccess, first: Sequence[Loop], second: Sequence[Loop], others: Sequence[Loop]
) -> Matrix | None:
    """What is at `place` as a matrix over two loops; None where a descriptor cannot say it. `others` are the loops of
    which it is another matrix at each point."""
    if place.bounds or len(first) != 1 or len(second) != 1:
        return None
    (size, dim), (other_size, other_dim) = first[0], second[0]
    across = place.strides[dim] == ONE
    stride = place.strides[other_dim if across else dim]
    if place.strides[dim if across else other_dim] != ONE or stride == ZERO:
        return None
    apart = [stride, *place.offset, *(place.strides[d] for _, d in others)]
    if any(each.factor * item_bytes(place.dtype) % _ALIGNMENT for each in apart):
        return None
    lines, length = (other_size, size) if across else (size, other_size)
    if any((extent.known or 1) >= _LONGEST for extent in (lines, length)):
        return None
    return Matrix(place, lines, length, stride, across)
