"""The class `attention`: two products with a softmax between them as one kernel, for CPUs.

    for each block of rows (queries that share keys and values), a task:
        copy the queries
        for each block of keys:
            pack keys and values
            for each tile of rows:
                scores = q k;  weights = 2^(scores - maxima);  outputs = factors * outputs + weights v
        results = outputs / sums

Scores exist for one tile at a time, in scratch memory. Blocks of keys that no row of a task sees by position are
skipped. Few rows (a step of decoding) read keys and values in place, once.
"""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv
from motet.compiler.codegen.cpu.attention.bfloat_tiles import BfloatAttentionTiles
from motet.compiler.codegen.cpu.attention.legality import check
from motet.compiler.codegen.cpu.attention.nest import AttentionNest, KeyRange, match
from motet.compiler.codegen.cpu.attention.plan import choose, for_few_rows
from motet.compiler.codegen.cpu.attention.tiles import AttentionTiles, TileAddresses
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, narrow, task_function
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.kernels.strides import product_of
from motet.compiler.targets.cpu import CpuTarget


def emit(c: AttentionNest, schedule: AttentionSchedule, target: CpuTarget) -> KernelCode | None:
    """Generate code for `c` by `schedule`; None if a mask has an operation without code."""
    emitter = _AttentionEmitter if schedule.way == "vectors" else _BfloatAttentionEmitter
    try:
        return emitter(c, schedule, target).run()
    except Unsupported:
        return None


CLASS = KernelClass(AttentionSchedule, match, choose, check, emit)


