"""Depthwise convolutions with channels-last results: each channel has its own filter, and no sum runs over channels.

Vectors run along channels. A tile is a few neighbouring output pixels by one or two vectors. It loops over the rows of
the window and loads each image vector of a row once, for all pixels and taps that use it. Output columns whose windows
extend past the image form separate segments, which use only the taps inside the image, and the loop over window rows is
limited to rows inside the image. Zero padding is therefore free. Omitting a tap on padding differs from multiplying by
zero only if the filter is infinite or NaN. An image that is not channels-last is copied first, once for all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from llvmlite import ir

from motet.artifact.expressions import product
from motet.compiler.codegen.cpu.conv.copies import RowCopies
from motet.compiler.codegen.cpu.conv.depthwise_plan import Depthwise, Segment, check, choose, match
from motet.compiler.codegen.cpu.conv.emitter import external_bytes, task_loop, window_rows
from motet.compiler.codegen.cpu.conv.prepared import workspace
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
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import DepthwiseSchedule
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.cpu import CpuTarget


def emit(c: Depthwise, schedule: DepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution by `schedule`."""
    made = c.copied
    code = DepthwiseEmitter(made, schedule, made.segments(), c.reads_copy)
    emitted = code.run()
    if not c.reads_copy:
        return emitted
    phase = _copy_phase(code.module, c, schedule.lanes)
    sizes = (c.channels * made.rows.image * made.columns.image, *(size.expression for size, _ in c.copies))
    bytes_ = product((item_bytes(c.product.dtype), *sizes))
    return replace(emitted, llvm=str(code.module), phases=(phase, *emitted.phases), workspaces=(bytes_,))


def _copy_phase(module: ir.Module, c: Depthwise, lanes: int) -> Phase:
    """The phase that copies the image as [outer][row][column][channel]; a task copies one row."""
    f = task_function(module, c.kernel, f"{c.kernel.name}_copy")
    copier = RowCopies(c, lanes)
    rows, columns = c.copied.rows.image, c.copied.columns.image

    def task(index: Index, _: list[ir.Value]) -> None:
        row, rest = f.isub(f.irem(index, rows), c.rows.low if c.pads else 0), f.idiv(index, rows)
        source = f.imul(row, c.rows.step)
        for size, d in reversed(c.copies):
            source = f.iadd(source, f.imul(f.extent(c.image.strides[d]), f.irem(rest, f.extent(size))))
            rest = f.idiv(rest, f.extent(size))
        target = f.at(workspace(f), f.imul(index, columns * c.channels), copier.element)
        image = f.at(f.pointer(c.image.value), source, copier.image_element)
        if not c.pads:
            copier.copy_columns(f, image, target, columns)
            return
        copier.guarded(f, [(c.rows, row)], lambda: copier.padded_row(f, image, target),
                       lambda: copier.fill_run(f, target, columns * c.channels))

    f.loop(f.arguments[2], f.arguments[3], 1, task)
    f.ret_void()
    return Phase(f"{c.kernel.name}_copy", product((rows, *(size.expression for size, _ in c.copies))))


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

    def __init__(self, c: Depthwise, plan: DepthwiseSchedule, segments: list[Segment], copied: bool) -> None:
        """If `copied`, the image is in the workspace."""
        self.c = c
        self.copied = copied
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
        base = workspace(f) if self.copied else f.pointer(c.image.value)
        image = f.at(base, offset, MEMORY_TYPES[c.image.dtype])

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
                        self.panels(f, p0, p1, lambda channel, lanes: self.tile(f, here, channel, lanes))

                    f.loop(0, count, 1, tile)
                    begin += pixels * count

        f.loop(first, f.imin(f.iadd(first, plan.block), c.rows.size), 1, line)

    def row_step(self, f: TileFrame) -> Index:
        """The stride of the image's rows."""
        return self.c.rows.step

    def panels(self, f: TileFrame, p0: Index, p1: Index, tile: Callable[[Index, list[PartialVector]], None]) -> None:
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
            where = f.imul(f.iadd(top, f.imul(k, c.rows.dilation)), self.row_step(f))
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
