"""Legality checks for schedules of products by weights of a few bits."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm.legality import grid, scratch, vector_tile
from motet.compiler.codegen.cpu.gemm.plan import scratch_layout
from motet.compiler.codegen.cpu.gemm_blocks.plan import contraction_schedule
from motet.compiler.codegen.cpu.gemm_blocks.reading import BlockProduct
from motet.compiler.kernels.schedule import BlockProductSchedule, Reason
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget


def check(found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    reasons = [*vector_tile(found.c, schedule, target), *grid(found.c, schedule), *_streams(found, schedule)]
    if reasons:
        return reasons
    layout = scratch_layout(found.c, contraction_schedule(schedule), widens=not schedule.streams)
    return scratch(schedule, layout[-1])


def _streams(found: BlockProduct, s: BlockProductSchedule) -> Iterator[Reason]:
    if s.streams and s.rows != (found.c.m[0] if found.c.m else ONE).known:
        yield Reason("streams", True, "false: a register tile does not have all rows")
    if s.depth_block is not None and s.depth_block % found.per_word:
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {found.per_word}")
    if s.streams and s.depth_block is not None:
        yield Reason("depth_block", s.depth_block, "null with streams")
    if s.pack_a and (s.streams or found.c.m is None):
        yield Reason("pack_a", True, "false: the left operand has few rows")
