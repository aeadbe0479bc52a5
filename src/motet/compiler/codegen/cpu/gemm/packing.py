"""Packs operands of contractions: panels of B, per task or once for all tasks, and blocks of A."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    task_function,
    transpose,
)
from motet.compiler.codegen.cpu.gemm.space import ContractionSpace, Range, Vectors
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import ONE, product_of

_PACK_ROWS = 8  # of B that are read before the next panel of a group


@dataclass(frozen=True)
class DepthBlock:
    """Register tiles of some panels at coordinates `at`, for `deep` steps of K from `k` on (from 0 if K is not
    blocked)."""

    at: list[Index]
    tiles: Range
    panels: Range
    scratch: ir.Value
    k: Index
    deep: Index


class PackedOperands(ContractionSpace):
    """Copies operands to the order in which tiles read them."""

    def panel_of_b(
        self, f: TileFrame, block: DepthBlock, p: Index, left: Index, tail: bool
    ) -> tuple[ir.Value, ir.Value]:
        """The addresses of panel `p`, of which `left` columns exist, as tiles read it and as it is stored."""
        c, plan, k, deep = self.c, self.plan, block.k, block.deep
        scratch = f.at(block.scratch, self.scratch_b, I8)
        if plan.b_mode == "packed":
            return self.packed_operand(f, block.at, p, k, deep, scratch)
        if plan.shared:
            offset = f.imul(f.iadd(f.imul(p, self.depth(f)), k), plan.width)
            b = f.at(self.memory(f, len(c.kernel.externals)), offset, self.element)
            return b, b
        at = list(block.at)
        at[c.column] = f.imul(p, plan.width)
        b = f.address(c.b, at)
        if plan.b_mode != "scratch":
            return b, b
        if self.kept is None:
            self.pack_b(f, b, scratch, deep, left, tail)
        else:
            with f.if_then(f.icmp_signed("!=", f.index(p), self.kept)):
                self.pack_b(f, b, scratch, deep, left, tail)
        return scratch, scratch

    # Parameters: where the panel is, and where it may be widened to.
    def packed_operand(
        self, f: TileFrame, at: list[Index], p: Index, k: Index, deep: Index, scratch: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """The addresses of `deep` steps of panel `p` from step `k` on, as tiles read them and as they are stored."""
        source = self.packed_panel(f, at, p, k)
        if not self.widens:
            return source, source
        self.widen_panel(f, source, scratch, deep)
        return scratch, source

    def packed_panel(self, f: TileFrame, at: list[Index], p: Index, k: Index) -> ir.Value:
        """The address, from step `k` on, of panel `p` of a constant that was packed when compiling."""
        c, plan = self.c, self.plan
        index, column, width = self.outer_number(f, at, c.b), f.imul(p, plan.width), plan.packed_width
        index = f.iadd(f.imul(index, f.iceil(f.extent(self.n), width)), f.idiv(column, width))
        offset = f.iadd(f.imul(f.iadd(f.imul(index, self.depth(f)), k), width), self.inside_packed(f, column))
        return f.at(f.pointer(c.b.value), offset, MEMORY_TYPES[c.b.dtype])

    def inside_packed(self, f: TileFrame, column: Index) -> Index:
        """The place, within the packed panel that has it, of column `column` of B, the first of a tile."""
        plan = self.plan
        return 0 if plan.packed_width == plan.width else f.irem(column, plan.packed_width)

    def widen_panel(self, f: TileFrame, source: ir.Value, target: ir.Value, deep: Index) -> None:
        """Widen a packed panel of `deep` steps to `target`."""
        plan = self.plan

        def write(g: TileFrame) -> None:
            source, target, deep = g.arguments[2:]

            def vector(i: Index, _: list[ir.Value]) -> None:
                for column in range(0, plan.width, plan.lanes):
                    from_ = g.iadd(g.imul(i, plan.packed_width), column)
                    at = g.iadd(g.imul(i, plan.width), column)
                    wide = self.read(g, self.c.b, source, from_, 1, PartialVector(plan.lanes))
                    g.store_vector(wide, g.at(target, at, self.element), self.element)

            g.loop(0, deep, 1, vector)

        self.call(f, "widen", (source, target, deep), write)

    def pack_phase(self) -> Phase:
        """The phase that packs the panels of B; a task packs a group of panels for a piece of K."""
        plan, c = self.plan, self.c
        name = f"{c.kernel.name}_pack"
        f = task_function(self.module, c.kernel, name)
        depth, n = product_of(c.depth).known, self.n.known
        assert depth is not None and n is not None
        pieces, panels = -(-depth // plan.pack_steps), -(-n // plan.width)
        rows = _PACK_ROWS if c.b.strides[c.column] == ONE and plan.pack_panels > 1 else plan.pack_steps
        workspace = self.memory(f, len(c.kernel.externals))  # [panel][k][width]

        def pack(p: Index, tail: bool, k: Index, steps: Index) -> None:
            at: list[Index] = [0] * c.rank
            at[c.column] = f.imul(p, plan.width)
            at[c.depth[0][1]] = k
            target = f.at(workspace, f.imul(f.iadd(f.imul(p, depth), k), plan.width), self.element)
            self.pack_b(f, f.address(c.b, at), target, steps, f.isub(n, at[c.column]), tail)

        def task(index: Index, _: list[ir.Value]) -> None:
            first = f.imul(f.idiv(index, pieces), plan.pack_panels)
            group = (first, f.imin(f.iadd(first, plan.pack_panels), panels))
            begin = f.imul(f.irem(index, pieces), plan.pack_steps)
            end = f.imin(f.iadd(begin, plan.pack_steps), depth)

            def some(k: Index, _: list[ir.Value]) -> None:
                steps = f.imin(f.isub(end, k), rows)
                self.loop_over_panels(f, group, lambda p, tail: pack(p, tail, k, steps))

            f.loop(begin, end, rows, some)

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, -(-panels // plan.pack_panels) * pieces)

    def pack_b(self, f: TileFrame, source: ir.Value, target: ir.Value, deep: Index, left: Index, tail: bool) -> None:
        """Copy a panel of B to `target` as [k][width]; of a `tail`, its first `left` columns."""
        name = f"pack_b{'_tail' if tail else ''}"
        self.call(f, name, (source, target, deep, left), lambda g: self._emit_pack_b(g, tail))

    def _emit_pack_b(self, g: TileFrame, tail: bool) -> None:
        c, plan = self.c, self.plan
        source, target, deep, left = g.arguments[2:6]
        known_deep: Index = deep
        loops = list(c.depth)
        if len(loops) > 1 or (plan.depth_block is None and not plan.shared and loops[0][0].known is not None):
            known_deep = g.extent(loops[-1][0])
        step_n = g.extent(c.b.strides[c.column])

        def nest(level: int, at: ir.Value, base: Index) -> None:
            size, dim = loops[level]
            step = g.extent(c.b.strides[dim]) if dim >= 0 else 0
            if level + 1 < len(loops):
                inner = g.extent(product_of(loops[level + 1:]))
                g.loop(0, g.extent(size), 1, lambda i, _: nest(
                    level + 1, g.at(at, g.imul(i, step), MEMORY_TYPES[c.b.dtype]), g.iadd(base, g.imul(i, inner))))
                return
            length = known_deep
            destination = g.at(target, g.imul(base, plan.width), self.element)
            if step == 1 and step_n != 1 and not tail:
                self._pack_transposed(g, at, destination, length)
            else:
                self._pack_rows(g, at, destination, (0, length), step, self.vectors(g, tail, left))

        nest(0, source, 0)

    def _pack_rows(
        self, g: TileFrame, source: ir.Value, target: ir.Value, depth: Range, step: Index, vectors: Vectors
    ) -> None:
        """Copy some steps of K vector by vector, zeros for those that do not exist."""
        c, plan, existing = self.c, self.plan, dict(vectors)
        step_n = g.extent(c.b.strides[c.column])

        def row(k: Index, _: list[ir.Value]) -> None:
            at = g.at(source, g.imul(k, step), MEMORY_TYPES[c.b.dtype])
            to = g.at(target, g.imul(k, plan.width), self.element)
            for column in range(0, plan.width, plan.lanes):
                vector: ir.Value = ir.Constant(ir.VectorType(self.element, plan.lanes), None)
                if column in existing:
                    vector = self.read(g, c.b, at, g.imul(column, step_n), step_n, existing[column])
                g.store_vector(vector, g.at(to, column, self.element), self.element)

        g.loop(*depth, 1, row)

    def _pack_transposed(self, g: TileFrame, source: ir.Value, target: ir.Value, deep: Index) -> None:
        """Transpose squares of `lanes x lanes` in registers, then the remaining steps of K element by element."""
        c, plan, lanes = self.c, self.plan, self.plan.lanes
        step_n, whole = g.extent(c.b.strides[c.column]), g.imul(g.idiv(deep, lanes), lanes)

        def square(k: Index, _: list[ir.Value]) -> None:
            for column in range(0, plan.width, lanes):
                columns = [
                    self.read(g, c.b, source, g.iadd(g.imul(column + i, step_n), k), 1, PartialVector(lanes))
                    for i in range(lanes)
                ]
                for i, vector in enumerate(transpose(g, columns)):
                    to = g.iadd(g.imul(g.iadd(k, i), plan.width), column)
                    g.store_vector(vector, g.at(target, to, self.element), self.element)

        g.loop(0, whole, lanes, square)
        self._pack_rows(g, source, target, (whole, deep), 1, self.vectors(g, False, 0))

    def pack_a(self, f: TileFrame, source: ir.Value, target: ir.Value, rows: Index, deep: Index) -> None:
        """Copy a block of A to `target`, widened, with the order of its memory kept: rows or K outermost."""
        c = self.c

        def write(g: TileFrame) -> None:
            to_row, to_step = self.a_steps(g)
            row, step = self.stride(g, c.a), g.extent(c.a.strides[c.depth[0][1]])
            if to_row == 1:
                self._copy(g, (g.arguments[5], step, to_step), (g.arguments[4], row, to_row))
            else:
                self._copy(g, (g.arguments[4], row, to_row), (g.arguments[5], step, to_step))

        self.call(f, "pack_a", (source, target, rows, deep), write)

    def _copy(
        self, g: TileFrame, outer: tuple[Index, Index, Index], inner: tuple[Index, Index, Index]
    ) -> None:
        """Copy two nested loops, each given as (extent, source stride, target stride), the inner one by vectors."""
        c, lanes = self.c, self.plan.lanes
        source, target = g.arguments[2:4]

        def line(i: Index, _: list[ir.Value]) -> None:
            at = g.at(source, g.imul(i, outer[1]), MEMORY_TYPES[c.a.dtype])
            to = g.at(target, g.imul(i, outer[2]), self.element)

            def piece(j: Index, count: int) -> None:
                wide = self.read(g, c.a, at, g.imul(j, inner[1]), inner[1], PartialVector(count))
                g.store_vector(wide, g.at(to, j, self.element), self.element)

            whole = g.imul(g.idiv(inner[0], lanes), lanes)
            g.loop(0, whole, lanes, lambda j, _: piece(j, lanes))
            g.loop(whole, inner[0], 1, lambda j, _: piece(j, 1))

        g.loop(0, outer[0], 1, line)
