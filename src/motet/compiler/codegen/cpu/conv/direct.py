"""Convolutions of channels-last images, read in place.

An image of another layout is copied first (`prepared.py`), once for all tasks. `channels.py` describes the tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.channels import Channels, RowBlock
from motet.compiler.codegen.cpu.conv.direct_plan import check, choose, form_of, match, prepared_copy, seen_outputs
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views
from motet.compiler.codegen.cpu.gemm.microkernel import (
    AHEAD_STEPS,
    MEMORY_TYPES,
    Depth,
    TileFrame,
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
from motet.compiler.targets.cpu import CpuTarget

_FUSED_STEPS = 224


def emit(c: Convolution, schedule: DirectSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution by `schedule`, with a phase that copies the image if it is not read in place."""
    copy = prepared_copy(c, target)
    emitter = _Direct if schedule.depth_block is None else _Stationary
    return emitter(form_of(c, copy), schedule, target, copy).run()


CLASS = KernelClass(DirectSchedule, match, choose, check, emit)


class _Direct(Channels):
    """The variant whose tiles prefetch the next panel's filters if all of them exceed the second-level cache."""

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget, copy: PreparedImage | None) -> None:
        super().__init__(c, plan, copy=copy)
        panel = c.depth * plan.width * item_bytes(c.filters[0].dtype)
        groups = [size.known or 1 for size, d in c.outer if c.filters[0].strides[d] != ZERO]
        panels = self.panel_count * math.prod(groups)
        self.ahead = panels > 1 and len(c.filters) == 1 and panels * panel > target.l2 // 2


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

    def __init__(self, c: Convolution, plan: DirectSchedule, target: CpuTarget, copy: PreparedImage | None) -> None:
        super().__init__(c, plan, target, copy)
        self.deep = plan.depth_block or c.channels
        self.stride = self.ahead_stride(c.rows.size * self.tiles)
        self.share = self.deep // AHEAD_STEPS * self.stride

    def scratch_elements(self) -> int:
        return self.c.rows.size * self.c.columns.size * self.plan.width

    def emit_panel(self, f: TileFrame, task: RowBlock, column: ir.Value, tail: bool) -> None:
        c = self.c
        arguments = [*f.arguments[:2], task.scratch, column, *(f.index(task.at[dim]) for _, dim in c.outer)]
        f.call(self._pass("start", tail), arguments)
        vectors = len(self.tile_lanes(tail))
        for i in range(c.rows.taps):
            rows = seen_outputs(c.rows, i, c.padding is not None)
            for j in range(c.columns.taps):
                columns = seen_outputs(c.columns, j, c.padding is not None)
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
