"""Convolutions of channels-last images that are read where they lie: vectors along filters, nothing is copied.

A tile is neighbouring pixels of one row of the result, by some vectors of filters. It walks the rows of the window
that meet the image, and in each its columns and channels, which lie side by side. Tiles at the ends of a row, whose
windows reach past the image, are code of their own, which at each column of the window counts the pixels alone that
see the image there; so padding costs nothing, and small images take less work than their windows have taps. A tap
that meets padding is left out, which differs from multiplying by zero only for filters that are infinite or not a
number.

Tasks that use the same filters are neighbours. Where filters are more than the second cache keeps, every tile fetches
a piece of those that come next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from llvmlite import ir

from motet.compiler.codegen.cpu.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.convolution import (
    Channels,
    Convolution,
    Plan,
    filter_packing,
    lanes_of,
    match,
    register_tile,
    window_rows,
)
from motet.compiler.codegen.cpu.epilogue import Views, finish
from motet.compiler.codegen.cpu.extents import ONE
from motet.compiler.codegen.cpu.micro import (
    AHEAD_STEPS,
    LINE,
    MEMORY_TYPES,
    Ahead,
    Depth,
    Factors,
    Frame,
    Lanes,
    accumulate,
    internal_function,
    narrow,
)
from motet.compiler.codegen.kernel import Kernel, KernelCode, item_bytes
from motet.compiler.targets.cpu import CpuTarget

_TASK_FLOPS = 1_500_000  # some ten microseconds of one core
_MOST_TASKS = 128
_THREADS = (2, 4, 8, 16)  # over which tasks should spread evenly
_MOST_EDGES = 6  # kinds of tiles, each code of its own
_FUSED_STEPS = 224

Seen = tuple[tuple[int, int], ...]  # for each column of the window the tile's pixels that see the image there


@dataclass(frozen=True)
class Run:
    """`count` neighbouring tiles of `height` pixels, the first at column `begin`, that see the same of the image."""

    begin: int
    count: int
    height: int
    seen: Seen


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel` if it is a convolution with constant filters of an image whose channels lie side by side,
    padded with zeros or not at all, with element-wise stages after it; else None."""
    c = match(kernel)
    if c is None or c.stored.strides[c.filter_dim] != ONE or c.padding not in (None, 0):
        return None
    if any(kernel.values[p.value].role != "constant" for p in c.filters):
        return None
    if c.channel_step != 1 or c.channels * item_bytes(c.image.dtype) < LINE or c.image.dtype != c.product.dtype:
        return None
    lanes = lanes_of(c, target)
    height, vectors = register_tile(c.columns.size, c.filter_count, lanes, target)
    packing = filter_packing(c, lanes * vectors)
    runs = _runs(c, height)
    if packing is None or len({(run.height, run.seen) for run in runs}) > _MOST_EDGES:
        return None
    block = _rows_per_task(c, -(-c.filter_count // (lanes * vectors)))
    return _Direct(c, Plan(lanes, height, vectors, block, 1, False, packing), runs, target).run()


def _runs(c: Convolution, most: int) -> list[Run]:
    """One row of the result in tiles of at most `most` pixels, as equal as can be."""
    count = -(-c.columns.size // most)
    size, longer = divmod(c.columns.size, count)
    heights = [size + 1] * longer + [size] * (count - longer)
    begins = [sum(heights[:i]) for i in range(count)]
    tiles = [(height, _seen(c, begin, height)) for begin, height in zip(begins, heights, strict=True)]
    runs: list[Run] = []
    for (height, seen), group in groupby(range(count), key=lambda i: tiles[i]):
        members = list(group)
        runs.append(Run(begins[members[0]], len(members), height, seen))
    return runs


def _seen(c: Convolution, begin: int, height: int) -> Seen:
    w = c.columns
    result: list[tuple[int, int]] = []
    for tap in range(w.taps):
        positions = [(begin + i) * w.stride - w.low + tap * w.dilation for i in range(height)]
        inside = [i for i, at in enumerate(positions) if c.padding is None or 0 <= at < w.image]
        result.append((inside[0], inside[-1] + 1) if inside else (0, 0))
    return tuple(result)


def _rows_per_task(c: Convolution, panels: int) -> int:
    """A divisor of the result's rows that makes tasks of some size, which few or many threads share evenly."""
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    row_flops = 2 * c.filter_count * c.columns.size * c.depth * len(c.filters) // panels

    def loss(rows: int) -> float:
        tasks = outer * panels * (c.rows.size // rows)
        uneven = sum(-(-tasks // threads) * threads / tasks for threads in _THREADS) / len(_THREADS)
        return uneven + _TASK_FLOPS / (50 * rows * row_flops) + max(0, tasks - _MOST_TASKS) / 1000

    return min((rows for rows in range(1, c.rows.size + 1) if c.rows.size % rows == 0), key=loss)


class _Direct(Channels):
    """The tasks and tiles of a convolution read in place."""

    def __init__(self, c: Convolution, plan: Plan, runs: Sequence[Run], target: CpuTarget) -> None:
        super().__init__(c, plan)
        self.runs = runs
        self.tiles = sum(run.count for run in runs)  # of one row
        self.column_step = c.columns.dilation * c.columns.step
        size = c.depth * plan.width * item_bytes(c.filters[0].dtype)
        beyond = self.panel_count > 1 and self.panel_count * size * len(c.filters) > target.l2 // 2
        step_bytes = AHEAD_STEPS * plan.width * item_bytes(c.filters[0].dtype)
        needed = -(-step_bytes // LINE)  # cache lines that all tiles of a panel fetch in as many steps
        self.ahead = max(1, -(-needed // (c.rows.size * self.tiles))) if beyond and len(c.filters) == 1 else 0
        self.fetching = -(-needed // self.ahead) if self.ahead else 0  # tiles that fetch, the first of a panel
        self.share = c.depth // AHEAD_STEPS * self.ahead * LINE  # bytes that each of them fetches

    def emit_task(self, f: Frame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        image = self.image_at(f, at)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        offset = f.imul(split, c.depth * plan.width)
        panels = [f.at(b, offset, MEMORY_TYPES[place.dtype]) for b, place in zip(filters, c.filters, strict=True)]
        outer = [f.index(at[dim]) for _, dim in c.outer]
        column = f.index(f.imul(split, plan.width))
        first = f.imul(block, plan.block)

        def rows(tail: bool) -> None:
            f.loop(first, f.iadd(first, plan.block), 1, lambda row, _: self._line(
                f, image, panels, column, row, outer, tail))

        whole = c.filter_count // plan.width
        if isinstance(split, int) or whole in (0, self.panel_count):
            rows(whole == 0)
            return
        with f.if_else(f.icmp_signed("<", split, f.index(whole))) as (then, otherwise):
            with then:
                rows(False)
            with otherwise:
                rows(True)

    def _line(
        self, f: Frame, image: ir.Value, panels: list[ir.Value], column: ir.Value, row: Index, outer: list[ir.Value],
        tail: bool,
    ) -> None:
        """One row of the result, filters of one panel."""
        c, plan = self.c, self.plan
        low, high = window_rows(f, c.rows, c.padding is not None, row)
        top = f.iadd(f.isub(f.imul(row, c.rows.stride), c.rows.low), f.imul(low, c.rows.dilation))
        left = f.isub(f.imul(top, c.rows.step), c.columns.low * c.columns.step)
        window_row = f.imul(low, c.columns.taps * c.channels * plan.width)
        filters = [f.at(b, window_row, MEMORY_TYPES[p.dtype]) for b, p in zip(panels, c.filters, strict=True)]
        count = f.index(f.isub(high, low))
        done = 0
        for run in self.runs:

            def one(t: Index, _: list[ir.Value], run: Run = run, done: int = done) -> None:
                w = f.iadd(run.begin, f.imul(t, run.height))
                a = f.at(image, f.iadd(left, f.imul(w, c.columns.stride * c.columns.step)), self.image_element)
                number = f.iadd(f.iadd(f.imul(row, self.tiles), done), t)
                f.call(
                    self._run_tile(run, tail),
                    [*f.arguments[:2], a, *filters, self._next(f, panels[0], number), column, f.index(row), f.index(w),
                     count, *outer],
                )

            f.loop(0, run.count, 1, one)
            done += run.count

    def _next(self, f: Frame, panel: ir.Value, number: Index) -> ir.Value:
        """Where tile `number` of a panel begins to fetch: in the next panel, or, where others have fetched it all, in
        this one, which is there."""
        if not self.ahead:
            return panel
        c, plan = self.c, self.plan
        after = f.imul(c.depth * plan.width, item_bytes(c.filters[0].dtype))
        there = f.iadd(after, f.imul(number, self.share))
        fetches = f.icmp_signed("<", f.index(number), f.index(self.fetching))
        return f.at(panel, f.select(fetches, f.index(there), f.index(0)), ir.IntType(8))

    def _run_tile(self, run: Run, tail: bool) -> ir.Value:
        """`(buffers, sizes, image, panels…, ahead, first filter, row, column, window rows, outer…)`: the pixels of a
        tile of `run`, their window's rows counted from the first that meets the image."""
        c, plan = self.c, self.plan
        kind = [(r.height, r.seen) for r in self.runs].index((run.height, run.seen))
        name = f"{c.kernel.name}.tile{kind}{'t' if tail else ''}"
        found = self.module.globals.get(name)
        if found is not None:
            return found
        n = len(c.filters)
        function = internal_function(
            self.module, name, [PTR, PTR, PTR, *[PTR] * n, PTR, I64, I64, I64, I64, *[I64] * len(c.outer)]
        )
        f = Frame(c.kernel, function)
        a, panels, ahead = f.arguments[2], f.arguments[3 : 3 + n], f.arguments[3 + n]
        column, row, w, count = f.arguments[4 + n : 8 + n]
        at: list[Index] = [0] * len(c.main.sizes)
        for argument, (_, dim) in zip(f.arguments[8 + n :], c.outer, strict=True):
            at[dim] = argument
        at[c.filter_dim] = column
        for window, coordinate in ((c.rows, row), (c.columns, w)):
            if window.out >= 0:
                at[window.out] = coordinate
        views = Views(f, c.places, at, c.columns.out, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = [
            self.initial(f, views, r, v * plan.lanes, lane) for r in range(run.height) for v, lane in enumerate(lanes)
        ]
        for panel in panels:
            sums = self._window(f, run.seen, lanes, sums, a, panel, count, ahead)
        for r in range(run.height):
            for v, lane in enumerate(lanes):
                value = narrow(f, sums[r * len(lanes) + v], c.output.dtype)
                finish(f, c.epilogue, views, value, r, v * plan.lanes, lane, share=True)
        f.ret_void()
        return function

    def _window(
        self, f: Frame, seen: Seen, lanes: Sequence[Lanes], sums: list[ir.Value], a: ir.Value, panel: ir.Value,
        count: Index, ahead: ir.Value,
    ) -> list[ir.Value]:
        """The sums after `count` rows of the window; neighbouring columns that the same pixels see are one loop."""
        c, width = self.c, self.plan.width
        per_column = c.channels * width
        b_type = MEMORY_TYPES[c.filters[0].dtype]
        factors = Factors(
            c.product, c.image.dtype, c.product.lhs.casts, c.columns.stride * c.columns.step, c.filters[0].dtype,
            c.product.rhs.casts, tuple(Lanes(self.plan.lanes) for _ in lanes),
        )
        parts = [(low, high, [tap for tap, _ in group]) for (low, high), group in groupby(
            enumerate(seen), key=lambda entry: entry[1])]
        fetched = self.ahead * LINE // AHEAD_STEPS  # bytes in a step

        def window_row(k: Index, values: list[ir.Value]) -> list[ir.Value]:
            a_row = f.at(a, f.imul(k, c.rows.dilation * c.rows.step), self.image_element)
            b_row = f.at(panel, f.imul(k, c.columns.taps * per_column), b_type)
            there = f.at(ahead, f.imul(k, c.columns.taps * c.channels * fetched), ir.IntType(8))
            result = list(values)
            for low, high, taps in parts:
                if high <= low:
                    continue
                some = slice(low * len(lanes), high * len(lanes))
                soon = Ahead(f.at(there, taps[0] * c.channels * fetched, ir.IntType(8)), self.ahead)
                result[some] = accumulate(
                    f, factors, result[some], f.at(a_row, taps[0] * self.column_step + low * int(factors.row),
                    self.image_element), f.at(b_row, taps[0] * per_column, b_type), self._columns(len(taps)),
                    _FUSED_STEPS, soon if self.ahead else None,
                )
            return result

        return f.loop(0, count, 1, window_row, sums)

    def _columns(self, taps: int) -> list[Depth]:
        c, width = self.c, self.plan.width
        if taps == 1 or self.column_step == c.channels:
            return [Depth(taps * c.channels, 1, width)]
        return [Depth(taps, self.column_step, c.channels * width), Depth(c.channels, 1, width)]
