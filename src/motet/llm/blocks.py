"""Matrices of 4 or 8 bits in blocks: `(number - zero) * scale + shift`, with sides for each block of a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.errors import OptionError

BLOCKS = (32, 64, 128)


@dataclass(frozen=True)
class BlockMatrix:
    """Weights [outputs, inputs]. `numbers` are signed bytes of that shape, `scales` and `shifts` f16 or f32
    [outputs, inputs / block]. None: no shifts. `bits` is how many bits the numbers need."""

    numbers: np.ndarray
    scales: np.ndarray
    shifts: np.ndarray | None
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def size(self) -> int:
        return self.numbers.size

    @property
    def block(self) -> int:
        return self.numbers.shape[1] // self.scales.shape[1]

    def __getitem__(self, rows: slice | np.ndarray) -> BlockMatrix:
        """Some of the rows."""
        shifts = None if self.shifts is None else self.shifts[rows]
        return BlockMatrix(self.numbers[rows], self.scales[rows], shifts, self.bits)

    def floats(self) -> np.ndarray:
        """The matrix written out, f32."""
        rows, columns = self.numbers.shape
        wide = self.numbers.reshape(rows, -1, self.block).astype(np.float32) * self.scales.astype(np.float32)[..., None]
        if self.shifts is not None:
            wide += self.shifts.astype(np.float32)[..., None]
        return wide.reshape(rows, columns)


def quantise(matrix: np.ndarray, bits: int, block: int) -> BlockMatrix:
    """`matrix`, rounded to `bits` bits with a scale for each `block` of a row; in one block for each row if `block`
    does not divide it. Symmetric, as GGUF's Q4_0 and Q8_0: the element of greatest magnitude is kept exactly, up to the
    rounding of its scale to f16."""
    if block not in BLOCKS:
        raise OptionError(f"group: {block}; expected one of {', '.join(map(str, BLOCKS))}")
    rows, columns = matrix.shape
    if columns % block:
        block = columns
    numbers = np.empty((rows, columns), np.int8)
    scales = np.empty((rows, columns // block), np.float16)
    least = -(1 << (bits - 1))
    for begin in range(0, rows, 1024):  # so that the floats of a large matrix are never all in memory
        some = np.asarray(matrix[begin : begin + 1024], np.float32).reshape(-1, columns // block, block)
        extreme = np.take_along_axis(some, np.abs(some).argmax(axis=2, keepdims=True), 2)
        exact = extreme / (least if bits == 4 else np.copysign(least + 1, -extreme))
        scale = exact.astype(np.float16)
        inverse = np.divide(1, scale, out=np.zeros(scale.shape, np.float32), where=scale != 0, dtype=np.float32)
        numbers[begin : begin + 1024] = np.clip(np.rint(some * inverse), least, -least - 1).reshape(-1, columns)
        scales[begin : begin + 1024] = scale[..., 0]
    return BlockMatrix(numbers, scales, None, bits)
