"""Contractions: sums of products of two tensors, in any order of dimensions, with what follows fused.

`contraction_reading.py` says which kernels are some, `contraction_plan.py` how the work is cut. Constant right-hand
factors are packed when compiling; others are packed panel by panel by the task that reads them, read in place where few
rows use them, or, where K lies side by side and rows are few, multiplied along K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.amounts import bytes_of
from motet.compiler.codegen.cpu.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.contraction_plan import Plan, make_plan
from motet.compiler.codegen.cpu.contraction_reading import Contraction, guess, match, product_of
from motet.compiler.codegen.cpu.epilogue import Views, finish
from motet.compiler.codegen.cpu.extents import ONE, ZERO, Place
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
    horizontal_sum,
    internal_function,
    narrow,
    read_vector,
    transpose,
    widen,
)
from motet.compiler.codegen.kernel import Kernel, KernelCode, Phase, item_bytes
from motet.compiler.ir.expressions import ceildiv, product
from motet.compiler.targets.cpu import CpuTarget

_PACK_ROWS = 8  # of B that are read before the next panel of a group


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel` if it is a contraction with element-wise stages after it, else None."""
    contraction = match(kernel)
    if contraction is None:
        return None
    plan = make_plan(contraction, target)
    if plan is None:
        return None
    return _Emitter(contraction, plan, target).run()


