"""Register tiles of bf16 products, which multiply two neighbouring numbers along K at once and sum in f32.

A is read line by line, K inside. B is stored in blocks of 16 columns, two numbers along K of one column next to each
other, [block][K / 2][16][2], which both kinds of instructions read:

    tiles   AMX: `tdpbf16ps`, 16 rows x 16 columns x 32 of K
    dots    AVX-512 BF16: `vdpbf16ps`, two products a lane

Both round every sum to the nearest f32, and take subnormal operands and results for zeros (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, I8, I16, I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import Depth, TileFrame
from motet.compiler.targets.cpu import CpuTarget

BLOCK = 16  # columns
LANES = 16  # f32 sums of one register
DEPTH = 32  # numbers along K of one AMX tile
PAIR = 2
PAIR_NUMBERS = BLOCK * PAIR  # of one step of K in a block of B

Way = Literal["tiles", "dots"]


class _BrainType(ir.Type):
    """LLVM's `bfloat`, which llvmlite does not define."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BrainType)

    def __hash__(self) -> int:
        return hash(_BrainType)


def brain_vector(lanes: int) -> ir.Type:
    """LLVM's type of `lanes` bf16 numbers."""
    return ir.VectorType(_BrainType(), lanes)


def ways_of(target: CpuTarget) -> tuple[Way, ...]:
    """The kinds of instructions that `target` has, fastest first."""
    if not target.triple.startswith("x86_64") or target.lanes(32) != LANES or not target.has("avx512bf16"):
        return ()
    return ("tiles", "dots") if target.has("amx-bf16") else ("dots",)


@dataclass(frozen=True)
class BfloatOperands:
    """The operands of a register tile: the addresses of A's rows, or of the first rows of AMX's one or two tiles of
    them. `a_row` and `b_block` are the strides in numbers of A's rows and of B's blocks, `width` is the number of sums
    in a row of `sums`. `fresh` sums start at zero; others are accumulated."""

    a: Sequence[ir.Value]
    a_row: Index
    b: ir.Value
    b_block: Index
    sums: ir.Value
    width: int
    fresh: bool


Step = Callable[[ir.Value, ir.Value, list[ir.Value]], list[ir.Value]]


