"""Legality checks for schedules of 8-bit products."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm_int8.plan import reads_in_place
from motet.compiler.codegen.cpu.gemm_int8.reading import DotProduct
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, Arithmetic, arithmetic_of, ways_of
from motet.compiler.kernels.schedule import IntegerProductSchedule, Reason, in_range
from motet.compiler.kernels.strides import product_of
from motet.compiler.targets.cpu import CpuTarget

_MOST = 1 << 20
_MOST_SCRATCH = 256 << 20  # bytes of one thread


def check(found: DotProduct, schedule: IntegerProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    how = arithmetic_of(target, found.a.unsigned, found.b.unsigned, schedule.way)
    if how is None:
        ways = ", ".join(ways_of(target)) or "another class: the target has no instructions for it"
        return [Reason("way", schedule.way, ways)]
    m = found.c.m[0].known if found.c.m else 1
    tile = _amx_tile(schedule, m) if how.way == "tiles" else _vector_tile(schedule, how, target)
    reasons = [*tile]
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*_grid(found, schedule, m), *_depth(found, schedule, how)]
    if schedule.depth_block is not None and not reasons:
        sums = schedule.rows * schedule.tile_rows * schedule.width * schedule.panels * 4
        if sums > _MOST_SCRATCH:
            text = f"fewer: scratch memory of a thread would take {sums} bytes, at most {_MOST_SCRATCH}"
            reasons.append(Reason("tile_rows", schedule.tile_rows, text))
    return reasons


def _amx_tile(s: IntegerProductSchedule, m: int | None) -> Iterator[Reason]:
    """Check the limit of eight AMX tiles: at most four tiles of sums, 2 x 2 or 1 x 4."""
    half = BLOCK if m is None else -(-m // -(-m // BLOCK))
    allowed = [half] if m is not None and m <= BLOCK else [half, 2 * half]
    if s.rows not in allowed:
        yield Reason("rows", s.rows, " or ".join(map(str, allowed)))
        return
    yield from in_range("blocks", s.blocks, 1, 4 * half // s.rows)


def _vector_tile(s: IntegerProductSchedule, how: Arithmetic, target: CpuTarget) -> Iterator[Reason]:
    registers = target.vector_registers
    yield from in_range("blocks", s.blocks, 1, registers // how.registers)
    most = max(1, registers // max(1, s.blocks * how.registers))
    yield from in_range("rows", s.rows, 1, most, f"{registers} vector registers")


def _grid(found: DotProduct, s: IntegerProductSchedule, m: int | None) -> Iterator[Reason]:
    n, outer = found.c.n[0].known, product_of(found.c.outer).known
    yield from in_range("tile_rows", s.tile_rows, 1, _MOST if m is None else max(1, -(-m // s.rows)))
    yield from in_range("panels", s.panels, 1, _MOST if n is None else max(1, -(-n // s.width)))
    yield from in_range("group", s.group, 1, _MOST if outer is None else max(1, outer))


def _depth(found: DotProduct, s: IntegerProductSchedule, how: Arithmetic) -> Iterator[Reason]:
    if s.in_place and not reads_in_place(found, how, s.rows if how.way == "tiles" else 1):
        yield Reason("in_place", True, "false: the left operand is not stored as the tiles read it")
    if s.depth_block is not None and (s.depth_block % DEPTH or not DEPTH <= s.depth_block <= _MOST):
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {DEPTH} up to {_MOST}")
