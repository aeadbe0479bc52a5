"""Convolutions: sums of products over a sliding window, with what follows fused on the tile.

Two ways, chosen by what lies side by side in the result:

- `channels`: vectors run along filters (channels-last results). A task copies the rows of the image that it needs,
  padded, into scratch as [row][column][channel] unless they lie like that already; then every tile is a contraction
  whose rows are output pixels, and whose depth is (window row, window column, channel). Filters are packed when
  compiling.
- `pixels`: vectors run along output pixels (row-major NCHW results). A task copies image rows shifted once per
  window column; then rows of a tile are filters, broadcast, and its vectors pixels of any output rows.

Convolutions of one image with one geometry whose results are added become one sum.
Source of the direct form: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.body import constant
from motet.compiler.codegen.cpu.builder import I32, I64, PTR, Index
from motet.compiler.codegen.cpu.convolution_plan import Plan, plan_channels, plan_pixels
from motet.compiler.codegen.cpu.convolution_reading import Convolution, match, pixels_are_flat
from motet.compiler.codegen.cpu.epilogue import Views, finish
from motet.compiler.codegen.cpu.extents import ONE, Extent, Place
from motet.compiler.codegen.cpu.micro import (
    MEMORY_TYPES,
    Depth,
    Factors,
    Frame,
    Lanes,
    accumulate,
    internal_function,
    narrow,
    read_vector,
    widen,
    write_vector,
)
from motet.compiler.codegen.kernel import Kernel, KernelCode, Phase, item_bytes
from motet.compiler.targets.cpu import CpuTarget

_STREAM = 32 << 20  # bytes of a result from which on it goes past the caches
_MOST_INTERLEAVED = 8  # channels that are brought together by shuffles, which are as many squared


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel` if it is a convolution with element-wise stages after it, else None."""
    convolution = match(kernel)
    if convolution is None:
        return None
    if convolution.stored.strides[convolution.filter_dim] == ONE:
        plan = plan_channels(convolution, target)
        return None if plan is None else Channels(convolution, plan).run()
    if pixels_are_flat(convolution):
        return _Pixels(convolution, plan_pixels(convolution, target)).run()
    return None


