"""Packs operands in the order in which register tiles read them (see `instructions.py`).

An operand is a set of lines (rows of A, columns of B) of K numbers. It is packed in squares of 16 lines x 64 bytes,
which fill 16 registers. Squares are read as lines if K is contiguous, or as groups of steps of K for all lines (short
rows interleaved) if the lines are contiguous, and transposed if the other order is needed. What does not exist of a
square is filled with zeros: bytes are first copied to a buffer, bf16 numbers are loaded by masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I1, I8, I16, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    PartialVector,
    TileFrame,
    horizontal_sum,
    internal_function,
    read_vector,
    transpose,
)
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BLOCK, BYTES, PackedNumbers
from motet.compiler.kernels.kernel import Kernel

DEPTH, QUAD, PAIR = BYTES.depth, BYTES.group, BFLOATS.group
SQUARE = BLOCK * DEPTH


@dataclass(frozen=True)
class PackedLines:
    """What is packed: the strides in numbers from line to line and from number to number, as ints if they are 1.

    `grouped` selects the order [block][K / group][16][group] instead of line after line. With `exact` only lines that
    exist are written, else 16 at a time. Of bytes, `flip` flips the top bits, `wide` widens the numbers to 16 bits, as
    `unsigned` or signed ones, and `sums` computes the sum of each line.
    """

    line: Index
    number: Index
    grouped: bool
    unsigned: bool = False
    flip: bool = False
    wide: bool = False
    sums: bool = False
    exact: bool = False

    @property
    def across(self) -> bool:
        """Whether lines are contiguous."""
        return self.number != 1 and self.line == 1


def packing_function(
    module: ir.Module, kernel: Kernel, name: str, numbers: PackedNumbers, lines_of: Callable[[TileFrame], PackedLines]
) -> Any:
    """A function `(buffers, sizes, source, target, lines, depth, padded)` that packs `lines` lines of `depth` numbers.
    A packed line (in a block: its sixteenth) has `padded` numbers, a multiple of 64 bytes. If `numbers` are not masked,
    `sums` and a buffer of `SQUARE` bytes follow `target`."""
    function = internal_function(module, name, [PTR] * (4 if numbers.masked else 6) + [I64] * 3)
    f = TileFrame(kernel, function)
    _emit(f, numbers, lines_of(f))
    f.ret_void()
    return function


def _emit(f: TileFrame, numbers: PackedNumbers, what: PackedLines) -> None:
    source, target, *buffers, lines, depth, padded = f.arguments[2:]
    element, kind = numbers.element, ir.VectorType(I32, BLOCK)

    def pack(line: Index, number: Index, totals: list[ir.Value]) -> list[ir.Value]:
        here = f.imin(f.isub(lines, line), BLOCK)
        start = f.at(source, f.iadd(f.imul(line, what.line), f.imul(number, what.number)), element)
        left = f.imin(f.isub(depth, number), numbers.depth)
        if numbers.masked:
            vectors = _read_by_masks(f, what, start, here, left)
        else:
            vectors = _read_square(f, what, start, buffers[1], here, left)
        vectors = vectors if what.across == what.grouped else transpose(f, vectors)
        if what.grouped:
            at = f.at(target, f.iadd(f.imul(line, padded), f.imul(number, BLOCK)), element)
            for q, vector in enumerate(vectors):
                f.store_vector(vector, f.at(at, q * BLOCK * numbers.group, element), I32)
            return totals
        for i, vector in enumerate(vectors):
            offset = f.iadd(f.imul(f.iadd(line, i), padded), number)
            line_numbers = f.bitcast(vector, ir.VectorType(element, numbers.depth))
            if not what.exact:
                _write_line(f, what, line_numbers, target, offset)
                continue
            with f.if_then(f.icmp_signed("<", f.index(i), f.index(here))):
                _write_line(f, what, line_numbers, target, offset)
        return [f.add(total, _sum_bytes(f, what, vector)) for total, vector in zip(totals, vectors, strict=False)]

    def group(line: Index, _: list[ir.Value]) -> None:
        totals = [ir.Constant(kind, None)] * (BLOCK if what.sums else 0)
        totals = f.loop(0, depth, numbers.depth, lambda number, inner: pack(line, number, inner), totals)
        for i, total in enumerate(totals):
            f.store_vector(horizontal_sum(f, total, False), f.at(buffers[0], f.iadd(line, i), I32), I32)

    def chunk(number: Index, _: list[ir.Value]) -> None:
        def square_of(line: Index, _: list[ir.Value]) -> None:
            pack(line, number, [])

        f.loop(0, lines, BLOCK, square_of)

    if what.sums or what.number == 1:
        f.loop(0, lines, BLOCK, group)
        return
    # Contiguous lines share cache lines: pack all lines before the next numbers.
    f.loop(0, depth, numbers.depth, chunk)


def _write_line(f: TileFrame, what: PackedLines, numbers: ir.Value, target: ir.Value, offset: Index) -> None:
    if what.flip:
        numbers = f.xor(numbers, ir.Constant(numbers.type, [-128] * DEPTH))
    if what.wide:
        wide = ir.VectorType(I16, DEPTH)
        numbers = f.zext(numbers, wide) if what.unsigned else f.sext(numbers, wide)
    f.store_vector(numbers, f.at(target, offset, numbers.type.element), numbers.type.element)


def _sum_bytes(f: TileFrame, what: PackedLines, vector: ir.Value) -> ir.Value:
    """Sixteen partial sums of a line's 64 numbers."""
    numbers = f.bitcast(vector, ir.VectorType(I8, DEPTH))
    result: ir.Value | None = None
    for part in range(QUAD):
        mask = ir.Constant(ir.VectorType(I32, BLOCK), list(range(part * BLOCK, (part + 1) * BLOCK)))
        some = f.shuffle_vector(numbers, numbers, mask)
        wide = f.zext(some, vector.type) if what.unsigned else f.sext(some, vector.type)
        result = wide if result is None else f.add(result, wide)
    assert result is not None
    return result


