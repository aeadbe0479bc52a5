"""Convolutions of channels-last images over any number of axes; vectors run along filters.

The image is read in place. One of another layout is copied first (`prepared.py`), once for all tasks. A result that is
contiguous along pixels is transposed in registers before the epilogue runs.

A tile is several neighbouring pixels of one output row by a few vectors of filters. It loops over the planes and rows
of the window that meet the image, and in each over columns and channels, which are contiguous. Tiles at the ends of a
row, whose windows extend past the image, have separate code that multiplies, in each window column, only for the pixels
that see the image there. Padding is therefore free, also on images smaller than the window. Omitting a tap on padding
differs from multiplying by zero only if the filter is infinite or NaN.

Tasks that use the same filters are neighbours. If the filters exceed the second-level cache, each tile prefetches a
part of the filters that the next panel uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from llvmlite import ir

from motet.artifact.expressions import apply
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.channels import Channels, RowBlock
from motet.compiler.codegen.cpu.conv.direct_plan import Run, check, choose, form_of, match, prepared_copy, runs_of
from motet.compiler.codegen.cpu.conv.emitter import window_rows
from motet.compiler.codegen.cpu.conv.plan import filter_packing
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.conv.slides import number
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views
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
    shared_function,
)
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import DirectSchedule
from motet.compiler.kernels.strides import ZERO
from motet.compiler.kernels.windows import Window
from motet.compiler.targets.cpu import CpuTarget

_FUSED_STEPS = 224


def emit(c: Convolution, schedule: DirectSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution by `schedule`, with a phase that copies the image if it is not read in place."""
    copy = prepared_copy(c, target)
    emitter = Direct if schedule.depth_block is None else _Stationary
    return emitter(form_of(c, copy), schedule, target, copy).run()


CLASS = KernelClass(DirectSchedule, match, choose, check, emit)


@dataclass(frozen=True)
class _Taps:
    """Where a part of the window begins: in the image, in a panel of filters, and in what is prefetched meanwhile."""

    image: ir.Value
    panel: ir.Value
    ahead: ir.Value


@dataclass(frozen=True)
class PixelRow:
    """Row `row` of the result for a panel of filters, the first of them `column`. The windows of the row's first pixel
    begin at element `left` of the task's image and at `panels`; of their planes and rows, only the `counts` from there
    on meet the image. `tail`: the last panel, which is not complete."""

    task: RowBlock
    row: Index
    column: ir.Value
    left: Index
    panels: Sequence[ir.Value]
    counts: Sequence[ir.Value]
    tail: bool


