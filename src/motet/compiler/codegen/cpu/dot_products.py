"""Products of 8-bit integers summed up as i32: matrix products in any order of dimensions, quantized ones included.

    sum over k of (a[m, k] - a_zero) * (b[k, n] - b_zero)          any signs, then element-wise stages, fused

The processor's dot-product and matrix instructions are used where it has them (`dot_tiles.py`). Zero points come out
of the sum: with the sums of A's rows and of B's columns,

    sum a*b  -  a_zero * sum b  -  b_zero * (sum a  -  K * a_zero)

A phase brings both factors into the order that the tiles read, except where that was done when compiling or A already
lies so (at a multiple of a cache line, where AMX reads it: else every row of a tile is two lines). All arithmetic wraps
around as i32, so that the order of the sums changes no bit.

Source of the zero points' terms: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu import contraction, dot_tiles
from motet.compiler.codegen.cpu.amounts import GUESS, bytes_of, ceildiv, multiply
from motet.compiler.codegen.cpu.builder import I8, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.contraction import Contraction, Loop
from motet.compiler.codegen.cpu.dot_packing import SQUARE, Lines, packing_function
from motet.compiler.codegen.cpu.dot_tiles import BLOCK, DEPTH, QUAD, Arithmetic, Operands, arithmetic_of
from motet.compiler.codegen.cpu.epilogue import Views, finish
from motet.compiler.codegen.cpu.extents import ONE, ZERO, Extent, Place, memory_strides, place_of
from motet.compiler.codegen.cpu.micro import LINE, Frame, Lanes, internal_function, registers, widen
from motet.compiler.codegen.kernel import Kernel, KernelCode, Packing, Phase, Scalar, Stage
from motet.compiler.targets.cpu import CpuTarget

_MOST_TASKS = 64
_PACKED_LINES = 64  # of one task
_BYTES = ("i8", "ui8")
# Multiply-adds of one task, ten microseconds or more, and how many are done while one byte comes from the second cache.
_TASK_WORK = {"tiles": 8_000_000, "dots": 2_000_000, "pairs": 500_000}
_WORK_PER_BYTE = {"tiles": 32, "dots": 6, "pairs": 2}
# The longest depth that is multiplied at one go; a longer one is cut so that both factors stay in the caches.
_DEPTH_BLOCK = {"tiles": 4096, "dots": 4096, "pairs": 4096}


@dataclass(frozen=True)
class Factor:
    """A byte of input `input`, less `zero`: a number, a place that holds one, with the casts of what it holds."""

    input: int
    unsigned: bool
    zero: Place | int = 0
    zero_casts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DotProduct:
    """A kernel read as a product of bytes. `c.a` and `c.b` are what `a` and `b` say."""

    c: Contraction
    a: Factor
    b: Factor

    @property
    def zeros(self) -> list[Place]:
        return [factor.zero for factor in (self.a, self.b) if isinstance(factor.zero, Place)]


# -- reading -------------------------------------------------------------------------------------------


def takes(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether `target`'s own instructions make `kernel` faster than a level below it would."""
    if arithmetic_of(target, False, False) is None:
        return False
    return match(kernel) is not None


def match(kernel: Kernel) -> DotProduct | None:
    """Read `kernel` as a product of bytes with element-wise stages after it, None if it is something else."""
    stage = kernel.stages[0] if kernel.stages else None
    if stage is None or len(stage.outputs) != 1 or len(stage.inputs) < 2 or not stage.reductions:
        return None
    if sum(kernel.values[access.value].dtype in _BYTES for access in stage.inputs) < 2:
        return None
    factors = _match_body(kernel, stage)
    if factors is None:
        return None
    bare = tuple(
        Scalar("arith.extui" if factor.unsigned else "arith.extsi", (i,), "i32") for i, factor in enumerate(factors)
    )
    body = (*bare, Scalar("arith.muli", (3, 4), "i32"), Scalar("arith.addi", (2, 5), "i32"))
    plain = replace(stage, inputs=tuple(stage.inputs[factor.input] for factor in factors), body=body, yields=(6,))
    c = contraction.match(replace(kernel, stages=(plain, *kernel.stages[1:])))
    if c is None or c.output != "i32" or len(c.depth) != 1 or c.depth[0][1] < 0:
        return None
    a, b = factors if c.product.lhs.input == 0 else reversed(factors)
    found = DotProduct(c, a, b)
    return found if _zeros_fit(found, stage) else None


def _match_body(kernel: Kernel, stage: Stage) -> tuple[Factor, Factor] | None:
    """The factors of a body that adds one product of theirs, calculated in 32 bits."""
    first = len(stage.inputs) + 1
    defined = {first + k: op for k, op in enumerate(stage.body)}
    total = defined.get(stage.yields[0])
    if total is None or total.op != "arith.addi" or total.dtype != "i32" or total.operands.count(first - 1) != 1:
        return None
    product = defined.get(total.operands[0] if total.operands[1] == first - 1 else total.operands[1])
    if product is None or product.op != "arith.muli":
        return None
    factors = [_match_factor(kernel, stage, defined, number) for number in product.operands]
    a, b = factors
    return None if a is None or b is None or a.input == b.input else (a, b)