# -- squares of bytes ----------------------------------------------------------------------------------


def _read_square(
    f: TileFrame, what: PackedLines, start: ir.Value, square: ir.Value, lines: Index, numbers: Index
) -> list[ir.Value]:
    """The sixteen registers of a square of which `lines` x `numbers` exist: its lines, or its groups of four along
    K."""
    if what.number == 1 or what.across:
        whole = f.and_(
            f.icmp_signed("==", f.index(lines), f.index(BLOCK)), f.icmp_signed("==", f.index(numbers), f.index(DEPTH))
        )
    else:
        whole = ir.Constant(I1, 0)
    with f.if_then(f.not_(whole)):
        _copy_square(f, what, start, square, lines, numbers)
    address = f.select(whole, start, square)
    if what.across:
        step = f.select(whole, f.index(what.number), f.index(BLOCK))
        return [_interleave(f, address, step, q) for q in range(DEPTH // QUAD)]
    step = f.select(whole, f.index(what.line), f.index(DEPTH))
    kind = ir.VectorType(I32, BLOCK)
    return [f.load(f.at(address, f.imul(i, step), I8), typ=kind, align=1) for i in range(BLOCK)]


def _interleave(f: TileFrame, address: ir.Value, step: ir.Value, q: int) -> ir.Value:
    """Four rows of 16 bytes, `step` bytes apart, as sixteen columns of four."""
    rows = [
        f.load_vector(f.at(address, f.imul(QUAD * q + i, step), I8), I8, BLOCK) for i in range(QUAD)
    ]
    halves = [
        f.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 2 * BLOCK), list(range(2 * BLOCK))))
        for a, b in (rows[:2], rows[2:])
    ]
    square_words = f.shuffle_vector(*halves, ir.Constant(ir.VectorType(I32, DEPTH), list(range(DEPTH))))
    # Shuffle whole words first, so that each sixteen bytes hold four columns; then the bytes within these.
    words = f.bitcast(square_words, ir.VectorType(I32, BLOCK))
    order = [i * QUAD + group for group in range(QUAD) for i in range(QUAD)]
    words = f.shuffle_vector(words, words, ir.Constant(ir.VectorType(I32, BLOCK), order))
    numbers = f.bitcast(words, ir.VectorType(I8, DEPTH))
    order = [16 * group + 4 * i + column for group in range(4) for column in range(4) for i in range(4)]
    numbers = f.shuffle_vector(numbers, numbers, ir.Constant(ir.VectorType(I32, DEPTH), order))
    return f.bitcast(numbers, ir.VectorType(I32, BLOCK))


