"""Depthwise convolutions of channels-last images: each channel has its own filter, and no sum runs over channels.

Vectors run along channels. A tile is a few neighbouring output pixels by one or two vectors. It loops over the rows of
the window and loads each image vector of a row once, for all pixels and taps that use it. Output columns whose windows
extend past the image form separate segments, which use only the taps inside the image, and the loop over window rows is
limited to rows inside the image. Zero padding is therefore free, and nothing is copied. Omitting a tap on padding
differs from multiplying by zero only if the filter is infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.emitter import external_bytes, task_loop, window_rows
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import constant
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    balanced,
    narrow,
    read_vector,
    task_function,
    widen,
)
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.kernels.convolution import forward_windows
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage
from motet.compiler.kernels.product import Product
from motet.compiler.kernels.schedule import DepthwiseSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, initial_of, place_of
from motet.compiler.kernels.windows import SINGLE, Window, image_axes, read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_TASK_PRODUCTS = 64_000  # multiply-adds, about ten microseconds of one core
_MOST_TASKS = 64
_LEAST_ROWS = 2  # of the result in one task: neighbouring tasks both read the rows where their windows overlap
_MOST_SEGMENTS = 16  # each has separate code
_MOST_TAPS = 32  # of one window row, unrolled
_TILE_PRODUCTS = 320  # multiply-adds unrolled in one tile


@dataclass(frozen=True)
class Segment:
    """Neighbouring output columns `[begin, begin + count)` that use the same `taps` of a window row."""

    taps: tuple[int, ...]
    begin: int
    count: int


@dataclass(frozen=True)
class Depthwise:
    """A kernel read as a depthwise convolution. `outer` are the dimensions that image and result share, except the
    channel. `tap_steps` are the strides of the packed filter along window rows and columns."""

    kernel: Kernel
    main: Stage
    product: Product
    image: StridedAccess
    filters: StridedAccess
    tap_steps: tuple[int, int]
    packing: Packing | None
    init: StridedAccess | float | int
    output: StridedAccess
    outer: tuple[tuple[Extent, int], ...]
    channel_dim: int
    channels: int
    rows: Window
    columns: Window
    padded: bool
    epilogue: Epilogue

    @property
    def products(self) -> int:
        """Multiply-adds per iteration of the outer loops."""
        return self.channels * self.rows.size * self.columns.size * self.rows.taps * self.columns.taps

    def segments(self) -> list[Segment]:
        """The output columns, grouped by the taps that fall inside the image."""
        w = self.columns

        def taps(column: int) -> tuple[int, ...]:
            start = column * w.stride - w.low
            return tuple(k for k in range(w.taps) if not self.padded or 0 <= start + k * w.dilation < w.image)

        result: list[Segment] = []
        for key, group in groupby(range(w.size), key=taps):
            columns = list(group)
            result.append(Segment(key, columns[0], len(columns)))
        return result


# -- matching ------------------------------------------------------------------------------------


def match(kernel: Kernel, target: CpuTarget) -> Depthwise | None:
    """Read `kernel` as a depthwise convolution of a channels-last image, zero-padded or unpadded, with an
    element-wise epilogue; None if it is not one or if its window has too many columns."""
    found = _match(kernel)
    if found is None or found.columns.taps > _MOST_TAPS or len(found.segments()) > _MOST_SEGMENTS:
        return None
    return found


def _match(kernel: Kernel) -> Depthwise | None:
    opening = read_windows(kernel.stages[0]) if kernel.stages else None
    if opening is None or opening.image.padding not in (None, 0):
        return None
    stage, product, image, filters = opening.stage, opening.dims.product, opening.image, opening.filters
    rank = len(stage.sizes)
    epilogue = match_epilogue(kernel, stage, kernel.stages[1:])
    init = initial_of(kernel, stage)
    places = [place_of(kernel, access, rank) for access in (image, filters, stage.outputs[0])]
    image_place, filter_place, output = places
    if epilogue is None or init is None or image_place is None or filter_place is None or output is None:
        return None
    if "temporary" in (kernel.values[access.value].role for access in (image, filters)):
        return None
    if any(place.dtype not in MEMORY_TYPES for place in (image_place, filter_place, output)):
        return None
    axes = _image_axes(kernel, stage, image, image_place)
    if axes is None:
        return None
    outer, channel, windows = axes
    taps = _filter_taps(kernel, stage, filters, filter_place, channel, windows)
    if taps is None:
        return None
    steps, packing = taps
    return Depthwise(
        kernel, stage, product, replace(image_place, offset=()), filter_place, steps, packing, init, output, outer,
        channel, int(stage.sizes[channel]), windows[0], windows[1], image.padding is not None, epilogue,
    )


def _image_axes(
    kernel: Kernel, stage: Stage, image: Access, place: StridedAccess
) -> tuple[tuple[tuple[Extent, int], ...], int, tuple[Window, Window]] | None:
    """The image's dimensions as (outer dimensions, channel, windows over rows and columns)."""
    axes = image_axes(kernel, stage, image)
    windows = forward_windows(sorted([*axes.windows, *axes.summed], key=lambda axis: axis.number))
    plain = [walk.dim for axis in axes.points for walk in axis.outs]
    channels = [d for d in plain if place.strides[d] == ONE and isinstance(stage.sizes[d], int)]
    if len(channels) != 1 or windows is None or not 1 <= len(windows) <= 2:
        return None
    windows.sort(key=lambda w: -w.step)
    if len(windows) == 1:
        windows.insert(0, SINGLE)
    seen = sorted([*plain, *(d for w in windows for d in (w.out, w.kernel) if d >= 0)])
    if seen != [d for d, size in enumerate(stage.sizes) if size != 1]:
        return None
    outer = tuple((Extent.of(stage.sizes[d]), d) for d in plain if d != channels[0])
    return outer, channels[0], (windows[0], windows[1])


