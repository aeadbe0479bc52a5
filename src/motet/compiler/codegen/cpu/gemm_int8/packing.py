"""Packs 8-bit operands in the order in which register tiles read them (see `tiles.py`).

An operand is a set of lines (rows of A, columns of B) of K numbers. It is packed in squares of 16 lines x 64 numbers,
which fill 16 registers. Squares are read as lines if K is contiguous, or as groups of four steps of K for all lines
(four short rows interleaved) if the lines are contiguous, and transposed if the other order is needed. A partial
square is first copied to a buffer and padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I1, I8, I16, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, horizontal_sum, internal_function, transpose
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, QUAD, QUAD_BYTES
from motet.compiler.kernels.kernel import Kernel

SQUARE = BLOCK * DEPTH


@dataclass(frozen=True)
class PackedLines:
    """What is packed: the strides in bytes from line to line and from number to number, as ints if they are 1.

    `quads` selects the order [block][K / 4][16][4] instead of line after line. `flip` flips the top bits. `wide`
    widens the numbers to 16 bits, as `unsigned` or signed ones. `sums` computes the sum of each line.
    """

    line: Index
    number: Index
    quads: bool
    unsigned: bool
    flip: bool = False
    wide: bool = False
    sums: bool = False


def packing_function(
    module: ir.Module, kernel: Kernel, name: str, lines_of: Callable[[TileFrame], PackedLines]
) -> Any:
    """A function `(buffers, sizes, source, target, sums, square, lines, depth, padded)` that packs `lines` lines of
    `depth` numbers. A packed line (in a block: its sixteenth) has `padded` numbers, a multiple of 64. `square` is
    a buffer of `SQUARE` bytes."""
    function = internal_function(module, name, [PTR] * 6 + [I64] * 3)
    f = TileFrame(kernel, function)
    _emit(f, lines_of(f))
    f.ret_void()
    return function


def _emit(f: TileFrame, what: PackedLines) -> None:
    source, target, sums, square, lines, depth, padded = f.arguments[2:9]
    kind = ir.VectorType(I32, BLOCK)

    def pack(line: Index, number: Index, totals: list[ir.Value]) -> list[ir.Value]:
        here = f.imin(f.isub(lines, line), BLOCK)
        start = f.at(source, f.iadd(f.imul(line, what.line), f.imul(number, what.number)), I8)
        vectors = _read_square(f, what, start, square, here, f.imin(f.isub(depth, number), DEPTH))
        if what.quads:
            at = f.at(target, f.iadd(f.imul(line, padded), f.imul(number, BLOCK)), I8)
            for q, vector in enumerate(vectors):
                f.store_vector(vector, f.at(at, q * QUAD_BYTES, I8), I32)
            return totals
        for i, vector in enumerate(vectors):
            _write_line(f, what, vector, target, f.iadd(f.imul(f.iadd(line, i), padded), number))
        return [f.add(total, _sum_bytes(f, what, vector)) for total, vector in zip(totals, vectors, strict=False)]

    def group(line: Index, _: list[ir.Value]) -> None:
        totals = [ir.Constant(kind, None)] * (BLOCK if what.sums else 0)
        totals = f.loop(0, depth, DEPTH, lambda number, inner: pack(line, number, inner), totals)
        for i, total in enumerate(totals):
            f.store_vector(horizontal_sum(f, total, False), f.at(sums, f.iadd(line, i), I32), I32)

    def chunk(number: Index, _: list[ir.Value]) -> None:
        def square_of(line: Index, _: list[ir.Value]) -> None:
            pack(line, number, [])

        f.loop(0, lines, BLOCK, square_of)

    if what.sums or what.number == 1:
        f.loop(0, lines, BLOCK, group)
        return
    # Contiguous lines share cache lines: pack all lines before the next numbers.
    f.loop(0, depth, DEPTH, chunk)


def _write_line(f: TileFrame, what: PackedLines, vector: ir.Value, target: ir.Value, offset: Index) -> None:
    numbers = f.bitcast(vector, ir.VectorType(I8, DEPTH))
    if what.flip:
        numbers = f.xor(numbers, ir.Constant(numbers.type, [-128] * DEPTH))
    if not what.wide:
        f.store_vector(numbers, f.at(target, offset, I8), I8)
        return
    wide = ir.VectorType(I16, DEPTH)
    numbers = f.zext(numbers, wide) if what.unsigned else f.sext(numbers, wide)
    f.store_vector(numbers, f.at(target, offset, I16), I16)


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


# -- squares -------------------------------------------------------------------------------------------


def _read_square(
    f: TileFrame, what: PackedLines, start: ir.Value, square: ir.Value, lines: Index, numbers: Index
) -> list[ir.Value]:
    """The sixteen registers of a square of which `lines` x `numbers` exist: its lines, or its groups of four along
    K."""
    across = what.number != 1 and what.line == 1  # lines are contiguous
    if what.number == 1 or across:
        whole = f.and_(
            f.icmp_signed("==", f.index(lines), f.index(BLOCK)), f.icmp_signed("==", f.index(numbers), f.index(DEPTH))
        )
    else:
        whole = ir.Constant(I1, 0)
    with f.if_then(f.not_(whole)):
        _copy_square(f, what, across, start, square, lines, numbers)
    address = f.select(whole, start, square)
    if across:
        step = f.select(whole, f.index(what.number), f.index(BLOCK))
        vectors = [_interleave(f, address, step, q) for q in range(DEPTH // QUAD)]
    else:
        step = f.select(whole, f.index(what.line), f.index(DEPTH))
        kind = ir.VectorType(I32, BLOCK)
        vectors = [f.load(f.at(address, f.imul(i, step), I8), typ=kind, align=1) for i in range(BLOCK)]
    return vectors if across == what.quads else transpose(f, vectors)


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
    f: TileFrame, what: PackedLines, across: bool, start: ir.Value, square: ir.Value, lines: Index, numbers: Index
) -> None:
    """Copy the part of a square that exists to `square`, whole rows as vectors, and fill the rest with zeros."""
    zero = ir.Constant(ir.VectorType(I8, DEPTH), None)
    for i in range(SQUARE // DEPTH):
        f.store_vector(zero, f.at(square, i * DEPTH, I8), I8)
    outer, inner, row = (numbers, lines, BLOCK) if across else (lines, numbers, DEPTH)
    outer_step, inner_step = (what.number, what.line) if across else (what.line, what.number)

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
