"""Convolutions of channels-last images, read in place without copies; vectors run along filters.

A tile is several neighbouring pixels of one output row by a few vectors of filters. It loops over the window rows that
meet the image, and in each over columns and channels, which are contiguous. Tiles at the ends of a row, whose windows
extend past the image, have separate code that multiplies, in each window column, only for the pixels that see the image
there. Padding is therefore free, also on images smaller than the window. Omitting a tap on padding differs from
multiplying by zero only if the filter is infinite or NaN.

Tasks that use the same filters are neighbours. If the filters exceed the second-level cache, each tile prefetches a
part of the filters that the next panel uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.channels import Channels, RowBlock
from motet.compiler.codegen.cpu.conv.direct_plan import Run, check, choose, match, runs_of
from motet.compiler.codegen.cpu.conv.emitter import window_rows
from motet.compiler.codegen.cpu.conv.plan import filter_packing
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    AHEAD_STEPS,
    LINE,
    MEMORY_TYPES,
    Ahead,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    balanced,
    narrow,
    shared_function,
)
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import DirectSchedule
from motet.compiler.kernels.windows import Window
from motet.compiler.targets.cpu import CpuTarget

_FUSED_STEPS = 224


def emit(c: Convolution, schedule: DirectSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution by `schedule`."""
    emitter = _Direct if schedule.depth_block is None else _Stationary
    return emitter(c, schedule, target).run()


CLASS = KernelClass(DirectSchedule, match, choose, check, emit)