def _match_factor(kernel: Kernel, stage: Stage, defined: dict[int, Scalar], number: int) -> Factor | None:
    op = defined.get(number)
    if op is None or op.dtype != "i32":
        return None
    if op.op == "arith.subi":
        bare = _match_factor(kernel, stage, defined, op.operands[0])
        zero = _match_zero(kernel, stage, defined, op.operands[1])
        return None if bare is None or bare.zero or zero is None else replace(bare, zero=zero[0], zero_casts=zero[1])
    casts, source = _casts(defined, number)
    if not casts or source >= len(stage.inputs) or len(set(casts)) != 1:
        return None
    access = stage.inputs[source]
    if kernel.values[access.value].dtype not in _BYTES or access.padding is not None:
        return None
    return Factor(source, casts[0] == "arith.extui")


def _match_zero(
    kernel: Kernel, stage: Stage, defined: dict[int, Scalar], number: int
) -> tuple[Place | int, tuple[str, ...]] | None:
    """A zero point: a constant, or an input that does not change along the depth."""
    casts, source = _casts(defined, number)
    op = defined.get(source)
    if op is not None:
        return (int(op.value), ()) if op.op == "arith.constant" and not casts and op.value is not None else None
    if source >= len(stage.inputs) or len(set(casts)) > 1:
        return None
    access = stage.inputs[source]
    value = kernel.values[access.value]
    place = place_of(kernel, access, len(stage.sizes))
    if access.padding is not None or value.role not in ("argument", "constant") or place is None:
        return None
    if value.dtype not in ((*_BYTES, "i16", "ui16") if casts else ("i32", "ui32")):
        return None
    return None if any(place.strides[d] != ZERO for d in stage.reductions) else (place, casts)


def _casts(defined: dict[int, Scalar], number: int) -> tuple[tuple[str, ...], int]:
    casts: list[str] = []
    while (op := defined.get(number)) is not None and op.op in ("arith.extsi", "arith.extui"):
        casts.append(op.op)
        number = op.operands[0]
    return tuple(casts), number


def _zeros_fit(found: DotProduct, stage: Stage) -> bool:
    """Whether A's zero points differ from row to row at the most, and B's from column to column: loops may be merged
    from several dimensions, of which a place of a zero point knows the last only."""
    c = found.c
    for factor, loop in ((found.a, c.m), (found.b, c.n)):
        if not isinstance(factor.zero, Place):
            continue
        for dim, stride in enumerate(factor.zero.strides):
            if stride == ZERO or stage.sizes[dim] == 1:
                continue
            if loop is None or dim != loop[1] or loop[0] != Extent.of(stage.sizes[dim]):
                return False
    return True


