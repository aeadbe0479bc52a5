"""Legality checks for schedules of products of bytes and of bf16 numbers."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.products.instructions import Arithmetic, ways_of
from motet.compiler.codegen.cpu.products.plan import packing_of, reads_in_place, tile_height
from motet.compiler.codegen.cpu.products.product import LineProduct, ProductSchedule
from motet.compiler.kernels.schedule import Reason, in_range
from motet.compiler.kernels.strides import product_of
from motet.compiler.targets.cpu import CpuTarget

_MOST = 1 << 20
_MOST_SCRATCH = 256 << 20  # bytes of one thread


def check(found: LineProduct, schedule: ProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    how = found.arithmetic(target, schedule.way)
    if how is None:
        ways = ", ".join(ways_of(target, found.numbers)) or "another class: the target has no instructions for it"
        return [Reason("way", schedule.way, ways)]
    reasons = [*(_amx_tile(found, schedule) if how.way == "tiles" else _vector_tile(schedule, how, target))]
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*_grid(found, schedule), *_depth(found, schedule, how)]
    if schedule.depth_block is not None and not reasons:
        sums = schedule.rows * schedule.tile_rows * schedule.width * schedule.panels * 4
        if sums > _MOST_SCRATCH:
            text = f"fewer: scratch memory of a thread would take {sums} bytes, at most {_MOST_SCRATCH}"
            reasons.append(Reason("tile_rows", schedule.tile_rows, text))
    return reasons


def _amx_tile(found: LineProduct, s: ProductSchedule) -> Iterator[Reason]:
    """Check the limit of eight AMX tiles: at most four tiles of sums, 2 x 2 or 1 x 4."""
    m, height = found.rows.known, tile_height(found.rows)
    allowed = [height] if m is not None and m == height else [height, 2 * height]
    if s.rows not in allowed:
        yield Reason("rows", s.rows, " or ".join(map(str, allowed)))
        return
    yield from in_range("blocks", s.blocks, 1, 4 * height // s.rows)


def _vector_tile(s: ProductSchedule, how: Arithmetic, target: CpuTarget) -> Iterator[Reason]:
    registers = target.vector_registers
    yield from in_range("blocks", s.blocks, 1, registers // how.registers)
    most = max(1, registers // max(1, s.blocks * how.registers))
    yield from in_range("rows", s.rows, 1, most, f"{registers} vector registers")


def _grid(found: LineProduct, s: ProductSchedule) -> Iterator[Reason]:
    m, n, outer = found.rows.known, found.c.n[0].known, product_of(found.c.outer).known
    yield from in_range("tile_rows", s.tile_rows, 1, _MOST if m is None else max(1, -(-m // s.rows)))
    yield from in_range("panels", s.panels, 1, _MOST if n is None else max(1, -(-n // s.width)))
    yield from in_range("group", s.group, 1, _MOST if outer is None else max(1, outer))


def _depth(found: LineProduct, s: ProductSchedule, how: Arithmetic) -> Iterator[Reason]:
    several, depth = len(found.c.depth) > 1, found.numbers.depth
    if s.in_place and not reads_in_place(found, how, s.rows):
        yield Reason("in_place", True, "false: the left operand is not stored as the tiles read it")
    if (several or found.copied is not None) and not s.in_place:
        why = "a left operand with several loops along K, and the copy of an image, are not packed"
        yield Reason("in_place", False, f"true: {why}")
    if several and packing_of(found) is None:
        yield Reason("class", "bfloat-product", "contraction: the right operand cannot be packed when compiling")
    if s.depth_block is not None and several:
        yield Reason("depth_block", s.depth_block, "null: K is not one dimension")
    elif s.depth_block is not None and (s.depth_block % depth or not depth <= s.depth_block <= _MOST):
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {depth} up to {_MOST}")
