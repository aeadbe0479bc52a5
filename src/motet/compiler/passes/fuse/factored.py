"""Numbers that are computed from constants, as integers with sides: `(integers - zero) * scale + shift`.

    %a = sitofp %bytes                Factored(bytes)
    %b = subf %a, %zeros         →    Factored(bytes, zeros)
    %c = mulf %b, %scales             Factored(bytes, zeros, scales)

The integers keep their width, and zero points, scales and shifts the extents that they were written with, so that the
product of all of them is never in memory. An axis of a tensor is one or several axes of the arrays, which numpy's
broadcasting aligns: a scale for each 32 rows has extents (4, 1, 64) in an array of (4, 32, 64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import known_number

Axes = tuple[tuple[int, ...], ...]
_SMALL = 1 << 12  # elements of a tensor of numbers that may be a side, however large the other operand is


@dataclass(frozen=True)
class Factored:
    """The elements `(integers - zero) * scale + shift` of a tensor; without integers, `shift`. A scale that is None is
    1, a shift that is None is 0. `axes` are the extents of the arrays' axes that form each axis of the tensor, none of
    them 1; the first `extents` elements count. Arrays have extent 1 along axes on which they do not depend."""

    axes: Axes
    extents: tuple[int, ...]
    integers: np.ndarray | None = None
    zero: np.ndarray | int = 0
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    is_real: bool = False

    @property
    def arrays(self) -> list[np.ndarray]:
        """What is broadcast along the axes."""
        return [each for each in (self.integers, self.zero, self.scale, self.shift) if isinstance(each, np.ndarray)]

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Factored:
        """The same with all arrays changed."""

        def changed(part: np.ndarray | None) -> np.ndarray | None:
            return None if part is None else change(part)

        return replace(
            self, integers=changed(self.integers), scale=changed(self.scale), shift=changed(self.shift),
            zero=change(self.zero) if isinstance(self.zero, np.ndarray) else self.zero,
        )


def number_of(number: float | int) -> Factored:
    """A number as a tensor without axes."""
    if isinstance(number, int):
        return Factored((), (), np.array(number, np.int64))
    return Factored((), (), shift=np.array(number, np.float64), is_real=True)


def evaluate_body(block: ir.Block, values: dict[ir.Value, Factored], space: Factored) -> Factored | None:
    """What a body yields over the axes of `space`, with its arguments in `values`; None if it cannot be written so."""
    for entry in block.operations:
        operation = entry.operation
        operands: list[Factored] = []
        for operand in operation.operands:
            number = known_number(operand) if operand not in values else None
            if number is not None:
                wide = number_of(number).each(lambda array: array.reshape((1,) * sum(map(len, space.axes))))
                values[operand] = replace(wide, axes=space.axes, extents=space.extents)
            if operand not in values:
                return None
            operands.append(values[operand])
        if operation.name == "linalg.yield":
            return operands[0]
        if operation.name == "arith.constant":
            continue
        made = _scalar(operation, operands)
        if made is None:
            return None
        values[operation.results[0]] = made
    return None


def _scalar(operation: ir.Operation, operands: Sequence[Factored]) -> Factored | None:
    name, first = operation.name, operands[0]
    if name in ("arith.sitofp", "arith.uitofp"):
        return None if first.is_real else replace(_unsigned(first, operation, name == "arith.uitofp"), is_real=True)
    if name in ("arith.extsi", "arith.extui", "arith.trunci"):
        return _resized(operation, first)
    if name in ("arith.extf", "arith.truncf"):
        return _rounded(operation, first)
    if name in ("arith.subf", "arith.addf", "arith.mulf"):
        return _real(name, first, operands[1])
    if name in ("arith.subi", "arith.addi") and not first.is_real and not operands[1].is_real:
        shifted = _offset(first, operands[1], -1 if name == "arith.addi" else 1)
        if shifted is not None:
            return shifted
    return _integers(operation, operands)


def _width(kind: ir.Type) -> int | None:
    return ir.IntegerType(kind).width if isinstance(kind, ir.IntegerType) else None


def _unsigned(what: Factored, operation: ir.Operation, unsigned: bool) -> Factored:
    """The integers as an operation reads them, which are stored as signed ones."""
    bits = _width(operation.operands[0].type)
    if not unsigned or what.integers is None or bits is None or bits < 8 or bits > 32 or _least(what) >= 0:
        return what
    wide = what.integers.astype(f"i{bits // 4}") & ((1 << bits) - 1)
    return replace(what, integers=wide)


def _least(what: Factored) -> int:
    if isinstance(what.zero, np.ndarray) or what.zero:
        return 0  # differences are of numbers whose sign has been read
    return int(what.integers.min()) if what.integers is not None else 0


def _resized(operation: ir.Operation, what: Factored) -> Factored | None:
    if what.is_real or what.integers is None:
        return None
    if operation.name == "arith.trunci":
        return _integers(operation, [what])
    return _unsigned(what, operation, operation.name == "arith.extui")


def _rounded(operation: ir.Operation, what: Factored) -> Factored | None:
    """A conversion of floats: sides are rounded, products of integers and sides are left more exact."""
    if what.integers is not None:
        return what
    dtype = DTYPES.get(str(operation.results[0].type))
    return None if dtype is None else replace(what, shift=np.asarray(what.shift).astype(dtype))


def _offset(first: Factored, second: Factored, sign: int) -> Factored | None:
    """`first - sign * second`, where the second one is a zero point; None if it is as large as the first one."""
    if first.integers is None or second.integers is None or isinstance(second.zero, np.ndarray) or second.zero:
        return None
    if second.integers.size > max(_SMALL, first.integers.size // 4) or first.integers.size <= 1:
        return None
    return replace(first, zero=np.asarray(first.zero + sign * second.integers.astype(np.int64)))


def _real(name: str, first: Factored, second: Factored) -> Factored | None:
    if name == "arith.mulf" and _weight(second) > _weight(first):
        first, second = second, first
    if name == "arith.addf" and _weight(second) > _weight(first):
        first, second = second, first
    side = _as_side(second)
    if side is None or (name == "arith.subf" and _weight(second) > _weight(first)):
        return None
    if first.integers is None:
        function = {"arith.subf": np.subtract, "arith.addf": np.add, "arith.mulf": np.multiply}[name]
        return replace(first, shift=np.asarray(function(np.asarray(first.shift), side)))
    if name == "arith.mulf":
        scale = side if first.scale is None else np.multiply(first.scale, side)
        shift = None if first.shift is None else np.multiply(first.shift, side)
        return replace(first, scale=np.asarray(scale), shift=shift)
    unscaled = first.scale is None and first.shift is None
    if unscaled and np.all(side == np.rint(side)) and np.abs(side).max(initial=0) < 1 << 20:
        sign = 1 if name == "arith.subf" else -1
        return replace(first, zero=np.asarray(first.zero + sign * side.astype(np.int64)))
    wide = side.astype(np.float32) if name == "arith.addf" else -side.astype(np.float32)
    return replace(first, shift=wide if first.shift is None else np.add(first.shift, wide))


def _weight(what: Factored) -> int:
    return what.integers.size if what.integers is not None else -1


def _as_side(what: Factored) -> np.ndarray | None:
    """A factor or term as an array; None if that would be as large as weights are."""
    if what.integers is None:
        return np.asarray(what.shift)
    total = np.broadcast_shapes(*(array.shape for array in what.arrays))
    full = math.prod(part for own in what.axes for part in own)
    if math.prod(total) > max(_SMALL, full // 4):
        return None
    numbers = what.integers.astype(np.float64) - what.zero
    numbers = numbers if what.scale is None else numbers * what.scale
    return (numbers if what.shift is None else numbers + what.shift).astype(np.float32)


_INTEGERS: Mapping[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "arith.andi": lambda a, b, bits: a & b, "arith.ori": lambda a, b, bits: a | b,
    "arith.xori": lambda a, b, bits: a ^ b,
    "arith.addi": lambda a, b, bits: a + b, "arith.subi": lambda a, b, bits: a - b,
    "arith.muli": lambda a, b, bits: a * b,
    "arith.shli": lambda a, b, bits: a << b, "arith.shrsi": lambda a, b, bits: a >> b,
    "arith.shrui": lambda a, b, bits: (a & ((1 << bits) - 1)) >> b,
}


def _integers(operation: ir.Operation, operands: Sequence[Factored]) -> Factored | None:
    """Arithmetic of integers, which wraps around in the width of the result, by numpy."""
    bits, arrays = _width(operation.results[0].type), list[np.ndarray]()
    for each in operands:
        whole = whole_integers(each)
        if whole is None:
            return None
        arrays.append(whole)
    if bits not in (8, 16, 32):
        return None
    wide = np.int32 if bits < 32 else np.int64
    if operation.name == "arith.trunci":
        result = arrays[0].astype(wide)
    elif operation.name in _INTEGERS and len(arrays) == 2:
        left, right = (array.astype(wide) for array in arrays)
        result = _INTEGERS[operation.name](left, right, bits)
    else:
        return None
    half = 1 << (bits - 1)
    if int(result.min()) < -half or int(result.max()) >= half:
        result = ((result + half) & ((1 << bits) - 1)) - half
    return replace(operands[0], integers=_narrowed(result), zero=0)


def whole_integers(what: Factored) -> np.ndarray | None:
    """The integers of a tensor minus their zero points; None for floats."""
    if what.is_real or what.integers is None:
        return None
    if not isinstance(what.zero, np.ndarray):
        return what.integers
    return _narrowed(what.integers.astype(np.int32) - what.zero.astype(np.int32))


def _narrowed(array: np.ndarray) -> np.ndarray:
    """`array` as signed integers of the least width that has all its numbers."""
    low, high = int(array.min()), int(array.max())
    width = next(each for each in (1, 2, 4, 8) if -(1 << (8 * each - 1)) <= low and high < 1 << (8 * each - 1))
    return array.astype(f"i{width}")
