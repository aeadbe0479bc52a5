"""Convolutions along axes of which some have dynamic extents; vectors run along filters.

A phase copies the image with its padding as [outer loop][plane][row][column][channel], so that tiles have no edges to
distinguish. A tile is several neighbouring pixels of one row of the result by a few vectors of filters. Tiles of a few
heights have code: the last one of a task has the least that covers its pixels, and computes pixels past the end, from
memory after the copy, that it does not store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.expressions import ceildiv, product
from motet.compiler.codegen.cpu.conv.channels import Channels
from motet.compiler.codegen.cpu.conv.dynamic_plan import DynamicConvolution, check, choose, heights_of, match
from motet.compiler.codegen.cpu.conv.emitter import external_bytes, window_rows
from motet.compiler.codegen.cpu.conv.plan import filter_packing
from motet.compiler.codegen.cpu.conv.prepared import workspace
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    narrow,
    shared_function,
    task_function,
)
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import DirectSchedule, DynamicConvolutionSchedule
from motet.compiler.kernels.strides import ZERO, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_FUSED_STEPS = 224


def emit(d: DynamicConvolution, schedule: DynamicConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution along dynamic axes by `schedule`."""
    return _Dynamic(d, schedule).run()


CLASS = KernelClass(DynamicConvolutionSchedule, match, choose, check, emit)


@dataclass(frozen=True)
class _Stretch:
    """A task's part of a row: coordinates in the iteration space without filter and column, the first filter, and where
    the windows of column 0 begin in the copy and the filters of the panel. Of the planes and rows of the window, only
    the `counts` from there on meet the image."""

    at: list[Index]
    filter: Index
    image: ir.Value
    panels: Sequence[ir.Value]
    counts: Sequence[Index]


