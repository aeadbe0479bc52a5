"""Convolutions of images whose channels are contiguous, over any number of axes; vectors run along filters.

A tile is several neighbouring pixels of one output row by a few vectors of filters. It loops over the planes and rows
of the window that meet the image, and in each over columns and channels, which are contiguous. Tiles at the ends of a
row, whose windows extend past the image, have separate code that multiplies, in each window column, only for the pixels
that see the image there. Padding is therefore free, also on images smaller than the window. Omitting a tap on padding
differs from multiplying by zero only if the filter is infinite or NaN.

A result that is contiguous along pixels is transposed in registers before the epilogue runs. Tasks that use the same
filters are neighbours. If the filters exceed the second-level cache, each tile prefetches a part of the filters that
the next panel uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from llvmlite import ir

from motet.artifact.expressions import apply
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.direct_plan import Run, runs_of
from motet.compiler.codegen.cpu.conv.emitter import Emitter, vectors_of, window_rows
from motet.compiler.codegen.cpu.conv.plan import along_filters, filter_packing
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage, image_at
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
    shared_function,
)
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import DirectSchedule
from motet.compiler.kernels.strides import Extent, StridedAccess

_FUSED_STEPS = 224


@dataclass(frozen=True)
class RowBlock:
    """What a task that makes rows of the result from `first` on reads and writes: where its image and its filters
    begin, its coordinates, scratch memory; of each row it makes piece `piece`. `image` begins with the rows that row
    `origin` of the result reads."""

    image: ir.Value
    filters: Sequence[ir.Value]
    first: Index
    at: Sequence[Index]
    scratch: ir.Value
    piece: Index
    origin: Index


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


class Channels(Emitter):
    """Emits a convolution whose vectors run along filters."""

    exceeds = False  # whether tiles may have pixels past the end of a row

    def __init__(
        self, c: Convolution, plan: DirectSchedule, panels: int = 1, copy: PreparedImage | None = None
    ) -> None:
        """With `copy`, `c` is the convolution of the copy. A task has `panels` panels of filters."""
        packing = filter_packing(c, plan.width)
        assert packing is not None
        super().__init__(c, plan, packing, panels, -(-c.filter_count // plan.width), copy)
        self.across = not along_filters(c)
        self.pieces: Expr = plan.pieces
        self.blocks = apply("*", self.blocks, plan.pieces)
        self.runs = runs_of(c, plan.tile_rows)
        self.tiles = sum(run.count for run in self.runs)  # of one row
        self.column_step = c.columns.dilation * c.columns.step
        self.clips, self.bounds = c.padding is not None, self.slides
        self.ahead = False
        self.stride = self.ahead_stride(c.rows.size * self.tiles)
        self.share = c.depth // AHEAD_STEPS * self.stride

    def ahead_stride(self, tiles: int) -> int:
        """Bytes that each of `tiles` tiles prefetches in `AHEAD_STEPS` steps along K, so that all tiles together
        prefetch as many filters as they use."""
        return -(-AHEAD_STEPS * self.plan.width * item_bytes(self.c.filters[0].dtype) // tiles)

    def soon(self, address: ir.Value) -> Ahead | None:
        return Ahead(address, -(-self.stride // LINE), self.stride) if self.ahead else None

    def rows_at(self, f: TileFrame, at: list[Index], first: Index, scratch: ir.Value) -> tuple[ir.Value, Index]:
        """The image of a task whose rows are those from `first` on, and the row of the result with whose rows it
        begins."""
        return image_at(f, self.c, self.copy, at), 0

    def emit_task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        pieces = number(f, self.pieces)
        piece, block = f.irem(block, pieces), f.idiv(block, pieces)
        first = f.imul(block, plan.block)
        image, origin = self.rows_at(f, at, first, scratch)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        task = RowBlock(image, filters, first, at, scratch, piece, origin)
        p0 = f.imul(split, self.panels)
        p1 = f.imin(f.iadd(p0, self.panels), self.panel_count)
        whole = c.filter_count // plan.width
        for tail, low, high in ((False, 0, whole), (True, whole, self.panel_count)):
            if high > low:
                f.loop(f.imax(p0, low), f.imin(p1, high), 1, lambda p, _, tail=tail: self._panel(f, task, p, tail))

    def _panel(self, f: TileFrame, task: RowBlock, p: Index, tail: bool) -> None:
        c, offset = self.c, f.imul(p, self.c.depth * self.plan.width)
        panels = [f.at(b, offset, MEMORY_TYPES[place.dtype]) for b, place in zip(task.filters, c.filters, strict=True)]
        self.emit_panel(f, replace(task, filters=panels), f.index(f.imul(p, self.plan.width)), tail)

    def emit_panel(self, f: TileFrame, task: RowBlock, column: ir.Value, tail: bool) -> None:
        """The task's rows of the result, filters of one panel, the first of them `column`."""
        end = f.iadd(task.first, self.plan.block)
        f.loop(task.first, end, 1, lambda row, _: self.emit_line(f, self._line(f, task, column, row, tail)))

    def filters_at(self, f: TileFrame, place: StridedAccess, at: list[Index]) -> ir.Value:
        index: Index = 0
        for size, dim in self.c.outer:
            if place.strides[dim] != Extent(0):
                index = f.iadd(f.imul(index, f.extent(size)), at[dim])
        offset = f.imul(index, self.panel_count * self.c.depth * self.plan.width)
        return f.at(f.pointer(place.value), offset, MEMORY_TYPES[place.dtype])

    def _line(self, f: TileFrame, task: RowBlock, column: ir.Value, row: Index, tail: bool) -> PixelRow:
        c, plan = self.c, self.plan
        left = f.imul(f.imul(f.isub(row, task.origin), c.rows.stride), number(f, self.slides[-2].step))
        left = f.isub(left, c.columns.low * c.columns.step)
        first: Index = 0
        counts: list[ir.Value] = []
        depth = c.depth
        for slide, bound in zip(self.slides[:-1], self.bounds[:-1], strict=True):
            w = slide.window
            where = row if slide is self.slides[-2] else task.at[w.out] if w.out >= 0 else 0
            low, high = window_rows(f, bound, self.clips, where)
            left = f.iadd(left, f.imul(f.isub(f.imul(low, w.dilation), w.low), number(f, slide.step)))
            depth //= w.taps
            first = f.iadd(first, f.imul(low, depth * plan.width))
            if self.clips:
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
        ahead = [self._next(f, line.task.filters[0], f.iadd(f.imul(line.row, self.tiles), tile))] if self.ahead else []
        f.call(self._run_tile(run, line.tail), [
            *f.arguments[:2], a, *line.panels, *ahead, line.column, f.index(line.row), f.index(w), *line.counts,
            *(f.index(line.task.at[dim]) for _, dim in c.outer), *present,
        ])

    def _next(self, f: TileFrame, panel: ir.Value, number: Index) -> ir.Value:
        """The address in the next panel where tile `number` of this panel begins to prefetch."""
        after = self.c.depth * self.plan.width * item_bytes(self.c.filters[0].dtype)
        return f.at(panel, f.iadd(after, f.imul(number, self.share)), ir.IntType(8))

    def _run_tile(self, run: Run, tail: bool) -> ir.Value:
        """The function `(buffers, sizes, image, panels…, ahead?, first filter, row, column, taps…, outer…, present?)`
        that computes one tile of `run`. `taps` are the planes and rows of the window that meet the image, of which
        `image` and the panels are the first, if not all do; `present` are the pixels that exist, if not all do."""
        c = self.c
        kind = [(r.height, r.seen) for r in self.runs].index((run.height, run.seen))
        arguments = [PTR] * (3 + len(c.filters) + self.ahead)
        arguments += [I64] * (3 + self.clips * (len(self.slides) - 1) + len(c.outer) + self.exceeds)
        name = f"{c.kernel.name}.tile{kind}{'t' if tail else ''}"
        return shared_function(self.module, name, arguments, c.kernel, lambda f: self._write_tile(f, run, tail))

    def _write_tile(self, f: TileFrame, run: Run, tail: bool) -> None:
        c = self.c
        left = iter(f.arguments[2:])
        a, panels = next(left), [next(left) for _ in c.filters]
        ahead = next(left) if self.ahead else a
        column, row, w = (next(left) for _ in range(3))
        counts: list[Index] = [next(left) if self.clips else slide.window.taps for slide in self.slides[:-1]]
        at = self.place_in_space([next(left) for _ in c.outer], column, row, w)
        present = next(left) if self.exceeds else None
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
        c, width = self.c, self.plan.width
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
            depth = [Depth(len(columns), self.column_step, c.channels * width), Depth(c.channels, 1, width)]
            if len(columns) == 1 or self.column_step == c.channels:
                depth = [Depth(len(columns) * c.channels, 1, width)]
            result[some] = accumulate(
                f, factors, result[some], here.image, here.panel, depth, _FUSED_STEPS, self.soon(here.ahead))
        return result

    def factors(self, vectors: int) -> TileOperands:
        c = self.c
        return TileOperands(
            c.product, c.image.dtype, c.product.lhs.casts, c.columns.stride * c.columns.step, c.filters[0].dtype,
            c.product.rhs.casts, (PartialVector(self.plan.lanes),) * vectors,
        )

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

    def tile_lanes(self, tail: bool) -> list[PartialVector]:
        """The vectors of a panel. In the last panel, vectors without any filter are omitted."""
        plan = self.plan
        left = self.c.filter_count % plan.width if tail else plan.width
        return vectors_of(left, plan.lanes)
