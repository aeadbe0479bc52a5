"""Weights of 4 or 8 bits as products read them: words of 32 bits, and sides for each block of rows.

    words[w, n]     the rows w·T … w·T + T - 1 of column n, T = 32 / bits; the first row in the lowest bits, signed
    scales[b, n]    the weight is (number - zeros[b, n]) · scales[b, n] + shifts[b, n] for all rows of block b

Zeros are signed bytes; zeros and shifts are None where they are 0. Rows are padded so that blocks are equal, and have
whole words; the numbers of padding are finite, and are multiplied by zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from motet.compiler.passes.fuse.factored import Factored

_BLOCKS = (1024, 512, 256, 128, 64, 32, 16)  # lengths that are looked for in sides that are written out
_SMALLEST_BLOCK = 16


@dataclass(frozen=True)
class BlockWeights:
    """A matrix of `depth` rows in blocks of `block`, with as many columns as `words` has."""

    bits: int
    depth: int
    block: int
    words: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    shifts: np.ndarray | None

    @property
    def blocks(self) -> int:
        return self.scales.shape[0]


@dataclass(frozen=True)
class _Sides:
    """Sides of `rows` rows each."""

    rows: int
    zero: np.ndarray
    scale: np.ndarray
    shift: np.ndarray


def block_weights(what: Factored, row_axis: int) -> BlockWeights | None:
    """The matrix `what`, whose axis `row_axis` is summed over; None if its numbers need more than 8 bits, or its sides
    change too often along the rows."""
    if what.integers is None or not what.is_real or len(what.axes) != 2:
        return None
    depth, columns = what.extents[row_axis], what.extents[1 - row_axis]
    low, high = int(what.integers.min()), int(what.integers.max())
    if high - low > 255:
        return None
    bits = 4 if high - low <= 15 else 8
    half = 1 << (bits - 1)
    offset = 0 if -half <= low and high < half else half if low >= 0 and high < 2 * half else low + half
    sides = _sides(what, row_axis, depth)
    if sides is None:
        return None
    per_word = 32 // bits
    single = sides.rows >= depth
    if not single and (sides.rows < _SMALLEST_BLOCK or sides.rows % per_word):
        return None
    block = -(-depth // per_word) * per_word if single else sides.rows
    numbers = _matrix(what.integers, what, row_axis)
    words = _words(numbers, depth, columns, -(-depth // block) * block, offset, bits)
    zeros, shifts = sides.zero[:, :columns] - offset, sides.shift[:, :columns]
    scales = sides.scale[:, :columns]
    if zeros.min() < -128 or zeros.max() > 127:
        shifts, zeros = shifts - zeros * scales, np.zeros_like(zeros)
    return BlockWeights(
        bits, depth, block, words, _shortened(scales), zeros.astype(np.int8) if zeros.any() else None,
        shifts.astype(np.float32) if shifts.any() else None,
    )


def _matrix(array: np.ndarray, what: Factored, row_axis: int) -> np.ndarray:
    """`array` written out, with rows first."""
    sizes = [math.prod(own) for own in what.axes]
    full = np.broadcast_to(array, [part for own in what.axes for part in own]).reshape(sizes)
    return full if row_axis == 0 else full.T


def _words(numbers: np.ndarray, depth: int, columns: int, rows: int, offset: int, bits: int) -> np.ndarray:
    """The numbers minus `offset`, of which `32 / bits` rows form a word."""
    per_word, mask = 32 // bits, (1 << bits) - 1
    words = np.zeros((rows // per_word, columns), np.uint32)
    for part in range(per_word):
        some = numbers[part:depth:per_word, :columns]
        words[: len(some)] |= ((some.astype(np.int32) - offset) & mask).astype(np.uint32) << np.uint32(part * bits)
    return words.view(np.int32)


def _sides(what: Factored, row_axis: int, depth: int) -> _Sides | None:
    """The sides with one row for each block of rows, by the axes that they depend on or by their elements."""
    own = what.axes[row_axis]
    first = sum(map(len, what.axes[:row_axis]))
    scale, shift = (np.float32(0 if number else 1) for number in range(2))
    arrays = [
        np.asarray(what.zero), np.asarray(scale if what.scale is None else what.scale),
        np.asarray(shift if what.shift is None else what.shift),
    ]
    used = [
        place + 1 for place in range(len(own))
        if any(array.ndim and array.shape[first + place] != 1 for array in arrays)
    ]
    leading = max(used, default=0)
    rows = math.prod(own[leading:])
    kept = [
        tuple(part if axis != row_axis or place < leading else 1 for place, part in enumerate(parts))
        for axis, parts in enumerate(what.axes)
    ]
    if rows < _SMALLEST_BLOCK and rows < depth and math.prod(own[:leading]) * what.extents[1 - row_axis] > 1 << 28:
        return None
    wide: list[np.ndarray] = []
    for array in arrays:
        full = np.broadcast_to(array, [part for parts in kept for part in parts])
        matrix = full.reshape([math.prod(parts) for parts in kept])
        wide.append(matrix if row_axis == 0 else matrix.T)
    zero, scale, shift = wide
    if rows == 1 < depth:
        return _runs(_Sides(1, zero, scale.astype(np.float32), shift), depth)
    return _Sides(rows, zero.astype(np.int64), scale.astype(np.float32), shift.astype(np.float32))


def _runs(sides: _Sides, depth: int) -> _Sides | None:
    """Sides that are written out for each row, as sides of blocks within which they do not change."""
    arrays = (sides.zero, sides.scale, sides.shift)
    for block in (depth, *(each for each in _BLOCKS if each < depth)):
        last = np.arange(depth) // block * block
        if all(np.array_equal(array[:depth], array[last]) for array in arrays):
            first = slice(0, depth, block)
            zero, scale, shift = (np.ascontiguousarray(array[first]) for array in arrays)
            return _Sides(block, zero.astype(np.int64), scale, shift.astype(np.float32))
    return None


def _shortened(scales: np.ndarray) -> np.ndarray:
    """Scales as f16 if all of them are exact in it, else as f32."""
    with np.errstate(over="ignore"):
        short = scales.astype(np.float16)
    return short if np.array_equal(short.astype(np.float32), scales) else np.ascontiguousarray(scales)
