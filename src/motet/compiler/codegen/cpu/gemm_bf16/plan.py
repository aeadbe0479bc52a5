"""Schedules of bf16 products: tiles, blocks of K, tasks, and the packing of both operands."""

from __future__ import annotations

from msgspec.structs import replace

from motet.compiler.codegen.cpu.gemm.line_plan import MOST_TASKS, cut_task, line_packing
from motet.compiler.codegen.cpu.gemm.microkernel import registers
from motet.compiler.codegen.cpu.gemm.packed_lines import used_loops
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH, PAIR, Way, ways_of
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import BfloatProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, product_of
from motet.compiler.targets.cpu import CpuTarget

# Multiply-adds of one task, ten microseconds or more, and multiply-adds in the time of one byte read from the L2 cache.
_TASK_WORK = {"tiles": 4_000_000, "dots": 500_000}
_WORK_PER_BYTE = {"tiles": 16, "dots": 2}
_LOADED_ROWS = 128  # that multiply by a panel for as long as it takes to load it from beyond the L2 cache
_DEPTH_BLOCK = 1024  # numbers along K: longer ones are multiplied in several passes, whose operands stay in the caches


def choose(c: BfloatProduct, target: CpuTarget) -> BfloatProductSchedule | None:
    """Choose instructions, register tile and grid; None if A has several loops along K and must be packed, or
    if B is constant and cannot be packed when compiling."""
    way = ways_of(target)[0]
    m, n, k = c.m[0] if c.m else ONE, c.n[0], c.depth[-1][0]
    in_place = reads_in_place(c, way)
    constant = c.kernel.values[c.b.value].role == "constant"
    if (constant and packing_of(c) is None) or (len(c.depth) > 1 and not in_place):
        return None
    total = -(-guess(n) // BLOCK)
    most = 4 if way == "dots" or (m.known is not None and m.known <= BLOCK) else 2
    blocks = most if n.known is None else -(-total // -(-total // most))
    if way == "tiles":
        rows = tile_height(m) * (1 if m.known is not None and m.known <= BLOCK else 2)
    else:
        rows = registers(target, min(blocks, total))
        if m.known is not None:
            rows = min(rows, -(-m.known // -(-m.known // rows)))
    depth_block = None
    if len(c.depth) == 1 and k.known is not None and k.known > _DEPTH_BLOCK and guess(m) > 2 * rows:
        pieces = -(-k.known // _DEPTH_BLOCK)
        depth_block = -(-k.known // (pieces * DEPTH)) * DEPTH
    plan = BfloatProductSchedule(way, rows, blocks, 1, 1, in_place=in_place, depth_block=depth_block)
    return _with_grid(c, plan, target)


def tile_height(m: Extent) -> int:
    """The rows of one AMX tile: all tiles have the same, the last one overlaps the one before. If M is only known in a
    call, and is less, tiles have M rows."""
    return BLOCK if m.known is None else -(-m.known // -(-m.known // BLOCK))


def reads_in_place(c: BfloatProduct, way: Way) -> bool:
    """Whether A, or the copy of an image, can be read in place: K is contiguous and divides into steps."""
    if c.image is not None:
        return True
    k, dim = c.depth[-1]
    return c.a.strides[dim] == ONE and k.known is not None and k.known % (DEPTH if way == "tiles" else PAIR) == 0


def packing_of(c: BfloatProduct) -> Packing | None:
    return line_packing(c, PAIR, DEPTH)


def _with_grid(c: BfloatProduct, plan: BfloatProductSchedule, target: CpuTarget) -> BfloatProductSchedule:
    """Choose the tiles and panels per task that move the fewest bytes, with enough tasks."""
    m, n = guess(c.m[0] if c.m else ONE), guess(c.n[0])
    k, outer = guess(product_of(c.depth)), guess(product_of(c.outer))
    work = _TASK_WORK[plan.way]
    wanted = -(-max(1, min(MOST_TASKS, m * n * k * outer // work)) // outer)
    tiles, panels = -(-m // plan.rows), -(-n // plan.width)
    group = max(1, min(work // max(1, m * n * k), -(-outer // MOST_TASKS)))
    if plan.depth_block is None and plan.way == "tiles":
        # The rows of a tile stay in the first-level cache while neighbouring panels are streamed from the second-level
        # one.
        loads = -(-panels * plan.width * k * 2 // (target.l2 // 2))
        cut = min(panels, max(loads, -(-wanted // tiles)))
        if not used_loops(c.outer, c.b):
            # All outer iterations of a task use its panels, which stay in the second-level cache. Panels that come from
            # beyond it are for many rows, and are divided before the outer iterations are.
            tasks = max(1, min(MOST_TASKS, m * n * k * outer // work))
            if loads > 1:
                cut = min(panels, max(cut, -(-tasks // tiles)))
            group = -(-outer // max(1, -(-tasks // (tiles * cut))))
            if loads > 1:
                group = max(group, min(outer, -(-_LOADED_ROWS // m)))
        elif tiles > 1 or cut > 1:
            group = 1
        return replace(plan, panels=max(1, -(-panels // cut)), group=group)
    deep = min(k, plan.depth_block or k)
    most_rows = max(1, min(512, target.l2 // 4 // max(1, deep)) // plan.rows)
    most_panels = panels
    if plan.depth_block:
        most_rows, most_panels = min(most_rows, max(1, 256 // plan.rows)), max(1, 256 // plan.width)
    rows, columns = cut_task(plan, (tiles, panels), (most_rows, most_panels), wanted, 2 * _WORK_PER_BYTE[plan.way])
    whole = rows >= tiles and columns >= panels
    return replace(plan, tile_rows=rows, panels=columns, group=group if whole else 1)
