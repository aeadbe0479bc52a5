"""Schedules of 8-bit products: tiles, blocks of K, tasks, and the packing of both operands."""

from __future__ import annotations

from msgspec.structs import replace

from motet.compiler.codegen.cpu.gemm.line_plan import MOST_TASKS, cut_task, line_packing
from motet.compiler.codegen.cpu.gemm.microkernel import registers
from motet.compiler.codegen.cpu.gemm_int8.image import ByteImage
from motet.compiler.codegen.cpu.gemm_int8.reading import DotProduct
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, QUAD, Arithmetic, arithmetic_of
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import IntegerProductSchedule
from motet.compiler.kernels.strides import ONE, Extent
from motet.compiler.targets.cpu import CpuTarget

# Multiply-adds of one task, ten microseconds or more, and multiply-adds in the time of one byte read from the L2 cache.
_TASK_WORK = {"tiles": 8_000_000, "dots": 2_000_000, "pairs": 500_000}
_WORK_PER_BYTE = {"tiles": 32, "dots": 6, "pairs": 2}
# The longest K that is multiplied in one pass; a longer one is blocked so that both operands stay in the caches.
_DEPTH_BLOCK = {"tiles": 4096, "dots": 4096, "pairs": 4096}


def choose(found: DotProduct, target: CpuTarget) -> IntegerProductSchedule | None:
    """Choose instructions, register tile and grid; None if `target` has no suitable instructions."""
    how = arithmetic_of(target, found.a.unsigned, found.b.unsigned)
    if how is None:
        return None
    c = found.c
    m, n, k = c.m[0] if c.m else ONE, c.n[0], c.depth[0][0]
    blocks_total = -(-guess(n) // BLOCK)
    if how.way == "tiles":
        tiles = -(-guess(m) // 16)
        rows = 16 if m.known is None else -(-m.known // tiles)
        most = 4 if m.known is not None and tiles == 1 else 2
        blocks = most if n.known is None else -(-blocks_total // -(-blocks_total // most))
        tile_rows = rows * (1 if tiles == 1 and m.known is not None else 2)
    else:
        most = max(1, 4 // how.registers)
        blocks = most if n.known is None else -(-blocks_total // -(-blocks_total // most))
        tile_rows = registers(target, min(blocks, blocks_total) * how.registers)
        if m.known is not None:
            tile_rows = min(tile_rows, -(-m.known // -(-m.known // tile_rows)))
    in_place = reads_in_place(found, how, tile_rows if how.way == "tiles" else 1)
    depth_block = None
    if found.image is None and k.known is not None and k.known > _DEPTH_BLOCK[how.way] and guess(m) > 2 * tile_rows:
        pieces = -(-k.known // (_DEPTH_BLOCK[how.way] * 2 // 3))
        depth_block = -(-k.known // (pieces * DEPTH)) * DEPTH
    plan = IntegerProductSchedule(
        how.way, tile_rows, blocks, 1, 1, in_place=in_place, depth_block=depth_block
    )
    plan = _with_grid(c, plan, how, target)
    return plan if found.image is None else _with_lines(found.image, plan, (m, n), how, target)


def _with_lines(
    image: ByteImage, plan: IntegerProductSchedule, extents: tuple[Extent, Extent], how: Arithmetic, target: CpuTarget
) -> IntegerProductSchedule:
    """Divide a convolution along the lines of its image, so that no task gathers the lines of another one again."""
    tiles, panels = -(-guess(extents[0]) // plan.rows), -(-guess(extents[1]) // plan.width)
    if image.is_a:
        fitting = max(1, target.l2 // 4 // (plan.rows * image.depth * how.a_bytes))
        return replace(plan, tile_rows=min(plan.tile_rows, fitting), panels=panels, group=1)
    work = max(1, guess(extents[0]) * guess(extents[1]) * image.depth // _TASK_WORK[how.way])
    return replace(plan, tile_rows=max(1, tiles), panels=max(1, panels // min(work, MOST_TASKS)), group=1)


def reads_in_place(found: DotProduct, how: Arithmetic, rows: int) -> bool:
    """Whether A can be read in place: its K is contiguous and whole, and so is every tile."""
    c = found.c
    k = c.depth[0][0].known
    if found.image is not None and found.image.is_a:
        return False
    if c.a.strides[c.depth[0][1]] != ONE or k is None or how.flips_a or how.a_bytes != 1 or needs_row_sums(found):
        return False
    if how.way == "tiles":
        return k % DEPTH == 0 and c.m is not None and c.m[0].known is not None and c.m[0].known % rows == 0
    return k % QUAD == 0


def worth_aligning(c: Contraction, how: Arithmetic) -> bool:
    """Whether to copy A, which could be read in place, if it is not aligned to cache lines: the copy has the same
    layout, and its cost is small compared with the product."""
    m, n, k = (c.m[0] if c.m else ONE), c.n[0].known, c.depth[0][0].known
    if how.way != "tiles" or c.outer or c.m is None or m.known is None or n is None or k is None:
        return False
    return c.a.strides[c.m[1]].known == k and n >= 256 and m.known * n * k >= 4 * _TASK_WORK["tiles"]


def needs_row_sums(found: DotProduct) -> bool:
    return found.b.zero != 0


def packing_of(found: DotProduct) -> Packing | None:
    return line_packing(found.c, QUAD, DEPTH)


def _with_grid(
    c: Contraction, plan: IntegerProductSchedule, how: Arithmetic, target: CpuTarget
) -> IntegerProductSchedule:
    """Choose the tiles and panels per task that move the fewest bytes, with enough tasks."""
    way = how.way
    m, n, k = (guess(extent) for extent in (c.m[0] if c.m else ONE, c.n[0], c.depth[0][0]))
    outer = 1
    for size, _ in c.outer:
        outer *= guess(size)
    wanted = -(-max(1, min(MOST_TASKS, m * n * k * outer // _TASK_WORK[way])) // outer)
    tiles, panels = -(-m // plan.rows), -(-n // plan.width)
    deep = min(k, plan.depth_block or k)
    if way == "tiles" and plan.depth_block is None:
        # The rows of a tile stay in the first-level cache while neighbouring panels are streamed from the second-level
        # one.
        cut = min(panels, max(-(-panels * plan.width * k // (target.l2 // 2)), -(-wanted // tiles)))
        group = max(1, min(_TASK_WORK[way] // max(1, m * n * k), -(-outer // MOST_TASKS))) if tiles == 1 else 1
        return replace(plan, panels=max(1, -(-panels // cut)), group=group if cut <= 1 else 1)
    most_rows = max(1, min(512, target.l2 // 2 // max(1, deep * how.a_bytes)) // plan.rows)
    most_panels = max(1, 512 // plan.width) if plan.depth_block else panels
    if plan.depth_block:
        most_rows = min(most_rows, max(1, 192 // plan.rows))
    rows, columns = cut_task(plan, (tiles, panels), (most_rows, most_panels), wanted, _WORK_PER_BYTE[way])
    whole = rows >= tiles and columns >= panels
    group = max(1, min(_TASK_WORK[way] // max(1, m * n * k), -(-outer // MOST_TASKS))) if whole else 1
    return replace(plan, tile_rows=rows, panels=columns, group=group)
