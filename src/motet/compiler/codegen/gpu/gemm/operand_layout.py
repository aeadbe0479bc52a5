"""Describes tensors as matrices that TMA can copy tile by tile.

Lines are contiguous; the base address, the stride of lines and the offsets at which tiles may begin are multiples of 16
bytes. Elements of a tile that are out of bounds are read as zeros and not written. Source: CUDA C++ Programming Guide,
"Tensor Memory Access".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.tasks import Loop
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess

_ALIGNMENT, _BLOCK_ALIGNMENT = 16, 64  # bytes
_LONGEST = 1 << 31  # elements of a line, and lines


@dataclass(frozen=True)
class Matrix:
    """`lines` times `length` elements at `place` with stride `stride` between lines, for each point of the remaining
    loops. `across` means that the first of the two loops steps along lines."""

    place: StridedAccess
    lines: Extent
    length: Extent
    stride: Extent
    across: bool


def matrix_of(
    place: StridedAccess, first: Sequence[Loop], second: Sequence[Loop], others: Sequence[Loop]
) -> Matrix | None:
    """The matrix at `place` over two loops; None if a descriptor cannot express it. For each point of the loops
    `others` it is another matrix."""
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


def suits_block_loads(matrix: Matrix, others: Sequence[Loop]) -> bool:
    """Whether Intel's 2-D block loads can load a matrix: it begins at a multiple of 64 bytes, for each point of the
    loops `others`, and lines have at least as many. Source: the OpenCL extension `cl_intel_subgroup_2d_block_io`."""
    item = item_bytes(matrix.place.dtype)
    begins = [*matrix.place.offset, *(matrix.place.strides[d] for _, d in others)]
    aligned = all(each.factor * item % _BLOCK_ALIGNMENT == 0 for each in begins)
    return aligned and matrix.length.factor * item >= _BLOCK_ALIGNMENT