def _filter_taps(
    kernel: Kernel, stage: Stage, access: Access, place: StridedAccess, channel: int, windows: tuple[Window, Window]
) -> tuple[tuple[int, int], Packing | None] | None:
    """The strides of the filter along window rows and columns, and the packing that gives it those strides."""
    value = kernel.values[access.value]
    kernels = [w.kernel for w in windows]
    axis_of: dict[int, int] = {}
    for axis in read_axes(kernel, stage, access):
        walk = axis.plain
        if not axis.is_fixed and (walk is None or walk.dim in axis_of):
            return None
        if walk is not None:
            axis_of[walk.dim] = axis.number
    expected = sorted([channel, *(d for d in kernels if d >= 0)])
    if sorted(axis_of) != expected or any(value.shape[a] != stage.sizes[d] for d, a in axis_of.items()):
        return None
    if value.role == "constant" and value.order == tuple(range(value.rank)):
        axes = [axis_of[d] for d in (*(d for d in kernels if d >= 0), channel)]
        rest = [axis for axis in range(value.rank) if axis not in axes]
        if any(value.shape[axis] != 1 for axis in rest):
            return None
        channels = int(stage.sizes[channel])
        split = (*range(0, 2 * value.rank, 2), *range(1, 2 * value.rank, 2))
        return (windows[1].taps * channels, channels), Packing((*rest, *axes), (1,) * value.rank, split)
    steps = [place.strides[d].known if d >= 0 else 0 for d in kernels]
    if place.strides[channel] != ONE or steps[0] is None or steps[1] is None:
        return None
    return (steps[0], steps[1]), None


# -- schedules ---------------------------------------------------------------------------------------


