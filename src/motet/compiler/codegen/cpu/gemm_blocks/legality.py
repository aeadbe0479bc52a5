"""Legality checks for schedules of products by weights of a few bits."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm.plan import lanes_of, scratch_layout
from motet.compiler.codegen.cpu.gemm_blocks.plan import contraction_schedule
from motet.compiler.codegen.cpu.gemm_blocks.reading import BlockProduct
from motet.compiler.kernels.schedule import BlockProductSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, product_of
from motet.compiler.targets.cpu import CpuTarget

_MOST = 1 << 20
_MOST_SCRATCH = 256 << 20  # bytes of one thread


def check(found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    reasons = [*_tile(found, schedule, target), *_grid(found, schedule)]
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*_depth(found, schedule)]
    if not reasons:
        scratch = scratch_layout(found.c, contraction_schedule(schedule), widens=not schedule.streams)[-1]
        if scratch > _MOST_SCRATCH:
            text = f"smaller blocks: scratch memory of a thread would take {scratch} bytes, at most {_MOST_SCRATCH}"
            reasons.append(Reason("tile_rows", schedule.tile_rows, text))
    return reasons


def _tile(found: BlockProduct, s: BlockProductSchedule, target: CpuTarget) -> Iterator[Reason]:
    yield from lanes_reason(s.lanes, lanes_of(found.c, target))
    registers = target.vector_registers
    yield from in_range("vectors", s.vectors, 1, registers)
    yield from in_range("rows", s.rows, 1, max(1, registers // max(1, s.vectors)), f"{registers} vector registers")


def _grid(found: BlockProduct, s: BlockProductSchedule) -> Iterator[Reason]:
    if s.rows < 1 or s.width < 1:
        return
    m, outer = (found.c.m[0] if found.c.m else ONE).known, product_of(found.c.outer).known
    yield from in_range("tile_rows", s.tile_rows, 1, _MOST if m is None else max(1, -(-m // s.rows)))
    yield from in_range("panels", s.panels, 1, max(1, -(-found.columns // s.width)))
    yield from in_range("group", s.group, 1, _MOST if outer is None else max(1, outer))
    if s.streams and s.rows != m:
        yield Reason("streams", True, "false: a register tile does not have all rows")


def _depth(found: BlockProduct, s: BlockProductSchedule) -> Iterator[Reason]:
    if s.depth_block is not None and (s.depth_block % found.per_word or not 1 <= s.depth_block <= _MOST):
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {found.per_word} up to {_MOST}")
    if s.streams and s.depth_block is not None:
        yield Reason("depth_block", s.depth_block, "null with streams")
    if s.pack_a and (s.streams or found.c.m is None):
        yield Reason("pack_a", True, "false: the left operand has few rows")