# -- the plan ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How the work is cut. A register tile has `rows` rows (AMX: two tiles' rows) and `blocks` blocks of 16 columns.
    A task has `tile_rows` register tiles and `panels` times `blocks` blocks, and `group` outer iterations.

    `packing` is B's where it is packed when compiling; `in_place` says that A is read where it is.
    `depth_block` is how much of the depth is multiplied at one go, None for all.
    """

    how: Arithmetic
    rows: int
    blocks: int
    tile_rows: int
    panels: int
    group: int
    in_place: bool
    packing: Packing | None
    depth_block: int | None

    @property
    def width(self) -> int:
        """Columns of a register tile."""
        return self.blocks * BLOCK


def make_plan(found: DotProduct, target: CpuTarget) -> Plan | None:
    """Choose instructions, register tile and grid; None where `target` has no instructions for this."""
    how = arithmetic_of(target, found.a.unsigned, found.b.unsigned)
    if how is None:
        return None
    c = found.c
    m, n, k = c.m[0] if c.m else ONE, c.n[0], c.depth[0][0]
    blocks_total = -(-_guess(n) // BLOCK)
    if how.way == "tiles":
        tiles = -(-_guess(m) // 16)
        rows = 16 if m.known is None else -(-m.known // tiles)
        most = 4 if m.known is not None and tiles == 1 else 2
        tile_rows = rows * (1 if tiles == 1 and m.known is not None else 2)
    else:
        most = max(1, 4 // how.registers)
        tile_rows = registers(target, min(most, blocks_total) * how.registers)
        if m.known is not None:
            tile_rows = min(tile_rows, -(-m.known // -(-m.known // tile_rows)))
    blocks = most if n.known is None else -(-blocks_total // -(-blocks_total // most))
    in_place = _reads_in_place(found, how, tile_rows if how.way == "tiles" else 1)
    depth_block = None
    if k.known is not None and k.known > _DEPTH_BLOCK[how.way] and _guess(m) > 2 * tile_rows:
        pieces = -(-k.known // (_DEPTH_BLOCK[how.way] * 2 // 3))
        depth_block = -(-k.known // (pieces * DEPTH)) * DEPTH
    plan = Plan(how, tile_rows, blocks, 1, 1, 1, in_place, _packing(found), depth_block)
    return _with_grid(c, plan, target)


def _guess(extent: Extent) -> int:
    return extent.factor * GUESS ** len(extent.symbols)


def _reads_in_place(found: DotProduct, how: Arithmetic, rows: int) -> bool:
    """Whether A lies as the tiles read it: its depth side by side and full, every tile too."""
    c = found.c
    k = c.depth[0][0].known
    if c.a.strides[c.depth[0][1]] != ONE or k is None or how.flips_a or how.a_bytes != 1 or _needs_row_sums(found):
        return False
    if how.way == "tiles":
        return k % DEPTH == 0 and c.m is not None and c.m[0].known is not None and c.m[0].known % rows == 0
    return k % QUAD == 0


def _worth_aligning(c: Contraction, how: Arithmetic) -> bool:
    """Whether A, which is read in place, is to be copied where it lies across cache lines: the copy is the same but
    for its place, and small beside the work."""
    m, n, k = (c.m[0] if c.m else ONE), c.n[0].known, c.depth[0][0].known
    if how.way != "tiles" or c.outer or c.m is None or m.known is None or n is None or k is None:
        return False
    return c.a.strides[c.m[1]].known == k and n >= 256 and m.known * n * k >= 4 * _TASK_WORK["tiles"]


def _needs_row_sums(found: DotProduct) -> bool:
    return found.b.zero != 0


def _packing(found: DotProduct) -> Packing | None:
    """Blocks of B as the tiles read them, made when compiling; None where B is no constant or lies too crookedly."""
    c = found.c
    value = c.kernel.values[c.b.value]
    if value.role != "constant" or c.b.offset:
        return None
    strides = memory_strides(value)
    axis_of = {strides[axis]: axis for axis in range(value.rank) if value.shape[axis] != 1}
    axes: list[int] = []
    for size, dim in (*_used(c.outer, c.b), c.n, *c.depth):
        axis = axis_of.get(c.b.strides[dim])
        if axis is None or Extent.of(value.shape[axis]) != size or axis in axes:
            return None
        axes.append(axis)
    units = [axis for axis in range(value.rank) if value.shape[axis] == 1]
    if len(axes) + len(units) != value.rank:
        return None
    permutation = (*units, *axes)
    count = value.rank
    blocks = (1,) * (count - 2) + (BLOCK, QUAD)
    order = [*range(2 * count - 4), 2 * count - 4, 2 * count - 2, 2 * count - 3, 2 * count - 1]
    return Packing(permutation, blocks, tuple(order), (1,) * (count - 2) + (BLOCK, DEPTH))


def _used(loops: Sequence[Loop], place: Place) -> list[Loop]:
    """The loops that `place` moves along."""
    return [loop for loop in loops if place.strides[loop[1]] != ZERO]


def _with_grid(c: Contraction, plan: Plan, target: CpuTarget) -> Plan:
    """Tiles and panels per task that move the fewest bytes for enough tasks."""
    way = plan.how.way
    m, n, k = (_guess(extent) for extent in (c.m[0] if c.m else ONE, c.n[0], c.depth[0][0]))
    outer = 1
    for size, _ in c.outer:
        outer *= _guess(size)
    wanted = -(-max(1, min(_MOST_TASKS, m * n * k * outer // _TASK_WORK[way])) // outer)
    tiles, panels = -(-m // plan.rows), -(-n // plan.width)
    deep = min(k, plan.depth_block or k)
    if way == "tiles" and plan.depth_block is None:
        # A tile's rows stay in the first cache, while panels come by, side by side, from the second.
        cut = max(-(-panels * plan.width * k // (target.l2 // 2)), -(-wanted // tiles))
        group = max(1, min(_TASK_WORK[way] // max(1, m * n * k), -(-outer // _MOST_TASKS))) if tiles == 1 else 1
        return replace(plan, panels=max(1, -(-panels // cut)), group=group if cut <= 1 else 1)
    most_rows = max(1, min(512, target.l2 // 2 // max(1, deep * plan.how.a_bytes)) // plan.rows)
    most_panels = max(1, 512 // plan.width) if plan.depth_block else panels
    if plan.depth_block:
        most_rows = min(most_rows, max(1, 192 // plan.rows))
    best: tuple[float, int, int] | None = None
    for cut in range(1, min(tiles, 4 * _MOST_TASKS) + 1):
        rows = min(-(-tiles // cut), most_rows)
        row_tasks = -(-tiles // rows)
        columns = min(most_panels, -(-panels // max(1, -(-wanted // row_tasks))))
        columns = -(-panels // -(-panels // columns))
        tasks = row_tasks * -(-panels // columns)
        height, width = rows * plan.rows, columns * plan.width
        cost = tasks * (height * width + _WORK_PER_BYTE[way] * (height + width)) * (1 + max(0, wanted - tasks) / wanted)
        if best is None or cost < best[0]:
            best = (cost, rows, columns)
    assert best is not None
    whole = best[1] >= tiles and best[2] >= panels
    group = max(1, min(_TASK_WORK[way] // max(1, m * n * k), -(-outer // _MOST_TASKS))) if whole else 1
    return replace(plan, tile_rows=best[1], panels=best[2], group=group)


# -- emission ------------------------------------------------------------------------------------------


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel` if it is a product of bytes with element-wise stages after it, else None."""
    found = match(kernel)
    plan = None if found is None else make_plan(found, target)
    if found is None or plan is None:
        return None
    return _Emitter(found, plan).run()


