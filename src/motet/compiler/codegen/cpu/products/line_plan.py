"""What schedules of products of lines share: how B is packed when compiling, and how tasks are cut."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.cpu.gemm.plan import axes_of
from motet.compiler.codegen.cpu.gemm.tasks import Cut
from motet.compiler.codegen.cpu.products.instructions import BLOCK
from motet.compiler.kernels.contraction import Contraction, Loop
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, memory_strides

MOST_TASKS = 64


def used_loops(loops: Sequence[Loop], place: StridedAccess) -> list[Loop]:
    """The loops along which `place` has a stride."""
    return [loop for loop in loops if place.strides[loop[1]] != ZERO]


def line_packing(c: Contraction, step: int, depth: int) -> Packing | None:
    """Blocks of B as tiles read them whose instructions sum `step` products, with K padded to a multiple of `depth`,
    packed when compiling; None if B is not constant or its strides do not fit."""
    value = c.kernel.values[c.b.value]
    if value.role != "constant" or c.b.offset:
        return None
    strides = memory_strides(value)
    axis_of = {strides[axis]: axis for axis in range(value.rank) if value.shape[axis] != 1}
    found = [axes_of(c, size, c.b.strides[dim], axis_of) for size, dim in (*used_loops(c.outer, c.b), c.n, *c.depth)]
    loops = [axes for axes in found if axes is not None]
    flat = [axis for axes in loops for axis in axes]
    units = [axis for axis in range(value.rank) if value.shape[axis] == 1]
    if len(loops) != len(found) or len(set(flat)) != len(flat) or len(flat) + len(units) != value.rank:
        return None
    columns, inner = loops[-1 - len(c.depth)], loops[-1]
    count, sizes = value.rank, [value.shape[axis] for axis in flat]
    place = count - 1 - sum(map(len, loops[len(loops) - len(c.depth):]))  # of the innermost axis of the columns
    blocks, multiples = [1] * count, [1] * count
    for position, axes, block, multiple in ((place, columns, BLOCK, BLOCK), (count - 1, inner, step, depth)):
        blocks[position] = multiples[position] = block
        size = sizes[position - len(units)]
        if len(axes) == 1:
            multiples[position] = multiple
        elif not isinstance(size, int) or size % block or not _divides(c, axes, multiple):
            return None  # merged axes cannot be padded
    order = [position for position in range(2 * count) if position not in (2 * place + 1, 2 * count - 1)]
    return Packing((*units, *flat), tuple(blocks), (*order, 2 * place + 1, 2 * count - 1), tuple(multiples))


def _divides(c: Contraction, axes: Sequence[int], multiple: int) -> bool:
    """Whether the product of the extents of `axes` of B is a multiple of `multiple`."""
    total = ONE
    for axis in axes:
        total = total * Extent.of(c.kernel.values[c.b.value].shape[axis])
    return total.known is not None and total.known % multiple == 0


def cut_task(
    plan: Cut, counts: tuple[int, int], most: tuple[int, int], wanted: int, byte_work: int
) -> tuple[int, int]:
    """The register tiles and panels of a task that move the fewest bytes, of `counts` and at most `most`, with `wanted`
    tasks or nearly so. `byte_work` is the number of multiply-adds in the time in which a number is read."""
    tiles, panels = counts
    best: tuple[float, int, int] | None = None
    for parts in range(1, min(tiles, 4 * MOST_TASKS) + 1):
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
