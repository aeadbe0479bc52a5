"""The iteration space of products, shared by packing, register tiles, their ends and the tasks.

A task has a block of register tiles and panels at a group of outer iterations. Tasks are numbered with rows fastest,
then columns, then groups of outer iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index, Splat
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    Depth,
    PartialVector,
    TileFrame,
    narrow,
    read_vector,
    shared_function,
    widen,
)
from motet.compiler.codegen.cpu.gemm.plan import prefetches_by_first_tile, scratch_layout, sums_stay, widens_panels
from motet.compiler.kernels.contraction import Contraction, Loop
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import Packing, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import BlockProductSchedule, ContractionSchedule, LineProductSchedule
from motet.compiler.kernels.strides import ONE, StridedAccess, product_of

Cut = ContractionSchedule | BlockProductSchedule | LineProductSchedule
Range = tuple[Index, Index]
Vectors = Sequence[tuple[int, PartialVector]]  # of a tile: the first column, and the lanes that exist
# Emits a correction of the sums in a vector, at a row, a column and for the lanes that exist.
Correction = Callable[[ir.Value, Index, int, PartialVector], ir.Value]


class ProductSpace:
    """A product, its division into tasks, and iteration over its tiles and panels, in vectors of `lanes` sums. Sums in
    memory begin with zeros, and `finish_rows` adds the initial values."""

    def __init__(self, c: Contraction, cut: Cut, lanes: int) -> None:
        self.c, self.cut, self.lanes = c, cut, lanes
        self.kernel, self.module = c.kernel, ir.Module(c.kernel.name)
        self.element = MEMORY_TYPES[c.product.dtype]  # of sums
        self.m, self.row_dim = c.m or (ONE, None)
        self.n = c.n[0]
        self.places = c.places  # what the ends of tiles access
        self.blocked = cut.depth_block is not None
        self.tile_width = cut.width * (cut.panels if self.blocked else 1)

    # -- memory ----------------------------------------------------------------------------------

    def memory(self, f: TileFrame, buffer: int) -> ir.Value:
        """The address of workspace `buffer`, counted among all buffers."""
        with f.goto_entry_block():
            return f.load(f.at(f.arguments[0], buffer, PTR), typ=PTR, align=8)

    def stride(self, f: TileFrame, place: StridedAccess) -> Index:
        """The stride of `place` between rows."""
        return f.extent(place.strides[self.row_dim]) if self.row_dim is not None else 0

    def outer_number(self, f: TileFrame, at: Sequence[Index], place: StridedAccess) -> Index:
        """The linear index of outer coordinates among the loops of `place`."""
        result: Index = 0
        for size, dim in self.c.outer_of(place):
            result = f.iadd(f.imul(result, f.extent(size)), at[dim])
        return result

    # -- tasks -----------------------------------------------------------------------------------

    def code(
        self, title: str, before: Sequence[Phase | None], scratch: int, workspaces: Sequence[Expr],
        packings: dict[int, Packing],
    ) -> KernelCode:
        """The code of the module, whose phases `before` prepare the operands."""
        c, cut = self.c, self.cut
        row_tasks = ceildiv(ceildiv(self.m.expression, cut.rows), cut.tile_rows)
        column_tasks = ceildiv(ceildiv(self.n.expression, cut.width), cut.panels)
        tasks = product((ceildiv(product_of(c.outer).expression, cut.group), row_tasks, column_tasks))
        return KernelCode(
            title, str(self.module), (*filter(None, before), Phase(self.kernel.name, tasks)), scratch,
            tuple(workspaces), packings, 2 * guess(self.m * self.n) * guess(product_of([*c.outer, *c.depth])),
            traffic(self.kernel),
        )

    def walk(self, f: TileFrame, index: Index, block: Callable[[list[Index], Range, Range], None]) -> None:
        """Emit task `index`: `block(coordinates, register tiles, panels)` for each of its outer iterations."""
        cut = self.cut
        tiles, panels = f.iceil(f.extent(self.m), cut.rows), f.iceil(f.extent(self.n), cut.width)
        row_tasks, column_tasks = f.iceil(tiles, cut.tile_rows), f.iceil(panels, cut.panels)
        row_task, rest = f.irem(index, row_tasks), f.idiv(index, row_tasks)
        column_task, outer_task = f.irem(rest, column_tasks), f.idiv(rest, column_tasks)
        first_tile, first_panel = f.imul(row_task, cut.tile_rows), f.imul(column_task, cut.panels)
        ranges = (
            (first_tile, f.imin(f.iadd(first_tile, cut.tile_rows), tiles)),
            (first_panel, f.imin(f.iadd(first_panel, cut.panels), panels)),
        )
        first = f.imul(outer_task, cut.group)
        last = f.iadd(first, cut.group)
        if cut.group > 1:
            last = f.imin(last, f.extent(product_of(self.c.outer)))
        f.loop(first, last, 1, lambda outer, _: block(self.coordinates(f, self.c.outer, outer), *ranges))

    def coordinates(self, f: TileFrame, loops: Sequence[Loop], number: Index) -> list[Index]:
        """The coordinates of iteration `number` of `loops`; the others are 0."""
        result: list[Index] = [0] * self.c.rank
        for size, dim in reversed(loops):
            result[dim] = f.irem(number, f.extent(size))
            number = f.idiv(number, f.extent(size))
        return result

    def loop_over_tiles(self, f: TileFrame, tiles: Range, one: Callable[[Index, Index, int], None]) -> None:
        """Emit `one(tile, first row, rows)` for the register tiles [tiles): of nearly equal size if M is known; else
        whole tiles, then tiles of the remaining powers of two."""
        (begin, end), m, rows = tiles, self.m, self.cut.rows
        if m.known is not None:
            count = -(-m.known // rows)
            size, longer = divmod(m.known, count)
            for here, low, high in ((size + 1, 0, longer), (size, longer, count)):
                if high > low:
                    f.loop(begin if low == 0 else f.imax(begin, low), f.imin(end, high), 1,
                           lambda t, _, here=here: one(t, self.row(f, t), here))
            return
        size = f.extent(m)
        whole = f.idiv(size, rows)
        f.loop(begin, f.imin(end, whole), 1, lambda t, _: one(t, f.imul(t, rows), rows))
        if rows == 1:
            return
        with f.if_then(f.icmp_signed(">", f.index(end), f.index(whole))):
            rest, row = f.irem(size, rows), f.imul(whole, rows)
            part = 1 << ((rows - 1).bit_length() - 1)
            while part:
                with f.if_then(f.icmp_unsigned("!=", f.and_(f.index(rest), f.index(part)), f.index(0))):
                    one(whole, row, part)
                row = f.iadd(row, f.and_(f.index(rest), f.index(part)))
                part //= 2

    def loop_over_depth(self, f: TileFrame, depth: Index, block: Callable[[Index, Index], None]) -> None:
        """Emit `block(first step, steps)` for the blocks of `depth` steps of K."""
        size = self.cut.depth_block or 1
        if isinstance(depth, int) and depth % size == 0:
            f.loop(0, depth, size, lambda k, _: block(k, size))
        else:
            f.loop(0, depth, size, lambda k, _: block(k, f.imin(f.isub(depth, k), size)))

    def loop_over_panels(self, f: TileFrame, panels: Range, panel: Callable[[Index, bool], None]) -> None:
        """Emit `panel(number, False)` for whole panels in a loop, then `panel(number, True)` for the incomplete one."""
        n, width = self.n, self.cut.width
        whole = f.idiv(f.extent(n), width)
        end = f.imin(panels[1], whole)
        f.loop(panels[0], end, 1, lambda p, _: panel(p, False))
        if n.known is not None and n.known % width == 0:
            return
        if isinstance(end, int) and isinstance(panels[1], int):
            if panels[1] > end:
                panel(end, True)
            return
        with f.if_then(f.icmp_signed(">", f.index(panels[1]), f.index(whole))):
            panel(whole, True)

    def depth_nest(self, f: TileFrame, inner: Depth, b_step: Index | None) -> list[Depth]:
        """The loops along K around `inner`. B has `b_step` numbers for all steps of `inner`, None: it is in place."""
        result = [inner]
        for size, dim in reversed(self.c.depth[:-1]):
            step = f.extent(self.c.b.strides[dim]) if b_step is None else b_step
            result.insert(0, Depth(f.extent(size), f.extent(self.c.a.strides[dim]), step))
            b_step = None if b_step is None else f.imul(b_step, f.extent(size))
        return result

    # -- tiles -----------------------------------------------------------------------------------

    def row(self, f: TileFrame, tile: Index) -> Index:
        """The first row of register tile `tile`; of the tile after the last one, M. Tiles are of nearly equal size if M
        is known."""
        if self.m.known is None:
            return f.imin(f.imul(tile, self.cut.rows), f.extent(self.m))
        size, longer = divmod(self.m.known, -(-self.m.known // self.cut.rows))
        return f.iadd(f.imul(tile, size), f.imin(tile, longer))

    def vectors(self, f: TileFrame, tail: bool, left: Index) -> Vectors:
        """The vectors of a panel; of a tail with `left` columns, those that exist."""
        lanes, width, n = self.lanes, self.cut.width, self.n.known
        if not tail:
            return [(column, PartialVector(lanes)) for column in range(0, width, lanes)]
        if n is None:
            return [(column, PartialVector(lanes, f.isub(left, column))) for column in range(0, width, lanes)]
        count = n % width
        return [
            (column, PartialVector(lanes) if count - column >= lanes else PartialVector(lanes, count - column))
            for column in range(0, count, lanes)
        ]

    def views(self, f: TileFrame, m: Index, n: Index, outer: Sequence[Index]) -> Views:
        """What the end of a tile accesses, at row `m`, column `n` and outer coordinates `outer`."""
        coordinates: list[Index] = [0] * self.c.rank
        for (_, dim), value in zip(self.c.outer, outer, strict=True):
            coordinates[dim] = value
        if self.row_dim is not None:
            coordinates[self.row_dim] = m
        coordinates[self.c.column] = n
        return Views(f, self.places, coordinates, self.row_dim, self.c.column)

    def call(self, f: TileFrame, name: str, operands: Sequence[Index], write: Callable[[TileFrame], None]) -> None:
        """Call the internal function `name` with the kernel's buffers and sizes, and `operands`, addresses and numbers;
        `write` emits its body if the module does not contain it yet."""
        values = [f.index(each) for each in operands]
        kinds = [PTR if isinstance(each.type, ir.PointerType) else I64 for each in values]
        function = shared_function(self.module, f"{self.kernel.name}.{name}", [PTR, PTR, *kinds], self.kernel, write)
        f.call(function, [*f.arguments[:2], *values])

    # -- sums ------------------------------------------------------------------------------------

    def initial(self, f: TileFrame, views: Views, row: Index, column: int, lanes: PartialVector) -> ir.Value | None:
        """The initial values of a vector of sums; None if they are zeros."""
        init, dtype = self.c.init, self.c.product.dtype
        if isinstance(init, StridedAccess):
            return widen(f, views.read(init, row, column, lanes), init.dtype, (), dtype)
        number = float(init) if self.c.product.is_float else wrapped(int(init), item_bytes(dtype))
        return Splat(ir.VectorType(self.element, lanes.lanes), number) if number else None

    def add(self, f: TileFrame, a: ir.Value, b: ir.Value | None) -> ir.Value:
        """The sum of two vectors of sums, of which the second one may be zeros (None)."""
        if b is None:
            return a
        return f.fadd(a, b) if self.c.product.is_float else f.add(a, b)

    def clear(self, f: TileFrame, sums: ir.Value, count: Index) -> None:
        """Set `count` sums, whole vectors, to zeros."""
        zero = ir.Constant(ir.VectorType(self.element, self.lanes), None)
        f.loop(0, count, self.lanes, lambda i, _: f.store_vector(zero, f.at(sums, i, self.element), self.element))

    def finish_rows(
        self, f: TileFrame, views: Views, sums: ir.Value, rows: Index, vectors: Vectors,
        correct: Correction | None = None,
    ) -> None:
        """Run the epilogue over sums that are in memory, row by row."""
        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lanes in vectors:
                at = f.at(sums, f.iadd(f.imul(row, self.tile_width), column), self.element)
                value = f.load_vector(at, self.element, self.lanes)
                value = value if correct is None else correct(value, row, column, lanes)
                value = self.add(f, value, self.initial(f, views, row, column, lanes))
                self.finish(f, views, value, row, column, lanes)

        f.loop(0, rows, 1, line)

    def finish_tile(
        self, f: TileFrame, sums: Sequence[ir.Value], place: tuple[Index, Index, bool], rows: Index,
        at: Sequence[Index], correct: Callable[[TileFrame, Views, Vectors], Correction] | None = None,
    ) -> None:
        """Run the epilogue over `rows` rows of sums at outer coordinates `at`. `place` is the first row, the panel, and
        whether it is incomplete. The addresses `sums` are those of the sums and of what `correct` needs."""
        row, p, tail = place
        n = f.imul(p, self.cut.width)

        def write(g: TileFrame) -> None:
            m, n, left, rows, *outer = g.arguments[2 + len(sums) :]
            views, vectors = self.views(g, m, n, outer), self.vectors(g, tail, left)
            correction = None if correct is None else correct(g, views, vectors)
            self.finish_rows(g, views, g.arguments[2], rows, vectors, correction)

        outer = [at[dim] for _, dim in self.c.outer]
        operands = (*sums, row, n, f.isub(f.extent(self.n), n), rows, *outer)
        self.call(f, f"finish{'_tail' if tail else ''}", operands, write)

    def finish(
        self, f: TileFrame, views: Views, sums: ir.Value, row: Index, column: int, lanes: PartialVector
    ) -> None:
        """Run the epilogue over a vector of sums."""
        finish(f, self.c.epilogue, views, narrow(f, sums, self.c.output), row, column, lanes)


class ContractionSpace(ProductSpace):
    """A contraction by schedule `plan`, and how its operands and sums are stored."""

    def __init__(self, c: Contraction, plan: ContractionSchedule) -> None:
        super().__init__(c, plan, plan.lanes)
        self.plan = plan
        self.bytes = item_bytes(c.product.dtype)
        self.straight = sums_stay(c, plan)
        self.widens = widens_panels(c, plan)
        self.first_prefetches = prefetches_by_first_tile(c, plan) and plan.ahead > 0
        self.kept: ir.Value | None = None  # the panel that the scratch memory holds from the task before
        self.scratch_b, self.scratch_a, self.scratch_bytes = scratch_layout(c, plan)

    def a_steps(self, f: TileFrame) -> tuple[Index, Index]:
        """A's strides per row and per step of the innermost K loop, as the tiles read it."""
        c, plan = self.c, self.plan
        if plan.pack_a:
            if c.a.strides[c.m[1] if c.m else -1] == ONE:
                return 1, plan.tile_rows * plan.rows
            return plan.depth_block or f.extent(c.depth[0][0]), 1
        dim = c.depth[-1][1]
        return self.stride(f, c.a), f.extent(c.a.strides[dim]) if dim >= 0 else 0

    def read(
        self, f: TileFrame, place: StridedAccess, base: ir.Value, offset: Index, stride: Index, lanes: PartialVector
    ) -> ir.Value:
        """Elements of A or B, `stride` apart, from `offset` after the address `base` on, in the type of the product."""
        casts = (self.c.product.lhs if place is self.c.a else self.c.product.rhs).casts
        at = f.at(base, offset, MEMORY_TYPES[place.dtype])
        return widen(f, read_vector(f, at, place.dtype, stride, lanes), place.dtype, casts, self.c.product.dtype)

    def depth(self, f: TileFrame) -> Index:
        """The steps along K."""
        return f.extent(product_of(self.c.depth))


def wrapped(number: int, size: int = 4) -> int:
    """`number` as a signed integer of `size` bytes."""
    bits = 8 * size
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