class _Emitter:
    """Emits one module: packing, register tiles, what follows them, and the tasks that call these."""

    def __init__(self, found: DotProduct, plan: Plan) -> None:
        self.found, self.plan, self.c = found, plan, found.c
        self.how = plan.how
        self.kernel = self.c.kernel
        self.module = ir.Module(self.kernel.name)
        self.m = self.c.m[0] if self.c.m else ONE
        self.n, self.k = self.c.n[0], self.c.depth[0][0]
        self.row_dim = self.c.m[1] if self.c.m else None
        self.row_sums = _needs_row_sums(found)
        self.column_sums = self.how.column_factor != 0 or found.a.zero != 0
        self.blocked = plan.depth_block is not None
        self.tile_width = plan.width * (plan.panels if self.blocked else 1)
        tile_height = plan.rows * (plan.tile_rows if self.blocked else 1)
        self.scratch_columns = tile_height * self.tile_width * 4
        self.scratch = max(self.scratch_columns + plan.width * 4, SQUARE)
        self.workspaces: list[Expr] = []
        self.a_workspace = self.b_workspace = self.sums_workspace = -1
        self.aligns_a = plan.in_place and _worth_aligning(self.c, self.how)
        self._plan_workspaces()

    # -- workspaces ----------------------------------------------------------------------------------

    def _plan_workspaces(self) -> None:
        a_outer, b_outer = (_count(_used(self.c.outer, place)) for place in (self.c.a, self.c.b))
        lines = multiply(a_outer, _round_up(self.m.expression, BLOCK))
        deep = _round_up(self.k.expression, DEPTH)
        if not self.plan.in_place or self.aligns_a:
            self.a_workspace = self._workspace(multiply(multiply(lines, deep), self.how.a_bytes))
        if self.plan.packing is None:
            columns = _round_up(self.n.expression, BLOCK if self.n.known is not None else self.plan.width)
            self.b_workspace = self._workspace(multiply(multiply(b_outer, columns), deep))
        if self.row_sums:
            self.sums_workspace = self._workspace(multiply(lines, 4))

    def _workspace(self, size: Expr) -> int:
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

    def _memory(self, f: Frame, buffer: int) -> ir.Value:
        with f.goto_entry_block():
            return f.load(f.at(f.arguments[0], buffer, PTR), typ=PTR, align=8)

    def _padded_depth(self, f: Frame) -> Index:
        return f.imul(_ceil(f, f.extent(self.k), DEPTH), DEPTH)

    def _padded_rows(self, f: Frame) -> Index:
        return f.imul(_ceil(f, f.extent(self.m), BLOCK), BLOCK)

    def _padded_columns(self, f: Frame) -> Index:
        multiple = BLOCK if self.n.known is not None else self.plan.width
        return f.imul(_ceil(f, f.extent(self.n), multiple), multiple)

    # -- phases --------------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        kernel, plan = self.kernel, self.plan
        row_tasks = ceildiv(ceildiv(self.m.expression, plan.rows), plan.tile_rows)
        column_tasks = ceildiv(ceildiv(self.n.expression, plan.width), plan.panels)
        outer_tasks = ceildiv(_count(self.c.outer), plan.group)
        phases = [Phase(kernel.name, multiply(multiply(outer_tasks, row_tasks), column_tasks))]
        f = self._phase(kernel.name)
        begin, end, scratch = f.arguments[2:5]
        if self.how.way == "tiles":
            dot_tiles.configure(f, self._amx_rows)
        f.loop(begin, end, 1, lambda index, _: self._task(f, index, scratch))
        if self.how.way == "tiles":
            dot_tiles.release(f)
        f.ret_void()
        if (packs := self._pack_phase()) is not None:
            phases.insert(0, packs)
        flops = 2 * _guess(self.m) * _guess(self.n) * _guess(self.k)
        for size, _ in self.c.outer:
            flops *= _guess(size)
        packings = {self.c.b.value: plan.packing} if plan.packing is not None else {}
        moved = sum(bytes_of(kernel, index) for index in kernel.externals)
        return KernelCode(
            f"integer product, {self.how.way}", str(self.module), tuple(phases), self.scratch, tuple(self.workspaces),
            packings, flops, moved,
        )

    def _phase(self, name: str) -> Frame:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR]), name)
        function.attributes.add("nounwind")
        return Frame(self.kernel, function)

    @property
    def _amx_rows(self) -> int:
        """Rows of one AMX tile."""
        known = self.m.known
        return 16 if known is None else -(-known // -(-known // 16))

    # -- packing -------------------------------------------------------------------------------------

    def _pack_phase(self) -> Phase | None:
        """Packs what the tiles do not read in place: tasks of 64 rows of A, then of 64 columns of B."""
        c = self.c
        counts: list[Expr] = []
        for place, extent, packed in ((c.a, self.m, self.a_workspace >= 0), (c.b, self.n, self.b_workspace >= 0)):
            count = multiply(_count(_used(c.outer, place)), ceildiv(extent.expression, _PACKED_LINES))
            counts.append(count if packed else 0)
        if counts == [0, 0]:
            return None
        name = f"{self.kernel.name}_pack"
        f = self._phase(name)
        first = 0
        if self.a_workspace >= 0:
            first = f.imul(self._outer_count(f, c.a), _ceil(f, f.extent(self.m), _PACKED_LINES))
            self._pack_loop(f, f.arguments[2], f.imin(f.arguments[3], first), self._pack_a(f))
        if self.b_workspace >= 0:
            pack = self._pack_b(f)
            begin, end = (f.isub(f.index(limit), first) for limit in f.arguments[2:4])
            begin = f.select(f.icmp_signed("<", f.index(begin), f.index(0)), f.index(0), f.index(begin))
            self._pack_loop(f, begin, end, pack)
        f.ret_void()
        return Phase(name, _add(*counts))

    def _pack_loop(self, f: Frame, begin: Index, end: Index, pack: Callable[[Index], None]) -> None:
        f.loop(begin, end, 1, lambda index, _: pack(index))

    def _pack_a(self, f: Frame) -> Callable[[Index], None]:
        c, how = self.c, self.how

        def lines(g: Frame) -> Lines:
            line = g.extent(c.a.strides[self.row_dim]) if self.row_dim is not None else 0
            return Lines(
                line, g.extent(c.a.strides[c.depth[0][1]]), False, how.a_unsigned, how.flips_a, how.a_bytes == 2,
                self.row_sums,
            )

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_a", lines)

        def pack(index: Index) -> None:
            at, outer, line = self._packed_lines(f, index, c.a, self.m)
            if self.row_dim is not None:
                at[self.row_dim] = line
            row = f.iadd(f.imul(outer, self._padded_rows(f)), line)
            offset = f.imul(f.imul(row, self._padded_depth(f)), how.a_bytes)
            target = f.at(self._memory(f, self.a_workspace), offset, I8)
            sums = f.at(self._memory(f, self.sums_workspace), row, I32) if self.row_sums else target
            if not self.aligns_a:
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))
                return
            with f.if_then(f.not_(self._a_is_aligned(f))):
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))

        return pack

    def _a_is_aligned(self, f: Frame) -> ir.Value:
        place = f.ptrtoint(f.address(self.c.a, [0] * self.c.rank), I64)
        return f.icmp_unsigned("==", f.and_(place, f.index(LINE - 1)), f.index(0))

    def _pack_b(self, f: Frame) -> Callable[[Index], None]:
        c = self.c

        def lines(g: Frame) -> Lines:
            strides = g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[0][1]])
            return Lines(*strides, True, self.how.b_unsigned)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines)

        def pack(index: Index) -> None:
            at, outer, line = self._packed_lines(f, index, c.b, self.n)
            at[c.column] = line
            column = f.iadd(f.imul(outer, self._padded_columns(f)), line)
            target = f.at(self._memory(f, self.b_workspace), f.imul(column, self._padded_depth(f)), I8)
            self._call_pack(f, function, f.address(c.b, at), target, target, f.isub(f.extent(self.n), line))

        return pack

    def _packed_lines(
        self, f: Frame, index: Index, place: Place, extent: Extent
    ) -> tuple[list[Index], Index, Index]:
        """Coordinates in the outer loops, their number among those that `place` knows, and the first line."""
        groups = _ceil(f, f.extent(extent), _PACKED_LINES)
        outer, group = f.idiv(index, groups), f.irem(index, groups)
        at: list[Index] = [0] * self.c.rank
        rest = outer
        for size, dim in reversed(_used(self.c.outer, place)):
            at[dim] = f.irem(rest, f.extent(size))
            rest = f.idiv(rest, f.extent(size))
        return at, outer, f.imul(group, _PACKED_LINES)

    def _call_pack(
        self, f: Frame, function: ir.Value, source: ir.Value, target: ir.Value, sums: ir.Value, left: Index
    ) -> None:
        numbers = [f.index(value) for value in (f.imin(left, _PACKED_LINES), f.extent(self.k), self._padded_depth(f))]
        f.call(function, [*f.arguments[:2], source, target, sums, f.arguments[4], *numbers])

    def _outer_count(self, f: Frame, place: Place) -> Index:
        result: Index = 1
        for size, _ in _used(self.c.outer, place):
            result = f.imul(result, f.extent(size))
        return result

    # -- tasks ---------------------------------------------------------------------------------------

    def _task(self, f: Frame, index: Index, scratch: ir.Value) -> None:
        """Tasks are numbered rows fastest, then columns, then groups of outer iterations."""
        plan = self.plan
        tiles, panels = _ceil(f, f.extent(self.m), plan.rows), _ceil(f, f.extent(self.n), plan.width)
        row_tasks, column_tasks = _ceil(f, tiles, plan.tile_rows), _ceil(f, panels, plan.panels)
        row_task, rest = f.irem(index, row_tasks), f.idiv(index, row_tasks)
        column_task, outer_task = f.irem(rest, column_tasks), f.idiv(rest, column_tasks)
        t0, p0 = f.imul(row_task, plan.tile_rows), f.imul(column_task, plan.panels)
        tile_range = (t0, f.imin(f.iadd(t0, plan.tile_rows), tiles))
        panel_range = (p0, f.imin(f.iadd(p0, plan.panels), panels))
        first = f.imul(outer_task, plan.group)
        last = f.iadd(first, plan.group)
        if plan.group > 1:
            total: Index = 1
            for size, _ in self.c.outer:
                total = f.imul(total, f.extent(size))
            last = f.imin(last, total)

        def one(outer: Index, _: list[ir.Value]) -> None:
            at: list[Index] = [0] * self.c.rank
            for size, dim in reversed(self.c.outer):
                at[dim] = f.irem(outer, f.extent(size))
                outer = f.idiv(outer, f.extent(size))
            self._block(f, at, tile_range, panel_range, scratch)

        f.loop(first, last, 1, one)

    def _block(
        self, f: Frame, at: list[Index], tiles: tuple[Index, Index], panels: tuple[Index, Index], scratch: ir.Value
    ) -> None:
        """All the work of one task at one outer iteration."""
        plan = self.plan
        a, b = self._factor_a(f, at), self._factor_b(f, at)
        deep = self._deep(f)
        if plan.depth_block is None:
            def whole(p: Index, tail: bool) -> None:
                at_b = self._panel(f, b, p)
                self._sum_columns(f, at_b, scratch, tail)
                self._tiles(f, at, tiles, p, tail, a, at_b, deep, scratch, ("multiply", "finish"))

            self._panels(f, panels, whole)
            return
        self._clear(f, scratch)

        def block(begin: Index, _: list[ir.Value]) -> None:
            here = f.imin(f.isub(deep, begin), plan.depth_block or 1)
            a_here = f.at(a, f.imul(begin, self.how.a_bytes), I8)
            b_here = f.at(b, f.imul(begin, BLOCK), I8)
            self._panels(f, panels, lambda p, tail: self._tiles(
                f, at, tiles, p, tail, a_here, self._panel(f, b_here, p), here, self._sums_of(f, scratch, p, panels),
                ("multiply",)))

        def last(p: Index, tail: bool) -> None:
            at_b = self._panel(f, b, p)
            self._sum_columns(f, at_b, scratch, tail)
            self._tiles(f, at, tiles, p, tail, a, at_b, deep, self._sums_of(f, scratch, p, panels), ("finish",))

        f.loop(0, deep, plan.depth_block, block)
        self._panels(f, panels, last)

    def _deep(self, f: Frame) -> Index:
        """How far the tiles go along the depth: in sixty-fours by AMX, in fours else."""
        step = DEPTH if self.how.way == "tiles" else QUAD
        return f.imul(_ceil(f, f.extent(self.k), step), step)

    def _clear(self, f: Frame, sums: ir.Value) -> None:
        lanes = self.how.lanes
        zero = ir.Constant(ir.VectorType(I32, lanes), None)
        f.loop(0, self.scratch_columns // 4, lanes, lambda i, _: f.store_vector(zero, f.at(sums, i, I32), I32))

    def _sums_of(self, f: Frame, sums: ir.Value, p: Index, panels: tuple[Index, Index]) -> ir.Value:
        return f.at(sums, f.imul(f.isub(p, panels[0]), self.plan.width), I32)

    def _factor_a(self, f: Frame, at: list[Index]) -> ir.Value:
        """A's first row at outer coordinates `at`."""
        if self.aligns_a:
            packed = self._memory(f, self.a_workspace)
            return f.select(self._a_is_aligned(f), f.address(self.c.a, at), packed)
        if self.plan.in_place:
            return f.address(self.c.a, at)
        row = f.imul(self._outer_number(f, at, self.c.a), self._padded_rows(f))
        offset = f.imul(f.imul(row, self._padded_depth(f)), self.how.a_bytes)
        return f.at(self._memory(f, self.a_workspace), offset, I8)

    def _factor_b(self, f: Frame, at: list[Index]) -> ir.Value:
        packed = self.plan.packing is not None
        memory = f.pointer(self.c.b.value) if packed else self._memory(f, self.b_workspace)
        column = f.imul(self._outer_number(f, at, self.c.b), self._padded_columns(f))
        return f.at(memory, f.imul(column, self._padded_depth(f)), I8)

    def _outer_number(self, f: Frame, at: list[Index], place: Place) -> Index:
        result: Index = 0
        for size, dim in _used(self.c.outer, place):
            result = f.iadd(f.imul(result, f.extent(size)), at[dim])
        return result

    def _panel(self, f: Frame, b: ir.Value, p: Index) -> ir.Value:
        return f.at(b, f.imul(f.imul(p, self.plan.width), self._padded_depth(f)), I8)

    def _a_row(self, f: Frame) -> Index:
        """Bytes from row to row of A."""
        if self.plan.in_place:
            return f.extent(self.c.a.strides[self.row_dim]) if self.row_dim is not None else 0
        return f.imul(self._padded_depth(f), self.how.a_bytes)

    # -- panels and tiles ----------------------------------------------------------------------------

    def _panels(self, f: Frame, panels: tuple[Index, Index], panel: Callable[[Index, bool], None]) -> None:
        """Whole panels in a loop, then the one that is not."""
        whole = f.idiv(f.extent(self.n), self.plan.width)
        f.loop(panels[0], f.imin(panels[1], whole), 1, lambda p, _: panel(p, False))
        if self.n.known is not None and self.n.known % self.plan.width == 0:
            return
        with f.if_then(f.icmp_signed(">", f.index(panels[1]), f.index(whole))):
            panel(whole, True)

    def _blocks(self, tail: bool) -> int:
        """Blocks of a panel that are calculated; of a tail of unknown width, all."""
        if not tail or self.n.known is None:
            return self.plan.blocks
        return -(-(self.n.known % self.plan.width) // BLOCK)

    def _sum_columns(self, f: Frame, b: ir.Value, scratch: ir.Value, tail: bool) -> None:
        """The sums of a panel's columns, to the scratch memory."""
        if not self.column_sums:
            return
        name = f"{self.kernel.name}.columns{'_tail' if tail else ''}"
        function = self.module.globals.get(name)
        if function is None:
            function = internal_function(self.module, name, [PTR, PTR, PTR, PTR])
            g = Frame(self.kernel, function)
            quads = _ceil(g, g.extent(self.k), QUAD)
            dot_tiles.column_sums(
                g, self.how, self._blocks(tail), g.arguments[2], g.imul(self._padded_depth(g), BLOCK), g.arguments[3],
                quads,
            )
            g.ret_void()
        f.call(function, [*f.arguments[:2], b, f.at(self._scratch_base(f), self.scratch_columns, I8)])

    def _scratch_base(self, f: Frame) -> ir.Value:
        return f.arguments[4]

    def _tiles(
        self, f: Frame, at: list[Index], tiles: tuple[Index, Index], p: Index, tail: bool, a: ir.Value, b: ir.Value,
        deep: Index, sums: ir.Value, what: tuple[Literal["multiply", "finish"], ...],
    ) -> None:
        """Multiply and finish the register tiles of a panel."""
        n = f.imul(p, self.plan.width)
        columns = f.at(self._scratch_base(f), self.scratch_columns, I8)
        row0 = self._row(f, tiles[0])

        def one(m: Index, rows: int) -> None:
            at_sums = f.at(sums, f.imul(f.isub(m, row0), self.tile_width), I32) if self.blocked else sums
            if "multiply" in what:
                at_a = f.at(a, f.imul(m, self._a_row(f)), I8)
                f.call(self._multiply(rows, tail), [*f.arguments[:2], at_a, b, at_sums, f.index(deep)])
            if "finish" in what:
                row_sums = at_sums
                if self.row_sums:
                    row = f.iadd(f.imul(self._outer_number(f, at, self.c.a), self._padded_rows(f)), m)
                    row_sums = f.at(self._memory(f, self.sums_workspace), row, I32)
                existing = f.imin(f.isub(f.extent(self.m), m), rows)
                numbers = [f.index(v) for v in (m, n, f.isub(f.extent(self.n), n), existing)]
                outer = [f.index(at[dim]) for _, dim in self.c.outer]
                f.call(self._finish(tail), [*f.arguments[:2], at_sums, columns, row_sums, *numbers, *outer])

        self._row_tiles(f, tiles, one)

    def _row(self, f: Frame, t: Index) -> Index:
        """The first row of register tile `t`."""
        if self.how.way == "tiles" or self.m.known is None:
            return f.imul(t, self.plan.rows)
        size, longer = divmod(self.m.known, -(-self.m.known // self.plan.rows))
        return f.iadd(f.imul(t, size), f.imin(t, longer))

    def _row_tiles(self, f: Frame, tiles: tuple[Index, Index], one: Callable[[Index, int], None]) -> None:
        """Call `one(first row, rows)` for register tiles: balanced where M is known; else whole ones, then less."""
        rows, m = self.plan.rows, f.extent(self.m)
        begin, end = tiles
        if self.how.way != "tiles" and self.m.known is not None:
            count = -(-self.m.known // rows)
            size, longer = divmod(self.m.known, count)
            for here, low, high in ((size + 1, 0, longer), (size, longer, count)):
                if high > low:
                    f.loop(_imax(f, begin, low), f.imin(end, high), 1,
                           lambda t, _, here=here: one(self._row(f, t), here))
            return
        whole = f.idiv(m, rows)
        f.loop(begin, f.imin(end, whole), 1, lambda t, _: one(f.imul(t, rows), rows))
        if self.m.known is not None and self.m.known % rows == 0:
            return
        with f.if_then(f.icmp_signed(">", f.index(end), f.index(whole))):
            self._rest(f, f.imul(whole, rows), f.irem(m, rows), one)

    def _rest(self, f: Frame, row: Index, left: Index, one: Callable[[Index, int], None]) -> None:
        """The rows after the last whole tile: AMX takes whole tiles of them, vectors as many as there are."""
        rows = self.plan.rows
        if self.how.way == "tiles":
            half = self._amx_rows
            if rows == half:
                one(row, rows)
                return
            with f.if_else(f.icmp_signed(">", f.index(left), f.index(half))) as (both, single):
                with both:
                    one(row, rows)
                with single:
                    one(row, half)
            return
        part = 1 << ((rows - 1).bit_length() - 1) if rows > 1 else 0
        while part:
            with f.if_then(f.icmp_unsigned("!=", f.and_(f.index(left), f.index(part)), f.index(0))):
                one(row, part)
            row = f.iadd(row, f.and_(f.index(left), f.index(part)))
            part //= 2

    def _multiply(self, rows: int, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, a, b, sums, deep)` that multiplies one register tile."""
        name = f"{self.kernel.name}.tile{rows}{'_tail' if tail else ''}"
        function = self.module.globals.get(name)
        if function is None:
            function = internal_function(self.module, name, [PTR] * 5 + [I64])
            f = Frame(self.kernel, function)
            a, b, sums, deep = f.arguments[2:6]
            known = self.k.known is not None and not self.blocked
            length = self._deep(f) if known else deep
            block = f.imul(self._padded_depth(f), BLOCK)
            at = Operands(a, self._a_row(f), b, block, sums, self.tile_width, not self.blocked)
            if self.how.way == "tiles":
                half = self._amx_rows
                dot_tiles.multiply_amx(
                    f, self.how, rows // half, half, self._blocks(tail), at, f.idiv(length, DEPTH))
            else:
                dot_tiles.multiply_tile(f, self.how, rows, self._blocks(tail), at, f.idiv(length, QUAD))
            f.ret_void()
        return function

    # -- what follows --------------------------------------------------------------------------------

    def _finish(self, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, sums, columns, row sums, m, n, left, rows, outer…)` that corrects a tile's
        sums and runs the epilogue on them, row by row."""
        name = f"{self.kernel.name}.finish{'_tail' if tail else ''}"
        function = self.module.globals.get(name)
        if function is not None:
            return function
        function = internal_function(self.module, name, [PTR] * 5 + [I64] * (4 + len(self.c.outer)))
        f = Frame(self.kernel, function)
        c, lanes = self.c, self.how.lanes
        sums, columns, row_sums, m, n, left, rows = f.arguments[2:9]
        coordinates: list[Index] = [0] * c.rank
        for (_, dim), value in zip(c.outer, f.arguments[9:], strict=True):
            coordinates[dim] = value
        if self.row_dim is not None:
            coordinates[self.row_dim] = m
        coordinates[c.column] = n
        views = Views(f, [*c.places, *self.found.zeros], coordinates, self.row_dim, c.column)
        vectors = self._vectors(f, tail, left)

        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lane in vectors:
                value = f.load_vector(f.at(sums, f.iadd(f.imul(row, self.tile_width), column), I32), I32, lanes)
                value = self._correct(f, views, value, columns, row_sums, row, column, lane)
                value = f.add(value, self._initial(f, views, row, column, lane))
                finish(f, c.epilogue, views, value, row, column, lane, False)

        f.loop(0, rows, 1, line)
        f.ret_void()
        return function

    def _vectors(self, f: Frame, tail: bool, left: Index) -> list[tuple[int, Lanes]]:
        """The first column of each vector of a panel, and which of its lanes exist."""
        lanes, width = self.how.lanes, self.plan.width
        if not tail:
            return [(column, Lanes(lanes)) for column in range(0, width, lanes)]
        if self.n.known is None:
            return [(column, Lanes(lanes, f.isub(left, column))) for column in range(0, width, lanes)]
        count = self.n.known % width
        return [
            (column, Lanes(lanes) if count - column >= lanes else Lanes(lanes, count - column))
            for column in range(0, count, lanes)
        ]

    def _correct(
        self, f: Frame, views: Views, value: ir.Value, columns: ir.Value, row_sums: ir.Value, row: Index, column: int,
        lane: Lanes,
    ) -> ir.Value:
        """`value` and what zero points and flipped bits of A make of its row's and its column's sums."""
        lanes = self.how.lanes
        a_zero = self._zero(f, views, self.found.a, row, column, lane)
        if self.column_sums:
            factor = f.sub(ir.Constant(a_zero.type, [self.how.column_factor] * lanes), a_zero)
            value = f.add(value, f.mul(f.load_vector(f.at(columns, column, I32), I32, lanes), factor))
        if self.row_sums:
            total = f.splat(f.load_vector(f.at(row_sums, row, I32), I32, 1), lanes)
            depth = f.splat(f.trunc(f.index(f.extent(self.k)), I32), lanes)
            b_zero = self._zero(f, views, self.found.b, row, column, lane)
            value = f.sub(value, f.mul(b_zero, f.sub(total, f.mul(depth, a_zero))))
        return value

    def _zero(self, f: Frame, views: Views, factor: Factor, row: Index, column: int, lane: Lanes) -> ir.Value:
        kind = ir.VectorType(I32, self.how.lanes)
        zero = factor.zero
        if isinstance(zero, int):
            return ir.Constant(kind, [_wrapped(zero)] * self.how.lanes)
        return widen(f, views.read(zero, row, column, lane, False), zero.dtype, factor.zero_casts, "i32")

    def _initial(self, f: Frame, views: Views, row: Index, column: int, lane: Lanes) -> ir.Value:
        init = self.c.init
        if isinstance(init, Place):
            return widen(f, views.read(init, row, column, lane, False), init.dtype, (), "i32")
        return ir.Constant(ir.VectorType(I32, self.how.lanes), [_wrapped(int(init))] * self.how.lanes)


def _wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _ceil(f: Frame, value: Index, by: int) -> Index:
    return f.idiv(f.iadd(value, by - 1), by)


def _imax(f: Frame, a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    x, y = f.index(a), f.index(b)
    return f.select(f.icmp_signed(">", x, y), x, y)


def _count(loops: Sequence[Loop]) -> Expr:
    result: Expr = 1
    for size, _ in loops:
        result = multiply(result, size.expression)
    return result


def _round_up(value: Expr, by: int) -> Expr:
    return multiply(ceildiv(value, by), by)


def _add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return ["+", a, b]
