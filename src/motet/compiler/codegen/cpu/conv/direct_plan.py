"""Schedules of convolutions read in place: register tiles, rows per task, and the part of the image each tile sees."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby

from motet.compiler.codegen.cpu.balance import divisors, unevenness
from motet.compiler.codegen.cpu.conv import plan
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.gemm.microkernel import AHEAD_STEPS, LINE, balanced, register_tile
from motet.compiler.kernels.convolution import Convolution, pixels_are_flat
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.schedule import DirectSchedule, Reason, in_range
from motet.compiler.kernels.windows import Window
from motet.compiler.targets.cpu import CpuTarget

_TASK_FLOPS = 1_500_000  # multiply-adds, about ten microseconds of one core
_MOST_TASKS = 128
_MOVED = 6  # cycles that it takes to transpose one vector, from memory to memory
_ROW = 3  # cycles that it takes to find one row of an image, as one window column sees it
_STRIDED = 3  # cycles that it takes to copy one vector of a row whose pixels have a step
_SHALLOW = 128  # steps of K up to which panels of pixels stay in the first-level cache
MOST_EDGES = 6  # kinds of tiles; each has separate code

Seen = tuple[tuple[int, int], ...]  # for each window column, the pixels of the tile that see the image there


@dataclass(frozen=True)
class Run:
    """`count` neighbouring tiles of `height` pixels, the first at column `begin`, which all see the same `Seen`."""

    begin: int
    count: int
    height: int
    seen: Seen


def match(kernel: Kernel, target: CpuTarget) -> Convolution | None:
    """Read `kernel` as a convolution of constant filters with an element-wise epilogue, whose image is read in place or
    should be copied; None if it is not one."""
    c = match_convolution(kernel)
    if c is None or not plan.multiplies_panels(c):
        return None
    return c if _reads_in_place(c) or copy_pays(c, target) else None


def _reads_in_place(c: Convolution) -> bool:
    """Whether the image is zero-padded or unpadded, and its channels are contiguous and fill cache lines."""
    if c.padding not in (None, 0) or c.image.dtype != c.product.dtype:
        return False
    return c.channel_step == 1 and c.channels * item_bytes(c.image.dtype) >= LINE


def copy_pays(c: Convolution, target: CpuTarget) -> bool:
    """Whether the convolution of a copy is faster than the other classes, which read the image in vectors of pixels or
    copy rows in each task."""
    if plan.along_filters(c):
        return bool(c.planes)
    lanes = plan.lanes_of(c, target)
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    pixels = outer * c.rows.size * c.columns.size
    vectors = -(-c.filter_count // lanes)
    image = outer * math.prod(w.image for w in c.windows) // math.prod(w.size for w in c.planes) * c.channels
    peak = lanes * c.depth / 2  # cycles of a square of as many pixels as filters at two multiply-adds per cycle
    own = pixels / lanes * vectors * (peak / _filter_share(vectors) + _MOVED * lanes) + image / lanes * _MOVED
    other = pixels / lanes * c.filter_count / lanes * peak / _pixel_share(c, target)
    if c.padding is not None and pixels_are_flat(c):
        row = _ROW + -(-c.columns.size // lanes) * min(c.columns.stride, _STRIDED)
        other += outer * plan.row_copies(c, target) * row
    return own < other


def _filter_share(vectors: int) -> float:
    """The share of the peak that tiles of `vectors` vectors of filters reach; measured."""
    return 0.85 if vectors > 1 else 0.7


def _pixel_share(c: Convolution, target: CpuTarget) -> float:
    """The share of the peak that the class which takes the convolution otherwise reaches; measured."""
    if c.padding is None:  # a contraction
        if c.planes or c.columns.stride > 1:
            return 0.5
        return 0.85 if c.depth <= _SHALLOW else 0.7
    if not pixels_are_flat(c):  # loops
        return 0.05
    row = c.columns.size * c.channels * plan.pixel_copies(c) * c.rows.taps * item_bytes(c.product.dtype)
    if row > target.l2:
        return 0.1
    return 0.75 if c.depth <= _SHALLOW else 0.6


def prepared_copy(c: Convolution, target: CpuTarget) -> PreparedImage | None:
    """The copy of the image that the convolution reads; None if it reads the image itself."""
    if _reads_in_place(c):
        return None
    if c.padding not in (None, 0) or c.channels * item_bytes(c.product.dtype) < LINE:
        return PreparedImage.of(c, True, by_rows=True)
    height, _ = register_tile(c.columns.size, c.filter_count, plan.lanes_of(c, target), target)
    pads = c.padding is not None and edges(c, height) > MOST_EDGES
    return PreparedImage.of(c, pads, by_rows=pads)


def form_of(c: Convolution, copy: PreparedImage | None) -> Convolution:
    """The convolution that is computed: of `copy`, if the image is copied."""
    if copy is None:
        return c
    *planes, rows, columns = (slide.window for slide in copy.copied)
    return replace(
        c, product=copy.product, image=copy.image, channel_step=1, planes=tuple(planes), rows=rows, columns=columns,
        padding=None if copy.pads else c.padding)


def choose(c: Convolution, target: CpuTarget) -> DirectSchedule | None:
    """Choose the register tile and the tasks from the extents."""
    c = form_of(c, prepared_copy(c, target))
    lanes = plan.lanes_of(c, target)
    height, vectors = register_tile(c.columns.size, c.filter_count, lanes, target)
    stays = _stays(c, lanes * vectors, target)
    if stays:
        # Tasks are panels, so their number determines the balance.
        outer = math.prod(size.known or 1 for size, _ in c.outer)
        height, vectors = register_tile(
            c.columns.size, c.filter_count, lanes, target, lambda panels: unevenness(panels * outer) ** 0.5)
    width = lanes * vectors
    if plan.filter_packing(c, width) is None or edges(c, height) > MOST_EDGES:
        return None
    if stays:
        return DirectSchedule(lanes, height, vectors, c.rows.size, _stationary_depth(c, width, target))
    rows, pieces = _task_size(c, -(-c.filter_count // width), len(range(0, c.columns.size, height)))
    return DirectSchedule(lanes, height, vectors, rows, None, pieces)


def check(c: Convolution, schedule: DirectSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s, c = schedule, form_of(c, prepared_copy(c, target))
    if reasons := list(plan.check_tile(c, s, target)):
        return reasons
    if plan.filter_packing(c, s.width) is None:
        return [Reason("class", "direct", "another class: the filters cannot be divided into panels")]
    if (kinds := edges(c, s.tile_rows)) > MOST_EDGES:
        reasons.append(Reason("tile_rows", s.tile_rows, f"another number: it makes {kinds} kinds of tiles at the edges"
                                                        f" of the image, at most {MOST_EDGES}"))
    reasons += in_range("pieces", s.pieces, 1, c.columns.size)
    if s.depth_block is not None:
        reasons += in_range("depth_block", s.depth_block, 1, -(-c.channels // AHEAD_STEPS) * AHEAD_STEPS)
        if len(c.filters) != 1 or c.columns.size == 1 or c.planes:
            text = "null: siblings, single columns, and several planes take the whole depth"
            reasons.append(Reason("depth_block", s.depth_block, text))
        if s.block != c.rows.size:
            reasons.append(Reason("block", s.block, f"{c.rows.size}, all rows, with depth_block"))
        if s.pieces != 1:
            reasons.append(Reason("pieces", s.pieces, "1, with depth_block"))
        reasons += plan.check_scratch(c, "depth_block", s.depth_block, c.rows.size * c.columns.size * s.width)
    return reasons


def _stays(c: Convolution, width: int, target: CpuTarget) -> bool:
    """Whether filters exceed the second-level cache and pixels are so few that each block of filters should stay in the
    first-level cache for all of them."""
    filters = c.filter_count * c.depth * item_bytes(c.filters[0].dtype)
    sums = c.rows.size * c.columns.size * width * item_bytes(c.product.dtype)
    fits = filters > target.l2 and sums <= target.l1 // 2
    return fits and len(c.filters) == 1 and not c.planes and c.columns.size > 1


def _stationary_depth(c: Convolution, width: int, target: CpuTarget) -> int:
    """The channels of a panel that fill at most half of the first-level cache."""
    most = max(AHEAD_STEPS, target.l1 // 2 // (width * item_bytes(c.filters[0].dtype)))
    pieces = -(-c.channels // most)
    return -(-c.channels // (pieces * AHEAD_STEPS)) * AHEAD_STEPS


def edges(c: Convolution, most: int) -> int:
    """The number of kinds of tiles of at most `most` pixels."""
    return len({(run.height, run.seen) for run in runs_of(c, most)})


def runs_of(c: Convolution, most: int) -> list[Run]:
    """One output row as tiles of at most `most` pixels, of nearly equal size."""
    count, size, longer = balanced(c.columns.size, most)
    heights = [size + 1] * longer + [size] * (count - longer)
    begins = [sum(heights[:i]) for i in range(count)]
    tiles = [(height, _seen(c, begin, height)) for begin, height in zip(begins, heights, strict=True)]
    runs: list[Run] = []
    for (height, seen), group in groupby(range(count), key=lambda i: tiles[i]):
        members = list(group)
        runs.append(Run(begins[members[0]], len(members), height, seen))
    return runs


def _seen(c: Convolution, begin: int, height: int) -> Seen:
    result: list[tuple[int, int]] = []
    for tap in range(c.columns.taps):
        low, high = seen_outputs(c.columns, tap, c.padding is not None)
        low, high = max(low - begin, 0), min(high - begin, height)
        result.append((low, high) if low < high else (0, 0))
    return tuple(result)


def seen_outputs(w: Window, tap: int, padded: bool) -> tuple[int, int]:
    """The range of outputs that see the image through `tap`; may be empty."""
    if not padded:
        return 0, w.size
    shift = tap * w.dilation - w.low
    low = min(w.size, max(0, -(shift // w.stride)))
    return low, max(low, min(w.size, -(-(w.image - shift) // w.stride)))


def _task_size(c: Convolution, panels: int, tiles: int) -> tuple[int, int]:
    """(output rows of a task, a divisor of all; pieces of a row of `tiles` tiles) that give tasks of a useful size and
    spread them evenly over few or many threads. Only single rows are divided."""
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    row_flops = 2 * c.filter_count * c.columns.size * c.depth * len(c.filters) // panels

    def loss(part: tuple[int, int]) -> float:
        rows, pieces = part
        tasks = outer * panels * (c.rows.size // rows) * pieces
        size = rows * row_flops / pieces / _TASK_FLOPS
        return unevenness(tasks) + 0.02 / size + 0.006 * size + max(0, tasks - _MOST_TASKS) / 1000

    whole = [(rows, 1) for rows in divisors(c.rows.size)]
    return min([*whole, *((1, pieces) for pieces in range(2, min(tiles, _MOST_TASKS) + 1))], key=loss)