class _Emitter:
    """Emits one module: internal functions for each register tile, and the task loop that calls them."""

    def __init__(self, c: Contraction, plan: Plan, target: CpuTarget) -> None:
        self.c = c
        self.plan = plan
        self.target = target
        self.module = ir.Module(c.kernel.name)
        self.element = c.product.element
        self.bytes = item_bytes(c.product.dtype)
        self.m = c.m[0] if c.m else ONE
        self.n = c.n[0]
        self.row_dim = c.m[1] if c.m else None
        self.tiles: dict[tuple[int, bool], ir.Function] = {}
        self.straight = c.epilogue.operations <= 6 and plan.b_mode != "along_k"
        self.tile_width = plan.panels * plan.width if plan.depth_block else plan.width
        self.whole_depth = plan.depth_block is None
        self.kept: ir.Value | None = None  # the panel that the scratch memory holds from the task before
        self.scratch_tile, self.scratch_b, self.scratch_a, self.scratch_bytes = self._layout()

    def _layout(self) -> tuple[int, int, int, int]:
        """Where in a thread's scratch the tile of sums, the panel of B and the block of A are, and all its bytes."""
        plan = self.plan
        rows = plan.tile_rows * plan.rows if plan.depth_block else plan.rows
        tile = 0 if self.straight and not plan.depth_block else rows * self.tile_width * self.bytes
        if plan.b_mode == "along_k":
            tile = 0
        deep = plan.depth_block or guess((product_of(self.c.depth), -1))
        b = deep * plan.width * self.bytes if plan.b_mode == "scratch" and not plan.shared else 0
        a = plan.tile_rows * plan.rows * deep * self.bytes if plan.pack_a else 0
        tile, b, a = (-(-size // 64) * 64 for size in (tile, b, a))
        return 0, tile, tile + b, tile + b + a

    # -- the task loop -------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        kernel, plan = self.c.kernel, self.plan
        row_tasks = ceildiv(ceildiv(self.m.expression, plan.rows), plan.tile_rows)
        column_tasks = ceildiv(ceildiv(self.n.expression, plan.width), plan.panels)
        outer_tasks = ceildiv(product_of(self.c.outer).expression, plan.group)
        tasks = product((outer_tasks, row_tasks, column_tasks))
        function = ir.Function(
            self.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR]), kernel.name
        )
        function.attributes.add("nounwind")
        f = Frame(kernel, function)
        begin, end, scratch = function.args[2:]

        def task(index: Index, kept: list[ir.Value]) -> list[ir.Value]:
            self.kept = kept[0] if kept else None
            self._task(f, index, scratch)
            each = _ceil(f, _ceil(f, f.extent(self.m), plan.rows), plan.tile_rows)
            return [f.index(f.idiv(index, each))] if kept else []

        f.loop(begin, end, 1, task, [f.index(-1)] if plan.keeps else [])
        f.ret_void()
        flops = 2 * guess((product_of([*self.c.outer, *self.c.depth]), -1)) * guess((self.m * self.n, -1))
        packings = {self.c.b.value: plan.packing} if plan.packing is not None else {}
        phases, workspaces = (Phase(kernel.name, tasks),), ()
        if plan.shared:
            phases, workspaces = (self._pack_phase(), *phases), (self._shared_elements() * self.bytes,)
        return KernelCode(
            "contraction", str(self.module), phases, self.scratch_bytes, workspaces, packings, flops,
            sum(bytes_of(kernel, index) for index in kernel.externals),
        )

    def _shared_elements(self) -> int:
        depth, n = product_of(self.c.depth).known, self.n.known
        assert depth is not None and n is not None
        return -(-n // self.plan.width) * self.plan.width * depth

    def _shared_panels(self, f: Frame) -> ir.Value:
        """The workspace: all panels of B, [panel][depth][width]."""
        with f.goto_entry_block():
            address = f.at(f.arguments[0], len(self.c.kernel.externals), PTR)
            return f.load(address, typ=PTR, align=8)

    def _pack_phase(self) -> Phase:
        """Packs the panels of B, groups of them in pieces of the depth."""
        plan, c = self.plan, self.c
        name = f"{c.kernel.name}_pack"
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR]), name)
        function.attributes.add("nounwind")
        f = Frame(c.kernel, function)
        depth, n = product_of(c.depth).known, self.n.known
        assert depth is not None and n is not None
        pieces, panels = -(-depth // plan.pack_steps), -(-n // plan.width)
        rows = _PACK_ROWS if c.b.strides[c.column] == ONE and plan.pack_panels > 1 else plan.pack_steps
        workspace = self._shared_panels(f)

        def pack(p: Index, tail: bool, k: Index, steps: Index) -> None:
            at: list[Index] = [0] * c.rank
            at[c.column] = f.imul(p, plan.width)
            at[c.depth[0][1]] = k
            target = f.at(workspace, f.imul(f.iadd(f.imul(p, depth), k), plan.width), self.element)
            self._pack_b(f, f.address(c.b, at), target, steps, f.isub(n, at[c.column]), tail)

        def task(index: Index, _: list[ir.Value]) -> None:
            first = f.imul(f.idiv(index, pieces), plan.pack_panels)
            group = (first, f.imin(f.iadd(first, plan.pack_panels), panels))
            begin = f.imul(f.irem(index, pieces), plan.pack_steps)
            end = f.imin(f.iadd(begin, plan.pack_steps), depth)

            def some(k: Index, _: list[ir.Value]) -> None:
                steps = f.imin(f.isub(end, k), rows)
                self._panels(f, group, lambda p, tail: pack(p, tail, k, steps))

            f.loop(begin, end, rows, some)

        f.loop(function.args[2], function.args[3], 1, task)
        f.ret_void()
        return Phase(name, -(-panels // plan.pack_panels) * pieces)

    def _task(self, f: Frame, index: Index, scratch: ir.Value) -> None:
        """Tasks are numbered columns slowest, then rows, within a group of outer iterations."""
        plan = self.plan
        row_tiles, panels = _ceil(f, f.extent(self.m), plan.rows), _ceil(f, f.extent(self.n), plan.width)
        row_tasks, column_tasks = _ceil(f, row_tiles, plan.tile_rows), _ceil(f, panels, plan.panels)
        row_task, rest = f.irem(index, row_tasks), f.idiv(index, row_tasks)
        column_task, outer_task = f.irem(rest, column_tasks), f.idiv(rest, column_tasks)
        t0, p0 = f.imul(row_task, plan.tile_rows), f.imul(column_task, plan.panels)
        t1 = f.imin(f.iadd(t0, plan.tile_rows), row_tiles)
        p1 = f.imin(f.iadd(p0, plan.panels), panels)
        first = f.imul(outer_task, plan.group)
        last = f.iadd(first, plan.group)
        if plan.group > 1:
            last = f.imin(last, f.extent(product_of(self.c.outer)))

        def one(outer: Index, _: list[ir.Value]) -> None:
            self._block(f, self._outer_coordinates(f, outer), (t0, t1), (p0, p1), scratch)

        f.loop(first, last, 1, one)

    def _outer_coordinates(self, f: Frame, outer: Index) -> list[Index]:
        coordinates: list[Index] = [0] * self.c.rank
        for size, dim in reversed(self.c.outer):
            coordinates[dim] = f.irem(outer, f.extent(size))
            outer = f.idiv(outer, f.extent(size))
        return coordinates

    def _block(
        self, f: Frame, outer: list[Index], tiles: tuple[Index, Index], panels: tuple[Index, Index], scratch: ir.Value
    ) -> None:
        """All the work of one task at one outer iteration."""
        c, plan = self.c, self.plan
        depth = f.extent(product_of(c.depth))
        tile = f.at(scratch, self.scratch_tile, ir.IntType(8))
        if plan.depth_block is None:
            self._depth_block(f, outer, tiles, panels, scratch, tile, 0, depth)
            return
        self._tile_pass(f, "start", outer, tiles, panels, tile)

        def block(k: Index, _: list[ir.Value]) -> None:
            size = plan.depth_block or 1
            if not isinstance(depth, int) or depth % size:
                self._depth_block(f, outer, tiles, panels, scratch, tile, k, f.imin(f.isub(depth, k), size))
            else:
                self._depth_block(f, outer, tiles, panels, scratch, tile, k, size)

        f.loop(0, depth, plan.depth_block, block)
        self._tile_pass(f, "finish", outer, tiles, panels, tile)

    def _depth_block(
        self, f: Frame, outer: list[Index], tiles: tuple[Index, Index], panels: tuple[Index, Index],
        scratch: ir.Value, tile: ir.Value, k: Index, deep: Index,
    ) -> None:
        """Every register tile of the task over `deep` steps of the depth from `k` on (from 0 where not blocked)."""
        c, plan = self.c, self.plan
        at = list(outer)
        if plan.depth_block is not None:
            at[c.depth[0][1]] = k
        b_scratch = f.at(scratch, self.scratch_b, ir.IntType(8))
        a_base = f.address(c.a, at)
        row0 = self._row(f, tiles[0])[0]
        if plan.pack_a:
            a_scratch = f.at(scratch, self.scratch_a, ir.IntType(8))
            rows = f.isub(self._row(f, tiles[1])[0], row0)
            source = f.at(a_base, f.imul(self._stride(f, c.a), row0), MEMORY_TYPES[c.a.dtype])
            self._pack_a(f, source, a_scratch, rows, deep)
            a_base = a_scratch

        def panel(p: Index, tail: bool) -> None:
            n = f.imul(p, plan.width)
            left = f.isub(f.extent(self.n), n)
            if plan.b_mode == "packed":
                b = self._packed_panel(f, at, p, k)
            elif plan.shared:
                offset = f.imul(f.iadd(f.imul(p, f.extent(product_of(c.depth))), k), plan.width)
                b = f.at(self._shared_panels(f), offset, self.element)
            else:
                at_n = list(at)
                at_n[c.column] = n
                b = f.address(c.b, at_n)
                if self.kept is not None:
                    with f.if_then(f.icmp_signed("!=", f.index(p), self.kept)):
                        self._pack_b(f, b, b_scratch, deep, left, tail)
                elif plan.b_mode == "scratch":
                    self._pack_b(f, b, b_scratch, deep, left, tail)
                if plan.b_mode == "scratch":
                    b = b_scratch
            acc = f.at(tile, f.imul(f.isub(p, panels[0]), plan.width), self.element) if plan.depth_block else tile
            self._rows(f, outer, tiles, row0, n, left, tail, a_base, b, acc, deep)

        self._panels(f, panels, panel)

    def _panels(self, f: Frame, panels: tuple[Index, Index], panel: Callable[[Index, bool], None]) -> None:
        """Whole panels in a loop, then the one that is not."""
        n = f.extent(self.n)
        whole = f.idiv(n, self.plan.width)
        end = f.imin(panels[1], whole)
        known = self.n.known
        f.loop(panels[0], end, 1, lambda p, _: panel(p, False))
        if known is not None and known % self.plan.width == 0:
            return
        if isinstance(end, int) and isinstance(panels[1], int):
            if panels[1] > end:
                panel(end, True)
            return
        with f.if_then(f.icmp_signed(">", f.index(panels[1]), f.index(whole))):
            panel(whole, True)

    def _rows(
        self, f: Frame, outer: list[Index], tiles: tuple[Index, Index], row0: Index, n: Index, left: Index, tail: bool,
        a_base: ir.Value, b: ir.Value, acc: ir.Value, deep: Index,
    ) -> None:
        """Register tiles down a panel."""
        c, plan = self.c, self.plan
        a_element = self.element if plan.pack_a else MEMORY_TYPES[c.a.dtype]

        def one(t: Index, rows: int, m: Index) -> None:
            local = f.isub(m, row0)
            a_row = self._a_steps(f)[0]
            a = f.at(a_base, f.imul(local if plan.pack_a else m, a_row), a_element)
            at = acc
            if plan.depth_block:
                at = f.at(acc, f.imul(local, self.tile_width), self.element)
            function = self._tile(rows, tail)
            coordinates = [f.index(outer[dim]) for _, dim in c.outer]
            extents = [f.index(m), f.index(n), f.index(left), f.index(deep)]
            ahead = self._next_panel(f, b, deep, f.isub(t, tiles[0])) if plan.ahead else b
            f.call(function, [*f.arguments[:2], a, b, at, *extents, *coordinates, ahead])

        self._row_tiles(f, tiles, one)

    def _next_panel(self, f: Frame, b: ir.Value, deep: Index, number: Index) -> ir.Value:
        """Where in the panel after `b` tile `number` of a panel begins to fetch."""
        plan = self.plan
        stride = f.imul(deep, plan.width)
        if plan.depth_block is not None and plan.panels > 1:
            stride = f.imul(f.extent(product_of(self.c.depth)), plan.width)
        element = MEMORY_TYPES[self.c.b.dtype] if plan.b_mode == "packed" else self.element
        share = f.imul(f.idiv(deep, AHEAD_STEPS), plan.ahead * LINE)
        return f.at(f.at(b, stride, element), f.imul(number, share), ir.IntType(8))

    def _row_tiles(
        self, f: Frame, tiles: tuple[Index, Index], one: Callable[[Index, int, Index], None]
    ) -> None:
        """Call `one(tile, rows, first row)` for the register tiles [tiles): balanced where M is known, else whole
        tiles and then four, two and one rows."""
        rows = self.plan.rows
        known = self.m.known
        if known is not None:
            count, size, longer = -(-known // rows), *divmod(known, -(-known // rows))
            begin, end = tiles
            for rows_here, low, high in ((size + 1, 0, longer), (size, longer, count)):
                if high > low:
                    f.loop(
                        _imax(f, begin, low), f.imin(end, high), 1,
                        lambda t, _, rows_here=rows_here: one(t, rows_here, self._row(f, t)[0]),
                    )
            return
        m = f.extent(self.m)
        whole = f.idiv(m, rows)
        f.loop(tiles[0], f.imin(tiles[1], whole), 1, lambda t, _: one(t, rows, f.imul(t, rows)))
        if rows == 1:
            return
        with f.if_then(f.icmp_signed(">", f.index(tiles[1]), f.index(whole))):
            rest, done = f.irem(m, rows), f.imul(whole, rows)
            part = 1 << ((rows - 1).bit_length() - 1)
            while part:
                with f.if_then(f.icmp_unsigned("!=", f.and_(f.index(rest), f.index(part)), f.index(0))):
                    one(whole, part, done)
                done = f.iadd(done, f.and_(f.index(rest), f.index(part)))
                part //= 2

    def _row(self, f: Frame, t: Index) -> tuple[Index, Index]:
        """The first row of tile `t` (of the end, M), and M."""
        m = f.extent(self.m)
        if self.m.known is None:
            return f.imin(f.imul(t, self.plan.rows), m), m
        size, longer = divmod(self.m.known, -(-self.m.known // self.plan.rows))
        return f.iadd(f.imul(t, size), f.imin(t, longer)), m

    # -- packing -------------------------------------------------------------------------------------

    def _stride(self, f: Frame, place: Place) -> Index:
        return f.extent(place.strides[self.row_dim]) if self.row_dim is not None else 0

    def _packed_panel(self, f: Frame, at: list[Index], p: Index, k: Index) -> ir.Value:
        """The address of panel `p` (from depth `k` on) of a constant packed when compiling."""
        c, plan = self.c, self.plan
        index: Index = 0
        for size, dim in c.outer:
            if c.b.strides[dim] != ZERO:
                index = f.iadd(f.imul(index, f.extent(size)), at[dim])
        index = f.iadd(f.imul(index, _ceil(f, f.extent(self.n), plan.width)), p)
        deep = f.extent(product_of(c.depth))
        offset = f.imul(f.iadd(f.imul(index, deep), k), plan.width)
        return f.at(f.pointer(c.b.value), offset, MEMORY_TYPES[c.b.dtype])

    def _pack_b(self, f: Frame, source: ir.Value, target: ir.Value, deep: Index, left: Index, tail: bool) -> None:
        """Copy a panel of B (of a `tail` its first `left` columns) to `target` as [depth][width]."""
        c = self.c
        key = "pack_b_tail" if tail else "pack_b"
        function = self.module.globals.get(f"{c.kernel.name}.{key}")
        if function is None:
            function = internal_function(self.module, f"{c.kernel.name}.{key}", [PTR, PTR, PTR, PTR, I64, I64])
            g = Frame(c.kernel, function)
            self._emit_pack_b(g, tail)
        f.call(function, [*f.arguments[:2], source, target, f.index(deep), f.index(left)])

    def _emit_pack_b(self, g: Frame, tail: bool) -> None:
        c, plan = self.c, self.plan
        source, target, deep, count = g.arguments[2:6]
        columns: Index = count if self.n.known is None else self.n.known % plan.width
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
                self._pack_transposed(g, at, destination, length, step_n)
            else:
                self._pack_rows(g, at, destination, length, step, step_n, columns if tail else None)

        nest(0, source, 0)
        g.ret_void()

    def _pack_rows(
        self, g: Frame, source: ir.Value, target: ir.Value, deep: Index, step: Index, step_n: Index, left: Index | None,
        begin: Index = 0,
    ) -> None:
        c, plan = self.c, self.plan
        element = MEMORY_TYPES[c.b.dtype]

        def row(k: Index, _: list[ir.Value]) -> None:
            at = g.at(source, g.imul(k, step), element)
            to = g.at(target, g.imul(k, plan.width), self.element)
            for v in range(plan.vectors):
                lanes = Lanes(plan.lanes, None if left is None else g.isub(left, v * plan.lanes))
                if isinstance(lanes.count, int) and lanes.count >= plan.lanes:
                    lanes = Lanes(plan.lanes)
                if isinstance(lanes.count, int) and lanes.count <= 0:
                    vector = ir.Constant(ir.VectorType(self.element, plan.lanes), None)
                else:
                    raw = read_vector(g, g.at(at, g.imul(v * plan.lanes, step_n), element), c.b.dtype, step_n, lanes)
                    vector = widen(g, raw, c.b.dtype, c.product.rhs.casts, c.product.dtype)
                g.store_vector(vector, g.at(to, v * plan.lanes, self.element), self.element)

        g.loop(begin, deep, 1, row)

    def _pack_transposed(self, g: Frame, source: ir.Value, target: ir.Value, deep: Index, step_n: Index) -> None:
        """Squares of `lanes x lanes` turned in registers, then what is left of the depth by single elements."""
        c, plan = self.c, self.plan
        element, lanes = MEMORY_TYPES[c.b.dtype], plan.lanes
        whole = g.imul(g.idiv(deep, lanes), lanes)

        def square(k: Index, _: list[ir.Value]) -> None:
            for v in range(plan.vectors):
                columns = [
                    g.load_vector(g.at(source, g.iadd(g.imul(v * lanes + i, step_n), k), element), element, lanes)
                    for i in range(lanes)
                ]
                wide = [widen(g, column, c.b.dtype, c.product.rhs.casts, c.product.dtype) for column in columns]
                for i, vector in enumerate(transpose(g, wide)):
                    to = g.iadd(g.imul(g.iadd(k, i), plan.width), v * lanes)
                    g.store_vector(vector, g.at(target, to, self.element), self.element)

        g.loop(0, whole, lanes, square)
        self._pack_rows(g, source, target, deep, 1, step_n, None, whole)

    def _a_steps(self, f: Frame) -> tuple[Index, Index]:
        """A's steps per row and (innermost) per depth, as the tiles see it."""
        c, plan = self.c, self.plan
        if plan.pack_a:
            if c.a.strides[c.m[1] if c.m else -1] == ONE:
                return 1, plan.tile_rows * plan.rows
            return plan.depth_block or f.extent(c.depth[0][0]), 1
        dim = c.depth[-1][1]
        return self._stride(f, c.a), f.extent(c.a.strides[dim]) if dim >= 0 else 0

    def _pack_a(self, f: Frame, source: ir.Value, target: ir.Value, rows: Index, deep: Index) -> None:
        """Copy a block of A to `target`, widened, in the order of its memory: rows or depth outermost."""
        c = self.c
        name = f"{c.kernel.name}.pack_a"
        function = self.module.globals.get(name)
        if function is None:
            function = internal_function(self.module, name, [PTR, PTR, PTR, PTR, I64, I64])
            g = Frame(c.kernel, function)
            to_row, to_step = self._a_steps(g)
            row, step = self._stride(g, c.a), g.extent(c.a.strides[c.depth[0][1]])
            if to_row == 1:
                self._copy(g, (g.arguments[5], step, to_step), (g.arguments[4], row, to_row))
            else:
                self._copy(g, (g.arguments[4], row, to_row), (g.arguments[5], step, to_step))
            g.ret_void()
        f.call(function, [*f.arguments[:2], source, target, f.index(rows), f.index(deep)])

    def _copy(
        self, g: Frame, outer: tuple[Index, Index, Index], inner: tuple[Index, Index, Index]
    ) -> None:
        """(extent, step in the source, step in the target) of two loops; the inner one by vectors."""
        c, lanes = self.c, self.plan.lanes
        source, target = g.arguments[2:4]
        element = MEMORY_TYPES[c.a.dtype]

        def line(i: Index, _: list[ir.Value]) -> None:
            at = g.at(source, g.imul(i, outer[1]), element)
            to = g.at(target, g.imul(i, outer[2]), self.element)

            def piece(lanes_here: int) -> Callable[[Index, list[ir.Value]], None]:
                def body(j: Index, _: list[ir.Value]) -> None:
                    raw = read_vector(g, g.at(at, g.imul(j, inner[1]), element), c.a.dtype, inner[1], Lanes(lanes_here))
                    wide = widen(g, raw, c.a.dtype, c.product.lhs.casts, c.product.dtype)
                    g.store_vector(wide, g.at(to, j, self.element), self.element)
                return body

            whole = g.imul(g.idiv(inner[0], lanes), lanes)
            g.loop(0, whole, lanes, piece(lanes))
            g.loop(whole, inner[0], 1, piece(1))

        g.loop(0, outer[0], 1, line)

    # -- register tiles ------------------------------------------------------------------------------

    def _tile(self, rows: int, tail: bool) -> ir.Function:
        """The function that works one register tile: `(buffers, sizes, a, b, sums, m, n, left, deep, outer…, ahead)`.
        """
        if (rows, tail) not in self.tiles:
            name = f"{self.c.kernel.name}.tile{rows}{'_tail' if tail else ''}"
            kinds = [PTR] * 5 + [I64] * (4 + len(self.c.outer)) + [PTR]
            function = internal_function(self.module, name, kinds)
            self.tiles[rows, tail] = function
            f = Frame(self.c.kernel, function)
            if self.plan.b_mode == "along_k":
                self._emit_tile_along_k(f, rows, tail)
            else:
                self._emit_tile(f, rows, tail)
            f.ret_void()
        return self.tiles[rows, tail]

    def _tile_lanes(self, f: Frame, tail: bool, left: Index) -> list[Lanes]:
        """The vectors of a tile; of a tail, those that exist, masked where not whole."""
        plan = self.plan
        if not tail:
            return [Lanes(plan.lanes)] * plan.vectors
        if self.n.known is None:
            return [Lanes(plan.lanes, f.isub(left, v * plan.lanes)) for v in range(plan.vectors)]
        columns = self.n.known % plan.width
        result = [Lanes(plan.lanes)] * (columns // plan.lanes)
        return result + ([Lanes(plan.lanes, columns % plan.lanes)] if columns % plan.lanes else [])

    def _coordinates(self, f: Frame) -> list[Index]:
        c = self.c
        result: list[Index] = [0] * c.rank
        m, n = f.arguments[5:7]
        for (_, dim), value in zip(c.outer, f.arguments[9:9 + len(c.outer)], strict=True):
            result[dim] = value
        if self.row_dim is not None:
            result[self.row_dim] = m
        result[c.column] = n
        return result

    def _emit_tile(self, f: Frame, rows: int, tail: bool) -> None:
        c, plan = self.c, self.plan
        a, b, sums, _, _, left, deep = f.arguments[2:9]
        lanes = self._tile_lanes(f, tail, left)
        packed = plan.b_mode in ("packed", "scratch")
        widened = plan.b_mode == "scratch"
        a_row, a_step = self._a_steps(f)
        factors = Factors(
            c.product, c.product.dtype if plan.pack_a else c.a.dtype, () if plan.pack_a else c.product.lhs.casts, a_row,
            c.product.dtype if widened else c.b.dtype, () if widened else c.product.rhs.casts,
            tuple(Lanes(plan.lanes) for _ in lanes) if packed else tuple(lanes),
        )
        depth = self._depth(f, a_step, packed, deep)
        blocked = plan.depth_block is not None
        views = None if blocked else Views(f, c.places, self._coordinates(f), self.row_dim, c.column)
        start = self._load_sums(f, rows, lanes, sums) if views is None else [
            self._initial(f, views, row, v * plan.lanes, lane)
            for row in range(rows) for v, lane in enumerate(lanes)
        ]
        ahead = Ahead(f.arguments[-1], plan.ahead, plan.ahead * LINE) if plan.ahead else None
        result = accumulate(f, factors, start, a, b, depth, 224, ahead)
        if views is not None and self.straight:
            for row in range(rows):
                for v, lane in enumerate(lanes):
                    value = narrow(f, result[row * len(lanes) + v], c.output)
                    finish(f, c.epilogue, views, value, row, v * plan.lanes, lane, True)
            return
        for row in range(rows):
            for v in range(len(lanes)):
                at = f.at(sums, row * self.tile_width + v * plan.lanes, self.element)
                f.store_vector(result[row * len(lanes) + v], at, self.element)
        if views is not None:
            self._finish_rows(f, views, sums, rows, lanes)

    def _depth(self, f: Frame, a_step: Index, packed: bool, deep: Index) -> list[Depth]:
        c, plan = self.c, self.plan
        result: list[Depth] = []
        b_step: Index = plan.width
        for level, (size, dim) in reversed(list(enumerate(c.depth))):
            last = level + 1 == len(c.depth)
            length = deep if plan.depth_block is not None else f.extent(size)
            a = a_step if last else f.extent(c.a.strides[dim])
            b = b_step if packed else (f.extent(c.b.strides[dim]) if dim >= 0 else 0)
            result.insert(0, Depth(length, a, b))
            b_step = f.imul(b_step, length)
        return result

    def _load_sums(self, f: Frame, rows: int, lanes: Sequence[Lanes], sums: ir.Value) -> list[ir.Value]:
        width, lanes_each = self.tile_width, self.plan.lanes
        return [
            f.load_vector(f.at(sums, row * width + v * lanes_each, self.element), self.element, lanes_each)
            for row in range(rows) for v in range(len(lanes))
        ]

    def _initial(self, f: Frame, views: Views, row: Index, column: Index, lanes: Lanes) -> ir.Value:
        init = self.c.init
        kind = ir.VectorType(self.element, lanes.lanes)
        if isinstance(init, Place):
            value = views.read(init, row, column, lanes, isinstance(row, int))
            return widen(f, value, init.dtype, (), self.c.product.dtype)
        number = float(init) if self.c.product.is_float else int(init)
        return ir.Constant(kind, [number] * lanes.lanes) if number else ir.Constant(kind, None)

    def _finish_rows(self, f: Frame, views: Views, sums: ir.Value, rows: Index, lanes: Sequence[Lanes]) -> None:
        """The epilogue over sums that lie in scratch, a row at a time."""
        def line(row: Index, _: list[ir.Value]) -> None:
            for v, lane in enumerate(lanes):
                at = f.at(sums, f.iadd(f.imul(row, self.tile_width), v * self.plan.lanes), self.element)
                value = narrow(f, f.load_vector(at, self.element, self.plan.lanes), self.c.output)
                finish(f, self.c.epilogue, views, value, row, v * self.plan.lanes, lane, False)

        f.loop(0, rows, 1, line)

    def _tile_pass(
        self, f: Frame, what: Literal["start", "finish"], outer: list[Index], tiles: tuple[Index, Index],
        panels: tuple[Index, Index], tile: ir.Value,
    ) -> None:
        """Before the first block of the depth, the sums' initial values; after the last, the epilogue."""
        plan = self.plan
        row0 = self._row(f, tiles[0])[0]
        rows = f.isub(self._row(f, tiles[1])[0], row0)

        def panel(p: Index, tail: bool) -> None:
            n = f.imul(p, plan.width)
            function = self._pass_function(what, tail)
            sums = f.at(tile, f.imul(f.isub(p, panels[0]), plan.width), self.element)
            coordinates = [f.index(outer[dim]) for _, dim in self.c.outer]
            left = f.isub(f.extent(self.n), n)
            numbers = [f.index(value) for value in (row0, n, left, rows)]
            f.call(function, [*f.arguments[:2], sums, sums, sums, *numbers, *coordinates])

        self._panels(f, panels, panel)

    def _pass_function(self, what: str, tail: bool) -> ir.Function:
        name = f"{self.c.kernel.name}.{what}{'_tail' if tail else ''}"
        function = self.module.globals.get(name)
        if function is None:
            function = internal_function(self.module, name, [PTR] * 5 + [I64] * (4 + len(self.c.outer)))
            f = Frame(self.c.kernel, function)
            sums, left, rows = f.arguments[4], f.arguments[7], f.arguments[8]
            lanes = self._tile_lanes(f, tail, left)
            views = Views(f, self.c.places, self._coordinates(f), self.row_dim, self.c.column)
            if what == "finish":
                self._finish_rows(f, views, sums, rows, lanes)
            else:
                self._start_rows(f, views, sums, rows, lanes)
            f.ret_void()
        return function

    def _start_rows(self, f: Frame, views: Views, sums: ir.Value, rows: Index, lanes: Sequence[Lanes]) -> None:
        def line(row: Index, _: list[ir.Value]) -> None:
            for v, lane in enumerate(lanes):
                at = f.at(sums, f.iadd(f.imul(row, self.tile_width), v * self.plan.lanes), self.element)
                f.store_vector(self._initial(f, views, row, v * self.plan.lanes, lane), at, self.element)

        f.loop(0, rows, 1, line)

    def _emit_tile_along_k(self, f: Frame, rows: int, tail: bool) -> None:
        """`rows x columns` dot products along the depth, then the epilogue on each row's vector of columns."""
        c, plan = self.c, self.plan
        a, b = f.arguments[2:4]
        columns = (c.n[0].known or 0) % plan.width if tail else plan.width
        a_row, b_row = self._stride(f, c.a), f.extent(c.b.strides[c.column])
        deep = f.extent(c.depth[0][0])
        count = rows * columns
        zero = ir.Constant(ir.VectorType(self.element, plan.lanes), None)

        def steps(lanes: Lanes) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(k: Index, sums: list[ir.Value]) -> list[ir.Value]:
                xs = [
                    self._along(f, a, f.iadd(f.imul(r, a_row), k), c.a.dtype, c.product.lhs.casts, lanes)
                    for r in range(rows)
                ]
                ys = [
                    self._along(f, b, f.iadd(f.imul(j, b_row), k), c.b.dtype, c.product.rhs.casts, lanes)
                    for j in range(columns)
                ]
                return [
                    f.multiply_add(xs[i // columns], ys[i % columns], total) if c.product.is_float
                    else f.add(f.mul(xs[i // columns], ys[i % columns]), total)
                    for i, total in enumerate(sums)
                ]
            return body

        whole = f.imul(f.idiv(deep, plan.lanes), plan.lanes)
        sums = f.loop(0, whole, plan.lanes, steps(Lanes(plan.lanes)), [zero] * count)
        assert isinstance(deep, int) and isinstance(whole, int)
        if deep > whole:
            sums = steps(Lanes(plan.lanes, deep - whole))(whole, sums)
        views = Views(f, c.places, self._coordinates(f), self.row_dim, c.column)
        wide = 1 << (plan.width - 1).bit_length()
        for row in range(rows):
            vector: ir.Value = ir.Constant(ir.VectorType(self.element, wide), None)
            for j in range(columns):
                total = horizontal_sum(f, sums[row * columns + j], c.product.is_float)
                vector = f.insert_element(vector, total, ir.Constant(ir.IntType(32), j))
            lane = Lanes(wide, columns if columns < wide else None)
            start = self._initial(f, views, row, 0, lane)
            vector = f.fadd(start, vector) if c.product.is_float else f.add(start, vector)
            finish(f, c.epilogue, views, narrow(f, vector, c.output), row, 0, lane, True)

    def _along(
        self, f: Frame, base: ir.Value, offset: Index, dtype: str, casts: tuple[str, ...], lanes: Lanes
    ) -> ir.Value:
        raw = read_vector(f, f.at(base, offset, MEMORY_TYPES[dtype]), dtype, 1, lanes)
        return widen(f, raw, dtype, casts, self.c.product.dtype)


def _imax(f: Frame, a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if b == 0:
        return a
    x, y = f.index(a), f.index(b)
    return f.select(f.icmp_signed(">", x, y), x, y)


def _ceil(f: Frame, value: Index, by: int) -> Index:
    return f.idiv(f.iadd(value, by - 1), by)