def choose(c: Depthwise, target: CpuTarget) -> DepthwiseSchedule:
    """Choose the register tile and the tasks from the extents."""
    lanes = _lanes_of(c, target)
    vectors = min(-(-c.channels // lanes), 2 if target.vector_registers > 16 else 1)
    held = min(c.columns.taps, 3) * vectors  # taps that stay in registers
    pixels = min(8, (target.vector_registers - held - vectors) // vectors)
    pixels = max(1, min(pixels, _TILE_PRODUCTS // (c.columns.taps * vectors)))
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    wanted = max(1, -(-min(_MOST_TASKS, c.products * outer // _TASK_PRODUCTS) // outer))
    block = max(min(_LEAST_ROWS, c.rows.size), -(-c.rows.size // wanted))
    panels = -(-c.channels // (lanes * vectors))
    splits = max(1, min(panels, -(-wanted // -(-c.rows.size // block))))
    return DepthwiseSchedule(lanes, vectors, pixels, block, -(-panels // splits))


def check(c: Depthwise, schedule: DepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s, registers = schedule, target.vector_registers
    most = max(1, registers // max(1, s.vectors))
    return [
        *lanes_reason(s.lanes, _lanes_of(c, target)),
        *in_range("vectors", s.vectors, 1, registers),
        *in_range("pixels", s.pixels, 1, most, f"{registers} vector registers"),
        *in_range("block", s.block, 1, c.rows.size, "rows of the result"),
        *in_range("panels", s.panels, 1, -(-c.channels // max(1, s.width)), "panels of channels"),
    ]


def emit(c: Depthwise, schedule: DepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution by `schedule`."""
    return DepthwiseEmitter(c, schedule, c.segments()).run()


CLASS = KernelClass(DepthwiseSchedule, match, choose, check, emit)


def _lanes_of(c: Depthwise, target: CpuTarget) -> int:
    return max(2, target.lanes(64 if c.product.dtype in ("f64", "i64") else 32))


# -- emission ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NearPixels:
    """`count` neighbouring results of row `row` from `column` on, at outer coordinates `at`, where the image begins at
    `image`. Of their windows, the columns `taps` and the rows `present` meet the image."""

    image: ir.Value
    at: list[Index]
    row: Index
    column: Index
    count: int
    taps: tuple[int, ...]
    present: tuple[Index, Index]


class DepthwiseEmitter:
    """Emits one module: the loops over tasks, segments and tiles, and tiles of floats or integers."""

    def __init__(self, c: Depthwise, plan: DepthwiseSchedule, segments: list[Segment]) -> None:
        self.c = c
        self.plan = plan
        self.segments = segments
        self.module = ir.Module(c.kernel.name)
        self.blocks = -(-c.rows.size // plan.block)
        self.panel_count = -(-c.channels // plan.width)
        self.splits = -(-self.panel_count // plan.panels)

    def run(self) -> KernelCode:
        c = self.c
        f = task_function(self.module, c.kernel)
        phase = task_loop(f, c.outer, len(c.main.sizes), self.blocks, self.splits, self._task)
        return KernelCode(
            "depthwise", str(self.module), (phase,),
            packings={} if c.packing is None else {c.filters.value: c.packing},
            flops=2 * c.products * math.prod(size.known or 1 for size, _ in c.outer), bytes=external_bytes(c.kernel),
        )

    def _task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        plan, c = self.plan, self.c
        self.begin(f, scratch)
        first = f.imul(block, plan.block)
        p0 = f.imul(split, plan.panels)
        p1 = f.imin(f.iadd(p0, plan.panels), self.panel_count)
        offset: Index = 0
        for _, dim in c.outer:
            offset = f.iadd(offset, f.imul(f.extent(c.image.strides[dim]), at[dim]))
        image = f.at(f.pointer(c.image.value), offset, MEMORY_TYPES[c.image.dtype])

        def line(row: Index, _: list[ir.Value]) -> None:
            present = window_rows(f, c.rows, c.padded, row)
            for segment in self.segments:
                begin = segment.begin
                pieces, size, longer = balanced(segment.count, plan.pixels)
                for pixels, count in ((size + 1, longer), (size, pieces - longer)):

                    def tile(
                        t: Index, _: list[ir.Value], taps: tuple[int, ...] = segment.taps, pixels: int = pixels,
                        begin: int = begin,
                    ) -> None:
                        column = f.iadd(begin, f.imul(t, pixels))
                        here = NearPixels(image, at, row, column, pixels, taps, present)
                        self._panels(f, p0, p1, lambda channel, lanes: self.tile(f, here, channel, lanes))

                    f.loop(0, count, 1, tile)
                    begin += pixels * count

        f.loop(first, f.imin(f.iadd(first, plan.block), c.rows.size), 1, line)

    def _panels(self, f: TileFrame, p0: Index, p1: Index, tile: Callable[[Index, list[PartialVector]], None]) -> None:
        """Emit `tile` for panels `[p0, p1)`; an incomplete last panel is emitted separately."""
        plan = self.plan
        whole, left = divmod(self.c.channels, plan.width)
        full = [PartialVector(plan.lanes) for _ in range(plan.vectors)]
        f.loop(p0, f.imin(p1, whole), 1, lambda p, _: tile(f.imul(p, plan.width), full))
        if not left:
            return
        rest = [
            PartialVector(plan.lanes, left - at if left - at < plan.lanes else None)
            for at in range(0, left, plan.lanes)
        ]
        if self.splits == 1:
            tile(whole * plan.width, rest)
            return
        with f.if_then(f.icmp_signed(">", f.index(p1), f.index(whole))):
            tile(whole * plan.width, rest)

    def begin(self, f: TileFrame, scratch: ir.Value) -> None:
        """Emits what a task does first."""

    def views(self, f: TileFrame, pixels: NearPixels, channel: Index) -> Views:
        """The accesses of the epilogue and of initial sums at the first of `pixels` and `channel`."""
        c = self.c
        here = list(pixels.at)
        here[c.channel_dim] = channel
        for window, coordinate in ((c.rows, pixels.row), (c.columns, pixels.column)):
            if window.out >= 0:
                here[window.out] = coordinate
        places = [*c.epilogue.places, *([c.init] if isinstance(c.init, StridedAccess) else [])]
        return Views(f, places, here, c.columns.out if c.columns.out >= 0 else None, c.channel_dim)

    def tile(self, f: TileFrame, pixels: NearPixels, channel: Index, lanes: list[PartialVector]) -> None:
        """Neighbouring results, the channels of one panel from `channel` on."""
        c, row, column = self.c, pixels.row, pixels.column
        views = self.views(f, pixels, channel)
        sums = [self.initial(f, views, t, v, lane) for t in range(pixels.count) for v, lane in enumerate(lanes)]
        filters = f.at(f.pointer(c.filters.value), channel, MEMORY_TYPES[c.filters.dtype])
        top = f.isub(f.imul(row, c.rows.stride), c.rows.low)
        left = f.iadd(f.imul(f.isub(f.imul(column, c.columns.stride), c.columns.low), c.columns.step), channel)

        def window_row(k: Index, values: list[ir.Value]) -> list[ir.Value]:
            where = f.imul(f.iadd(top, f.imul(k, c.rows.dilation)), c.rows.step)
            tap_row = f.at(filters, f.imul(k, c.tap_steps[0]), MEMORY_TYPES[c.filters.dtype])
            return self._products(f, pixels, f.iadd(where, left), tap_row, lanes, values)

        sums = f.loop(*pixels.present, 1, window_row, sums)
        for t in range(pixels.count):
            for v, lane in enumerate(lanes):
                value = self.result(f, sums[t * len(lanes) + v])
                finish(f, c.epilogue, views, value, t, v * self.plan.lanes, lane)

    def _products(
        self, f: TileFrame, pixels: NearPixels, offset: Index, filters: ir.Value, lanes: list[PartialVector],
        sums: list[ir.Value],
    ) -> list[ir.Value]:
        """The sums after one row of the window: each image vector is read once, from `offset` in the image on."""
        c = self.c
        result = list(sums)
        weights: dict[tuple[int, int], ir.Value] = {}
        users: dict[int, list[tuple[int, int]]] = {}
        for t in range(pixels.count):
            for k in pixels.taps:
                users.setdefault(t * c.columns.stride + k * c.columns.dilation, []).append((t, k))
        for k in pixels.taps:
            for v, lane in enumerate(lanes):
                weights[k, v] = self.read(f, filters, k * c.tap_steps[1] + v * self.plan.lanes, "filters", lane)
        for position in sorted(users):
            for v, lane in enumerate(lanes):
                where = f.iadd(offset, position * c.columns.step + v * self.plan.lanes)
                pixel = self.read(f, pixels.image, where, "image", lane)
                for t, k in users[position]:
                    number = t * len(lanes) + v
                    if c.product.is_float:
                        result[number] = f.multiply_add(pixel, weights[k, v], result[number])
                    else:
                        result[number] = f.add(f.mul(pixel, weights[k, v]), result[number])
        return result

    def read(
        self, f: TileFrame, base: ir.Value, offset: Index, operand: Literal["image", "filters"], lanes: PartialVector
    ) -> ir.Value:
        """A vector of an operand in the product's type."""
        c, is_image = self.c, operand == "image"
        dtype = c.image.dtype if is_image else c.filters.dtype
        raw = read_vector(f, f.at(base, offset, MEMORY_TYPES[dtype]), dtype, 1, lanes)
        return widen(f, raw, dtype, (c.product.lhs if is_image else c.product.rhs).casts, c.product.dtype)

    def result(self, f: TileFrame, value: ir.Value) -> ir.Value:
        """A sum in the type that the epilogue reads."""
        return narrow(f, value, self.c.output.dtype)

    def initial(self, f: TileFrame, views: Views, pixel: int, vector: int, lanes: PartialVector) -> ir.Value:
        init = self.c.init
        if not isinstance(init, StridedAccess):
            return constant(self.c.product.dtype, init, lanes.lanes)
        raw = views.read(init, pixel, vector * self.plan.lanes, lanes)
        return widen(f, raw, init.dtype, (), self.c.product.dtype)
