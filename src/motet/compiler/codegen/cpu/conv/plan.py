"""How the work of a convolution is cut: register tiles, rows of the result in a task, and how filters are packed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.compiler.codegen.cpu.balance import unevenness
from motet.compiler.codegen.cpu.gemm.microkernel import register_tile
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import Packing, item_bytes
from motet.compiler.targets.cpu import CpuTarget

_TASK_FLOPS = 2_000_000  # some tens of microseconds of one core
_MOST_TASKS = 64
_LEAST_ROWS = 4  # of the result in one task: fewer copy the window's overlap too often


@dataclass(frozen=True)
class Plan:
    """Tiles of `tile_rows` by `vectors` vectors of `lanes`; tasks of `block` output rows (a divisor of all) and of
    `panels` panels of filters."""

    lanes: int
    tile_rows: int
    vectors: int
    block: int
    panels: int
    copies: bool  # whether image rows are copied into scratch
    packing: Packing | None = None

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


def lanes_of(c: Convolution, target: CpuTarget) -> int:
    return max(2, target.lanes(64 if c.product.dtype in ("f64", "i64") else 32))


def _rows_per_task(c: Convolution, row_bytes: int, target: CpuTarget) -> tuple[int, int]:
    """Output rows per task (a divisor), and how many tasks each outer iteration should have in all."""
    flops = 2 * c.filter_count * c.rows.size * c.columns.size * c.depth * len(c.filters)
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    wanted = max(1, -(-min(_MOST_TASKS, max(1, flops * outer // _TASK_FLOPS)) // outer))
    divisors = [r for r in range(1, c.rows.size + 1) if c.rows.size % r == 0]
    fitting = [r for r in divisors if c.rows.span(r) * row_bytes <= target.l2 // 3] or [1]
    enough = [r for r in fitting if c.rows.size // r >= wanted and r >= min(_LEAST_ROWS, c.rows.size)]
    least = [r for r in fitting if r >= min(_LEAST_ROWS, c.rows.size)]
    if not enough:
        return (min(least) if least else max(fitting)), wanted
    most = max(enough)
    return min((r for r in enough if 2 * r >= most), key=lambda r: (unevenness(c.rows.size // r * outer), -r)), wanted


def plan_channels(c: Convolution, target: CpuTarget) -> Plan | None:
    if any(c.kernel.values[p.value].role != "constant" for p in c.filters):
        return None
    lanes = lanes_of(c, target)
    tile_rows, vectors = register_tile(c.columns.size, c.filter_count, lanes, target)
    copies = c.padding is not None or (c.channels > 1 and c.channel_step != 1)
    row_bytes = c.columns.reach * c.channels * item_bytes(c.product.dtype) if copies else 0
    block, wanted = _rows_per_task(c, row_bytes, target)
    panels = -(-c.filter_count // (lanes * vectors))
    splits = max(1, min(panels, -(-wanted // (c.rows.size // block))))
    packing = filter_packing(c, lanes * vectors)
    if packing is None:
        return None
    return Plan(lanes, tile_rows, vectors, block, -(-panels // splits), copies, packing)


def filter_packing(c: Convolution, width: int) -> Packing | None:
    """Filters as [outer][panel][window row][window column][channel][width]."""
    value = c.kernel.values[c.filters[0].value]
    access = c.main.inputs[c.product.rhs.input]
    axis_of = {entry.single: axis for axis, entry in enumerate(access.map) if entry.single is not None}
    wanted = [d for _, d in c.outer if d in axis_of]
    wanted += [c.filter_dim, *(d for d in (c.rows.kernel, c.columns.kernel, c.channel_dim) if d >= 0)]
    if any(d not in axis_of for d in wanted) or value.order != tuple(range(value.rank)):
        return None
    axes = [axis_of[d] for d in wanted]
    rest = [axis for axis in range(value.rank) if axis not in axes]
    if any(value.shape[axis] != 1 for axis in rest):
        return None
    permutation = (*rest, *axes)
    position = permutation.index(axis_of[c.filter_dim])
    blocks = tuple(width if i == position else 1 for i in range(value.rank))
    split = [2 * i for i in range(value.rank)] + [2 * i + 1 for i in range(value.rank) if i != position]
    return Packing(permutation, blocks, (*split, 2 * position + 1))


def plan_pixels(c: Convolution, target: CpuTarget) -> Plan:
    lanes = lanes_of(c, target)
    copies = c.columns.taps * (1 if c.rows.stride == 1 else c.rows.taps)
    row_bytes = c.columns.size * c.channels * copies * item_bytes(c.product.dtype)
    block, wanted = _rows_per_task(c, row_bytes, target)
    tile_rows, vectors = register_tile(c.filter_count, block * c.columns.size, lanes, target)
    tiles = -(-c.filter_count // tile_rows)
    splits = max(1, min(tiles, -(-wanted // (c.rows.size // block))))
    return Plan(lanes, tile_rows, vectors, block, -(-tiles // splits), True)
