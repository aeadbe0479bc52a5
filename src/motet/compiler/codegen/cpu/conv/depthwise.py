"""Depthwise convolutions with channels-last results: each channel has its own filter, and no sum runs over channels.

Vectors run along channels. A tile is a few neighbouring output pixels by one or two vectors. It loops over the rows of
the window and loads each image vector of a row once, for all pixels and taps that use it. Output columns whose windows
extend past the image form separate segments, which use only the taps inside the image, and the loop over window rows is
limited to rows inside the image. Zero padding is therefore free. Omitting a tap on padding differs from multiplying by
zero only if the filter is infinite or NaN. An image that is not channels-last is copied first, once for all tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.artifact.expressions import ceildiv
from motet.compiler.codegen.cpu.conv.depthwise_plan import Depthwise, check, choose, match
from motet.compiler.codegen.cpu.conv.emitter import each_panel, external_bytes, initial_value, task_loop, window_rows
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage, image_at, slides_of, with_copy
from motet.compiler.codegen.cpu.conv.slides import known_part, number
from motet.compiler.codegen.cpu.emit.builder import Index
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
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import DepthwiseSchedule
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.cpu import CpuTarget


def emit(c: Depthwise, schedule: DepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution by `schedule`."""
    return DepthwiseEmitter(c.of(c.copy), schedule, c.copy).run()


CLASS = KernelClass(DepthwiseSchedule, match, choose, check, emit)


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

    def __init__(self, c: Depthwise, plan: DepthwiseSchedule, copy: PreparedImage | None) -> None:
        """With `copy`, `c` is the convolution of the copy."""
        self.c = c
        self.copy = copy
        self.plan = plan
        self.module = ir.Module(c.kernel.name)
        self.rows, self.columns = slides_of(c, copy)
        self.panel_count = -(-c.channels // plan.width)
        self.splits = -(-self.panel_count // plan.panels)

    def run(self) -> KernelCode:
        c = self.c
        f = task_function(self.module, c.kernel)
        blocks = ceildiv(self.rows.size, self.plan.block)
        phase = task_loop(f, c.outer, len(c.main.sizes), blocks, self.splits, self._task)
        phases, workspaces = with_copy(self.module, self.copy, self.plan.lanes, phase)
        sizes = (*(size.expression for size, _ in c.outer), self.rows.size, self.columns.size)
        return KernelCode(
            "depthwise", str(self.module), phases, workspaces=workspaces,
            packings={} if c.packing is None else {c.filters.value: c.packing},
            flops=2 * known_part(sizes) * c.channels * c.rows.taps * c.columns.taps, bytes=external_bytes(c.kernel),
        )

    def _task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        plan, c = self.plan, self.c
        self.begin(f, scratch)
        first = f.imul(block, plan.block)
        p0 = f.imul(split, plan.panels)
        p1 = f.imin(f.iadd(p0, plan.panels), self.panel_count)
        image = image_at(f, c, self.copy, at)

        def line(row: Index, _: list[ir.Value]) -> None:
            present = window_rows(f, self.rows, c.padding is not None, row)

            def tile(column: Index, pixels: int, taps: tuple[int, ...]) -> None:
                here = NearPixels(image, at, row, column, pixels, taps, present)
                each_panel(f, c.channels, plan, (p0, p1), lambda channel, lanes: self.tile(f, here, channel, lanes))

            self._pixels(f, tile)

        f.loop(first, f.imin(f.iadd(first, plan.block), number(f, self.rows.size)), 1, line)

    def _pixels(self, f: TileFrame, tile: Callable[[Index, int, tuple[int, ...]], None]) -> None:
        """Emit `tile` for the tiles of a row: first column, number of pixels, and columns of the window that meet the
        image. Tiles of a row of dynamic extent have a few numbers of pixels, the largest first."""
        if isinstance(self.columns.size, int):
            for segment in self.c.segments():
                begin = segment.begin
                pieces, size, longer = balanced(segment.count, self.plan.pixels)
                for pixels, count in ((size + 1, longer), (size, pieces - longer)):
                    f.loop(0, count, 1, lambda t, _, begin=begin, pixels=pixels, taps=segment.taps: tile(
                        f.iadd(begin, f.imul(t, pixels)), pixels, taps))
                    begin += pixels * count
            return
        count, done, pixels = number(f, self.columns.size), f.index(0), self.plan.pixels
        taps = tuple(range(self.c.columns.taps))
        while pixels:
            end = f.iadd(done, f.imul(f.idiv(f.isub(count, done), pixels), pixels))
            f.loop(done, end, pixels, lambda column, _, pixels=pixels: tile(column, pixels, taps))
            done, pixels = f.index(end), pixels // 2

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
            where = f.imul(f.iadd(top, f.imul(k, c.rows.dilation)), number(f, self.rows.step))
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
        at = pixel, vector * self.plan.lanes
        return initial_value(f, views, self.c.init, self.c.product.dtype, at, lanes)
