"""Schedules of products by weights of a few bits, their legality, and the packings of words and sides as blocks of
columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from msgspec.structs import replace

from motet.compiler.codegen.cpu.gemm import plan as contraction_plan
from motet.compiler.codegen.cpu.gemm.legality import grid, scratch, vector_tile
from motet.compiler.codegen.cpu.gemm.plan import lanes_of, scratch_layout
from motet.compiler.codegen.cpu.gemm_blocks.reading import BlockProduct
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import BlockProductSchedule, ContractionSchedule, Reason
from motet.compiler.kernels.strides import ONE, product_of
from motet.compiler.targets.cpu import CpuTarget

COLUMNS = 16  # stored together, a multiple of the lanes of all vectors
STREAMED_ROWS = 4  # up to so many, weights are widened in registers
_TASK_BYTES = 96 << 10  # of words
_MOST_TASKS = 64
_NEAR_ROWS = 64  # whose sums fit in the first-level cache next to a piece of a panel


def choose(found: BlockProduct, target: CpuTarget) -> BlockProductSchedule | None:
    """Choose the way of widening, the register tile and the grid; None if the result has no elements."""
    m = found.c.m[0] if found.c.m else ONE
    if m.known == 0:
        return None
    if m.known is not None and m.known <= STREAMED_ROWS:
        return _streaming(found, m.known, target)
    plan = contraction_plan.choose(_as_floats(found), target)
    if plan is None or plan.b_mode != "packed":
        return None
    deep = _depth_block(found, plan, target)
    plan = replace(plan, depth_block=None if deep >= found.depth else deep)
    return BlockProductSchedule(
        plan.lanes, plan.rows, plan.vectors, plan.tile_rows, plan.panels, False, plan.depth_block, plan.pack_a,
        plan.group,
    )


def _as_floats(found: BlockProduct) -> Contraction:
    """The product by a constant of f32."""
    return dataclasses.replace(found.c, kernel=found.whole)


def contraction_schedule(schedule: BlockProductSchedule) -> ContractionSchedule:
    """The schedule of the product by a packed matrix of f32."""
    s = schedule
    return ContractionSchedule(
        s.lanes, s.rows, s.vectors, s.tile_rows, s.panels, "packed", s.depth_block, s.pack_a, s.group)


def _streaming(found: BlockProduct, rows: int, target: CpuTarget) -> BlockProductSchedule:
    lanes = lanes_of(found.c, target)
    most = {1: 4, 2: 4, 3: 3}.get(rows, 2) if target.vector_registers > 16 else {1: 4, 2: 2}.get(rows, 1)
    needed = -(-found.columns // lanes)
    vectors = -(-needed // -(-needed // most))
    panels = -(-found.columns // (lanes * vectors))
    outer = guess(product_of(found.c.outer))
    wanted = max(1, min(_MOST_TASKS, found.depth * found.columns * found.bits // 8 * outer // _TASK_BYTES) // outer)
    each = -(-panels // min(panels, wanted))
    group = 1 if each < panels else max(1, -(-outer // _MOST_TASKS))
    return BlockProductSchedule(lanes, rows, vectors, 1, each, True, group=group)


def _depth_block(found: BlockProduct, plan: ContractionSchedule, target: CpuTarget) -> int:
    """The steps of a panel that are widened at a time: they stay in a cache while the rows are multiplied, in the first
    one if the sums of all rows do, too."""
    m = guess(found.c.m[0] if found.c.m else ONE)
    room = target.l1 * 3 // 4 if m <= _NEAR_ROWS else target.l2 // 4
    most = max(64, min(1024, room // (4 * plan.width)))
    pieces = -(-found.depth // most)
    return -(-found.depth // (pieces * found.per_word)) * found.per_word


def check(found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `found` on `target`; an empty list if it is."""
    reasons = [*vector_tile(found.c, schedule, target), *grid(found.c, schedule), *_blocks(found, schedule)]
    if reasons:
        return reasons
    layout = scratch_layout(found.c, contraction_schedule(schedule), widens=not schedule.streams)
    return scratch(schedule, layout[-1])


def _blocks(found: BlockProduct, s: BlockProductSchedule) -> Iterator[Reason]:
    if s.streams and s.rows != (found.c.m[0] if found.c.m else ONE).known:
        yield Reason("streams", True, "false: a register tile does not have all rows")
    if s.depth_block is not None and s.depth_block % found.per_word:
        yield Reason("depth_block", s.depth_block, f"null, or a multiple of {found.per_word}")
    if s.streams and s.depth_block is not None:
        yield Reason("depth_block", s.depth_block, "null with streams")
    if s.pack_a and (s.streams or found.c.m is None):
        yield Reason("pack_a", True, "false: the left operand has few rows")


def packing_of() -> Packing:
    """Blocks of columns of words, [column / 16][block][word][16]: the same for all levels and tiles."""
    return Packing((2, 0, 1), (COLUMNS, 1, 1), (0, 2, 3, 4, 5, 1))


def side_packing_of() -> Packing:
    """Blocks of columns of sides, [column / 16][block][16]."""
    return Packing((1, 0), (COLUMNS, 1), (0, 2, 3, 1))
