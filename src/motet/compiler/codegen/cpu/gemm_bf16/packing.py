"""Packs bf16 operands in the order in which register tiles read them (see `tiles.py`).

An operand is a set of lines (rows of A, columns of B) of K numbers. It is packed in squares of 16 lines x 32 numbers,
which fill 16 registers. Squares are read as lines if K is contiguous, or as pairs of steps of K for all lines (two
short rows interleaved) if the lines are contiguous, and transposed if the other order is needed. What does not exist
of a square is filled with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I16, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    PartialVector,
    TileFrame,
    internal_function,
    read_vector,
    transpose,
)
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH, PAIR, PAIR_NUMBERS
from motet.compiler.kernels.kernel import Kernel


@dataclass(frozen=True)
class BfloatLines:
    """What is packed: the strides in numbers from line to line and from number to number, as ints if they are 1.
    `pairs` selects the order [block][K / 2][16][2] instead of line after line. With `exact` only lines that exist are
    written, else groups of 16."""

    line: Index
    number: Index
    pairs: bool
    exact: bool = False


def packing_function(
    module: ir.Module, kernel: Kernel, name: str, lines_of: Callable[[TileFrame], BfloatLines]
) -> Any:
    """A function `(buffers, sizes, source, target, lines, depth, padded)` that packs `lines` lines of `depth` numbers.
    A packed line (in a block: its sixteenth) has `padded` numbers, a multiple of 32."""
    function = internal_function(module, name, [PTR] * 4 + [I64] * 3)
    f = TileFrame(kernel, function)
    _emit(f, lines_of(f))
    f.ret_void()
    return function


def _emit(f: TileFrame, what: BfloatLines) -> None:
    source, target, lines, depth, padded = f.arguments[2:7]

    def pack(line: Index, number: Index) -> None:
        here = f.imin(f.isub(lines, line), BLOCK)
        start = f.at(source, f.iadd(f.imul(line, what.line), f.imul(number, what.number)), I16)
        vectors = _read_square(f, what, start, here, f.imin(f.isub(depth, number), DEPTH))
        if what.pairs:
            to = f.at(target, f.iadd(f.imul(line, padded), f.imul(number, BLOCK)), I16)
            for q, vector in enumerate(vectors):
                f.store_vector(vector, f.at(to, q * PAIR_NUMBERS, I16), I32)
            return
        for i, vector in enumerate(vectors):
            to = f.at(target, f.iadd(f.imul(f.iadd(line, i), padded), number), I16)
            if not what.exact:
                f.store_vector(vector, to, I32)
                continue
            with f.if_then(f.icmp_signed("<", f.index(i), f.index(here))):
                f.store_vector(vector, to, I32)

    def all_numbers(line: Index, _: list[ir.Value]) -> None:
        f.loop(0, depth, DEPTH, lambda number, _: pack(line, number))

    def all_lines(number: Index, _: list[ir.Value]) -> None:
        f.loop(0, lines, BLOCK, lambda line, _: pack(line, number))

    if what.number == 1:
        f.loop(0, lines, BLOCK, all_numbers)
    else:  # contiguous lines share cache lines: pack all lines before the next numbers
        f.loop(0, depth, DEPTH, all_lines)


def _read_square(f: TileFrame, what: BfloatLines, start: ir.Value, lines: Index, numbers: Index) -> list[ir.Value]:
    """The sixteen registers of a square of which `lines` x `numbers` exist: its lines, or its pairs along K."""
    across = what.number != 1 and what.line == 1  # lines are contiguous
    if across:
        vectors = [_interleave(f, start, what.number, q, lines, numbers) for q in range(DEPTH // PAIR)]
    else:
        kind = ir.VectorType(I32, BLOCK)
        vectors = [
            f.bitcast(_read(f, f.at(start, f.imul(i, what.line), I16), what.number, (i, lines), (DEPTH, numbers)), kind)
            for i in range(BLOCK)
        ]
    return vectors if across == what.pairs else transpose(f, vectors)


def _read(
    f: TileFrame, address: ir.Value, stride: Index, place: tuple[int, Index], extent: tuple[int, Index]
) -> ir.Value:
    """A vector of `extent[0]` numbers of which `extent[1]` exist, none if the vector's number `place[0]` is not below
    `place[1]`; the others are zeros."""
    exists = f.icmp_signed("<", f.index(place[0]), f.index(place[1]))
    count = f.select(exists, f.index(extent[1]), f.index(0))
    return read_vector(f, address, "bf16", stride, PartialVector(extent[0], count))


def _interleave(f: TileFrame, start: ir.Value, step: Index, q: int, lines: Index, numbers: Index) -> ir.Value:
    """Two rows of 16 numbers, `step` numbers apart, as sixteen columns of two."""
    rows = [
        _read(f, f.at(start, f.imul(PAIR * q + i, step), I16), 1, (PAIR * q + i, numbers), (BLOCK, lines))
        for i in range(PAIR)
    ]
    order = [row * BLOCK + column for column in range(BLOCK) for row in range(PAIR)]
    pairs = f.shuffle_vector(*rows, ir.Constant(ir.VectorType(I32, PAIR_NUMBERS), order))
    return f.bitcast(pairs, ir.VectorType(I32, BLOCK))
