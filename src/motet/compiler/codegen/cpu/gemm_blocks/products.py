"""Products by constant weights of 4 or 8 bits in blocks, read as stored: matrix products with a fused epilogue.

Words and sides are packed when compiling, in the order in which they are read. For a few rows a register tile streams a
panel, widens it in registers, and scales the sums of each block; what is limited by memory then reads the stored bytes
alone:

    sum of x·((number - zero)·scale + shift) over a block = scale·(sum of x·number) + (shift - zero·scale)·(sum of x)

The sums of x of each block, which only zero points and shifts need, are computed once in each task. For more rows a
task widens a piece of a panel to floats once, which stay in a cache, and multiplies them like any packed panel
(`gemm/contraction.py`). If the number of rows is only known in a call, one row is streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, I8, I32, Index, Splat
from motet.compiler.codegen.cpu.gemm.contraction import ContractionEmitter
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    horizontal_sum,
    widen,
)
from motet.compiler.codegen.cpu.gemm.plan import scratch_layout
from motet.compiler.codegen.cpu.gemm.space import Range
from motet.compiler.codegen.cpu.gemm_blocks.plan import (
    COLUMNS,
    check,
    choose,
    contraction_schedule,
    packing_of,
    side_packing_of,
)
from motet.compiler.codegen.cpu.gemm_blocks.reading import BlockProduct, match
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import BlockProductSchedule
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_UNROLLED = 256  # multiply-adds in one iteration of the innermost loop
_AHEAD = 32  # words that are prefetched; hardware alone follows several streams through pages of 4 KiB slowly
_TABLE_LANES = 16  # of the permutation of AVX-512
_CHAINS = 4  # sums that are independent, so that the latency of multiply-adds is hidden


def emit(found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a product by weights of a few bits by `schedule`."""
    return _BlockEmitter(found, schedule, target).run()


CLASS = KernelClass(BlockProductSchedule, match, choose, check, emit)


@dataclass(frozen=True)
class ColumnPlace:
    """Where the words and sides of a vector of columns begin. `dtype` is that of the scales."""

    words_at: ir.Value
    scales_at: ir.Value
    dtype: str
    zeros_at: ir.Value | None
    shifts_at: ir.Value | None
    lanes: int

    def words(self, f: TileFrame, number: Index) -> ir.Value:
        """The words `number` of the columns."""
        return f.load_vector(f.at(self.words_at, f.imul(number, COLUMNS), I32), I32, self.lanes)

    def fetch(self, f: TileFrame, number: Index) -> None:
        """Prefetch the words `number` of the columns, or what follows them in memory."""
        f.prefetch(f.at(self.words_at, f.imul(number, COLUMNS), I32), near=False)

    def sides(self, f: TileFrame, block: Index) -> tuple[ir.Value, ir.Value | None, ir.Value | None]:
        """Scales, zero points and shifts of a block of rows, in f32."""
        element, offset = MEMORY_TYPES[self.dtype], f.imul(block, COLUMNS)
        raw = f.load_vector(f.at(self.scales_at, offset, element), element, self.lanes)
        scale, zero, shift = widen(f, raw, self.dtype, (), "f32"), None, None
        if self.zeros_at is not None:
            zero = f.sitofp(f.load_vector(f.at(self.zeros_at, offset, I8), I8, self.lanes), scale.type)
        if self.shifts_at is not None:
            shift = f.load_vector(f.at(self.shifts_at, offset, F32), F32, self.lanes)
        return scale, zero, shift


