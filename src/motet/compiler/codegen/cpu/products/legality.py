"""Legality checks for schedules of products of bytes and of bf16 numbers."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm.legality import grid, rows, scratch
from motet.compiler.codegen.cpu.products.instructions import Arithmetic, ways_of
from motet.compiler.codegen.cpu.products.plan import packing_of, reads_in_place, tile_height
from motet.compiler.codegen.cpu.products.product import LineProduct, ProductSchedule
from motet.compiler.kernels.schedule import Reason, in_range
from motet.compiler.targets.cpu import CpuTarget


def check(found: LineProduct, schedule: ProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    how = found.arithmetic(target, schedule.way)
    if how is None:
        ways = ", ".join(ways_of(target, found.numbers)) or "another class: the target has no instructions for it"
        return [Reason("way", schedule.way, ways)]
    reasons = [*(_amx_tile(found, schedule) if how.way == "tiles" else _vector_tile(schedule, how, target))]
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*grid(found.c, schedule), *_depth(found, schedule, how)]
    if schedule.depth_block is None or reasons:
        return reasons
    return scratch(schedule, schedule.rows * schedule.tile_rows * schedule.width * schedule.panels * 4)


def _amx_tile(found: LineProduct, s: ProductSchedule) -> Iterator[Reason]:
    """Check the limit of eight AMX tiles: at most four tiles of sums, 2 x 2 or 1 x 4."""
    m, height = found.rows.known, tile_height(found.rows)
    allowed = [height] if m is not None and m == height else [height, 2 * height]
    if s.rows not in allowed:
        yield Reason("rows", s.rows, " or ".join(map(str, allowed)))
        return
    yield from in_range("blocks", s.blocks, 1, 4 * height // s.rows)


def _vector_tile(s: ProductSchedule, how: Arithmetic, target: CpuTarget) -> Iterator[Reason]:
    yield from in_range("blocks", s.blocks, 1, target.vector_registers // how.registers)
    yield from rows(s, s.blocks * how.registers, target)


def _depth(found: LineProduct, s: ProductSchedule, how: Arithmetic) -> Iterator[Reason]:
    several, depth = len(found.c.depth) > 1, found.numbers.depth
    if s.in_place and not reads_in_place(found, how):
        yield Reason("in_place", True, "false: the left operand is not stored as the tiles read it")
    if (several or found.copied is not None) and not s.in_place:
        why = "a left operand with several loops along K, and the copy of an image, are not packed"
        yield Reason("in_place", False, f"true: {why}")
    if several and packing_of(found) is None:
        yield Reason("class", "bfloat-product", "contraction: the right operand cannot be packed when compiling")
    if s.depth_block is not None and several:
        yield Reason("depth_block", s.depth_block, "null: K is not one dimension")
    elif s.depth_block is not None and s.depth_block % depth:
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {depth}")