def along_depth(
    f: TileFrame, depth: Sequence[Depth], unroll: int, b: ir.Value, step: Callable[[Index, ir.Value, list[Any]], Any],
    values: list[ir.Value],
) -> list[ir.Value]:
    """Run `step(offset in A, address in B, values)` in the nest of loops `depth`, whose innermost one is unrolled."""
    def nest(level: int, a_at: Index, b_at: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        loop = depth[level]
        if level + 1 < len(depth):
            return f.loop(0, loop.size, 1, lambda i, inner: nest(
                level + 1, f.iadd(a_at, f.imul(i, loop.a)), f.at(b_at, f.imul(i, loop.b), I16), inner), values)

        def some(count: int) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
                for u in range(count):
                    here = f.iadd(i, u)
                    inner = step(f.iadd(a_at, f.imul(here, loop.a)), f.at(b_at, f.imul(here, loop.b), I16), inner)
                return inner
            return body

        whole = f.imul(f.idiv(loop.size, unroll), unroll)
        values = f.loop(0, whole, unroll, some(unroll), values)
        return values if unroll == 1 else f.loop(whole, loop.size, 1, some(1), values)

    return nest(0, 0, b, values)


# -- vectors -------------------------------------------------------------------------------------------


def multiply_tile(f: TileFrame, rows: int, blocks: int, at: BfloatOperands, depth: Sequence[Depth]) -> None:
    """Compute `sums[rows][16 blocks]` with vector instructions; the innermost loop of `depth` counts pairs."""
    kind = ir.VectorType(F32, LANES)
    pairs = ir.VectorType(_BrainType(), PAIR_NUMBERS)

    def step(a_at: Index, b_at: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        columns = [
            f.load(f.at(b_at, f.imul(block, at.b_block), I16), typ=pairs, align=2) for block in range(blocks)
        ]
        result: list[ir.Value] = []
        for row in range(rows):
            address = f.at(at.a[0], f.iadd(f.imul(row, at.a_row), a_at), I16)
            factor = f.bitcast(f.splat(f.load(address, typ=I32, align=2), LANES), pairs)
            for block, column in enumerate(columns):
                total = values[row * blocks + block]
                result.append(f.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", kind, [total, factor, column]))
        return result

    start = [ir.Constant(kind, None)] * (rows * blocks)
    values = along_depth(f, depth, max(1, min(4, 96 // (rows * blocks))), at.b, step, start)
    for number, total in enumerate(values):
        row, block = divmod(number, blocks)
        to = f.at(at.sums, row * at.width + block * BLOCK, F32)
        total = total if at.fresh else f.fadd(total, f.load_vector(to, F32, LANES))
        f.store_vector(total, to, F32)


# -- AMX -----------------------------------------------------------------------------------------------

_TILES = 8
_A_TILE, _B_TILE = 4, 6


def configure(f: TileFrame, rows: Index) -> None:
    """Configure this thread's tiles: four of sums and two of A with `rows` rows each, two of B with 16 rows. Each row
    has 64 bytes."""
    counts = range(1, BLOCK + 1) if not isinstance(rows, int) else (rows,)
    name = f"tiles{rows}" if isinstance(rows, int) else "tiles"
    table = f.module.globals.get(name)
    if table is None:
        content: list[int] = []
        for count in counts:
            one = [0] * 64
            one[0] = 1  # the palette
            for tile in range(_TILES):
                one[16 + 2 * tile] = 64
                one[48 + tile] = count if tile < _B_TILE else DEPTH // PAIR
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


def multiply_amx(f: TileFrame, rows: Index, blocks: int, at: BfloatOperands, depth: Sequence[Depth]) -> None:
    """Compute the sums of one or two tiles of `rows` rows of A by `blocks` blocks of B: at most 2 x 2 or 1 x 4 tiles of
    sums, those of the second tile of A after `rows` rows of the first. The innermost loop of `depth` counts steps of
    32."""
    sums = [
        (i * blocks + j, f.at(at.sums, f.iadd(f.imul(f.imul(i, rows), at.width), j * BLOCK), F32))
        for i in range(len(at.a)) for j in range(blocks)
    ]
    for number, address in sums:
        if at.fresh:
            f.intrinsic("llvm.x86.tilezero", ir.VoidType(), [_immediate(number)])
        else:
            _move(f, "tileload", number, address, at.width * 4)

    def step(a_at: Index, b_at: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        for i, base in enumerate(at.a):
            _move(f, "tileload", _A_TILE + i, f.at(base, a_at, I16), f.imul(at.a_row, 2))
        for j in range(blocks):
            tile = _B_TILE + j % 2
            _move(f, "tileload", tile, f.at(b_at, f.imul(j, at.b_block), I16), PAIR_NUMBERS * 2)
            for i in range(len(at.a)):
                numbers = [_immediate(number) for number in (i * blocks + j, _A_TILE + i, tile)]
                f.intrinsic("llvm.x86.tdpbf16ps", ir.VoidType(), numbers)
        return []

    along_depth(f, depth, 2, at.b, step, [])
    for number, address in sums:
        _move(f, "tilestore", number, address, at.width * 4)


def _move(f: TileFrame, what: Literal["tileload", "tilestore"], tile: int, address: ir.Value, stride: Index) -> None:
    name = "llvm.x86.tileloadd64" if what == "tileload" else "llvm.x86.tilestored64"
    f.intrinsic(name, ir.VoidType(), [_immediate(tile), address, f.index(stride)])


def _immediate(number: int) -> ir.Value:
    return ir.Constant(I8, number)
