"""Convolutions vectorised along output pixels; see `convolution.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.copies import RowCopies, guarded
from motet.compiler.codegen.cpu.conv.direct_plan import seen_outputs
from motet.compiler.codegen.cpu.conv.emitter import Emitter, vectors_of
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
    shared_function,
)
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import ConvolutionSchedule
from motet.compiler.kernels.strides import ONE, StridedAccess

_STREAM = 32 << 20  # bytes of a result from which on it is written with non-temporal stores


class Pixels(Emitter):
    """Emits a convolution whose vectors run along output pixels, treated as one dimension."""

    def __init__(self, c: Convolution, plan: ConvolutionSchedule) -> None:
        super().__init__(c, plan, None, plan.panels, -(-c.filter_count // plan.tile_rows))
        self.image_copies = RowCopies(c, plan.lanes)
        self.pixels = plan.block * c.columns.size
        self.shared_rows = c.rows.stride == 1
        self.copied_rows = c.rows.span(plan.block) if self.shared_rows else c.rows.taps * plan.block
        self.plane = self.copied_rows * c.columns.size  # one channel, one window column, one plane of the window
        self.depths = math.prod(plane.taps for plane in c.planes)
        self.volume = self.depths * self.plane  # one channel, one window column

    def scratch_elements(self) -> int:
        return self.c.channels * self.c.columns.taps * self.volume + self.plan.width

    def emit_task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        first = f.imul(block, plan.block)
        self._copy_rows(f, f.address(c.image, at), first, [at[p.out] if p.out >= 0 else 0 for p in c.planes], scratch)
        filters = [f.address(place, at) for place in c.filters]
        aligned = self._aligned(f)
        outer = [f.index(at[dim]) for _, dim in c.outer]
        vectors = -(-self.pixels // plan.lanes)
        whole = vectors // plan.vectors
        t0 = f.imul(split, self.panels)
        t1 = f.imin(f.iadd(t0, self.panels), self.panel_count)

        def strip(s: Index, count: int) -> None:
            """Compute all filters of the task for one strip of pixels."""
            pixel = f.imul(s, plan.width)
            size, longer = divmod(c.filter_count, self.panel_count)

            def tile(t: Index, height: int) -> None:
                row = f.iadd(f.imul(t, size), f.imin(t, longer))
                function = self._tile(height, count, streaming=False)
                if aligned is not None:
                    function = f.select(aligned, self._tile(height, count, streaming=True), function)
                rows = [f.at(b, f.imul(f.extent(place.strides[c.filter_dim]), row), MEMORY_TYPES[place.dtype])
                        for b, place in zip(filters, c.filters, strict=True)]
                f.call(function, [*f.arguments[:2], f.at(scratch, pixel, self.element), *rows, f.index(row),
                                  f.index(first), f.index(pixel), *outer])

            for height, low, high in ((size + 1, 0, longer), (size, longer, self.panel_count)):
                if high > low:
                    f.loop(f.imax(t0, low), f.imin(t1, high), 1, lambda t, _, height=height: tile(t, height))

        exact = self.pixels % plan.width == 0
        full = whole if exact or vectors % plan.vectors else whole - 1
        f.loop(0, full, 1, lambda s, _: strip(s, plan.width))
        if self.pixels > full * plan.width:
            strip(full, self.pixels - full * plan.width)
        if aligned is not None:
            f.fence("seq_cst")  # non-temporal stores are not ordered with the stores that signal the end of the task

    def _copy_rows(
        self, f: TileFrame, image: ir.Value, first: Index, planes: Sequence[Index], scratch: ir.Value
    ) -> None:
        """Copy the image rows that the results of `planes` from row `first` on read, as
        [channel][window column][window plane][row][output column]."""
        c = self.c
        arguments = [PTR] * 4 + [I64] * (1 + len(planes))
        function = internal_function(self.module, f"{c.kernel.name}.copy", arguments)
        f.call(function, [*f.arguments[:2], image, scratch, f.index(first), *map(f.index, planes)])
        g = TileFrame(c.kernel, function)
        source, target, top, *starts = g.arguments[2:]

        def deep(number: int, places: list[tuple[Index, Index]], source: ir.Value, target: ir.Value) -> None:
            """Copy the planes of the window from axis `number` on, those before it at `places`."""
            if number < len(c.planes):
                w = c.planes[number]
                inner = math.prod(plane.taps for plane in c.planes[number + 1:]) * self.plane

                def one(k: Index, _: list[ir.Value]) -> None:
                    shift = g.isub(g.imul(k, w.dilation), w.low)
                    where = g.iadd(g.imul(starts[number], w.stride), shift)
                    here = g.at(source, g.imul(shift, w.step), self.image_element)
                    deep(number + 1, [*places, (w.image, where)], here, g.at(target, g.imul(k, inner), self.element))

                g.loop(0, w.taps, 1, one)
                return
            g.loop(0, self.copied_rows, 1, lambda r, _: self._copy_row(g, source, target, places, top, r))

        def channel(k: Index, _: list[ir.Value]) -> None:
            at = g.at(source, g.imul(k, c.channel_step), self.image_element)
            deep(0, [], at, g.at(target, g.imul(k, c.columns.taps * self.volume), self.element))

        g.loop(0, c.channels, 1, channel)
        g.ret_void()

    # Parameters: what is copied from where to where.
    def _copy_row(
        self, f: TileFrame, source: ir.Value, target: ir.Value, places: list[tuple[Index, Index]], top: Index, r: Index
    ) -> None:
        """Copy row `r` of those that results from row `top` on read, once for each column of the window. `source` is
        the first row of an image whose planes are at `places`."""
        c, plan = self.c, self.plan
        if self.shared_rows:
            where = f.isub(f.iadd(top, r), c.rows.low)
        else:
            tap, inner = f.idiv(r, plan.block), f.irem(r, plan.block)
            where = f.iadd(f.imul(f.iadd(top, inner), c.rows.stride), f.imul(tap, c.rows.dilation))
            where = f.isub(where, c.rows.low)
        to = f.at(target, f.imul(r, c.columns.size), self.element)
        at = f.at(source, f.imul(where, c.rows.step), self.image_element)

        def inside() -> None:
            for k in range(c.columns.taps):
                self._copy_shifted(f, at, f.at(to, k * self.volume, self.element), k)

        def outside() -> None:
            for k in range(c.columns.taps):
                self.image_copies.fill_run(f, f.at(to, k * self.volume, self.element), c.columns.size)

        guarded(f, c.padding, [*places, (c.rows.image, where)], inside, outside)

    def _copy_shifted(self, f: TileFrame, row: ir.Value, target: ir.Value, tap: int) -> None:
        """Copy one image row as output columns see it through window column `tap`."""
        w = self.c.columns
        shift = tap * w.dilation - w.low
        low, high = seen_outputs(w, tap, True)
        self.image_copies.fill_run(f, target, low)
        if high > low:
            source = f.at(row, (low * w.stride + shift) * w.step, self.image_element)
            self.image_copies.copy_run(f, source, w.stride * w.step, f.at(target, low, self.element), 1, high - low)
        self.image_copies.fill_run(f, f.at(target, high, self.element), w.size - high)

    def _aligned(self, f: TileFrame) -> ir.Value | None:
        """Whether the result is aligned so that whole vectors may be stored past the caches; None if it never is."""
        c, plan = self.c, self.plan
        bits: ir.Value | None = None
        for place in {p for step in c.epilogue.steps for _, p in step.writes} | {c.epilogue.place}:
            if place is None:
                continue
            size = item_bytes(place.dtype)
            steps = [place.strides[d].known for _, d in (*c.outer, (ONE, c.filter_dim))]
            aligned_steps = [step is not None and step * size % 64 == 0 for step in steps]
            elements = math.prod(s if isinstance(s, int) else 0 for s in c.kernel.values[place.value].shape)
            if not all(aligned_steps) or place.offset or elements * size < _STREAM or plan.lanes * size != 64:
                return None
            if self.pixels * size % 64 and plan.block < c.rows.size:
                return None
            address = f.ptrtoint(f.pointer(place.value), I64)
            bits = address if bits is None else f.or_(bits, address)
        return None if bits is None else f.icmp_unsigned("==", f.and_(bits, ir.Constant(I64, 63)), ir.Constant(I64, 0))

    def _tile(self, height: int, pixels: int, streaming: bool) -> ir.Value:
        """The function `(buffers, sizes, image, filters…, filter, row, pixel, outer…)` that computes a tile."""
        kernel, arguments = self.c.kernel, [PTR] * (3 + len(self.c.filters)) + [I64] * (3 + len(self.c.outer))
        name = f"{kernel.name}.tile{height}x{pixels}{'s' if streaming else ''}"
        return shared_function(
            self.module, name, arguments, kernel, lambda f: self._write_tile(f, height, pixels, streaming))

    def _write_tile(self, f: TileFrame, height: int, pixels: int, streaming: bool) -> None:
        c, plan = self.c, self.plan
        count = len(c.filters)
        b, filters = f.arguments[2], f.arguments[3 : 3 + count]
        filter_, row, pixel = f.arguments[3 + count : 6 + count]
        at = self.place_in_space(f.arguments[6 + count :], filter_, row, pixel)
        views = Views(f, c.places, at, c.filter_dim, c.columns.out)
        views.streaming = streaming
        lanes = vectors_of(pixels, plan.lanes)
        sums = self.begin_tile(f, views, height, lanes)
        for a, place in zip(filters, c.filters, strict=True):
            factors = TileOperands(
                replace(c.product, lhs=c.product.rhs, rhs=c.product.lhs), place.dtype, c.product.rhs.casts,
                f.extent(place.strides[c.filter_dim]), c.product.dtype, (), tuple(
                    PartialVector(plan.lanes) for _ in lanes
                ),
            )
            sums = accumulate(f, factors, sums, a, b, self._depth(f, place), 224)
        self.finish_tile(f, views, height, lanes, lambda row, v: sums[row * len(lanes) + v])

    def _depth(self, f: TileFrame, place: StridedAccess) -> list[Depth]:
        c = self.c

        def step(dim: int) -> Index:
            return f.extent(place.strides[dim]) if dim >= 0 else 0

        tap_rows = c.rows.dilation if self.shared_rows else self.plan.block
        deep: list[Depth] = []
        covered = self.volume
        for w in c.planes:
            covered //= w.taps
            deep.append(Depth(w.taps, step(w.kernel), covered))
        return [
            Depth(c.channels, step(c.channel_dim), c.columns.taps * self.volume),
            Depth(c.columns.taps, step(c.columns.kernel), self.volume),
            *deep,
            Depth(c.rows.taps, step(c.rows.kernel), tap_rows * c.columns.size),
        ]