class Emitter:
    """The task loop, and what both ways share."""

    def __init__(self, c: Convolution, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.module = ir.Module(c.kernel.name)
        self.element = c.product.element
        self.image_element = MEMORY_TYPES[c.image.dtype]
        self.blocks = c.rows.size // plan.block

    def splits(self) -> int:
        """Tasks along the filters."""
        raise NotImplementedError

    def scratch_elements(self) -> int:
        raise NotImplementedError

    def emit_task(self, f: Frame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        raise NotImplementedError

    def run(self) -> KernelCode:
        c, kernel = self.c, self.c.kernel
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR]), kernel.name)
        function.attributes.add("nounwind")
        f = Frame(kernel, function)
        begin, end, scratch = function.args[2:]

        def task(index: Index, _: list[ir.Value]) -> None:
            block, rest = f.irem(index, self.blocks), f.idiv(index, self.blocks)
            split, rest = f.irem(rest, self.splits()), f.idiv(rest, self.splits())
            at: list[Index] = [0] * len(c.main.sizes)
            for position, (size, dim) in enumerate(reversed(c.outer)):
                last = position == len(c.outer) - 1
                at[dim] = rest if last else f.irem(rest, f.extent(size))
                rest = rest if last else f.idiv(rest, f.extent(size))
            self.emit_task(f, at, block, split, scratch)

        f.loop(begin, end, 1, task)
        f.ret_void()
        tasks: Expr = self.blocks * self.splits()
        for size, _ in c.outer:
            known = size.known
            tasks = tasks * known if isinstance(tasks, int) and known is not None else ["*", size.expression, tasks]
        outer = math.prod(size.known or 1 for size, _ in c.outer)
        flops = 2 * outer * c.filter_count * c.rows.size * c.columns.size * c.depth * len(c.filters)
        packings = {p.value: self.plan.packing for p in c.filters} if self.plan.packing is not None else {}
        return KernelCode(
            "convolution", str(self.module), (Phase(kernel.name, tasks),),
            self.scratch_elements() * item_bytes(c.product.dtype), (), packings, flops,
            sum(
                math.prod(s if isinstance(s, int) else 1 for s in kernel.values[i].shape)
                * item_bytes(kernel.values[i].dtype)
                for i in kernel.externals
            ),
        )

    # -- copying the image -----------------------------------------------------------------------

    def image_at(self, f: Frame, at: list[Index]) -> ir.Value:
        """The image at outer coordinates `at`, channel 0, row 0, column 0."""
        offset: Index = 0
        for _, dim in self.c.outer:
            offset = f.iadd(offset, f.imul(f.extent(self.c.image.strides[dim]), at[dim]))
        return f.at(f.pointer(self.c.image.value), offset, self.image_element)

    def copy_run(self, f: Frame, source: ir.Value, step: int, target: ir.Value, to: int, count: int) -> None:
        """`target[i * to] = source[i * step]`, widened, for `count` elements."""
        lanes = self.plan.lanes

        def vector(i: Index, width: Lanes) -> None:
            raw = read_vector(
                f, f.at(source, f.imul(i, step), self.image_element), self.c.image.dtype, step, width
            )
            value = widen(f, raw, self.c.image.dtype, self.c.product.lhs.casts, self.c.product.dtype)
            write_vector(f, value, f.at(target, f.imul(i, to), self.element), self.c.product.dtype, to, width)

        whole = count // lanes * lanes
        f.loop(0, whole, lanes, lambda i, _: vector(i, Lanes(lanes)))
        if count > whole:
            vector(whole, Lanes(lanes, count - whole))

    def fill_run(self, f: Frame, target: ir.Value, count: int) -> None:
        """`count` elements of padding."""
        lanes = self.plan.lanes
        value = constant(self.c.product.dtype, self.c.padding or 0, lanes)
        whole = count // lanes * lanes
        f.loop(0, whole, lanes, lambda i, _: f.store_vector(value, f.at(target, i, self.element), self.element))
        if count > whole:
            rest = Lanes(lanes, count - whole)
            write_vector(f, value, f.at(target, whole, self.element), self.c.product.dtype, 1, rest)

    def guarded_row(self, f: Frame, row: Index, inside: Callable[[], None], outside: Callable[[], None]) -> None:
        """Run one emitter where image row `row` exists and the other where it is padding."""
        if self.c.padding is None:
            inside()
            return
        exists = f.and_(
            f.icmp_signed(">=", f.index(row), f.index(0)), f.icmp_signed("<", f.index(row), f.index(self.c.rows.image))
        )
        with f.if_else(exists) as (then, otherwise):
            with then:
                inside()
            with otherwise:
                outside()

    # -- tiles -----------------------------------------------------------------------------------

    def initial(self, f: Frame, views: Views, row: Index, column: Index, lanes: Lanes) -> ir.Value:
        """What the sum starts from."""
        c = self.c
        total: ir.Value | None = None
        for init in c.inits:
            if isinstance(init, Place):
                raw = views.read(init, row, column, lanes, share=True)
                value = widen(f, raw, init.dtype, (), c.product.dtype)
            else:
                value = constant(c.product.dtype, init, lanes.lanes)
            add = f.fadd if c.product.is_float else f.add
            total = value if total is None else add(total, value)
        assert total is not None
        return total


