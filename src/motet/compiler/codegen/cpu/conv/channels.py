"""Convolutions vectorised along filters; see `convolution.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.copies import RowCopies
from motet.compiler.codegen.cpu.conv.emitter import Emitter
from motet.compiler.codegen.cpu.conv.plan import along_filters
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.conv.slides import Slide
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    internal_function,
)
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import ConvolutionSchedule, DirectSchedule
from motet.compiler.kernels.strides import Extent, StridedAccess


@dataclass(frozen=True)
class RowBlock:
    """What a task that makes rows of the result from `first` on reads and writes: where its image and its filters
    begin, coordinates in the outer loops, scratch memory; of each row it makes piece `piece`."""

    image: ir.Value
    filters: Sequence[ir.Value]
    first: Index
    outer: Sequence[ir.Value]
    scratch: ir.Value
    piece: Index = 0


class Channels(Emitter):
    """Emits a convolution whose vectors run along filters."""

    def __init__(
        self, c: Convolution, plan: ConvolutionSchedule | DirectSchedule, packing: Packing, panels: int, copies: bool,
        copy: PreparedImage | None = None,
    ) -> None:
        """If `copies`, each task copies the image rows that it needs to scratch memory."""
        super().__init__(c, plan, packing, panels, copy)
        self.copies = copies
        self.across = not along_filters(c)
        self.image_copies = RowCopies(c, plan.lanes)
        self.panel_count = -(-c.filter_count // plan.width)
        self.pitch = c.columns.reach * c.channels if copies else 0

    def splits(self) -> int:
        return -(-self.panel_count // self.panels)

    def scratch_elements(self) -> int:
        return self.c.rows.span(self.plan.block) * self.pitch + self.plan.lanes if self.copies else 0

    def emit_task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        first = f.imul(block, plan.block)
        image = self.image_at(f, at)
        if self.copies:
            self._copy_rows(f, image, first, scratch)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        task = RowBlock(image, filters, first, [f.index(at[dim]) for _, dim in c.outer], scratch)
        p0 = f.imul(split, self.panels)
        p1 = f.imin(f.iadd(p0, self.panels), self.panel_count)
        whole = c.filter_count // plan.width
        for tail, low, high in ((False, 0, whole), (True, whole, self.panel_count)):
            if high <= low:
                continue

            def panel(p: Index, _: list[ir.Value], tail: bool = tail) -> None:
                f.loop(0, plan.block, 1, lambda r, _: self._row(f, task, p, r, tail))

            f.loop(f.imax(p0, low), f.imin(p1, high), 1, panel)

    def filters_at(self, f: TileFrame, place: StridedAccess, at: list[Index]) -> ir.Value:
        index: Index = 0
        for size, dim in self.c.outer:
            if place.strides[dim] != Extent(0):
                index = f.iadd(f.imul(index, f.extent(size)), at[dim])
        offset = f.imul(index, self.panel_count * self.c.depth * self.plan.width)
        return f.at(f.pointer(place.value), offset, MEMORY_TYPES[place.dtype])

    def _copy_rows(self, f: TileFrame, image: ir.Value, first: Index, scratch: ir.Value) -> None:
        """Copy image rows to scratch as [row][column][channel], including padding."""
        c = self.c
        function = internal_function(self.module, f"{c.kernel.name}.copy", [PTR, PTR, PTR, PTR, I64])
        top = f.index(f.isub(f.imul(f.index(first), c.rows.stride), c.rows.low))
        f.call(function, [*f.arguments[:2], image, scratch, top])
        g = TileFrame(c.kernel, function)
        source, target, top = g.arguments[2:5]

        def row(r: Index, _: list[ir.Value]) -> None:
            to = g.at(target, g.imul(r, self.pitch), self.element)
            where = g.iadd(top, r)

            at = g.at(source, g.imul(where, c.rows.step), self.image_element)
            self.image_copies.guarded(
                g, [(c.rows.image, where)], lambda: self.image_copies.padded_row(g, Slide.of(c.columns), at, to),
                lambda: self.image_copies.fill_run(g, to, self.pitch))

        g.loop(0, c.rows.span(self.plan.block), 1, row)
        g.ret_void()

    def _row(self, f: TileFrame, task: RowBlock, p: Index, r: Index, tail: bool) -> None:
        """Row `r` of a task, the filters of panel `p`, in tiles as equal as can be."""
        c, plan = self.c, self.plan
        row = f.iadd(task.first, r)
        if self.copies:
            start = f.at(task.scratch, f.imul(f.imul(r, c.rows.stride), self.pitch), self.element)
            column_step = c.channels * c.columns.stride
        else:
            start = f.at(task.image, f.imul(f.imul(row, c.rows.stride), c.rows.step), self.image_element)
            column_step = c.columns.step * c.columns.stride
        tiles = -(-c.columns.size // plan.tile_rows)
        size, longer = divmod(c.columns.size, tiles)
        kind = self.element if self.copies else self.image_element
        offset = f.imul(p, c.depth * plan.width)
        panels = [f.at(b, offset, MEMORY_TYPES[place.dtype]) for b, place in zip(task.filters, c.filters, strict=True)]
        begin = 0
        for height, count in ((size + 1, longer), (size, tiles - longer)):
            if not count:
                continue

            def one(t: Index, _: list[ir.Value], height: int = height, begin: int = begin) -> None:
                w = f.iadd(begin, f.imul(t, height))
                a = f.at(start, f.imul(w, column_step), kind)
                f.call(
                    self._tile(height, tail),
                    [*f.arguments[:2], a, *panels, f.index(f.imul(p, plan.width)), f.index(row), f.index(w),
                     *task.outer],
                )

            f.loop(0, count, 1, one)
            begin += height * count

    def _tile(self, height: int, tail: bool) -> ir.Value:
        return self.tile_function(
            f"tile{height}{'t' if tail else ''}", lambda f: self._write_tile(f, height, tail)
        )

    def _write_tile(self, f: TileFrame, height: int, tail: bool) -> None:
        c, plan = self.c, self.plan
        count = len(c.filters)
        a, panels = f.arguments[2], f.arguments[3 : 3 + count]
        column, row, w = f.arguments[3 + count : 6 + count]
        at = self.place_in_space(f.arguments[6 + count :], column, row, w)
        views = Views(f, c.places, at, c.columns.out, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = self.begin_tile(f, views, height, lanes)
        copied = self.copies
        factors = TileOperands(
            c.product, c.product.dtype if copied else c.image.dtype, () if copied else c.product.lhs.casts,
            c.columns.stride * (c.channels if copied else c.columns.step), c.filters[0].dtype, c.product.rhs.casts,
            tuple(PartialVector(plan.lanes) for _ in lanes),
        )
        for panel in panels:
            sums = accumulate(f, factors, sums, a, panel, self._depth(), 224)
        self.finish_pixels(f, at, views, height, lanes, lambda row, v: sums[row * len(lanes) + v])

    # Parameters: a tile, and where it is.
    def finish_pixels(
        self, f: TileFrame, at: Sequence[Index], views: Views, height: int, lanes: Sequence[PartialVector],
        read: Callable[[int, int], ir.Value], present: Index | None = None,
    ) -> None:
        """Run the epilogue on the sums `read(pixel, vector)` of a tile at coordinates `at`, of which the first
        `present` pixels exist (None: all)."""
        if self.across:
            views = Views(f, self.c.places, at, self.c.filter_dim, self.c.columns.out)
            self.finish_across(f, views, height, lanes, read, present)
        else:
            self.finish_tile(f, views, height, lanes, read, present)

    def place_in_space(self, outer: Sequence[ir.Value], column: Index, row: Index, w: Index) -> list[Index]:
        """The coordinates, one for each dimension of the convolution's iteration space."""
        c = self.c
        at: list[Index] = [0] * len(c.main.sizes)
        for value, (_, dim) in zip(outer, c.outer, strict=True):
            at[dim] = value
        at[c.filter_dim] = column
        for window, coordinate in ((c.rows, row), (c.columns, w)):
            if window.out >= 0:
                at[window.out] = coordinate
        return at

    def tile_lanes(self, tail: bool) -> list[PartialVector]:
        """The vectors of a panel. In the last panel, vectors without any filter are omitted."""
        plan = self.plan
        left = self.c.filter_count % plan.width if tail else plan.width
        result: list[PartialVector] = []
        for start in range(0, left, plan.lanes):
            result.append(PartialVector(plan.lanes, left - start if left - start < plan.lanes else None))
        return result

    def _depth(self) -> list[Depth]:
        c, width = self.c, self.plan.width
        per_column = c.channels * width
        if self.copies:
            row, column, channel = c.rows.dilation * self.pitch, c.columns.dilation * c.channels, 1
        else:
            row, column, channel = c.rows.dilation * c.rows.step, c.columns.dilation * c.columns.step, c.channel_step
        loops = [Depth(c.rows.taps, row, c.columns.taps * per_column)]
        if column == c.channels * channel or c.columns.taps == 1:
            return [*loops, Depth(c.columns.taps * c.channels, channel, width)]
        return [*loops, Depth(c.columns.taps, column, per_column), Depth(c.channels, channel, width)]