class Direct(Channels):
    """Emits the tasks and tiles of a convolution read in place."""

    exceeds = False  # whether tiles may have pixels past the end of a row

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget, copy: PreparedImage | None) -> None:
        """With `copy`, `c` is the convolution of the copy."""
        packing = filter_packing(c, plan.width)
        assert packing is not None
        super().__init__(c, plan, packing, panels=1, copies=False, copy=copy)
        self.pieces: Expr = plan.pieces
        self.runs = runs_of(c, plan.tile_rows)
        self.tiles = sum(run.count for run in self.runs)  # of one row
        self.column_step = c.columns.dilation * c.columns.step
        self.clips, self.bounds = c.padding is not None, self.slides
        panel = c.depth * plan.width * item_bytes(c.filters[0].dtype)
        groups = [size.known or 1 for size, d in c.outer if c.filters[0].strides[d] != ZERO]
        panels = self.panel_count * math.prod(groups)
        self.blocks = apply("*", self.blocks, plan.pieces)
        self.ahead = panels > 1 and len(c.filters) == 1 and panels * panel > target.l2 // 2
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
        pieces = number(f, self.pieces)
        piece, block = f.irem(block, pieces), f.idiv(block, pieces)
        task = RowBlock(image, panels, f.imul(block, plan.block), outer, scratch, piece)

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
        f.loop(task.first, end, 1, lambda row, _: self.emit_line(f, self._line(f, task, column, row, tail)))

    def _line(self, f: TileFrame, task: RowBlock, column: ir.Value, row: Index, tail: bool) -> PixelRow:
        c, plan = self.c, self.plan
        left = f.imul(f.imul(row, c.rows.stride), number(f, self.slides[-2].step))
        left = f.isub(left, c.columns.low * c.columns.step)
        first: Index = 0
        counts: list[ir.Value] = []
        depth = c.depth
        for slide, bound in zip(self.slides[:-1], self.bounds[:-1], strict=True):
            w = slide.window
            low, high = window_rows(f, bound, self.clips, row if slide is self.slides[-2] else self.plane_at(task, w))
            left = f.iadd(left, f.imul(f.isub(f.imul(low, w.dilation), w.low), number(f, slide.step)))
            depth //= w.taps
            first = f.iadd(first, f.imul(low, depth * plan.width))
            counts.append(f.index(f.isub(high, low)))
        panels = [f.at(b, first, MEMORY_TYPES[p.dtype]) for b, p in zip(task.filters, c.filters, strict=True)]
        return PixelRow(task, row, column, left, panels, counts, tail)

    def emit_line(self, f: TileFrame, line: PixelRow) -> None:
        """The task's piece of one row."""
        pieces, done = number(f, self.pieces), 0
        for run in self.runs:

            def one(t: Index, _: list[ir.Value], run: Run = run, done: int = done) -> None:
                w = f.iadd(run.begin, f.imul(t, run.height))
                self.call_tile(f, line, run, w, f.iadd(done, t))

            parts = (line.task.piece, f.iadd(line.task.piece, 1))
            begin, end = (f.idiv(f.imul(run.count, part), pieces) for part in parts)
            f.loop(begin, end, 1, one)
            done += run.count

    def call_tile(self, f: TileFrame, line: PixelRow, run: Run, w: Index, tile: Index, *present: ir.Value) -> None:
        """Compute tile `tile` of a row, one of `run` from pixel `w` on, of which the first `present` pixels exist."""
        c = self.c
        a = f.at(line.task.image, f.iadd(line.left, f.imul(w, c.columns.stride * c.columns.step)), self.image_element)
        ahead = self._next(f, line.task.filters[0], f.iadd(f.imul(line.row, self.tiles), tile))
        f.call(self._run_tile(run, line.tail), [
            *f.arguments[:2], a, *line.panels, ahead, line.column, f.index(line.row), f.index(w), *line.counts,
            *line.task.outer, *present,
        ])

    def plane_at(self, task: RowBlock, plane: Window) -> Index:
        """The coordinate of the task's planes along `plane`."""
        found = [value for value, (_, d) in zip(task.outer, self.c.outer, strict=True) if d == plane.out]
        return found[0] if found else 0

    def _next(self, f: TileFrame, panel: ir.Value, number: Index) -> ir.Value:
        """The address in the next panel where tile `number` of this panel begins to prefetch."""
        if not self.ahead:
            return panel
        after = self.c.depth * self.plan.width * item_bytes(self.c.filters[0].dtype)
        return f.at(panel, f.iadd(after, f.imul(number, self.share)), ir.IntType(8))

    def _run_tile(self, run: Run, tail: bool) -> ir.Value:
        """The function `(buffers, sizes, image, panels…, ahead, first filter, row, column, taps…, outer…)` that
        computes one tile of `run`. `taps` are the planes and rows of the window that meet the image, of which `image`
        and the panels are the first. The last argument is how many pixels exist, if not all do."""
        c = self.c
        kind = [(r.height, r.seen) for r in self.runs].index((run.height, run.seen))
        arguments = [PTR] * (4 + len(c.filters)) + [I64] * (4 + len(c.planes) + len(c.outer) + self.exceeds)
        return shared_function(
            self.module, f"{c.kernel.name}.tile{kind}{'t' if tail else ''}", arguments, c.kernel,
            lambda f: self._write_tile_of_run(f, run, tail),
        )

    def _write_tile_of_run(self, f: TileFrame, run: Run, tail: bool) -> None:
        c = self.c
        n = len(c.filters)
        a, panels, ahead = f.arguments[2], f.arguments[3 : 3 + n], f.arguments[3 + n]
        column, row, w = f.arguments[4 + n : 7 + n]
        after = 8 + n + len(c.planes)
        counts, rest = f.arguments[7 + n : after], f.arguments[after:]
        at = self.place_in_space(rest[: len(c.outer)], column, row, w)
        present = rest[-1] if self.exceeds else None
        views = Views(f, c.places, at, c.columns.out, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = self.begin_tile(f, views, run.height, lanes, present)
        for panel in panels:
            sums = self._window(f, run, sums, _Taps(a, panel, ahead), counts)
        self.finish_pixels(f, at, views, run.height, lanes, lambda row, v: sums[row * len(lanes) + v], present)

    def _window(
        self, f: TileFrame, run: Run, sums: list[ir.Value], first: _Taps, counts: Sequence[Index]
    ) -> list[ir.Value]:
        """Accumulate as many planes and rows of the window as `counts` says."""
        windows = self.slides[:-1]

        def nest(level: int, taps: _Taps, depth: int, values: list[ir.Value]) -> list[ir.Value]:
            if level == len(windows):
                return self._window_row(f, run, values, taps)
            w, step = windows[level].window, number(f, windows[level].step)
            inner = depth // w.taps

            def one(k: Index, values: list[ir.Value]) -> list[ir.Value]:
                image = f.imul(k, f.imul(w.dilation, step))
                return nest(level + 1, self._advance(f, taps, image, inner, k), inner, values)

            return f.loop(0, counts[level], 1, one, values)

        return nest(0, first, self.c.depth, sums)

    def _advance(self, f: TileFrame, taps: _Taps, image: Index, depth: int, count: Index) -> _Taps:
        """The taps `image` elements of the image and `count` times `depth` steps of K after `taps`."""
        steps = f.imul(count, depth * self.plan.width)
        ahead = f.imul(count, depth // AHEAD_STEPS * self.stride)
        return _Taps(
            f.at(taps.image, image, self.image_element), f.at(taps.panel, steps, MEMORY_TYPES[self.c.filters[0].dtype]),
            f.at(taps.ahead, ahead, ir.IntType(8)))

    def _window_row(self, f: TileFrame, run: Run, sums: list[ir.Value], taps: _Taps) -> list[ir.Value]:
        """Accumulate one row of the window. Neighbouring columns that are seen by the same pixels share one loop."""
        c = self.c
        vectors = len(sums) // run.height
        factors = self.factors(vectors)
        parts = [(low, high, [tap for tap, _ in group]) for (low, high), group in groupby(
            enumerate(run.seen), key=lambda entry: entry[1])]

        result = list(sums)
        for low, high, columns in parts:
            if high <= low:
                continue
            some = slice(low * vectors, high * vectors)
            at = columns[0] * self.column_step + low * int(factors.row)
            here = self._advance(f, taps, at, c.channels, columns[0])
            result[some] = accumulate(
                f, factors, result[some], here.image, here.panel, self._columns(len(columns)), _FUSED_STEPS,
                self.soon(here.ahead),
            )
        return result

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


class _Stationary(Direct):
    """The variant for many filters and few pixels: a block of filters stays in the first-level cache for all pixels.
    Partial sums are kept in scratch as [pixel][filter] between blocks."""

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget, copy: PreparedImage | None) -> None:
        super().__init__(c, plan, target, copy)
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
        lanes = self.tile_lanes(tail)

        def pixels(row: Index, w: Index, count: int) -> None:
            at = self.place_in_space(outer, column, row, w)
            views = Views(f, c.places, at, c.columns.out, c.filter_dim)
            first = f.imul(f.iadd(f.imul(row, c.columns.size), w), plan.width)

            def place(i: int, v: int) -> ir.Value:
                return f.at(sums, f.iadd(first, i * plan.width + v * plan.lanes), self.element)

            if what == "start":
                for v, lane in enumerate(lanes):
                    f.store_vector(self.initial(f, views, 0, v * plan.lanes, lane), place(0, v), self.element)
            else:
                self.finish_pixels(
                    f, at, views, count, lanes, lambda i, v: f.load_vector(place(i, v), self.element, plan.lanes))

        step = plan.lanes if what == "finish" and self.across else 1
        whole = c.columns.size // step * step

        def line(row: Index, _: list[ir.Value]) -> None:
            f.loop(0, whole, step, lambda w, _: pixels(row, w, step))
            if c.columns.size > whole:
                pixels(row, whole, c.columns.size - whole)

        f.loop(0, c.rows.size, 1, line)


def _seen_outputs(w: Window, tap: int, padded: bool) -> tuple[int, int]:
    """The range of outputs that see the image through `tap`; may be empty."""
    if not padded:
        return 0, w.size
    shift = tap * w.dilation - w.low
    low = max(0, -(shift // w.stride))
    return low, min(w.size, -(-(w.image - shift) // w.stride))
