"""Schedules of convolutions: register tiles, output rows per task, and the packing of filters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from motet.compiler.codegen.cpu.balance import divisors, unevenness
from motet.compiler.codegen.cpu.conv.copies import Imaged
from motet.compiler.codegen.cpu.gemm.microkernel import register_tile
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import Packing, Value, item_bytes
from motet.compiler.kernels.schedule import ConvolutionSchedule, DirectSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_TASK_FLOPS = 2_000_000  # some tens of microseconds of one core
_MOST_TASKS = 64
_MOST_SCRATCH = 256 << 20  # bytes of one thread
_LEAST_ROWS = 4  # of the result in one task: with fewer rows, the window's overlap is copied too often


def lanes_of(c: Imaged, target: CpuTarget) -> int:
    return max(2, target.lanes(64 if c.product.dtype in ("f64", "i64") else 32))


def _rows_per_task(c: Convolution, row_bytes: int, target: CpuTarget) -> tuple[int, int]:
    """(output rows per task, a divisor of all rows; tasks that each outer iteration should have)."""
    flops = 2 * c.filter_count * c.rows.size * c.columns.size * c.depth * len(c.filters)
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    wanted = max(1, -(-min(_MOST_TASKS, max(1, flops * outer // _TASK_FLOPS)) // outer))
    fitting = [r for r in divisors(c.rows.size) if c.rows.span(r) * row_bytes <= target.l2 // 3] or [1]
    enough = [r for r in fitting if c.rows.size // r >= wanted and r >= min(_LEAST_ROWS, c.rows.size)]
    least = [r for r in fitting if r >= min(_LEAST_ROWS, c.rows.size)]
    if not enough:
        return (min(least) if least else max(fitting)), wanted
    most = max(enough)
    return min((r for r in enough if 2 * r >= most), key=lambda r: (unevenness(c.rows.size // r * outer), -r)), wanted


def along_filters(c: Convolution) -> bool:
    """Whether vectors run along filters, which needs channels-last results."""
    return c.stored.strides[c.filter_dim] == ONE


def multiplies_panels(c: Convolution) -> bool:
    """Whether filters are constants, and results contiguous along filters or columns."""
    if any(c.kernel.values[place.value].role != "constant" for place in c.filters):
        return False
    return along_filters(c) or (c.columns.out >= 0 and c.stored.strides[c.columns.out] == ONE)


def copies_image(c: Convolution) -> bool:
    """Whether a convolution vectorised along filters needs a copy of the image rows."""
    return c.padding is not None or (c.channels > 1 and c.channel_step != 1)


def choose(c: Convolution, target: CpuTarget) -> ConvolutionSchedule | None:
    """Choose the register tile and the tasks from the extents."""
    return _choose_channels(c, target) if along_filters(c) else _choose_pixels(c, target)


def _choose_channels(c: Convolution, target: CpuTarget) -> ConvolutionSchedule | None:
    lanes = lanes_of(c, target)
    tile_rows, vectors = register_tile(c.columns.size, c.filter_count, lanes, target)
    row_bytes = c.columns.reach * c.channels * item_bytes(c.product.dtype) if copies_image(c) else 0
    block, wanted = _rows_per_task(c, row_bytes, target)
    panels = -(-c.filter_count // (lanes * vectors))
    splits = max(1, min(panels, -(-wanted // (c.rows.size // block))))
    if filter_packing(c, lanes * vectors) is None:
        return None
    return ConvolutionSchedule(lanes, tile_rows, vectors, block, -(-panels // splits))


def filter_packing(c: Convolution, width: int) -> Packing | None:
    """The packing of filters as [outer][panel][plane, row and column of the window][channel][width]."""
    value = c.kernel.values[c.filters[0].value]
    access = c.main.inputs[c.product.rhs.input]
    axis_of = {entry.single: axis for axis, entry in enumerate(access.map) if entry.single is not None}
    wanted = [d for _, d in c.outer if d in axis_of]
    taps = [*(plane.kernel for plane in c.planes), c.rows.kernel, c.columns.kernel, c.channel_dim]
    wanted += [c.filter_dim, *(d for d in taps if d >= 0)]
    if any(d not in axis_of for d in wanted):
        return None
    return packing_of(value, [axis_of[d] for d in wanted], axis_of[c.filter_dim], width)


def packing_of(value: Value, axes: Sequence[int], inner: int, width: int) -> Packing | None:
    """The packing of a constant as its `axes`, of which `inner` is divided into blocks of `width`, whose elements are
    contiguous; None if it has other axes, or another order than its logical one."""
    rest = [axis for axis in range(value.rank) if axis not in axes]
    if any(value.shape[axis] != 1 for axis in rest) or value.order != tuple(range(value.rank)):
        return None
    permutation = (*rest, *axes)
    position = permutation.index(inner)
    blocks = tuple(width if i == position else 1 for i in range(value.rank))
    split = [2 * i for i in range(value.rank)] + [2 * i + 1 for i in range(value.rank) if i != position]
    return Packing(permutation, blocks, (*split, 2 * position + 1))


def pixel_copies(c: Convolution) -> int:
    """How many copies of each image row a convolution vectorised along pixels needs: one per window column and plane,
    and, for strided rows, one per window row as well."""
    planes = math.prod(plane.taps for plane in c.planes)
    return planes * c.columns.taps * (1 if c.rows.stride == 1 else c.rows.taps)


def _pixel_rows(c: Convolution, target: CpuTarget) -> tuple[int, int]:
    """`_rows_per_task` of a convolution vectorised along pixels."""
    return _rows_per_task(c, c.columns.size * c.channels * pixel_copies(c) * item_bytes(c.product.dtype), target)


def row_copies(c: Convolution, target: CpuTarget) -> int:
    """How many rows a convolution vectorised along pixels copies for each iteration of the outer loops."""
    block, _ = _pixel_rows(c, target)
    rows = c.rows.span(block) if c.rows.stride == 1 else block
    return c.rows.size // block * c.channels * pixel_copies(c) * rows


def _choose_pixels(c: Convolution, target: CpuTarget) -> ConvolutionSchedule:
    lanes = lanes_of(c, target)
    block, wanted = _pixel_rows(c, target)
    tile_rows, vectors = register_tile(c.filter_count, block * c.columns.size, lanes, target)
    tiles = -(-c.filter_count // tile_rows)
    splits = max(1, min(tiles, -(-wanted // (c.rows.size // block))))
    return ConvolutionSchedule(lanes, tile_rows, vectors, block, -(-tiles // splits))


# -- legality -----------------------------------------------------------------------------------------


def check_tile(
    c: Convolution, s: ConvolutionSchedule | DirectSchedule, target: CpuTarget
) -> Iterator[Reason]:
    """Check that the sums of a register tile fit in registers and that tasks divide the output rows."""
    registers = target.vector_registers
    yield from lanes_reason(s.lanes, lanes_of(c, target))
    yield from in_range("vectors", s.vectors, 1, registers)
    most = max(1, registers // max(1, s.vectors))
    yield from in_range("tile_rows", s.tile_rows, 1, most, f"{registers} vector registers")
    if s.block < 1 or c.rows.size % s.block:
        yield Reason("block", s.block, f"a divisor of {c.rows.size}, the rows of the result")


def check_scratch(c: Convolution, field: str, value: object, elements: int) -> list[Reason]:
    """Check that `elements` of scratch memory, as determined by `field`, are within the limit."""
    size = elements * item_bytes(c.product.dtype)
    if size <= _MOST_SCRATCH:
        return []
    text = f"another: scratch memory of a thread would take {size} bytes, at most {_MOST_SCRATCH}"
    return [Reason(field, value, text)]


def check(c: Convolution, schedule: ConvolutionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s = schedule
    if reasons := list(check_tile(c, s, target)):
        return reasons
    rows = c.rows.span(s.block)
    if along_filters(c):
        if filter_packing(c, s.width) is None:
            return [Reason("class", "convolution", "another class: the filters cannot be divided into panels")]
        panels, elements = -(-c.filter_count // s.width), rows * c.columns.reach * c.channels if copies_image(c) else 0
    else:
        panels, elements = -(-c.filter_count // s.tile_rows), rows * c.columns.size * c.channels * pixel_copies(c)
    return [*in_range("panels", s.panels, 1, panels), *check_scratch(c, "block", s.block, elements)]
