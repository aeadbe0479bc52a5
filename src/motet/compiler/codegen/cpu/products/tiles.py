"""Register tiles of products of bytes and of bf16 numbers, for each of the instructions in `instructions.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index, Splat
from motet.compiler.codegen.cpu.gemm.microkernel import Depth, TileFrame
from motet.compiler.codegen.cpu.products.instructions import BLOCK, Arithmetic, immediate


@dataclass(frozen=True)
class Operands:
    """The operands of a register tile: the addresses of A's rows, or of the first rows of AMX's one or two tiles of
    them. `a_row` and `b_block` are the strides of A's rows and B's blocks in numbers as they are stored; `width` is the
    number of sums in a row of `sums`. `fresh` sums start at zero; others are accumulated."""

    a: Sequence[ir.Value]
    a_row: Index
    b: ir.Value
    b_block: Index
    sums: ir.Value
    width: int
    fresh: bool


# Emits a step, by functions that emit its offsets in A and B where they are used: LLVM's schedule follows their order.
_Step = Callable[[Callable[[], Index], Callable[[], Index], list[ir.Value]], list[ir.Value]]


def inner_depth(how: Arithmetic, length: Index) -> Depth:
    """The innermost loop along K of `length` instructions."""
    return Depth(length, how.step * how.a_scale, how.step * BLOCK)


def along_depth(
    f: TileFrame, depth: Sequence[Depth], unroll: int, step: _Step, values: list[ir.Value]
) -> list[ir.Value]:
    """Run `step` in the nest of loops `depth`, whose innermost one is unrolled."""
    def nest(level: int, a_at: Index, b_at: Index, values: list[ir.Value]) -> list[ir.Value]:
        loop = depth[level]
        if level + 1 < len(depth):
            return f.loop(0, loop.size, 1, lambda i, inner: nest(
                level + 1, f.iadd(a_at, f.imul(i, loop.a)), f.iadd(b_at, f.imul(i, loop.b)), inner), values)

        def some(count: int) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
                for u in range(count):
                    inner = one(f.iadd(i, u), inner)
                return inner
            return body

        def one(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
            return step(lambda: f.iadd(a_at, f.imul(i, loop.a)), lambda: f.iadd(b_at, f.imul(i, loop.b)), inner)

        whole = f.imul(f.idiv(loop.size, unroll), unroll)
        values = f.loop(0, whole, unroll, some(unroll), values)
        return values if unroll == 1 else f.loop(whole, loop.size, 1, some(1), values)

    return nest(0, 0, 0, values)


# -- vectors -------------------------------------------------------------------------------------------


def multiply_tile(
    f: TileFrame, how: Arithmetic, rows: int, blocks: int, at: Operands, depth: Sequence[Depth]
) -> None:
    """Compute `sums[rows][16 blocks]` with vector instructions; the innermost loop of `depth` counts groups."""
    width, numbers = how.registers, how.numbers

    def step(a_at: Callable[[], Index], b_at: Callable[[], Index], values: list[ir.Value]) -> list[ir.Value]:
        columns = [
            _read_b(f, how, f.at(at.b, f.iadd(f.imul(block, at.b_block), b_at()), numbers.element), v)
            for block in range(blocks) for v in range(width)
        ]
        result: list[ir.Value] = []
        for row in range(rows):
            factor = _broadcast(f, how, f.at(at.a[0], f.iadd(f.imul(row, at.a_row), a_at()), numbers.element))
            result += [
                how.instruction.multiply(f, how, total, factor, column)
                for total, column in zip(values[row * len(columns) :], columns, strict=False)
            ]
        return result

    start = [ir.Constant(ir.VectorType(numbers.total, how.lanes), None)] * (rows * blocks * width)
    values = along_depth(f, depth, max(1, min(4, 96 // len(start))), step, start)
    for number in range(rows * blocks):
        row, block = divmod(number, blocks)
        for v, total in enumerate(_gather(f, how, values[number * width : (number + 1) * width])):
            to = f.at(at.sums, row * at.width + block * BLOCK + v * how.lanes, numbers.total)
            total = total if at.fresh else numbers.add(f, total, f.load_vector(to, numbers.total, how.lanes))
            f.store_vector(total, to, numbers.total)


def column_sums(
    f: TileFrame, how: Arithmetic, blocks: int, b: ir.Value, b_block: Index, sums: ir.Value, groups: Index
) -> None:
    """Compute the sums of B's columns of bytes in `sums[16 blocks]`."""
    how = how.of_columns
    ones, width = Splat(how.register, 1), how.registers

    def step(_: Callable[[], Index], b_at: Callable[[], Index], values: list[ir.Value]) -> list[ir.Value]:
        return [
            how.instruction.multiply(f, how, total, ones, _read_b(
                f, how, f.at(b, f.iadd(f.imul(number // width, b_block), b_at()), I8), number % width))
            for number, total in enumerate(values)
        ]

    zero = ir.Constant(ir.VectorType(I32, how.lanes), None)
    values = along_depth(f, [inner_depth(how, groups)], 2, step, [zero] * (blocks * width))
    for block in range(blocks):
        for v, total in enumerate(_gather(f, how, values[block * width : (block + 1) * width])):
            f.store_vector(total, f.at(sums, block * BLOCK + v * how.lanes, I32), I32)


def _read_b(f: TileFrame, how: Arithmetic, address: ir.Value, v: int) -> ir.Value:
    """Load register `v` of the step of a block that begins at `address`."""
    kind, numbers, stored = how.register, how.numbers, how.instruction.stored
    at = f.at(address, v * kind.count, numbers.element)
    value = f.load(at, typ=ir.VectorType(stored, kind.count), align=numbers.bytes)
    if stored == kind.element:
        return value
    return f.zext(value, kind) if how.b_unsigned else f.sext(value, kind)


def _broadcast(f: TileFrame, how: Arithmetic, address: ir.Value) -> ir.Value:
    """Broadcast a group of numbers of a row of A."""
    word = how.instruction.word
    number = f.load(address, typ=word, align=how.instruction.align)
    return f.bitcast(f.splat(number, how.lanes * 32 // word.width), how.register)


def _gather(f: TileFrame, how: Arithmetic, values: list[ir.Value]) -> list[ir.Value]:
    """The sums of a block's columns, from the registers that accumulate them."""
    if not how.halves:
        return values
    lanes = how.lanes
    even, odd = (ir.Constant(ir.VectorType(I32, lanes), list(range(first, 2 * lanes, 2))) for first in (0, 1))
    return [
        f.add(f.shuffle_vector(a, b, even), f.shuffle_vector(a, b, odd))
        for a, b in zip(values[::2], values[1::2], strict=True)
    ]


# -- AMX -----------------------------------------------------------------------------------------------

_TILES, _ROW_BYTES = 8, 64
_A_TILE, _B_TILE = 4, 6


def configure(f: TileFrame, rows: Index) -> None:
    """Configure this thread's tiles: four of sums and two of A with `rows` rows each, two of B with 16 rows. Each row
    has 64 bytes."""
    counts = (rows,) if isinstance(rows, int) else range(1, BLOCK + 1)
    name = f"tiles{rows}" if isinstance(rows, int) else "tiles"
    table = f.module.globals.get(name)
    if table is None:
        content: list[int] = []
        for count in counts:
            one = [0] * 64
            one[0] = 1  # the palette
            for tile in range(_TILES):
                one[16 + 2 * tile] = _ROW_BYTES
                one[48 + tile] = count if tile < _B_TILE else BLOCK
            content += one
        kind = ir.ArrayType(I8, len(content))
        table = ir.GlobalVariable(f.module, kind, name)
        table.initializer = ir.Constant(kind, content)
        table.global_constant = True
        table.linkage = "internal"
        table.align = 64
    f.intrinsic("llvm.x86.ldtilecfg", ir.VoidType(), [f.at(table, f.imul(f.isub(rows, counts[0]), 64), I8)])


def release(f: TileFrame) -> None:
    """Release this thread's tiles, so that context switches need not save them."""
    f.intrinsic("llvm.x86.tilerelease", ir.VoidType(), [])


def multiply_amx(
    f: TileFrame, how: Arithmetic, rows: Index, blocks: int, at: Operands, depth: Sequence[Depth]
) -> None:
    """Compute the sums of one or two tiles of `rows` rows of A by `blocks` blocks of B: at most 2 x 2 or 1 x 4 tiles of
    sums, those of the second tile of A after `rows` rows of the first. The innermost loop of `depth` counts steps of
    64 bytes."""
    element = how.numbers.element
    sums = [
        (i * blocks + j, f.at(at.sums, f.iadd(f.imul(f.imul(i, rows), at.width), j * BLOCK), how.numbers.total))
        for i in range(len(at.a)) for j in range(blocks)
    ]
    for number, address in sums:
        if at.fresh:
            f.intrinsic("llvm.x86.tilezero", ir.VoidType(), [immediate(number)])
        else:
            _move(f, "tileload", number, address, at.width * 4)

    def step(a_at: Callable[[], Index], b_at: Callable[[], Index], _: list[ir.Value]) -> list[ir.Value]:
        for i, base in enumerate(at.a):
            _move(f, "tileload", _A_TILE + i, f.at(base, a_at(), element), f.imul(at.a_row, how.numbers.bytes))
        for j in range(blocks):
            tile = _B_TILE + j % 2
            _move(f, "tileload", tile, f.at(at.b, f.iadd(f.imul(j, at.b_block), b_at()), element), _ROW_BYTES)
            for i in range(len(at.a)):
                total, a, b = (immediate(number) for number in (i * blocks + j, _A_TILE + i, tile))
                how.instruction.multiply(f, how, total, a, b)
        return []

    along_depth(f, depth, 2, step, [])
    for number, address in sums:
        _move(f, "tilestore", number, address, at.width * 4)


def _move(f: TileFrame, what: Literal["tileload", "tilestore"], tile: int, address: ir.Value, stride: Index) -> None:
    name = "llvm.x86.tileloadd64" if what == "tileload" else "llvm.x86.tilestored64"
    f.intrinsic(name, ir.VoidType(), [immediate(tile), address, f.index(stride)])
