"""Schedules of products of bytes and of bf16 numbers: tiles, blocks of K, tasks, and the packing of both operands."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from motet.compiler.codegen.cpu.gemm.microkernel import registers
from motet.compiler.codegen.cpu.gemm.plan import constant_packing
from motet.compiler.codegen.cpu.products.byte_image import ByteImage
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BLOCK, BYTES, Arithmetic
from motet.compiler.codegen.cpu.products.product import LineProduct, ProductSchedule
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import BfloatProductSchedule, IntegerProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, product_of
from motet.compiler.targets.cpu import CpuTarget

_MOST_TASKS = 64


@dataclass(frozen=True)
class _Costs:
    """What is measured of products: the multiply-adds of one task, ten microseconds or more, and those in the time of
    one number read from the L2 cache, by kind of instructions. A K longer than `deepest` is multiplied in several
    passes of about `depth` numbers, whose operands stay in the caches; tasks then have at most `rows` and `columns`.
    A panel is loaded from beyond the L2 cache in the time of `loaded_rows` rows, 0 if that is not measured. `aligns`
    says that copying an unaligned A for AMX pays."""

    task_work: dict[str, int]
    number_work: dict[str, int]
    deepest: int
    depth: int
    rows: int
    columns: int
    loaded_rows: int
    aligns: bool


_COSTS = {
    BYTES: _Costs(
        {"tiles": 8_000_000, "dots": 2_000_000, "pairs": 500_000}, {"tiles": 32, "dots": 6, "pairs": 2},
        4096, 2730, 192, 512, 0, True,
    ),
    BFLOATS: _Costs(
        {"tiles": 4_000_000, "dots": 500_000}, {"tiles": 32, "dots": 4}, 1024, 1024, 256, 256, 128, False,
    ),
}


def choose(found: LineProduct, target: CpuTarget) -> ProductSchedule | None:
    """Choose instructions, register tile and grid; None if `target` has no suitable instructions, if A has several
    loops along K and must be packed, or if masked numbers of B are constant and cannot be packed when compiling."""
    how = found.arithmetic(target)
    constant = found.c.kernel.values[found.c.b.value].role == "constant"
    if how is None or (found.numbers.masked and constant and packing_of(found) is None):
        return None
    kind = BfloatProductSchedule if found.numbers is BFLOATS else IntegerProductSchedule
    plan = _with_tile(kind(how.way, 1, 1, 1, 1), found, how, target)
    if found.gathered is not None:
        return _with_lines(found, found.gathered, plan, how, target)
    return plan if len(found.c.depth) == 1 or plan.in_place else None


def _with_tile(plan: ProductSchedule, found: LineProduct, how: Arithmetic, target: CpuTarget) -> ProductSchedule:
    """`plan` with a register tile and a grid."""
    costs, c = _COSTS[found.numbers], found.c
    m, n, k = found.rows, c.n[0], found.inner[0]
    single = m.known is not None and m.known <= BLOCK  # tile of AMX
    total = -(-guess(n) // BLOCK)
    most = (4 if single else 2) if how.way == "tiles" else max(1, 4 // how.registers)
    blocks = most if n.known is None else -(-total // -(-total // most))
    if how.way == "tiles":
        rows = tile_height(m) * (1 if single else 2)
    else:
        rows = registers(target, min(blocks, total) * how.registers)
        if m.known is not None:
            rows = min(rows, -(-m.known // -(-m.known // rows)))
    depth_block = None
    one_depth = len(c.depth) == 1 and found.gathered is None
    if one_depth and k.known is not None and k.known > costs.deepest and guess(m) > 2 * rows:
        pieces = -(-k.known // costs.depth)
        depth_block = -(-k.known // (pieces * found.numbers.depth)) * found.numbers.depth
    in_place = reads_in_place(found, how)
    plan = replace(plan, rows=rows, blocks=blocks, in_place=in_place, depth_block=depth_block)
    return _with_grid(found, plan, how, target)


def _with_lines(
    found: LineProduct, image: ByteImage, plan: ProductSchedule, how: Arithmetic, target: CpuTarget
) -> ProductSchedule:
    """Divide a convolution along the lines of its image, so that no task gathers the lines of another one again."""
    m, n = guess(found.rows), guess(found.c.n[0])
    tiles, panels = -(-m // plan.rows), -(-n // plan.width)
    if image.is_a:
        fitting = max(1, target.l2 // 4 // (plan.rows * image.depth * how.a_scale))
        return replace(plan, tile_rows=min(plan.tile_rows, fitting), panels=panels, group=1)
    work = max(1, m * n * image.depth // _COSTS[found.numbers].task_work[how.way])
    return replace(plan, tile_rows=max(1, tiles), panels=max(1, panels // min(work, _MOST_TASKS)), group=1)


def tile_height(m: Extent) -> int:
    """The rows of one AMX tile: all tiles have the same. If M is only known in a call, and is less, tiles have M
    rows."""
    return BLOCK if m.known is None else -(-m.known // -(-m.known // BLOCK))


def reads_in_place(found: LineProduct, how: Arithmetic) -> bool:
    """Whether A, or the copy of an image, can be read in place: its K is contiguous and divides into steps."""
    if found.copied is not None:
        return True
    if found.gathered is not None and found.gathered.is_a:
        return False
    k, dim = found.inner
    stored = found.c.a.strides[dim] == ONE and k.known is not None and k.known % how.step == 0
    return stored and not (how.flips_a or how.a_scale != 1 or needs_row_sums(found))


def worth_aligning(found: LineProduct, how: Arithmetic) -> bool:
    """Whether to copy A, which could be read in place, if it is not aligned to cache lines: the copy has the same
    layout, and its cost is small compared with the product. Otherwise every row of an AMX tile spans two lines."""
    c, costs = found.c, _COSTS[found.numbers]
    n, k = c.n[0].known, c.depth[0][0].known
    if not costs.aligns or how.way != "tiles" or c.outer or c.m is None or n is None or k is None:
        return False
    work = guess(found.rows) * n * k
    return c.a.strides[c.m[1]].known == k and n >= 256 and work >= 4 * costs.task_work["tiles"]


def needs_row_sums(found: LineProduct) -> bool:
    return found.b.zero != 0


def packing_of(found: LineProduct) -> Packing | None:
    """The packing of B when compiling; None if it is packed or gathered in each call."""
    if (image := found.gathered) is not None:
        return image.filter_packing if image.is_a else None
    return constant_packing(found.c, (BLOCK, BLOCK), (found.numbers.group, found.numbers.depth))


def _with_grid(found: LineProduct, plan: ProductSchedule, how: Arithmetic, target: CpuTarget) -> ProductSchedule:
    """Choose the tiles and panels per task that move the fewest bytes, with enough tasks."""
    costs, c = _COSTS[found.numbers], found.c
    m, n = guess(found.rows), guess(c.n[0])
    k, outer = guess(product_of(c.depth)), guess(product_of(c.outer))
    work, item_bytes = costs.task_work[how.way], found.numbers.bytes * how.a_scale
    wanted = -(-max(1, min(_MOST_TASKS, m * n * k * outer // work)) // outer)
    tiles, panels = -(-m // plan.rows), -(-n // plan.width)
    group = max(1, min(work // max(1, m * n * k), -(-outer // _MOST_TASKS)))
    if plan.depth_block is None and how.way == "tiles":
        # The rows of a tile stay in the first-level cache while neighbouring panels are streamed from the second-level
        # one.
        loads = -(-panels * plan.width * k * item_bytes // (target.l2 // 2))
        cut = min(panels, max(loads, -(-wanted // tiles)))
        if costs.loaded_rows and not c.outer_of(c.b):
            # All outer iterations of a task use its panels, which stay in the second-level cache. Panels that come from
            # beyond it are for many rows, and are divided before the outer iterations are.
            tasks = max(1, min(_MOST_TASKS, m * n * k * outer // work))
            if loads > 1:
                cut = min(panels, max(cut, -(-tasks // tiles)))
            group = -(-outer // max(1, -(-tasks // (tiles * cut))))
            if loads > 1:
                group = max(group, min(outer, -(-costs.loaded_rows // m)))
        elif tiles > 1 or cut > 1:
            group = 1
        return replace(plan, panels=max(1, -(-panels // cut)), group=group)
    deep = min(k, plan.depth_block or k)
    most_rows = max(1, min(512, target.l2 // 2 // max(1, deep * item_bytes)) // plan.rows)
    most_panels = panels
    if plan.depth_block:
        most_rows, most_panels = min(most_rows, max(1, costs.rows // plan.rows)), max(1, costs.columns // plan.width)
    rows, columns = _cut_task(plan, (tiles, panels), (most_rows, most_panels), wanted, costs.number_work[how.way])
    whole = rows >= tiles and columns >= panels
    return replace(plan, tile_rows=rows, panels=columns, group=group if whole else 1)


def _cut_task(
    plan: ProductSchedule, counts: tuple[int, int], most: tuple[int, int], wanted: int, byte_work: int
) -> tuple[int, int]:
    """The register tiles and panels of a task that move the fewest bytes, of `counts` and at most `most`, with `wanted`
    tasks or nearly so. `byte_work` is the number of multiply-adds in the time in which a number is read."""
    tiles, panels = counts
    best: tuple[float, int, int] | None = None
    for parts in range(1, min(tiles, 4 * _MOST_TASKS) + 1):
        rows = min(-(-tiles // parts), most[0])
        row_tasks = -(-tiles // rows)
        columns = min(most[1], -(-panels // max(1, -(-wanted // row_tasks))))
        columns = -(-panels // -(-panels // columns))
        tasks = row_tasks * -(-panels // columns)
        height, width = rows * plan.rows, columns * plan.width
        cost = tasks * (height * width + byte_work * (height + width)) * (1 + max(0, wanted - tasks) / wanted)
        if best is None or cost < best[0]:
            best = (cost, rows, columns)
    assert best is not None
    return best[1:]
