"""Schedules of contractions: register tiles, panels, blocks of K, tasks, and the packing of the right operand.

Source of the blocking: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from motet.compiler.codegen.cpu.balance import unevenness
from motet.compiler.codegen.cpu.gemm.microkernel import AHEAD_STEPS, LINE, register_tile, registers
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Packing, item_bytes, known_product
from motet.compiler.kernels.schedule import ContractionSchedule
from motet.compiler.kernels.strides import ONE, Extent, memory_strides, product_of
from motet.compiler.targets.cpu import CPU_TARGETS, CpuTarget

_TASK_FLOPS = 500_000  # a few microseconds of one core
_TASK_BYTES = 128 << 10  # bytes of B, likewise
_MOST_TASKS = 64
_KEPT_ROWS = 128  # minimum rows of a task that may have to pack a panel
_HIDING_TILES = 8  # tiles of one panel, enough to hide the prefetch of the next panel
_WIDENING_TILES = 3  # that read a panel of 16-bit numbers, so that widening it once is faster than in each
_FEW_TILES = 256  # up to so many rows, the last tile's waste matters
_ROWS_AT_ONCE = 16  # of B, if it is read in place for few rows of A: each row is one stream of memory
_STREAMED_COLUMNS = 1024  # of each row in one task
_STREAMING_TASKS = 4  # minimum number of tasks that share the columns
_PACK_BYTES = 16 << 10  # minimum of one task that packs for all
_PACK_GROUPS = 8  # neighbouring panels, used by one or a few threads; reads are longer than for one panel


def choose(c: Contraction, target: CpuTarget) -> ContractionSchedule | None:
    """Choose the register tile, blocking and grid from the extents; None if scratch memory would not be of static size,
    or if the result has no elements."""
    lanes = lanes_of(c, target)
    m = c.m[0] if c.m else ONE
    n, k = c.n[0], c.depth[0][0] if len(c.depth) == 1 else None
    if 0 in (m.known, n.known):
        return None
    mode = _b_mode(c, m, n, target)
    if mode == "along_k":
        return _plan_along_k(c, lanes, m, n)
    most = {16: 3, 32: 4}.get(target.vector_registers, 2)
    if target.vector_registers <= 16:
        most = 2
    if m.known is not None and m.known <= 4:
        most = 4
    if m == ONE and target.packs_as:
        most = 8
    vectors = most
    if n.known is not None:
        needed = -(-n.known // lanes)
        vectors = -(-needed // -(-needed // most))
    if mode == "packed" and m.known is not None and n.known is not None and 16 < m.known <= _FEW_TILES:
        vectors = register_tile(m.known, n.known, lanes, target, lambda panels: unevenness(panels) ** 0.25)[1]
    if mode == "place" and m.known is not None and 4 < m.known <= 8 and target.vector_registers > 16:
        vectors = min(vectors, 2)  # so that all rows fit in one tile, and B is read once
    packed_columns = _shared_columns(c, target) if mode == "packed" else 0
    while packed_columns % (vectors * lanes):
        vectors -= 1
    rows = registers(target, vectors)
    if m.known is not None:
        rows = min(rows, -(-m.known // -(-m.known // rows)))
    plan = ContractionSchedule(lanes, rows, vectors, 1, 1, mode, packed_columns=packed_columns)
    if mode == "packed" and packing_of(c, plan.packed_width) is None:
        plan = replace(plan, b_mode="scratch")
    if plan.b_mode == "scratch" and k is not None and k.known is not None and _has_many_rows(c, m, n, k.known):
        keeps = k.known <= _most_depth(plan, c, target)
        plan = replace(plan, keeps=True) if keeps else _with_pack_tasks(c, plan, n, k)
    return _plan_blocks(c, plan, m, n, k, target)


def _shared_columns(c: Contraction, target: CpuTarget) -> int:
    """The width of the panels that `target` shares with the level that it packs constants as; 0 if there is none, or
    if that level does not pack this one."""
    if not target.packs_as:
        return 0
    other = choose(c, CPU_TARGETS[target.packs_as])
    shares = other is not None and other.b_mode == "packed" and other.packed_width % lanes_of(c, target) == 0
    return other.packed_width if other is not None and shares else 0


def lanes_of(c: Contraction, target: CpuTarget) -> int:
    """The number of elements of one vector of accumulators."""
    return max(2, target.lanes(64 if c.product.dtype in ("f64", "i64") else 32))


def sums_stay(c: Contraction, plan: ContractionSchedule) -> bool:
    """Whether the epilogue runs on sums that are still in registers."""
    return c.epilogue.operations <= 6 and plan.b_mode != "along_k"


def widens_panels(c: Contraction, plan: ContractionSchedule) -> bool:
    """Whether a task widens each packed panel to scratch memory, since enough tiles read it."""
    narrow = c.b.dtype in ("f16", "bf16") and c.product.dtype == "f32"
    return plan.b_mode == "packed" and narrow and plan.tile_rows >= _WIDENING_TILES


def scratch_layout(
    c: Contraction, plan: ContractionSchedule, widens: bool | None = None
) -> tuple[int, int, int]:
    """The offsets of the panel of B and the block of A in scratch memory, which begins with the tile of sums, and its
    size in bytes. `widens` says whether packed panels are widened, None: as `widens_panels` does."""
    bytes_each = item_bytes(c.product.dtype)
    rows = plan.tile_rows * plan.rows if plan.depth_block else plan.rows
    width = plan.panels * plan.width if plan.depth_block else plan.width
    tile = 0 if sums_stay(c, plan) and not plan.depth_block else rows * width * bytes_each
    if plan.b_mode == "along_k":
        tile = 0
    deep = plan.depth_block or guess(product_of(c.depth))
    copied = (plan.b_mode == "scratch" and not plan.shared) or (
        widens_panels(c, plan) if widens is None else widens)
    b = deep * plan.width * bytes_each if copied else 0
    a = plan.tile_rows * plan.rows * deep * bytes_each if plan.pack_a else 0
    tile, b, a = (-(-size // 64) * 64 for size in (tile, b, a))
    return tile, tile + b, tile + b + a


def _has_many_rows(c: Contraction, m: Extent, n: Extent, k: int) -> bool:
    """Whether so many rows use each panel that packing it in every task would cost too much."""
    return not c.outer and m.known is not None and n.known is not None and m.known >= 48 and (
        2 * m.known * n.known * k >= 8 * _TASK_FLOPS)


def _most_depth(plan: ContractionSchedule, c: Contraction, target: CpuTarget) -> int:
    """The K of a panel that leaves half of the second-level cache to A."""
    return max(512, target.l2 // 2 // (plan.width * item_bytes(c.product.dtype)))


def _with_pack_tasks(c: Contraction, plan: ContractionSchedule, n: Extent, k: Extent | None) -> ContractionSchedule:
    """`plan` with panels packed once, by tasks that are neither too small nor too many.

    The tasks that pack a panel are numbered like those that read it, so that threads pack the panels that they use."""
    assert n.known is not None and k is not None and k.known is not None
    panels = -(-n.known // plan.width)
    together = max(1, panels // _PACK_GROUPS)
    groups = -(-panels // together)
    group_bytes = k.known * together * plan.width * item_bytes(c.product.dtype)
    pieces = min(-(-_MOST_TASKS // groups), -(-group_bytes // _PACK_BYTES))
    steps = -(-k.known // (pieces * plan.lanes)) * plan.lanes  # whole vectors, as packing may transpose squares
    return replace(plan, shared=True, pack_panels=together, pack_steps=steps)


def _b_mode(
    c: Contraction, m: Extent, n: Extent, target: CpuTarget
) -> Literal["packed", "scratch", "place", "along_k"]:
    role = c.kernel.values[c.b.value].role
    along_n = c.b.strides[c.column] == ONE
    few = m.known is not None and m.known <= 16
    inner = c.depth[-1][1]
    if inner < 0:
        return "place" if along_n else "scratch"
    contiguous_k = len(c.depth) == 1 and c.b.strides[inner] == ONE and c.a.strides[inner] == ONE
    if role == "constant" and not (m.known is not None and m.known <= 2 and contiguous_k):
        return "packed"
    if contiguous_k and few and not along_n and n.known is not None and c.depth[0][0].known is not None:
        return "along_k"
    if not along_n:
        return "scratch"
    total = n * product_of(c.depth)
    plain = c.b.dtype == c.product.dtype  # else it is widened once when packing, in place for every tile of rows
    if few or (plain and total.known is not None and total.known * item_bytes(c.b.dtype) <= target.l1 * 4):
        return "place"
    return "scratch"


def _plan_along_k(c: Contraction, lanes: int, m: Extent, n: Extent) -> ContractionSchedule:
    """A schedule whose tiles of rows x columns hold one vector of partial sums along K for every element."""
    assert m.known is not None and n.known is not None
    rows = -(-m.known // -(-m.known // 4))
    columns = 8 if rows <= 2 else 4
    flops = 2 * m.known * n.known * guess(c.depth[0][0])
    outer = guess(product_of(c.outer))
    wanted = max(1, min(_MOST_TASKS, flops * outer // _TASK_FLOPS) // outer)
    total = -(-n.known // columns)
    panels = -(-total // min(total, wanted))
    return ContractionSchedule(
        lanes, rows, columns, -(-m.known // rows), panels, "along_k", group=_group(outer, flops)
    )


def _group(outer: int, flops: int) -> int:
    """The number of outer iterations per task, more than one if one is too little work."""
    if flops >= _TASK_FLOPS:
        return 1
    return max(1, min(-(-_TASK_FLOPS // max(flops, 1)), -(-outer // _MOST_TASKS) if outer > _MOST_TASKS else outer))


def _plan_blocks(
    c: Contraction, plan: ContractionSchedule, m: Extent, n: Extent, k: Extent | None, target: CpuTarget
) -> ContractionSchedule | None:
    """Choose the blocks of K and the task grid for a schedule with a given register tile."""
    rows_total, columns_total = -(-guess(m) // plan.rows), -(-guess(n) // plan.width)
    depth_total = product_of(c.depth)
    few = m.known is not None and m.known <= 16
    transposed = c.m is not None and c.a.strides[c.m[1]] == ONE and c.depth[-1][1] >= 0 and m != ONE
    converted = c.a.dtype != c.product.dtype  # by vectors when packing, else one element at a time for every panel
    pack_a = (
        c.m is not None and len(c.depth) == 1 and c.depth[0][1] >= 0
        and ((converted and (not few or plan.b_mode == "packed")) or (transposed and columns_total > 1 and not few))
    )
    if pack_a and plan.keeps:
        plan = _with_pack_tasks(c, replace(plan, keeps=False), n, k)  # several panels for each block of A
    streams_a = (plan.keeps or plan.shared) and not pack_a
    depth_block: int | None = None
    if k is not None and few and plan.b_mode == "place" and c.product.is_float:
        depth_block = _ROWS_AT_ONCE
    elif streams_a and plan.shared and k is not None and k.known is not None:
        # As large as possible: reloading sums costs more than shorter panels gain.
        depth_block = -(-k.known // -(-k.known // _most_depth(plan, c, target)))
    elif k is not None and not streams_a and (k.known is None or k.known > 1024) and not (
        few and plan.b_mode == "packed"
    ):
        depth_block = 512 if k.known is None else -(-k.known // -(-k.known // 512))
    if depth_block is None and depth_total.known is None and plan.b_mode == "scratch":
        return None
    pack_a = pack_a and (depth_block is not None or k is None or k.known is not None)
    deep = depth_block or guess(depth_total)
    most_rows = max(1, min(256, target.l2 // 2 // 4 // max(deep, 1)) // plan.rows)
    if depth_block is not None:
        most_rows = max(1, 192 // plan.rows)
    most_panels = columns_total if depth_block is None else max(1, (1024 if few else 256) // plan.width)
    flops = 2 * guess(m) * guess(n) * guess(depth_total)
    outer = guess(product_of(c.outer))
    filters = guess(product_of([c.n, *c.depth])) * item_bytes(c.b.dtype)
    wanted = max(flops * outer // _TASK_FLOPS, filters * outer // _TASK_BYTES)
    wanted = max(1, -(-min(_MOST_TASKS, wanted) // outer))
    if streams_a:
        # A panel stays in the second-level cache while A is streamed row by row.
        row_tasks = wanted // columns_total
        if plan.keeps:
            row_tasks = min(row_tasks, guess(m) // _KEPT_ROWS)
        tile_rows = -(-rows_total // max(1, row_tasks))
        if plan.shared:
            most_sums = target.l2 // 4 // (plan.width * item_bytes(c.product.dtype))
            tile_rows = min(tile_rows, max(1, most_sums // plan.rows))
        plan = replace(plan, depth_block=depth_block, pack_a=pack_a, tile_rows=tile_rows)
        return replace(plan, ahead=_ahead(c, plan))
    if depth_block == _ROWS_AT_ONCE and few and plan.b_mode == "place" and filters > target.l2:
        # B is read from memory, which is fastest in long contiguous stretches of its rows.
        panels = max(1, min(columns_total // _STREAMING_TASKS, _STREAMED_COLUMNS // plan.width))
        return replace(plan, depth_block=depth_block, tile_rows=rows_total, panels=panels)
    cuts = _cuts(rows_total, most_rows), _cuts(columns_total, most_panels)
    tile_rows, panels = _grid(c, plan, *cuts, deep, wanted, target)
    group = _group(outer, flops) if tile_rows >= rows_total and panels >= columns_total else 1
    plan = replace(plan, depth_block=depth_block, pack_a=pack_a, tile_rows=tile_rows, panels=panels, group=group)
    return replace(plan, ahead=_ahead(c, plan))


def _ahead(c: Contraction, plan: ContractionSchedule) -> int:
    """The cache lines of the next panel that each tile prefetches, so that all tiles together prefetch the whole panel;
    0 if tiles are so few that they are limited by memory anyway, which reads what follows on its own if a tile reads
    whole panels."""
    parts = plan.packed_width > plan.width
    if len(c.depth) != 1 or (plan.tile_rows < 3 and not parts) or not (plan.b_mode == "packed" or plan.shared):
        return 0
    bytes_each = item_bytes(c.b.dtype) if plan.b_mode == "packed" else item_bytes(c.product.dtype)
    tiles = 1 if prefetches_by_first_tile(c, plan) else plan.tile_rows
    return -(-AHEAD_STEPS * plan.width * bytes_each // (LINE * tiles))


def prefetches_by_first_tile(c: Contraction, plan: ContractionSchedule) -> bool:
    """Whether the first of a task's tiles alone prefetches, since there may be no other: the number of rows is not
    known, and tiles read parts of packed panels."""
    return plan.packed_width > plan.width and c.m is not None and c.m[0].known is None


def _grid(
    c: Contraction, plan: ContractionSchedule, row_cuts: Sequence[tuple[int, int]],
    column_cuts: Sequence[tuple[int, int]], deep: int, wanted: int, target: CpuTarget,
) -> tuple[int, int]:
    """The (row tiles, panels) per task, from `row_cuts` and `column_cuts`, that minimise the time of the slowest of
    `wanted` tasks.

    Costs are in vector multiply-adds: loading a vector of B costs 1 (16 if it comes from beyond the second-level
    cache, 4 if many tiles hide that), packing it 4 (8 across K), and an element of A a quarter.
    """
    packs = plan.b_mode == "scratch" and not plan.shared
    b_cost = (4.0 if c.b.strides[c.column] == ONE else 12.0) if packs else 1.0
    beyond = not packs and guess(product_of([c.n, *c.depth])) * item_bytes(c.b.dtype) > target.l2 // 2
    best: tuple[float, int, int] | None = None
    for tile_rows, row_tasks in row_cuts:
        for panels, column_tasks in column_cuts:
            tasks = row_tasks * column_tasks
            work = tile_rows * plan.rows * panels * plan.vectors
            fetch = b_cost * ((4 if tile_rows >= _HIDING_TILES else 16) if beyond else 1)
            traffic = panels * plan.vectors * fetch + tile_rows * plan.rows * 0.25 * (4 if plan.pack_a else 1)
            idle = 0.5 * max(0, wanted - tasks) / wanted + max(0, tasks - 2 * wanted) / wanted
            spread = unevenness(tasks) if wanted > 1 else 1.0
            cost = (work + traffic) * tasks * (spread + idle) + tasks * 2000 / max(deep, 1)
            if best is None or cost < best[0]:
                best = (cost, tile_rows, panels)
    assert best is not None
    return best[1], best[2]


def _cuts(total: int, most: int) -> list[tuple[int, int]]:
    """The ways to cut `total` into equal pieces of at most `most`: (size, count), each size once."""
    counts = {-(-total // min(most, -(-total // cut))) for cut in range(1, min(total, 64) + 1)}
    return sorted({(-(-total // count), count) for count in counts})


def packing_of(c: Contraction, width: int) -> Packing | None:
    """The packing as panels of `width` columns, K inside; None if the constant's axes do not allow it."""
    return constant_packing(c, (width, width), (1, 1))