class _AttentionEmitter(AttentionTiles):
    """Emits the loop over tasks."""

    def run(self) -> KernelCode:
        c, plan = self.c, self.plan
        f = task_function(self.module, c.kernel)
        f.scales = self.target.scales
        self.begin(f)
        scratch = self.scratch_bytes
        few = for_few_rows(c, plan, self.target)
        if few is None:
            self.tasks(f)
        else:
            other = _AttentionEmitter(c, few, self.target)
            other.module, other.label = self.module, f"{self.label}.few"
            scratch = max(scratch, other.scratch_bytes)
            is_few = f.icmp_signed("<=", f.index(f.extent(c.row_count)), f.index(few.rows))
            with f.if_else(is_few) as (then, otherwise):
                with then:
                    other.tasks(f)
                with otherwise:
                    self.tasks(f)
        self.end(f)
        f.ret_void()
        outer = product_of(c.outer)
        flops = 2 * guess(outer * c.row_count * c.key_count) * (c.depth + c.columns)
        count = apply("*", outer.expression, ceildiv(c.row_count.expression, plan.rows))
        return KernelCode(
            "attention", str(self.module), (Phase(c.kernel.name, count),), scratch, flops=flops,
            bytes=traffic(c.kernel),
        )

    def tasks(self, f: TileFrame) -> None:
        """Emit the tasks of a call. Their number follows from the rows of a task, unless these are all rows."""
        rows = self.plan.rows
        begin, end, scratch = f.arguments[2:]
        blocks = f.iceil(f.extent(self.c.row_count), rows)

        def task(index: Index, kept: list[ir.Value]) -> list[ir.Value]:
            outer = f.idiv(index, blocks)
            holds = self._task(f, outer, f.imul(f.irem(index, blocks), rows), scratch, kept[0] if kept else None)
            return [holds] if kept else []

        f.loop(begin, end, 1, task, [f.index(-1)] if self.single else [])

    def _task(self, f: TileFrame, outer: Index, first: Index, scratch: ir.Value, kept: ir.Value | None) -> ir.Value:
        """Emit the rows of problem `outer` from `first` on. `kept` is the problem whose packed keys and values the
        scratch memory holds; returns the one that it holds afterwards."""
        at = self.coordinates(f, outer)
        rows = f.imin(f.isub(f.extent(self.c.row_count), first), self.plan.rows)
        self.begin_rows(f, at, first, rows, scratch)
        reach = self._reach(f, first, rows)
        holds = f.index(outer)
        for keys in self.c.ranges:
            size = f.extent(keys.size)
            if reach is not None:
                size = f.imin(size, f.isub(reach, keys.first))
                if kept is not None:
                    holds = f.select(f.icmp_signed(">", f.index(size), f.index(0)), holds, kept)

            def block(start: Index, _: list[ir.Value], keys: KeyRange = keys, size: Index = size) -> None:
                count = f.imin(f.isub(size, start), self.plan.keys)
                changed = None if kept is None else f.icmp_signed("!=", f.index(outer), kept)
                self._block(f, keys, (at, first, rows), (start, count), scratch, changed)

            f.loop(0, size, self.plan.keys, block)
        self._results(f, at, first, rows, scratch)
        return holds

    def _reach(self, f: TileFrame, row: Index, rows: Index) -> Index | None:
        """The end of the keys that `rows` rows from `row` on see by position; None if that is not known."""
        a = self.c.attention
        if a.causal is None or not a.causal.certain or a.row is None:
            return None
        queries = f.extent(self.c.rows[-1][0])
        here = f.irem(row, queries) if len(self.c.rows) > 1 else row
        last = f.imin(f.iadd(here, f.isub(rows, 1)), f.isub(queries, 1))
        return f.iadd(last, 1 + a.causal.offset)

    def _block(
        self, f: TileFrame, keys: KeyRange, rows: tuple[list[Index], Index, Index], span: tuple[Index, Index],
        scratch: ir.Value, changed: ir.Value | None,
    ) -> None:
        """Emit a block of `span[1]` keys from `span[0]` on. Without `changed`, they are packed anyway."""
        a, plan = self.c.attention, self.plan
        start, count = span
        here = list(rows[0])
        here[a.key] = f.iadd(start, keys.first)
        sources = [f.address(place, here) for place in (keys.keys, keys.values)]
        packed_count = f.imin(f.isub(f.extent(keys.size), start), plan.keys) if changed is not None else count
        packed = list(sources)

        def pack() -> None:
            if plan.key_mode == "packed":
                self.pack_keys(f, keys.keys, sources[0], packed[0], packed_count)
            if plan.pack_values:
                self.pack_values(f, keys.values, sources[1], packed[1], packed_count)

        if plan.key_mode == "packed":
            packed[0] = self.scratch(f, scratch, "keys")
        if plan.pack_values:
            packed[1] = self.scratch(f, scratch, "values")
        if changed is None:
            pack()
        else:
            with f.if_then(changed):
                pack()
        self._tiles(f, keys, rows, (here[a.key], count, packed_count), scratch, (packed[0], packed[1]))

    def _tiles(
        self, f: TileFrame, keys: KeyRange, rows: tuple[list[Index], Index, Index], span: tuple[Index, Index, Index],
        scratch: ir.Value, operands: tuple[ir.Value, ir.Value],
    ) -> None:
        """Emit all tiles of rows for a block of keys: `span` is the first one among all keys, their number, and the
        number of those that are packed."""
        at, first, count = rows
        tile = self.plan.tile
        start, length, packed = span

        def one(row: Index, _: list[ir.Value]) -> None:
            present = f.imin(f.isub(count, row), tile)
            reach = self._reach(f, f.iadd(first, row), present)
            visible = length if reach is None else f.imin(length, f.isub(reach, start))
            places = TileAddresses(
                self.scratch(f, scratch, "queries", f.imul(row, self.padded_depth)), *operands,
                self.scratch(f, scratch, "outputs", f.imul(row, self.padded_columns)),
                self.scratch(f, scratch, "maxima", row), self.scratch(f, scratch, "sums", f.imul(row, self.plan.lanes)),
                self.scratch(f, scratch, "factors"), self.scratch(f, scratch, "weights"),
            )

            def work() -> None:
                self.scores(f, tile, keys.keys, places, visible, present)
                self.weights(f, places, at, f.iadd(first, row), present, start, visible)
                self.values(f, tile, keys.values, places, visible, packed)

            if reach is None:
                work()
                return
            with f.if_then(f.icmp_signed(">", f.index(visible), f.index(0))):
                work()

        f.loop(0, count, tile, one)

    def _results(self, f: TileFrame, at: list[Index], first: Index, rows: Index, scratch: ir.Value) -> None:
        """Divide the outputs by the sums of weights, run the epilogue, and store the results."""
        c, lanes = self.c, self.plan.lanes
        epilogue, column = c.attention.epilogue, c.attention.column
        dtype = c.kernel.values[epilogue.value].dtype
        rank = len(c.attention.main.sizes)
        sums = self.scratch(f, scratch, "sums")

        def row(r: Index, _: list[ir.Value]) -> None:
            here = self.at_row(f, at, f.iadd(first, r))[:rank]
            views = Views(f, epilogue.places, here, None, column)
            inverse = f.splat(self.inverse(f, sums, r), lanes)
            outputs = self.scratch(f, scratch, "outputs", f.imul(r, self.padded_columns))

            def vector(j: Index, lanes_: PartialVector) -> None:
                value = self.divided(f, f.load_vector(f.at(outputs, j, self.element), self.element, lanes), inverse)
                finish(f, epilogue, views, narrow(f, value, dtype), 0, j, lanes_)

            whole = c.columns // lanes * lanes
            f.loop(0, whole, lanes, lambda j, _: vector(j, PartialVector(lanes)))
            if whole < c.columns:
                vector(whole, PartialVector(lanes, c.columns - whole))

        f.loop(0, rows, 1, row)


class _BfloatAttentionEmitter(BfloatAttentionTiles, _AttentionEmitter):
    """Emits the loop over tasks with products of bf16 numbers."""