def _copy_square(
    f: TileFrame, what: PackedLines, start: ir.Value, square: ir.Value, lines: Index, numbers: Index
) -> None:
    """Copy the part of a square that exists to `square`, whole rows as vectors, and fill the rest with zeros."""
    zero = ir.Constant(ir.VectorType(I8, DEPTH), None)
    for i in range(SQUARE // DEPTH):
        f.store_vector(zero, f.at(square, i * DEPTH, I8), I8)
    outer, inner, row = (numbers, lines, BLOCK) if what.across else (lines, numbers, DEPTH)
    outer_step, inner_step = (what.number, what.line) if what.across else (what.line, what.number)

    def copy(i: Index, _: list[ir.Value]) -> None:
        source, target = f.at(start, f.imul(i, outer_step), I8), f.at(square, f.imul(i, row), I8)

        def one(j: Index, _: list[ir.Value]) -> None:
            f.store(f.load(f.at(source, f.imul(j, inner_step), I8), typ=I8), f.at(target, j, I8))

        if inner_step != 1:
            f.loop(0, inner, 1, one)
            return
        with f.if_else(f.icmp_signed("==", f.index(inner), f.index(row))) as (whole, part):
            with whole:
                f.store_vector(f.load_vector(source, I8, row), target, I8)
            with part:
                f.loop(0, inner, 1, one)

    f.loop(0, outer, 1, copy)


# -- squares of bf16 numbers --------------------------------------------------------------------------


def _read_by_masks(f: TileFrame, what: PackedLines, start: ir.Value, lines: Index, numbers: Index) -> list[ir.Value]:
    """The sixteen registers of a square of which `lines` x `numbers` exist: its lines, or its pairs along K."""
    depth = BFLOATS.depth
    if what.across:
        return [_interleave_pairs(f, start, what.number, q, lines, numbers) for q in range(depth // PAIR)]
    kind = ir.VectorType(I32, BLOCK)
    return [
        f.bitcast(_read(f, f.at(start, f.imul(i, what.line), I16), what.number, (i, lines), (depth, numbers)), kind)
        for i in range(BLOCK)
    ]


def _read(
    f: TileFrame, address: ir.Value, stride: Index, place: tuple[int, Index], extent: tuple[int, Index]
) -> ir.Value:
    """A vector of `extent[0]` numbers of which `extent[1]` exist, none if the vector's number `place[0]` is not below
    `place[1]`; the others are zeros."""
    exists = f.icmp_signed("<", f.index(place[0]), f.index(place[1]))
    count = f.select(exists, f.index(extent[1]), f.index(0))
    return read_vector(f, address, "bf16", stride, PartialVector(extent[0], count))


def _interleave_pairs(f: TileFrame, start: ir.Value, step: Index, q: int, lines: Index, numbers: Index) -> ir.Value:
    """Two rows of 16 numbers, `step` numbers apart, as sixteen columns of two."""
    rows = [
        _read(f, f.at(start, f.imul(PAIR * q + i, step), I16), 1, (PAIR * q + i, numbers), (BLOCK, lines))
        for i in range(PAIR)
    ]
    order = [row * BLOCK + column for column in range(BLOCK) for row in range(PAIR)]
    pairs = f.shuffle_vector(*rows, ir.Constant(ir.VectorType(I32, BLOCK * PAIR), order))
    return f.bitcast(pairs, ir.VectorType(I32, BLOCK))
