"""Register tiles of 8-bit products, which multiply four neighbouring numbers along K at once.

Both operands are stored as bytes (A as 16-bit numbers if only those can be multiplied), padded with zeros along K to a
multiple of 64. A is stored line by line. B is stored in blocks of 16 columns, four numbers along K of one column next
to
each other, [block][K / 4][16][4], which all three kinds of instructions read:

    tiles   AMX: `tdpb..d`, 16 rows x 16 columns x 64 of K, any signs
    dots    AVX-512 VNNI or AVX-VNNI: `vpdpbusd`, four products a lane, unsigned by signed. If both operands have the
            same sign, A is read with its top bit flipped, and 128 times the columns' sums corrects the result
    pairs   `vpmaddwd`, two products a lane of numbers widened to 16 bits; elsewhere than on x86 two widening products,
            such as NEON's `smlal`. A block uses twice the registers, whose neighbouring lanes are added at the end

All sums wrap around as i32, so that all kinds give identical results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I16, I32, I64, Index, Splat
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.targets.cpu import CpuTarget

BLOCK = 16  # columns
DEPTH = 64  # K is padded to a multiple of this
QUAD = 4
QUAD_BYTES = BLOCK * QUAD  # of one step of K in a block of B

Way = Literal["tiles", "dots", "pairs"]


@dataclass(frozen=True)
class Arithmetic:
    """How `target` multiplies 8-bit integers of given signs. `lanes` is the number of 32-bit lanes of a register."""

    way: Way
    lanes: int
    a_unsigned: bool
    b_unsigned: bool
    is_x86: bool = True

    @property
    def flips_a(self) -> bool:
        """Whether A is read with its top bit flipped."""
        return self.way == "dots" and self.a_unsigned == self.b_unsigned

    @property
    def column_factor(self) -> int:
        """The factor for the sums of B's columns that corrects A's flipped bits."""
        return (128 if self.a_unsigned else -128) if self.flips_a else 0

    @property
    def a_bytes(self) -> int:
        return 2 if self.way == "pairs" else 1

    @property
    def registers(self) -> int:
        """The number of registers that the sums of one row of a block use."""
        return BLOCK // self.lanes * (2 if self.way == "pairs" else 1)


def ways_of(target: CpuTarget) -> tuple[Way, ...]:
    """The kinds of instructions that `target` has, fastest first."""
    lanes = target.lanes(32)
    if not target.triple.startswith("x86_64"):
        return ("pairs",) if lanes >= 4 else ()
    if lanes not in (8, 16):
        return ()
    dots = target.has("avx512vnni") or (target.has("avxvnni") and lanes == 8)
    tiles = target.has("amx-int8") and target.has("avx512vnni")
    if target.has("avxvnni") and not dots:
        return ()
    return (*(("tiles",) if tiles else ()), *(("dots",) if dots else ()), "pairs")


def arithmetic_of(target: CpuTarget, a_unsigned: bool, b_unsigned: bool, way: Way | None = None) -> Arithmetic | None:
    """The arithmetic of `target` by `way`, or by its fastest kind of instructions; None if it has none."""
    ways = ways_of(target)
    if not ways or way not in (None, *ways):
        return None
    return Arithmetic(way or ways[0], target.lanes(32), a_unsigned, b_unsigned, target.triple.startswith("x86_64"))


@dataclass(frozen=True)
class Operands:
    """The operands of a tile. `a_row` and `b_block` are the strides in bytes of A's rows and B's blocks; `width` is the
    number of sums in a row of `sums`. `fresh` sums start at zero; others are accumulated."""

    a: ir.Value
    a_row: Index
    b: ir.Value
    b_block: Index
    sums: ir.Value
    width: int
    fresh: bool


# -- registers -----------------------------------------------------------------------------------------


def multiply_tile(f: TileFrame, how: Arithmetic, rows: int, blocks: int, at: Operands, quads: Index) -> None:
    """Compute `sums[rows][16 blocks]` over `quads` groups of four along K, with vector instructions."""
    width = how.registers
    zero = ir.Constant(ir.VectorType(I32, how.lanes), None)

    def step(q: Index, values: list[ir.Value]) -> list[ir.Value]:
        result = list(values)
        columns = [
            _read_b(f, how, f.at(at.b, f.iadd(f.imul(block, at.b_block), f.imul(q, QUAD_BYTES)), I8), v)
            for block in range(blocks) for v in range(width)
        ]
        for row in range(rows):
            offset = f.iadd(f.imul(row, at.a_row), f.imul(q, QUAD * how.a_bytes))
            factor = _broadcast(f, how, f.at(at.a, offset, I8))
            for v, column in enumerate(columns):
                number = row * len(columns) + v
                result[number] = dot(f, how, values[number], factor, column)
        return result

    values = unrolled(f, quads, max(1, min(4, 96 // (rows * blocks * width))), step, [zero] * (rows * blocks * width))
    for row in range(rows):
        for block in range(blocks):
            first = (row * blocks + block) * width
            for v, total in enumerate(_gather(f, how, values[first : first + width])):
                to = f.at(at.sums, row * at.width + block * BLOCK + v * how.lanes, I32)
                total = total if at.fresh else f.add(total, f.load_vector(to, I32, how.lanes))
                f.store_vector(total, to, I32)


def unrolled(
    f: TileFrame, count: Index, steps: int, step: Callable[[Index, list[ir.Value]], list[ir.Value]],
    values: list[ir.Value],
) -> list[ir.Value]:
    """Run `step` for 0 to `count`, `steps` of them in each iteration of the loop."""
    def iteration(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
        for u in range(steps):
            inner = step(f.iadd(i, u), inner)
        return inner

    whole = f.imul(f.idiv(count, steps), steps)
    values = f.loop(0, whole, steps, iteration, values)
    return values if steps == 1 else f.loop(whole, count, 1, step, values)


def dot(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """`total` plus, lane by lane, the products of the registers `a` and `b`, of bytes or 16-bit numbers."""
    bits = how.lanes * 32
    if not how.is_x86:
        return _widening_dot(f, total, a, b)
    if how.way == "pairs":
        name = "llvm.x86.avx512.pmaddw.d.512" if bits == 512 else "llvm.x86.avx2.pmadd.wd"
        return f.add(total, f.intrinsic(name, total.type, [a, b]))
    unsigned, signed = (b, a) if how.b_unsigned else (a, b)
    return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{bits}", total.type, [total, unsigned, signed])


def _widening_dot(f: TileFrame, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """`total` plus, lane by lane, the products of two neighbouring 16-bit numbers of `a` and `b`."""
    lanes = total.type.count
    for first in (0, 1):
        half = ir.Constant(ir.VectorType(I32, lanes), list(range(first, 2 * lanes, 2)))
        x, y = (f.sext(f.shuffle_vector(each, each, half), total.type) for each in (a, b))
        total = f.add(total, f.mul(x, y))
    return total


def column_sums(f: TileFrame, how: Arithmetic, blocks: int, b: ir.Value, b_block: Index, sums: ir.Value, quads: Index,
                ) -> None:
    """Compute the sums of B's columns in `sums[16 blocks]`."""
    how = how if how.way != "tiles" else Arithmetic("dots", how.lanes, not how.b_unsigned, how.b_unsigned)
    kind = ir.VectorType(I16, how.lanes * 2) if how.way == "pairs" else ir.VectorType(I8, how.lanes * 4)
    ones = Splat(kind, 1)
    width = how.registers

    def step(q: Index, values: list[ir.Value]) -> list[ir.Value]:
        return [
            dot(f, how, total, ones, _read_b(
                f, how, f.at(b, f.iadd(f.imul(number // width, b_block), f.imul(q, QUAD_BYTES)), I8), number % width))
            for number, total in enumerate(values)
        ]

    zero = ir.Constant(ir.VectorType(I32, how.lanes), None)
    values = unrolled(f, quads, 2, step, [zero] * (blocks * width))
    for block in range(blocks):
        for v, total in enumerate(_gather(f, how, values[block * width : (block + 1) * width])):
            f.store_vector(total, f.at(sums, block * BLOCK + v * how.lanes, I32), I32)


def _read_b(f: TileFrame, how: Arithmetic, address: ir.Value, v: int) -> ir.Value:
    """Load register `v` of the step of a block that begins at `address`."""
    if how.way == "dots":
        return f.load_vector(f.at(address, v * how.lanes * 4, I8), I8, how.lanes * 4)
    narrow = f.load_vector(f.at(address, v * how.lanes * 2, I8), I8, how.lanes * 2)
    kind = ir.VectorType(I16, how.lanes * 2)
    return f.zext(narrow, kind) if how.b_unsigned else f.sext(narrow, kind)


def _broadcast(f: TileFrame, how: Arithmetic, address: ir.Value) -> ir.Value:
    """Broadcast four numbers of a row of A."""
    if how.way == "dots":
        number = f.load(address, typ=I32, align=1)
        return f.bitcast(f.splat(number, how.lanes), ir.VectorType(I8, how.lanes * 4))
    number = f.load(address, typ=I64, align=2)
    return f.bitcast(f.splat(number, how.lanes // 2), ir.VectorType(I16, how.lanes * 2))


def _gather(f: TileFrame, how: Arithmetic, values: list[ir.Value]) -> list[ir.Value]:
    """The sums of a block's columns, from the registers that accumulate them."""
    if how.way == "dots":
        return values
    lanes = how.lanes
    even, odd = (ir.Constant(ir.VectorType(I32, lanes), list(range(first, 2 * lanes, 2))) for first in (0, 1))
    return [
        f.add(f.shuffle_vector(a, b, even), f.shuffle_vector(a, b, odd))
        for a, b in zip(values[::2], values[1::2], strict=True)
    ]


# -- AMX -----------------------------------------------------------------------------------------------

_TILES = 8


def configure(f: TileFrame, rows: int) -> None:
    """Configure this thread's tiles: four of sums and two of A with `rows` rows each, two of B with 16 rows. Each row
    has 64 bytes."""
    module = f.module
    name = f"tiles{rows}"
    constant = module.globals.get(name)
    if constant is None:
        content = [0] * 64
        content[0] = 1  # the palette
        for tile in range(_TILES):
            content[16 + 2 * tile] = DEPTH
            content[48 + tile] = rows if tile < 6 else BLOCK
        constant = ir.GlobalVariable(module, ir.ArrayType(I8, 64), name)
        constant.initializer = ir.Constant(ir.ArrayType(I8, 64), content)
        constant.global_constant = True
        constant.linkage = "internal"
        constant.align = 64
    f.intrinsic("llvm.x86.ldtilecfg", ir.VoidType(), [constant])


def release(f: TileFrame) -> None:
    """Release this thread's tiles, so that context switches need not save them."""
    f.intrinsic("llvm.x86.tilerelease", ir.VoidType(), [])


def multiply_amx(
    f: TileFrame, how: Arithmetic, row_tiles: int, rows: int, blocks: int, at: Operands, steps: Index
) -> None:
    """Compute `sums[row_tiles x rows][16 blocks]` over `steps` times 64 of K, with the tiles of `configure(rows)`;
    at most 2 x 2 or 1 x 4 tiles of sums."""
    sums = [
        (i * blocks + j, f.at(at.sums, i * rows * at.width + j * BLOCK, I32))
        for i in range(row_tiles) for j in range(blocks)
    ]
    for number, address in sums:
        if at.fresh:
            f.intrinsic("llvm.x86.tilezero", ir.VoidType(), [_immediate(number)])
        else:
            _move(f, "tileload", number, address, at.width * 4)
    name = f"llvm.x86.tdpb{'u' if how.a_unsigned else 's'}{'u' if how.b_unsigned else 's'}d"

    def step(s: Index, _: list[ir.Value]) -> list[ir.Value]:
        for i in range(row_tiles):
            offset = f.iadd(f.imul(i * rows, at.a_row), f.imul(s, DEPTH))
            _move(f, "tileload", 4 + i, f.at(at.a, offset, I8), at.a_row)
        for j in range(blocks):
            offset = f.iadd(f.imul(j, at.b_block), f.imul(s, BLOCK * DEPTH))
            b_tile = 6 + j % 2
            _move(f, "tileload", b_tile, f.at(at.b, offset, I8), QUAD_BYTES)
            for i in range(row_tiles):
                numbers = [_immediate(number) for number in (i * blocks + j, 4 + i, b_tile)]
                f.intrinsic(name, ir.VoidType(), numbers)
        return []

    unrolled(f, steps, 2, step, [])
    for number, address in sums:
        _move(f, "tilestore", number, address, at.width * 4)


def _move(f: TileFrame, what: Literal["tileload", "tilestore"], tile: int, address: ir.Value, stride: Index) -> None:
    name = "llvm.x86.tileloadd64" if what == "tileload" else "llvm.x86.tilestored64"
    f.intrinsic(name, ir.VoidType(), [_immediate(tile), address, f.index(stride)])


def _immediate(number: int) -> ir.Value:
    return ir.Constant(I8, number)