class _BlockEmitter(ContractionEmitter):
    """Emits one module: tiles that stream panels, or tiles over panels that a task has widened. Rows of x that are
    streamed and not f32 are widened once in each task."""

    def __init__(self, found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> None:
        super().__init__(replace(found.c, b=replace(found.c.b, dtype="f32")), contraction_schedule(schedule))
        self.found, self.streams, self.widens = found, schedule.streams, not schedule.streams
        self.title = f"product by {found.bits}-bit weights, {'streamed' if self.streams else 'widened'}"
        self.looks_up = target.scales and found.bits == 4 and schedule.lanes == _TABLE_LANES
        self.sides_left = found.zeros is not None or found.shifts is not None
        self.copies = self.c.a.dtype != "f32" or self.c.a.strides[self.c.depth[0][1]] != ONE
        self.last_column = (found.columns - 1) // schedule.lanes * schedule.lanes
        sums = found.depth // found.block if self.sides_left else 0
        rows = (schedule.rows if schedule.streams else 1) * (sums + (found.depth if self.copies else 0))
        self.scratch_b, self.scratch_a, self.scratch_sums = scratch_layout(self.c, self.plan, widens=self.widens)
        self.scratch_bytes = self.scratch_sums + -(-rows * 4 // 64) * 64

    def packings(self) -> dict[int, Packing]:
        return {self.found.words: packing_of(), **dict.fromkeys(self.found.sides, side_packing_of())}

    def block(self, f: TileFrame, outer: list[Index], tiles: Range, panels: Range, scratch: ir.Value) -> None:
        if not self.streams and self.m.known is None:
            with f.if_else(f.icmp_signed("==", f.index(f.extent(self.m)), f.index(1))) as (single, several):
                with single:
                    self.stream(f, 1, outer, panels, scratch)
                with several:
                    super().block(f, outer, tiles, panels, scratch)
        elif self.streams:
            self.stream(f, self.plan.rows, outer, panels, scratch)
        else:
            super().block(f, outer, tiles, panels, scratch)

    def packed_operand(
        self, f: TileFrame, at: list[Index], p: Index, k: Index, deep: Index, scratch: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Widens `deep` steps of panel `p` from step `k` on to `scratch`."""
        self.call(f, "widen", (scratch, p, k, deep), self._emit_widen)
        return scratch, scratch

    def _emit_widen(self, f: TileFrame) -> None:
        """Emit `widen(buffers, sizes, target, panel, k, deep)`."""
        target, panel, k, deep = f.arguments[2:6]
        width, lanes, per_word = self.plan.width, self.plan.lanes, self.found.per_word
        first, column = f.idiv(k, per_word), f.imul(panel, width)
        columns = [f.imin(f.iadd(column, v * lanes), self.last_column) for v in range(self.plan.vectors)]
        places = [self.place(f, each) for each in columns]

        def word(i: Index, _: list[ir.Value]) -> None:
            number = f.iadd(first, i)
            block = f.idiv(number, self.found.block // per_word)
            for v, place in enumerate(places):
                vector = place.words(f, number)
                scale, zero, shift = place.sides(f, block)
                for part in range(per_word):
                    value = self.number(f, vector, part)
                    value = value if zero is None else f.fsub(value, zero)
                    value = f.fmul(value, scale) if shift is None else f.multiply_add(value, scale, shift)
                    row = f.iadd(f.imul(i, per_word), part)
                    f.store_vector(value, f.at(target, f.iadd(f.imul(row, width), v * lanes), F32), F32)

        f.loop(0, f.idiv(deep, per_word), 1, word)

    # -- memory ----------------------------------------------------------------------------------

    def place(self, f: TileFrame, column: Index) -> ColumnPlace:
        """Where the vector of columns from `column` on begins."""
        found = self.found
        number, rest = f.idiv(column, COLUMNS), f.irem(column, COLUMNS)
        words = f.iadd(f.imul(number, found.depth // found.per_word * COLUMNS), rest)
        side = f.iadd(f.imul(number, found.depth // found.block * COLUMNS), rest)
        dtype = self.c.kernel.values[found.scales].dtype

        def at(value: int | None, element: ir.Type) -> ir.Value | None:
            return None if value is None else f.at(f.pointer(value), side, element)

        scales = f.at(f.pointer(found.scales), side, MEMORY_TYPES[dtype])
        return ColumnPlace(
            f.at(f.pointer(found.words), words, I32), scales, dtype, at(found.zeros, I8), at(found.shifts, F32),
            self.plan.lanes,
        )

    def number(self, f: TileFrame, words: ir.Value, part: int) -> ir.Value:
        """The signed number `part` of each word, as f32. With AVX-512, four bits are the index of a table of 16 floats
        in a register, and the bits above are ignored. Other levels shift the number to the top of its lane, shift it
        back with its sign, and convert it."""
        bits, lanes = self.found.bits, self.plan.lanes
        floats, integers = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
        if self.looks_up:
            index = f.lshr(words, Splat(integers, bits * part)) if part else words
            table = ir.Constant(floats, [float(n if n < 8 else n - 16) for n in range(_TABLE_LANES)])
            return f.intrinsic("llvm.x86.avx512.permvar.sf.512", floats, [table, index])
        above = 32 - bits * (part + 1)
        top = f.shl(words, Splat(integers, above)) if above else words
        return f.sitofp(f.ashr(top, Splat(integers, 32 - bits)), floats)

    # -- streams ---------------------------------------------------------------------------------

    def stream(self, f: TileFrame, rows: int, outer: list[Index], panels: Range, scratch: ir.Value) -> None:
        """Emit the work of one task: `rows`, which are all rows, by `panels`."""
        x = f.address(self.c.a, outer)
        row, step = self.stride(f, self.c.a), f.extent(self.c.a.strides[self.c.depth[0][1]])
        own = f.at(scratch, self.scratch_sums, I8)
        blocks = self.found.depth // self.found.block
        if self.copies or self.sides_left:
            self.call(f, f"rows{rows}", (x, own), lambda g: self._emit_rows(g, rows))
        if self.copies:
            x, row, step = f.at(own, rows * blocks if self.sides_left else 0, F32), self.found.depth, 1
        assert step == 1

        def panel(p: Index, tail: bool) -> None:
            n = f.imul(p, self.plan.width)
            operands = (x, own, n, f.isub(f.extent(self.n), n), row, *(outer[dim] for _, dim in self.c.outer))
            name = f"stream{rows}{'_tail' if tail else ''}"
            self.call(f, name, operands, lambda g: self._emit_stream(g, rows, tail))

        self.loop_over_panels(f, panels, panel)

    def _emit_rows(self, f: TileFrame, rows: int) -> None:
        """Emit `rows(buffers, sizes, x, target)`: the sums of each block of x, then x itself in f32."""
        x, target = f.arguments[2:4]
        found, c = self.found, self.c
        row, step = self.stride(f, c.a), f.extent(c.a.strides[c.depth[0][1]])
        blocks = found.depth // found.block
        lanes = min(self.plan.lanes, found.block & -found.block)
        copy = f.at(target, rows * blocks if self.sides_left else 0, F32)
        zero = ir.Constant(ir.VectorType(F32, lanes) if lanes > 1 else F32, None if lanes > 1 else 0.0)

        def block(r: int, b: Index) -> None:
            def some(i: Index, sums: list[ir.Value]) -> list[ir.Value]:
                k = f.iadd(f.imul(b, found.block), i)
                value = self.read(f, c.a, x, f.iadd(f.imul(row, r), f.imul(k, step)), step, PartialVector(lanes))
                if self.copies:
                    f.store_vector(value, f.at(copy, f.iadd(r * found.depth, k), F32), F32)
                return [f.fadd(sums[0], value)]

            total = f.loop(0, found.block, lanes, some, [zero])[0]
            if self.sides_left:
                total = total if lanes == 1 else horizontal_sum(f, total, True)
                f.store_vector(total, f.at(target, f.iadd(r * blocks, b), F32), F32)

        for r in range(rows):
            f.loop(0, blocks, 1, lambda b, _, r=r: block(r, b))

    # -- the tile --------------------------------------------------------------------------------

    def _emit_stream(self, f: TileFrame, rows: int, tail: bool) -> None:
        """Emit `stream(buffers, sizes, x, sums of x, n, left, row of x, outer…)`."""
        x, sums, n, left, row, *outer = f.arguments[2:]
        plan, found = self.plan, self.found
        each = found.block // found.per_word
        vectors = self.vectors(f, tail, left)
        places = [self.place(f, f.iadd(n, column)) for column, _ in vectors]
        zero = ir.Constant(ir.VectorType(F32, plan.lanes), None)

        def block(b: Index, totals: list[ir.Value]) -> list[ir.Value]:
            own = f.at(x, f.imul(b, found.block), F32)
            parts = self._block_sums(f, places, f.imul(b, each), (own, row), rows)
            result: list[ir.Value] = []
            for place in places:
                scale, zeros, shift = place.sides(f, b)
                extra = _extra(f, scale, zeros, shift)
                for r in range(rows):
                    number = len(result)
                    value = f.multiply_add(parts[number], scale, totals[number])
                    if extra is not None:
                        at = f.at(sums, f.iadd(r * (found.depth // found.block), b), F32)
                        value = f.multiply_add(f.splat(f.load_vector(at, F32, 1), plan.lanes), extra, value)
                    result.append(value)
            return result

        totals = f.loop(0, found.depth // found.block, 1, block, [zero] * (rows * len(places)))
        views = self.views(f, 0, n, outer)
        for r in range(rows):
            for v, (column, lanes) in enumerate(vectors):
                start = self.initial(f, views, r, column, lanes)
                self.finish(f, views, self.add(f, totals[v * rows + r], start), r, column, lanes)

    def _block_sums(
        self, f: TileFrame, places: Sequence[ColumnPlace], first: Index, x: tuple[ir.Value, Index], rows: int
    ) -> Sequence[ir.Value]:
        """The sums over one block of x, an address and the stride of its rows, times the numbers of the words from
        `first` on, for each vector and row."""
        plan, found = self.plan, self.found
        each, per_word = found.block // found.per_word, found.per_word
        count = rows * len(places)
        chains = -(-_CHAINS // count)
        zero = ir.Constant(ir.VectorType(F32, plan.lanes), None)
        unroll = max(1, min(each, _UNROLLED // (count * per_word)))
        offsets = [f.imul(x[1], r) for r in range(rows)]

        def word(i: Index, sums: list[ir.Value]) -> list[ir.Value]:
            result = list(sums)
            vectors = [place.words(f, f.iadd(first, i)) for place in places]
            for place in places:
                place.fetch(f, f.iadd(f.iadd(first, i), _AHEAD))
            own = f.at(x[0], f.imul(i, per_word), F32)
            for part in range(per_word):
                at = [f.at(own, f.iadd(offset, part), F32) for offset in offsets]
                factors = [f.splat(f.load_vector(address, F32, 1), plan.lanes) for address in at]
                for v, vector in enumerate(vectors):
                    number = self.number(f, vector, part)
                    for r, factor in enumerate(factors):
                        place = part % chains * count + v * rows + r
                        result[place] = f.multiply_add(number, factor, result[place])
            return result

        def some(steps: int) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(i: Index, sums: list[ir.Value]) -> list[ir.Value]:
                for step in range(steps):
                    sums = word(f.iadd(i, step), sums)
                return sums
            return body

        whole = each // unroll * unroll
        sums = f.loop(0, whole, unroll, some(unroll), [zero] * (count * chains))
        sums = f.loop(whole, each, 1, some(1), sums)
        result = sums[:count]
        for chain in range(1, chains):
            result = [f.fadd(a, b) for a, b in zip(result, sums[chain * count:], strict=False)]
        return result


def _extra(f: TileFrame, scale: ir.Value, zero: ir.Value | None, shift: ir.Value | None) -> ir.Value | None:
    """The factor of the sum of x: `shift - zero * scale`."""
    if zero is None:
        return shift
    product = f.fmul(zero, scale)
    return f.fneg(product) if shift is None else f.fsub(shift, product)