class _Dynamic(Channels):
    def __init__(self, d: DynamicConvolution, plan: DynamicConvolutionSchedule) -> None:
        packing = filter_packing(d.c, plan.width)
        assert packing is not None
        alike = DirectSchedule(plan.lanes, plan.tile_rows, plan.vectors, d.c.rows.size)
        super().__init__(d.c, alike, packing, panels=1, copies=True)
        self.d = d
        self.tiles = plan.tiles
        self.heights = heights_of(plan.tile_rows)

    @property
    def slack(self) -> int:
        """Elements that the last tile may read after the copy."""
        return self.plan.tile_rows * self.c.columns.stride * self.c.channels

    def run(self) -> KernelCode:
        c, d = self.c, self.d
        flops = 2 * c.filter_count * c.depth * len(c.filters)
        for size in (*(size for size, _ in c.outer), *(slide.size for slide in (d.copy.slides[-2:]))):
            flops *= size.known or 1
        phases = d.copy.phase(self.module, self.plan.lanes), self._tile_phase()
        assert self.packing is not None
        return KernelCode(
            "convolution", str(self.module), phases, 0, (d.copy.bytes(self.slack),),
            {p.value: self.packing for p in c.filters}, flops, external_bytes(c.kernel),
        )

    # -- the tiles -------------------------------------------------------------------------------

    def _tile_phase(self) -> Phase:
        """The phase that computes the result; a task has a few tiles of a row and one panel of filters. Tasks of one
        panel are neighbours."""
        c, d = self.c, self.d
        f = task_function(self.module, c.kernel)
        rows = d.copy.slides[-2]
        pixels = self.tiles * self.plan.tile_rows
        moving = [plane.out for plane in c.planes]
        inner, outer = ([loop for loop in c.outer if (loop[1] in moving) == moves] for moves in (True, False))

        def task(index: Index, _: list[ir.Value]) -> None:
            at: list[Index] = [0] * len(c.main.sizes)
            pieces = f.iceil(f.extent(d.copy.slides[-1].size), pixels)
            piece, rest = f.irem(index, pieces), f.idiv(index, pieces)
            row, rest = f.irem(rest, f.extent(rows.size)), f.idiv(rest, f.extent(rows.size))
            for size, dim in reversed(inner):
                at[dim], rest = f.irem(rest, f.extent(size)), f.idiv(rest, f.extent(size))
            panel, rest = f.irem(rest, self.panel_count), f.idiv(rest, self.panel_count)
            for size, dim in reversed(outer):
                at[dim], rest = f.irem(rest, f.extent(size)), f.idiv(rest, f.extent(size))
            if c.rows.out >= 0:
                at[c.rows.out] = row
            self._piece(f, at, row, panel, f.imul(piece, pixels))

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        pieces = ceildiv(d.copy.slides[-1].size.expression, pixels)
        sizes = [rows.size, *(size for size, _ in c.outer)]
        return Phase(c.kernel.name, product([pieces, self.panel_count, *(size.expression for size in sizes)]))

    # Parameters: a task's coordinates.
    def _piece(self, f: TileFrame, at: list[Index], row: Index, panel: Index, first: Index) -> None:
        """Compute the pixels of row `row` from `first` on that belong to one task, and the filters of one panel."""
        c, d = self.c, self.d
        steps, each = self.d.copy.steps(f)
        copy: Index = 0
        for size, dim in d.copy.outer:
            copy = f.iadd(f.imul(copy, f.extent(size)), at[dim])
        offset = f.imul(copy, each)
        begin, depth = f.imul(panel, c.depth * self.plan.width), c.depth
        counts: list[Index] = []
        for slide, step in zip(d.copy.slides[:-1], steps, strict=False):
            w = slide.window
            where = row if slide is d.copy.slides[-2] else at[w.out] if w.out >= 0 else 0
            low, high = window_rows(f, w, c.padding == 0, where, f.extent(slide.image))
            depth //= w.taps
            offset = f.iadd(offset, f.imul(f.iadd(f.imul(where, w.stride), f.imul(low, w.dilation)), step))
            begin = f.iadd(begin, f.imul(low, depth * self.plan.width))
            counts.append(f.isub(high, low))
        panels = [f.at(self.filters_at(f, p, at), begin, MEMORY_TYPES[p.dtype]) for p in c.filters]
        image = f.at(workspace(f), offset, self.element)
        place = _Stretch(at, f.imul(panel, self.plan.width), image, panels, counts)
        end = f.imin(f.extent(d.copy.slides[-1].size), f.iadd(first, self.tiles * self.plan.tile_rows))
        whole = c.filter_count // self.plan.width
        if whole in (0, self.panel_count):
            self._choose_height(f, place, first, end, whole == 0)
            return
        with f.if_else(f.icmp_signed("<", f.index(panel), f.index(whole))) as (then, otherwise):
            with then:
                self._choose_height(f, place, first, end, False)
            with otherwise:
                self._choose_height(f, place, first, end, True)

    def _choose_height(self, f: TileFrame, place: _Stretch, first: Index, end: Index, tail: bool) -> None:
        """Compute pixels `[first, end)` in tiles of the greatest height, and the rest in one of the least that covers
        it."""
        most = self.heights[0]
        whole = f.iadd(first, f.imul(f.idiv(f.isub(end, first), most), most))
        self._run_tiles(f, place, first, whole, most, tail)
        rest = f.isub(end, whole)

        def some(position: int) -> None:
            height = self.heights[position]
            if position + 1 == len(self.heights):
                self._run_tiles(f, place, whole, end, height, tail)
                return
            with f.if_else(f.icmp_signed(">", f.index(rest), f.index(self.heights[position + 1]))) as (then, lower):
                with then:
                    self._run_tiles(f, place, whole, end, height, tail)
                with lower:
                    some(position + 1)

        some(0)

    # Parameters: a piece of a row.
    def _run_tiles(self, f: TileFrame, place: _Stretch, first: Index, end: Index, height: int, tail: bool) -> None:
        c = self.c
        function = self._tile_of(height, tail)

        def one(w: Index, _: list[ir.Value]) -> None:
            a = f.at(place.image, f.imul(w, c.columns.stride * c.channels), self.element)
            row = place.at[c.rows.out] if c.rows.out >= 0 else 0
            count = f.imin(f.isub(end, w), height)
            f.call(function, [*f.arguments[:2], a, *place.panels, *map(f.index, (place.filter, row, w, count)),
                              *(f.index(place.at[dim]) for _, dim in c.outer), *map(f.index, place.counts)])

        f.loop(first, end, height, one)

    def _tile_of(self, height: int, tail: bool) -> ir.Value:
        """The function `(buffers, sizes, image, panels…, first filter, row, column, pixels, outer…, taps…)` that
        computes a tile of `height` pixels and stores the first `pixels`. `taps` are the planes and rows of the window
        that meet the image."""
        arguments = [PTR] * (3 + len(self.c.filters)) + [I64] * (3 + len(self.c.outer) + len(self.c.windows))
        name = f"{self.c.kernel.name}.tile{height}{'t' if tail else ''}"
        return shared_function(
            self.module, name, arguments, self.c.kernel, lambda f: self._write_dynamic_tile(f, height, tail))

    def _write_dynamic_tile(self, f: TileFrame, height: int, tail: bool) -> None:
        c = self.c
        n = len(c.filters)
        a, panels = f.arguments[2], f.arguments[3 : 3 + n]
        column, row, w, present = f.arguments[3 + n : 7 + n]
        outer = 7 + n + len(c.outer)
        at = self.place_in_space(f.arguments[7 + n : outer], column, row, w)
        views = Views(f, c.places, at, c.columns.out if c.columns.out >= 0 else None, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = [
            self.initial(f, views, self._stored_row(f, row, present), v * self.plan.lanes, lane)
            for row in range(height) for v, lane in enumerate(lanes)
        ]
        factors = TileOperands(
            c.product, c.product.dtype, (), c.columns.stride * c.channels, c.filters[0].dtype, c.product.rhs.casts,
            (PartialVector(self.plan.lanes),) * len(lanes))
        for panel in panels:
            sums = accumulate(f, factors, sums, a, panel, self._loops(f, f.arguments[outer:]), _FUSED_STEPS)
        self._store(f, at, views, lanes, lambda row, v: sums[row * len(lanes) + v], height, present)

    def _stored_row(self, f: TileFrame, row: int, present: Index) -> Index:
        """A pixel that exists, in place of one past the end, if initial sums differ between pixels."""
        column = self.c.columns.out
        inits = [init for init in self.c.inits if isinstance(init, StridedAccess)]
        if row == 0 or column < 0 or all(init.strides[column] == ZERO for init in inits):
            return row
        return f.imin(row, f.isub(present, 1))

    def _loops(self, f: TileFrame, counts: Sequence[Index]) -> list[Depth]:
        """The loops along K: planes and rows of the window, as many as `counts`, and in these columns and channels."""
        c, width = self.c, self.plan.width
        steps, _ = self.d.copy.steps(f)
        loops: list[Depth] = []
        depth = c.depth
        for slide, step, count in zip(self.d.copy.slides[:-1], steps, counts, strict=False):
            depth //= slide.window.taps
            loops.append(Depth(count, f.imul(slide.window.dilation, step), depth * width))
        if c.columns.dilation == 1 or c.columns.taps == 1:
            return [*loops, Depth(c.columns.taps * c.channels, 1, width)]
        column = c.columns.dilation * c.channels
        return [*loops, Depth(c.columns.taps, column, c.channels * width), Depth(c.channels, 1, width)]

    # Parameters: a tile, and where it is.
    def _store(
        self, f: TileFrame, at: list[Index], views: Views, lanes: Sequence[PartialVector],
        read: Callable[[int, int], ir.Value], height: int, present: Index,
    ) -> None:
        """Run the epilogue on the first `present` pixels of a tile."""
        c = self.c
        if self.across:
            self.finish_across(f, Views(f, c.places, at, c.filter_dim, c.columns.out), height, lanes, read, present)
            return

        def pixel(row: int) -> None:
            for v, lane in enumerate(lanes):
                value = narrow(f, read(row, v), c.output.dtype)
                finish(f, c.epilogue, views, value, row, v * self.plan.lanes, lane)

        pixel(0)  # which is there: vectors that all pixels share are read with it
        for row in range(1, height):
            with f.if_then(f.icmp_signed("<", f.index(row), present)):
                pixel(row)