class Channels(Emitter):
    """Vectors along filters."""

    def __init__(self, c: Convolution, plan: Plan) -> None:
        super().__init__(c, plan)
        self.panel_count = -(-c.filter_count // plan.width)
        self.pitch = c.columns.reach * c.channels if plan.copies else 0

    def splits(self) -> int:
        return -(-self.panel_count // self.plan.panels)

    def scratch_elements(self) -> int:
        return self.c.rows.span(self.plan.block) * self.pitch + self.plan.lanes if self.plan.copies else 0

    def emit_task(self, f: Frame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        first = f.imul(block, plan.block)
        image = self.image_at(f, at)
        if plan.copies:
            self._copy_rows(f, image, first, scratch)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        p0 = f.imul(split, plan.panels)
        p1 = f.imin(f.iadd(p0, plan.panels), self.panel_count)
        whole = c.filter_count // plan.width
        for tail, low, high in ((False, 0, whole), (True, whole, self.panel_count)):
            if high <= low:
                continue
            begin = p0 if isinstance(p0, int) and p0 >= low else self._larger(f, p0, low)

            def panel(p: Index, _: list[ir.Value], tail: bool = tail) -> None:
                f.loop(0, plan.block, 1, lambda r, _: self._row(f, at, image, scratch, filters, p, first, r, tail))

            f.loop(begin, f.imin(p1, high), 1, panel)

    def _larger(self, f: Frame, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return max(a, b)
        return f.select(f.icmp_signed(">", a, f.index(b)), a, f.index(b))

    def filters_at(self, f: Frame, place: Place, at: list[Index]) -> ir.Value:
        index: Index = 0
        for size, dim in self.c.outer:
            if place.strides[dim] != Extent(0):
                index = f.iadd(f.imul(index, f.extent(size)), at[dim])
        offset = f.imul(index, self.panel_count * self.c.depth * self.plan.width)
        return f.at(f.pointer(place.value), offset, MEMORY_TYPES[place.dtype])

    def _copy_rows(self, f: Frame, image: ir.Value, first: Index, scratch: ir.Value) -> None:
        """Image rows as [row][column][channel], padding included."""
        c = self.c
        function = internal_function(self.module, f"{c.kernel.name}.copy", [PTR, PTR, PTR, PTR, I64])
        f.call(function, [*f.arguments[:2], image, scratch, f.isub(f.imul(f.index(first), c.rows.stride), c.rows.low)])
        g = Frame(c.kernel, function)
        source, target, top = g.arguments[2:5]
        low = min(c.columns.low, c.columns.reach)
        high = min(c.columns.reach, c.columns.low + c.columns.image)

        def row(r: Index, _: list[ir.Value]) -> None:
            to = g.at(target, g.imul(r, self.pitch), self.element)
            where = g.iadd(top, r)

            def inside() -> None:
                self.fill_run(g, to, low * c.channels)
                self._copy_columns(
                    g, g.at(source, g.imul(where, c.rows.step), self.image_element),
                    g.at(to, low * c.channels, self.element), high - low,
                )
                rest = c.columns.reach - high
                self.fill_run(g, g.at(to, high * c.channels, self.element), rest * c.channels)

            self.guarded_row(g, where, inside, lambda: self.fill_run(g, to, self.pitch))

        g.loop(0, c.rows.span(self.plan.block), 1, row)
        g.ret_void()

    def _copy_columns(self, f: Frame, source: ir.Value, target: ir.Value, count: int) -> None:
        c = self.c
        if count <= 0:
            return
        if c.channels == 1:
            self.copy_run(f, source, c.columns.step, target, 1, count)
        elif c.channel_step == 1 and c.columns.step == c.channels:
            self.copy_run(f, source, 1, target, 1, count * c.channels)
        elif c.channel_step == 1:
            def column(w: Index, _: list[ir.Value]) -> None:
                at = f.at(source, f.imul(w, c.columns.step), self.image_element)
                self.copy_run(f, at, 1, f.at(target, f.imul(w, c.channels), self.element), 1, c.channels)

            f.loop(0, count, 1, column)
        elif c.columns.step == 1 and c.channels <= _MOST_INTERLEAVED:
            self._interleave(f, source, target, count)
        else:
            def channel(k: Index, _: list[ir.Value]) -> None:
                at = f.at(source, f.imul(k, c.channel_step), self.image_element)
                self.copy_run(f, at, c.columns.step, f.at(target, k, self.element), c.channels, count)

            f.loop(0, c.channels, 1, channel)

    def _interleave(self, f: Frame, source: ir.Value, target: ir.Value, count: int) -> None:
        """Channels that lie apart, each as [column], to [column][channel], by shuffles of whole vectors."""
        c, lanes = self.c, self.plan.lanes

        def some(i: Index, present: int) -> None:
            vectors = [
                widen(f, read_vector(
                    f, f.at(source, f.iadd(k * c.channel_step, i), self.image_element), c.image.dtype, 1,
                    Lanes(lanes, present if present < lanes else None),
                ), c.image.dtype, c.product.lhs.casts, c.product.dtype)
                for k in range(c.channels)
            ]
            for start in range(0, present * c.channels, lanes):
                value = vectors[0]
                for k in range(c.channels):
                    # Lane l of the piece is element start + l of the row: channel modulo, pixel quotient.
                    picks = [
                        lanes + (start + lane) // c.channels if (start + lane) % c.channels == k else lane
                        for lane in range(lanes)
                    ]
                    if k == 0:
                        picks = [pick - lanes if pick >= lanes else 0 for pick in picks]
                    value = f.shuffle_vector(value, vectors[k], ir.Constant(ir.VectorType(I32, lanes), picks))
                left = present * c.channels - start
                rest = Lanes(lanes, left if left < lanes else None)
                to = f.at(target, f.iadd(f.imul(i, c.channels), start), self.element)
                write_vector(f, value, to, c.product.dtype, 1, rest)

        whole = count // lanes * lanes
        f.loop(0, whole, lanes, lambda i, _: some(i, lanes))
        if count > whole:
            some(whole, count - whole)

    def _row(
        self, f: Frame, at: list[Index], image: ir.Value, scratch: ir.Value, filters: list[ir.Value], p: Index,
        first: Index, r: Index, tail: bool,
    ) -> None:
        """One output row of one panel, in tiles as equal as can be."""
        c, plan = self.c, self.plan
        row = f.iadd(first, r)
        if plan.copies:
            start = f.at(scratch, f.imul(f.imul(r, c.rows.stride), self.pitch), self.element)
            column_step = c.channels * c.columns.stride
        else:
            start = f.at(image, f.imul(f.imul(row, c.rows.stride), c.rows.step), self.image_element)
            column_step = c.columns.step * c.columns.stride
        tiles = -(-c.columns.size // plan.tile_rows)
        size, longer = divmod(c.columns.size, tiles)
        kind = self.element if plan.copies else self.image_element
        offset = f.imul(p, c.depth * plan.width)
        panels = [f.at(b, offset, MEMORY_TYPES[place.dtype]) for b, place in zip(filters, c.filters, strict=True)]
        outer = [f.index(at[dim]) for _, dim in c.outer]
        begin = 0
        for height, count in ((size + 1, longer), (size, tiles - longer)):
            if not count:
                continue

            def one(t: Index, _: list[ir.Value], height: int = height, begin: int = begin) -> None:
                w = f.iadd(begin, f.imul(t, height))
                a = f.at(start, f.imul(w, column_step), kind)
                f.call(
                    self._tile(height, tail),
                    [*f.arguments[:2], a, *panels, f.index(f.imul(p, plan.width)), f.index(row), f.index(w), *outer],
                )

            f.loop(0, count, 1, one)
            begin += height * count

    def _tile(self, height: int, tail: bool) -> ir.Value:
        c, plan = self.c, self.plan
        name = f"{c.kernel.name}.tile{height}{'t' if tail else ''}"
        found = self.module.globals.get(name)
        if found is not None:
            return found
        count = len(c.filters)
        function = internal_function(
            self.module, name, [PTR, PTR, PTR, *[PTR] * count, I64, I64, I64, *[I64] * len(c.outer)]
        )
        f = Frame(c.kernel, function)
        a, panels = f.arguments[2], f.arguments[3 : 3 + count]
        column, row, w = f.arguments[3 + count : 6 + count]
        views = Views(f, c.places, self.coordinates(f, column, row, w, count), c.columns.out, c.filter_dim)
        lanes = self.tile_lanes(tail)
        sums = [self.initial(f, views, r, v * plan.lanes, lane) for r in range(height) for v, lane in enumerate(lanes)]
        copied = plan.copies
        factors = Factors(
            c.product, c.product.dtype if copied else c.image.dtype, () if copied else c.product.lhs.casts,
            c.columns.stride * (c.channels if copied else c.columns.step), c.filters[0].dtype, c.product.rhs.casts,
            tuple(Lanes(plan.lanes) for _ in lanes),
        )
        for panel in panels:
            sums = accumulate(f, factors, sums, a, panel, self._depth(), 224)
        for r in range(height):
            for v, lane in enumerate(lanes):
                value = narrow(f, sums[r * len(lanes) + v], c.output.dtype)
                finish(f, c.epilogue, views, value, r, v * plan.lanes, lane, share=True)
        f.ret_void()
        return function

    def coordinates(self, f: Frame, column: Index, row: Index, w: Index, count: int) -> list[Index]:
        c = self.c
        at: list[Index] = [0] * len(c.main.sizes)
        for position, (_, dim) in enumerate(c.outer):
            at[dim] = f.arguments[6 + count + position]
        at[c.filter_dim] = column
        for window, coordinate in ((c.rows, row), (c.columns, w)):
            if window.out >= 0:
                at[window.out] = coordinate
        return at

    def tile_lanes(self, tail: bool) -> list[Lanes]:
        """The vectors of a panel; those of the last one that hold no filter at all are left out."""
        plan = self.plan
        left = self.c.filter_count % plan.width if tail else plan.width
        result: list[Lanes] = []
        for start in range(0, left, plan.lanes):
            result.append(Lanes(plan.lanes, left - start if left - start < plan.lanes else None))
        return result

    def _depth(self) -> list[Depth]:
        c, width = self.c, self.plan.width
        per_column = c.channels * width
        if self.plan.copies:
            row, column, channel = c.rows.dilation * self.pitch, c.columns.dilation * c.channels, 1
        else:
            row, column, channel = c.rows.dilation * c.rows.step, c.columns.dilation * c.columns.step, c.channel_step
        loops = [Depth(c.rows.taps, row, c.columns.taps * per_column)]
        if column == c.channels * channel or c.columns.taps == 1:
            return [*loops, Depth(c.columns.taps * c.channels, channel, width)]
        return [*loops, Depth(c.columns.taps, column, per_column), Depth(c.channels, channel, width)]


class _Pixels(Emitter):
    """Vectors along the pixels of the result, which are walked as one dimension."""

    def __init__(self, c: Convolution, plan: Plan) -> None:
        super().__init__(c, plan)
        self.pixels = plan.block * c.columns.size
        self.shared_rows = c.rows.stride == 1
        self.copied_rows = c.rows.span(plan.block) if self.shared_rows else c.rows.taps * plan.block
        self.plane = self.copied_rows * c.columns.size  # one channel, one window column
        self.tiles = -(-c.filter_count // plan.tile_rows)

    def splits(self) -> int:
        return -(-self.tiles // self.plan.panels)

    def scratch_elements(self) -> int:
        return self.c.channels * self.c.columns.taps * self.plane + self.plan.width

    def emit_task(self, f: Frame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        first = f.imul(block, plan.block)
        self._copy_rows(f, self.image_at(f, at), first, scratch)
        filters = [self.filters_at(f, place, at) for place in c.filters]
        aligned = self._aligned(f)
        outer = [f.index(at[dim]) for _, dim in c.outer]
        vectors = -(-self.pixels // plan.lanes)
        whole = vectors // plan.vectors
        t0 = f.imul(split, plan.panels)
        t1 = f.imin(f.iadd(t0, plan.panels), self.tiles)

        def strip(s: Index, count: int) -> None:
            """All filters of the task over one strip of pixels."""
            pixel = f.imul(s, plan.width)
            size, longer = divmod(c.filter_count, self.tiles)

            def tile(t: Index, height: int) -> None:
                row = f.iadd(f.imul(t, size), f.imin(t, longer))
                function = self._tile(height, count, streaming=False)
                if aligned is not None:
                    function = f.select(aligned, self._tile(height, count, streaming=True), function)
                f.call(
                    function,
                    [*f.arguments[:2], f.at(scratch, pixel, self.element), *self._rows_at(f, filters, row),
                     f.index(row), f.index(first), f.index(pixel), *outer],
                )

            for height, low, high in ((size + 1, 0, longer), (size, longer, self.tiles)):
                if high > low:
                    begin = max(t0, low) if isinstance(t0, int) else f.select(
                        f.icmp_signed(">", t0, f.index(low)), t0, f.index(low))
                    f.loop(begin, f.imin(t1, high), 1, lambda t, _, height=height: tile(t, height))

        exact = self.pixels % plan.width == 0
        full = whole if exact or vectors % plan.vectors else whole - 1
        f.loop(0, full, 1, lambda s, _: strip(s, plan.width))
        if self.pixels > full * plan.width:
            strip(full, self.pixels - full * plan.width)
        if aligned is not None:
            f.fence("seq_cst")  # streamed stores are not ordered with those that tell others of the task's end

    def filters_at(self, f: Frame, place: Place, at: list[Index]) -> ir.Value:
        offset: Index = 0
        for _, dim in self.c.outer:
            offset = f.iadd(offset, f.imul(f.extent(place.strides[dim]), at[dim]))
        return f.at(f.pointer(place.value), offset, MEMORY_TYPES[place.dtype])

    def _rows_at(self, f: Frame, filters: list[ir.Value], row: Index) -> list[ir.Value]:
        return [
            f.at(b, f.imul(f.extent(place.strides[self.c.filter_dim]), row), MEMORY_TYPES[place.dtype])
            for b, place in zip(filters, self.c.filters, strict=True)
        ]

    def _copy_rows(self, f: Frame, image: ir.Value, first: Index, scratch: ir.Value) -> None:
        """Image rows as [channel][window column][row][output column]."""
        c, plan = self.c, self.plan
        function = internal_function(self.module, f"{c.kernel.name}.copy", [PTR, PTR, PTR, PTR, I64])
        f.call(function, [*f.arguments[:2], image, scratch, f.index(first)])
        g = Frame(c.kernel, function)
        source, target, top = g.arguments[2:5]

        def copied(channel: Index, r: Index) -> None:
            if self.shared_rows:
                where = g.isub(g.iadd(top, r), c.rows.low)
            else:
                tap, inner = g.idiv(r, plan.block), g.irem(r, plan.block)
                where = g.iadd(g.imul(g.iadd(top, inner), c.rows.stride), g.imul(tap, c.rows.dilation))
                where = g.isub(where, c.rows.low)
            plane = g.imul(channel, c.columns.taps * self.plane)
            to = g.at(target, g.iadd(plane, g.imul(r, c.columns.size)), self.element)
            at = g.at(
                source, g.iadd(g.imul(channel, c.channel_step), g.imul(where, c.rows.step)), self.image_element
            )

            def inside() -> None:
                for k in range(c.columns.taps):
                    self._copy_shifted(g, at, g.at(to, k * self.plane, self.element), k)

            def outside() -> None:
                for k in range(c.columns.taps):
                    self.fill_run(g, g.at(to, k * self.plane, self.element), c.columns.size)

            self.guarded_row(g, where, inside, outside)

        g.loop(0, c.channels, 1, lambda channel, _: g.loop(
            0, self.copied_rows, 1, lambda r, _: copied(channel, r)) and None)
        g.ret_void()

    def _copy_shifted(self, f: Frame, row: ir.Value, target: ir.Value, tap: int) -> None:
        """The image row as output columns see it through window column `tap`."""
        w = self.c.columns
        shift = tap * w.dilation - w.low
        low = min(w.size, max(0, -(shift // w.stride)))  # the first output column inside
        high = max(low, min(w.size, -(-(w.image - shift) // w.stride)))
        self.fill_run(f, target, low)
        if high > low:
            source = f.at(row, (low * w.stride + shift) * w.step, self.image_element)
            self.copy_run(f, source, w.stride * w.step, f.at(target, low, self.element), 1, high - low)
        self.fill_run(f, f.at(target, high, self.element), w.size - high)

    def _aligned(self, f: Frame) -> ir.Value | None:
        """Whether large results lie so that every whole vector may go past the caches; None if they never may."""
        c, plan = self.c, self.plan
        bits: ir.Value | None = None
        for place in {p for step in c.epilogue.steps for _, p in step.writes} | {c.epilogue.place}:
            if place is None:
                continue
            size = item_bytes(place.dtype)
            steps = [place.strides[d].known for _, d in (*c.outer, (ONE, c.filter_dim))]
            apart = [step is not None and step * size % 64 == 0 for step in steps]
            elements = math.prod(s if isinstance(s, int) else 0 for s in c.kernel.values[place.value].shape)
            if not all(apart) or place.offset or elements * size < _STREAM or plan.lanes * size != 64:
                return None
            if self.pixels * size % 64 and self.blocks > 1:
                return None
            address = f.ptrtoint(f.pointer(place.value), I64)
            bits = address if bits is None else f.or_(bits, address)
        return None if bits is None else f.icmp_unsigned("==", f.and_(bits, ir.Constant(I64, 63)), ir.Constant(I64, 0))

    def _tile(self, height: int, pixels: int, streaming: bool) -> ir.Value:
        c, plan = self.c, self.plan
        name = f"{c.kernel.name}.tile{height}x{pixels}{'s' if streaming else ''}"
        found = self.module.globals.get(name)
        if found is not None:
            return found
        count = len(c.filters)
        function = internal_function(
            self.module, name, [PTR, PTR, PTR, *[PTR] * count, I64, I64, I64, *[I64] * len(c.outer)]
        )
        f = Frame(c.kernel, function)
        b, filters = f.arguments[2], f.arguments[3 : 3 + count]
        filter_, row, pixel = f.arguments[3 + count : 6 + count]
        at: list[Index] = [0] * len(c.main.sizes)
        for position, (_, dim) in enumerate(c.outer):
            at[dim] = f.arguments[6 + count + position]
        at[c.filter_dim] = filter_
        at[c.columns.out] = pixel
        if c.rows.out >= 0:
            at[c.rows.out] = row
        views = Views(f, c.places, at, c.filter_dim, c.columns.out)
        views.streaming = streaming
        lanes = [
            Lanes(plan.lanes, pixels - start if pixels - start < plan.lanes else None)
            for start in range(0, pixels, plan.lanes)
        ]
        sums = [self.initial(f, views, r, v * plan.lanes, lane) for r in range(height) for v, lane in enumerate(lanes)]
        for a, place in zip(filters, c.filters, strict=True):
            factors = Factors(
                replace(c.product, lhs=c.product.rhs, rhs=c.product.lhs), place.dtype, c.product.rhs.casts,
                f.extent(place.strides[c.filter_dim]), c.product.dtype, (), tuple(Lanes(plan.lanes) for _ in lanes),
            )
            sums = accumulate(f, factors, sums, a, b, self._depth(f, place), 224)
        for r in range(height):
            for v, lane in enumerate(lanes):
                value = narrow(f, sums[r * len(lanes) + v], c.output.dtype)
                finish(f, c.epilogue, views, value, r, v * plan.lanes, lane, share=True)
        f.ret_void()
        return function

    def _depth(self, f: Frame, place: Place) -> list[Depth]:
        c = self.c

        def step(dim: int) -> Index:
            return f.extent(place.strides[dim]) if dim >= 0 else 0

        tap_rows = c.rows.dilation if self.shared_rows else self.plan.block
        return [
            Depth(c.channels, step(c.channel_dim), c.columns.taps * self.plane),
            Depth(c.columns.taps, step(c.columns.kernel), self.plane),
            Depth(c.rows.taps, step(c.rows.kernel), tap_rows * c.columns.size),
        ]