def constant_packing(c: Contraction, columns: tuple[int, int], depth: tuple[int, int]) -> Packing | None:
    """The packing of B as panels of `columns[0]` columns, K inside, `depth[0]` neighbours along the innermost loop of K
    next to each other. Columns and K are padded to multiples of `columns[1]` and `depth[1]`. None if B is not constant
    or its axes do not allow it."""
    value = c.kernel.values[c.b.value]
    if value.role != "constant" or c.b.offset:
        return None
    strides = memory_strides(value)
    axis_of = {strides[axis]: axis for axis in range(value.rank) if value.shape[axis] != 1}
    found = [_axes_of(c, size, c.b.strides[dim], axis_of) for size, dim in (*c.outer_of(c.b), c.n, *c.depth)]
    loops = [axes for axes in found if axes is not None]
    flat = [axis for axes in loops for axis in axes]
    units = [axis for axis in range(value.rank) if value.shape[axis] == 1]
    if len(loops) != len(found) or len(set(flat)) != len(flat) or len(flat) + len(units) != value.rank:
        return None
    place = value.rank - 1 - sum(map(len, loops[len(loops) - len(c.depth):]))  # of the innermost axis of the columns
    blocks, multiples = [1] * value.rank, [1] * value.rank
    split = ((place, loops[-1 - len(c.depth)], columns), (value.rank - 1, loops[-1], depth))
    for position, axes, (block, multiple) in split:
        if block == 1:
            continue
        sizes = [value.shape[axis] for axis in axes]
        blocks[position], multiples[position] = block, multiple if len(axes) == 1 else block
        if len(axes) > 1 and not (_divides(sizes[-1:], block) and _divides(sizes, multiple)):
            return None  # merged axes cannot be padded
    inside = [2 * position + 1 for position, _, (block, _) in split if block > 1]
    order = [position for position in range(2 * value.rank) if position not in inside]
    padded = () if multiples == blocks else tuple(multiples)
    return Packing((*units, *flat), tuple(blocks), (*order, *inside), padded)


def _divides(sizes: Sequence[int | str], multiple: int) -> bool:
    total = known_product(sizes)
    return total is not None and total % multiple == 0


def _axes_of(c: Contraction, size: Extent, stride: Extent, axis_of: dict[Extent, int]) -> list[int] | None:
    """The constant's axes, outermost first, that a (possibly merged) loop runs over."""
    shape = c.kernel.values[c.b.value].shape
    axes: list[int] = []
    covered = ONE
    while covered != size:
        axis = axis_of.get(stride * covered)
        if axis is None or len(axes) > len(shape):
            return None
        axes.insert(0, axis)
        covered = covered * Extent.of(shape[axis])
    return axes
