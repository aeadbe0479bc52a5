"""Legality checks for schedules of bf16 products."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm_bf16.plan import packing_of, reads_in_place, tile_height
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH, ways_of
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.kernels.schedule import BfloatProductSchedule, Reason, in_range
from motet.compiler.kernels.strides import ONE, product_of
from motet.compiler.targets.cpu import CpuTarget

_MOST = 1 << 20
_MOST_SCRATCH = 256 << 20  # bytes of one thread


def check(c: BfloatProduct, schedule: BfloatProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    ways = ways_of(target)
    if schedule.way not in ways:
        return [Reason("way", schedule.way, ", ".join(ways))]
    reasons = [*(_amx_tile(c, schedule) if schedule.way == "tiles" else _vector_tile(schedule, target))]
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*_grid(c, schedule), *_depth(c, schedule)]
    if schedule.depth_block is not None and not reasons:
        sums = schedule.rows * schedule.tile_rows * schedule.width * schedule.panels * 4
        if sums > _MOST_SCRATCH:
            text = f"fewer: scratch memory of a thread would take {sums} bytes, at most {_MOST_SCRATCH}"
            reasons.append(Reason("tile_rows", schedule.tile_rows, text))
    return reasons


def _amx_tile(c: BfloatProduct, s: BfloatProductSchedule) -> Iterator[Reason]:
    """Check the limit of eight AMX tiles: at most four tiles of sums, 2 x 2 or 1 x 4."""
    m = c.m[0] if c.m else ONE
    height = tile_height(m)
    allowed = [height] if m.known is not None and m.known <= BLOCK else [height, 2 * height]
    if s.rows not in allowed:
        yield Reason("rows", s.rows, " or ".join(map(str, allowed)))
        return
    yield from in_range("blocks", s.blocks, 1, 4 * height // s.rows)


def _vector_tile(s: BfloatProductSchedule, target: CpuTarget) -> Iterator[Reason]:
    registers = target.vector_registers
    yield from in_range("blocks", s.blocks, 1, registers)
    yield from in_range("rows", s.rows, 1, max(1, registers // max(1, s.blocks)), f"{registers} vector registers")


def _grid(c: BfloatProduct, s: BfloatProductSchedule) -> Iterator[Reason]:
    m, n, outer = (c.m[0] if c.m else ONE).known, c.n[0].known, product_of(c.outer).known
    yield from in_range("tile_rows", s.tile_rows, 1, _MOST if m is None else max(1, -(-m // s.rows)))
    yield from in_range("panels", s.panels, 1, _MOST if n is None else max(1, -(-n // s.width)))
    yield from in_range("group", s.group, 1, _MOST if outer is None else max(1, outer))


def _depth(c: BfloatProduct, s: BfloatProductSchedule) -> Iterator[Reason]:
    if s.in_place and not reads_in_place(c, s.way):
        yield Reason("in_place", True, "false: the left operand is not stored as the tiles read it")
    if (len(c.depth) > 1 or c.image is not None) and not s.in_place:
        why = "a left operand with several loops along K, and the copy of an image, are not packed"
        yield Reason("in_place", False, f"true: {why}")
    if len(c.depth) > 1 and packing_of(c) is None:
        yield Reason("class", "bfloat-product", "contraction: the right operand cannot be packed when compiling")
    if s.depth_block is not None and len(c.depth) > 1:
        yield Reason("depth_block", s.depth_block, "null: K is not one dimension")
    elif s.depth_block is not None and (s.depth_block % DEPTH or not DEPTH <= s.depth_block <= _MOST):
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {DEPTH} up to {_MOST}")