class _Direct(Channels):
    """Emits the tasks and tiles of a convolution read in place."""

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget) -> None:
        packing = filter_packing(c, plan.width)
        assert packing is not None
        super().__init__(c, plan, packing, panels=1, copies=False)
        self.runs = runs_of(c, plan.tile_rows)
        self.tiles = sum(run.count for run in self.runs)  # of one row
        self.column_step = c.columns.dilation * c.columns.step
        panel = c.depth * plan.width * item_bytes(c.filters[0].dtype)
        self.ahead = self.panel_count > 1 and len(c.filters) == 1 and self.panel_count * panel > target.l2 // 2
        self.stride = self.ahead_stride(c.rows.size * self.tiles)
        self.share = c.depth // AHEAD_STEPS * self.stride

    def ahead_stride(self, tiles: int) -> int:
        """Bytes that each of `tiles` tiles prefetches in `AHEAD_STEPS` steps along K, so that all tiles together
        prefetch as many filters as they use."""
        return -(-AHEAD_STEPS * self.plan.width * item_bytes(self.c.filters[0].dtype) // tiles)

    def soon(self, address: ir.Value) -> Ahead | None:
        return Ahead(address, -(-self.stride // LINE), self.stride) if self.ahead else None

    def emit_task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        image = self.image_at(f, at)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        offset = f.imul(split, c.depth * plan.width)
        panels = [f.at(b, offset, MEMORY_TYPES[place.dtype]) for b, place in zip(filters, c.filters, strict=True)]
        outer = [f.index(at[dim]) for _, dim in c.outer]
        column = f.index(f.imul(split, plan.width))
        task = RowBlock(image, panels, f.imul(block, plan.block), outer, scratch)

        whole = c.filter_count // plan.width
        if isinstance(split, int) or whole in (0, self.panel_count):
            self.emit_panel(f, task, column, whole == 0)
            return
        with f.if_else(f.icmp_signed("<", split, f.index(whole))) as (then, otherwise):
            with then:
                self.emit_panel(f, task, column, False)
            with otherwise:
                self.emit_panel(f, task, column, True)

    def emit_panel(self, f: TileFrame, task: RowBlock, column: ir.Value, tail: bool) -> None:
        """The task's rows of the result, filters of one panel, the first of them `column`."""
        end = f.iadd(task.first, self.plan.block)
        f.loop(task.first, end, 1, lambda row, _: self._line(f, task, column, row, tail))

    def _line(self, f: TileFrame, task: RowBlock, column: ir.Value, row: Index, tail: bool) -> None:
        """Emit one output row for one panel of filters."""
        c, plan = self.c, self.plan
        low, high = window_rows(f, c.rows, c.padding is not None, row)
        top = f.iadd(f.isub(f.imul(row, c.rows.stride), c.rows.low), f.imul(low, c.rows.dilation))
        left = f.isub(f.imul(top, c.rows.step), c.columns.low * c.columns.step)
        window_row = f.imul(low, c.columns.taps * c.channels * plan.width)
        filters = [f.at(b, window_row, MEMORY_TYPES[p.dtype]) for b, p in zip(task.filters, c.filters, strict=True)]
        count = f.index(f.isub(high, low))
        done = 0
        for run in self.runs:

            def one(t: Index, _: list[ir.Value], run: Run = run, done: int = done) -> None:
                w = f.iadd(run.begin, f.imul(t, run.height))
                a = f.at(task.image, f.iadd(left, f.imul(w, c.columns.stride * c.columns.step)), self.image_element)
                number = f.iadd(f.iadd(f.imul(row, self.tiles), done), t)
                f.call(
                    self._run_tile(run, tail),
                    [*f.arguments[:2], a, *filters, self._next(f, task.filters[0], number), column, f.index(row),
                     f.index(w), count, *task.outer],
                )

            f.loop(0, run.count, 1, one)
            done += run.count

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

    def _next(self, f: TileFrame, panel: ir.Value, number: Index) -> ir.Value:
        """The address in the next panel where tile `number` of this panel begins to prefetch."""
        if not self.ahead:
            return panel
        after = self.c.depth * self.plan.width * item_bytes(self.c.filters[0].dtype)
        return f.at(panel, f.iadd(after, f.imul(number, self.share)), ir.IntType(8))

    def _run_tile(self, run: Run, tail: bool) -> ir.Value:
        """The function `(buffers, sizes, image, panels…, ahead, first filter, row, column, window rows, outer…)` that
        computes one tile of `run`. `window rows` counts from the first row that meets the image."""
        c = self.c
        kind = [(r.height, r.seen) for r in self.runs].index((run.height, run.seen))
        arguments = [PTR] * (4 + len(c.filters)) + [I64] * (4 + len(c.outer))
        return shared_function(
            self.module, f"{c.kernel.name}.tile{kind}{'t' if tail else ''}", arguments, c.kernel,
            lambda f: self._write_tile_of_run(f, run, tail),
        )

    def _write_tile_of_run(self, f: TileFrame, run: Run, tail: bool) -> None:
        c = self.c
        n = len(c.filters)
        a, panels, ahead = f.arguments[2], f.arguments[3 : 3 + n], f.arguments[3 + n]
        column, row, w, count = f.arguments[4 + n : 8 + n]
        at = self.place_in_space(f.arguments[8 + n :], column, row, w)
        views = Views(f, c.places, at, c.columns.out, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = self.begin_tile(f, views, run.height, lanes)
        for panel in panels:
            sums = self._window(f, run, sums, a, panel, count, ahead)
        self.finish_tile(f, views, run.height, lanes, sums)

    def _window(
        self, f: TileFrame, run: Run, sums: list[ir.Value], a: ir.Value, panel: ir.Value, count: Index, ahead: ir.Value
    ) -> list[ir.Value]:
        """Accumulate `count` window rows. Neighbouring window columns that are seen by the same pixels share one
        loop."""
        c, width = self.c, self.plan.width
        per_column = c.channels * width
        fetched = c.channels // AHEAD_STEPS * self.stride  # bytes, in one window column
        b_type = MEMORY_TYPES[c.filters[0].dtype]
        vectors = len(sums) // run.height
        factors = self.factors(vectors)
        parts = [(low, high, [tap for tap, _ in group]) for (low, high), group in groupby(
            enumerate(run.seen), key=lambda entry: entry[1])]

        def window_row(k: Index, values: list[ir.Value]) -> list[ir.Value]:
            a_row = f.at(a, f.imul(k, c.rows.dilation * c.rows.step), self.image_element)
            b_row = f.at(panel, f.imul(k, c.columns.taps * per_column), b_type)
            there = f.at(ahead, f.imul(k, c.columns.taps * fetched), ir.IntType(8))
            result = list(values)
            for low, high, taps in parts:
                if high <= low:
                    continue
                some = slice(low * vectors, high * vectors)
                soon = self.soon(f.at(there, taps[0] * fetched, ir.IntType(8)))
                result[some] = accumulate(
                    f, factors, result[some], f.at(a_row, taps[0] * self.column_step + low * int(factors.row),
                    self.image_element), f.at(b_row, taps[0] * per_column, b_type), self._columns(len(taps)),
                    _FUSED_STEPS, soon,
                )
            return result

        return f.loop(0, count, 1, window_row, sums)

    def factors(self, vectors: int) -> TileOperands:
        c = self.c
        return TileOperands(
            c.product, c.image.dtype, c.product.lhs.casts, c.columns.stride * c.columns.step, c.filters[0].dtype,
            c.product.rhs.casts, (PartialVector(self.plan.lanes),) * vectors,
        )

    def _columns(self, taps: int) -> list[Depth]:
        c, width = self.c, self.plan.width
        if taps == 1 or self.column_step == c.channels:
            return [Depth(taps * c.channels, 1, width)]
        return [Depth(taps, self.column_step, c.channels * width), Depth(c.channels, 1, width)]


@dataclass(frozen=True)
class _WindowTap:
    """A place of the window, and the rows and columns of the result that see the image there."""

    row: int
    column: int
    rows: tuple[int, int]
    columns: tuple[int, int]


class _Stationary(_Direct):
    """The variant for many filters and few pixels: a block of filters stays in the first-level cache for all pixels.
    Partial sums are kept in scratch as [pixel][filter] between blocks."""

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget) -> None:
        super().__init__(c, plan, target)
        self.deep = plan.depth_block or c.channels
        self.stride = self.ahead_stride(c.rows.size * self.tiles)
        self.share = self.deep // AHEAD_STEPS * self.stride

    def scratch_elements(self) -> int:
        return self.c.rows.size * self.c.columns.size * self.plan.width

    def emit_panel(self, f: TileFrame, task: RowBlock, column: ir.Value, tail: bool) -> None:
        c = self.c
        arguments = [*f.arguments[:2], task.scratch, column, *task.outer]
        f.call(self._pass("start", tail), arguments)
        vectors = len(self.tile_lanes(tail))
        for i in range(c.rows.taps):
            rows = _seen_outputs(c.rows, i, c.padding is not None)
            for j in range(c.columns.taps):
                columns = _seen_outputs(c.columns, j, c.padding is not None)
                if rows[1] > rows[0] and columns[1] > columns[0]:
                    self._tap(f, task, _WindowTap(i, j, rows, columns), vectors)
        f.call(self._pass("finish", tail), arguments)

    def _tap(self, f: TileFrame, task: RowBlock, tap: _WindowTap, vectors: int) -> None:
        """What one tap of the window adds to the sums, some channels at a time."""
        c, plan = self.c, self.plan
        at = (tap.row * c.rows.dilation - c.rows.low) * c.rows.step
        at += (tap.column * c.columns.dilation - c.columns.low) * c.columns.step
        number = tap.row * c.columns.taps + tap.column
        b = f.at(task.filters[0], number * c.channels * plan.width, MEMORY_TYPES[c.filters[0].dtype])

        def some(k: Index, _: list[ir.Value]) -> None:
            deep = f.imin(f.isub(c.channels, k), self.deep)
            a = f.iadd(k, at)
            here = replace(task, filters=[f.at(b, f.imul(k, plan.width), MEMORY_TYPES[c.filters[0].dtype])])
            f.loop(*tap.rows, 1, lambda row, _: self._pixels(f, here, tap, row, a, deep, vectors))

        f.loop(0, c.channels, self.deep, some)

    def _pixels(
        self, f: TileFrame, task: RowBlock, tap: _WindowTap, row: Index, offset: Index, deep: Index, vectors: int
    ) -> None:
        """The pixels of `row` that see a tap, `deep` steps of the depth from `offset` in the image on."""
        panel, number, columns = task.filters[0], f.isub(row, tap.rows[0]), tap.columns
        c, plan = self.c, self.plan
        begin = columns[0]
        count, size, longer = balanced(columns[1] - begin, plan.tile_rows)
        after = f.imul(deep, plan.width * item_bytes(c.filters[0].dtype))
        done = 0
        for height, tiles in ((size + 1, longer), (size, count - longer)):

            def one(t: Index, _: list[ir.Value], height: int = height, begin: int = begin, done: int = done) -> None:
                w = f.iadd(begin, f.imul(t, height))
                pixel = f.iadd(f.imul(row, c.rows.stride * c.rows.step), f.imul(w, c.columns.stride * c.columns.step))
                tile = f.iadd(f.iadd(f.imul(number, count), done), t)
                f.call(self._sum(height, vectors), [
                    *f.arguments[:2],
                    f.at(task.image, f.iadd(offset, pixel), self.image_element), panel,
                    f.at(task.scratch, f.imul(f.iadd(f.imul(row, c.columns.size), w), plan.width), self.element),
                    f.at(panel, 0, self.element) if not self.ahead else
                    f.at(panel, f.iadd(after, f.imul(tile, self.share)), ir.IntType(8)),
                    f.index(deep),
                ])

            f.loop(0, tiles, 1, one)
            begin += height * tiles
            done += tiles

    def _sum(self, height: int, vectors: int) -> ir.Value:
        """The function `(buffers, sizes, image, panel, sums, ahead, depth)` that adds to the sums of a tile."""
        return shared_function(
            self.module, f"{self.c.kernel.name}.sum{height}x{vectors}", [PTR] * 6 + [I64], self.c.kernel,
            lambda f: self._write_sum(f, height, vectors),
        )

    def _write_sum(self, f: TileFrame, height: int, vectors: int) -> None:
        plan = self.plan
        a, panel, sums, ahead, deep = f.arguments[2:]
        places = [
            f.at(sums, r * plan.width + v * plan.lanes, self.element) for r in range(height) for v in range(vectors)
        ]
        values = [f.load_vector(place, self.element, plan.lanes) for place in places]
        values = accumulate(
            f, self.factors(vectors), values, a, panel, [Depth(deep, 1, plan.width)], _FUSED_STEPS, self.soon(ahead)
        )
        for value, place in zip(values, places, strict=True):
            f.store_vector(value, place, self.element)

    def _pass(self, what: Literal["start", "finish"], tail: bool) -> ir.Value:
        """The function `(buffers, sizes, sums, first filter, outer…)` that initialises the sums of all pixels, or runs
        the epilogue on them."""
        name = f"{self.c.kernel.name}.{what}{'t' if tail else ''}"
        arguments = [PTR] * 3 + [I64] * (1 + len(self.c.outer))
        return shared_function(
            self.module, name, arguments, self.c.kernel, lambda f: self._write_pass(f, what, tail)
        )

    def _write_pass(self, f: TileFrame, what: Literal["start", "finish"], tail: bool) -> None:
        c, plan = self.c, self.plan
        sums, column, *outer = f.arguments[2:]

        def pixel(row: Index, w: Index) -> None:
            views = Views(f, c.places, self.place_in_space(outer, column, row, w), c.columns.out, c.filter_dim)
            for v, lane in enumerate(self.tile_lanes(tail)):
                index = f.iadd(f.imul(f.iadd(f.imul(row, c.columns.size), w), plan.width), v * plan.lanes)
                place = f.at(sums, index, self.element)
                if what == "start":
                    f.store_vector(self.initial(f, views, 0, v * plan.lanes, lane), place, self.element)
                else:
                    value = narrow(f, f.load_vector(place, self.element, plan.lanes), c.output.dtype)
                    finish(f, c.epilogue, views, value, 0, v * plan.lanes, lane)

        f.loop(0, c.rows.size, 1, lambda row, _: f.loop(
            0, c.columns.size, 1, lambda w, _: pixel(row, w)) and None)


def _seen_outputs(w: Window, tap: int, padded: bool) -> tuple[int, int]:
    """The range of outputs that see the image through `tap`; may be empty."""
    if not padded:
        return 0, w.size
    shift = tap * w.dilation - w.low
    low = max(0, -(shift // w.stride))
    return low, min(w.size, -(-(w.image - shift) // w.stride))
