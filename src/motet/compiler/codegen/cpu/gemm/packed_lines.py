"""What products of bytes and of bf16 numbers share: operands packed as lines along K, for instructions that sum several
products at once; panels of blocks of columns, and tiles of rows."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.artifact.expressions import apply, product, round_up
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.tasks import first_row
from motet.compiler.kernels.contraction import Contraction, Loop
from motet.compiler.kernels.schedule import BfloatProductSchedule, IntegerProductSchedule
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess

BLOCK = 16  # columns that are packed together
LINES = 64  # packed by one task, and gathered at a time


def used_loops(loops: Sequence[Loop], place: StridedAccess) -> list[Loop]:
    """The loops along which `place` has a stride."""
    return [loop for loop in loops if place.strides[loop[1]] != ZERO]


def count_of(loops: Sequence[Loop]) -> Expr:
    return product(size.expression for size, _ in loops)


class LineSpace:
    """The product `c` by schedule `plan`: its sizes, its workspaces, and the places of packed lines in them. Lines are
    padded to a multiple of `depth` numbers along the innermost loop of K."""

    def __init__(self, c: Contraction, plan: IntegerProductSchedule | BfloatProductSchedule, depth: int) -> None:
        self.c, self.plan = c, plan
        self.kernel, self.outer, self.rank = c.kernel, c.outer, c.rank
        self.module = ir.Module(self.kernel.name)
        self.m, self.row_dim = c.m or (ONE, None)
        self.n, self.k = c.n[0], c.depth[-1][0]
        self.blocked = plan.depth_block is not None
        self.tile_width = plan.width * (plan.panels if self.blocked else 1)
        self.multiple = BLOCK if self.n.known is not None else plan.width  # of the number of packed columns
        self.depth = depth
        self.workspaces: list[Expr] = []
        self.a_workspace = self.b_workspace = -1  # of lines that are packed in each call

    def workspace(self, size: Expr) -> int:
        """Adds a workspace of `size` bytes; its number among the kernel's buffers."""
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

    def line_workspace(self, place: StridedAccess, count: Expr, item_bytes: int) -> int:
        """Adds a workspace for `count` packed lines of `place` in each of its outer iterations; its number."""
        lines = apply("*", count_of(used_loops(self.outer, place)), count)
        return self.workspace(product((lines, round_up(self.k.expression, self.depth), item_bytes)))

    def padded_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed line along the innermost loop of K."""
        return f.imul(f.iceil(f.extent(self.k), self.depth), self.depth)

    def padded_rows(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.m), BLOCK), BLOCK)

    def padded_columns(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.n), self.multiple), self.multiple)

    def memory(self, f: TileFrame, buffer: int) -> ir.Value:
        with f.goto_entry_block():
            return f.load(f.at(f.arguments[0], buffer, PTR), typ=PTR, align=8)

    def outer_number(self, f: TileFrame, at: list[Index], place: StridedAccess) -> Index:
        """The linear index of outer coordinates among the loops of `place`."""
        result: Index = 0
        for size, dim in used_loops(self.outer, place):
            result = f.iadd(f.imul(result, f.extent(size)), at[dim])
        return result

    def packed_lines(
        self, f: TileFrame, index: Index, place: StridedAccess, extent: Extent
    ) -> tuple[list[Index], Index, Index]:
        """The coordinates in the outer loops, their linear index among the loops of `place`, and the first line, of
        task `index`."""
        groups = f.iceil(f.extent(extent), LINES)
        outer, group = f.idiv(index, groups), f.irem(index, groups)
        at: list[Index] = [0] * self.rank
        rest = outer
        for size, dim in reversed(used_loops(self.outer, place)):
            at[dim] = f.irem(rest, f.extent(size))
            rest = f.idiv(rest, f.extent(size))
        return at, outer, f.imul(group, LINES)

    def row(self, f: TileFrame, tile: Index) -> Index:
        """The first row of register tile `tile`."""
        rows = self.plan.rows
        return f.imul(tile, rows) if self.plan.way == "tiles" else first_row(f, self.m, rows, tile)

    def blocks(self, tail: bool) -> int:
        """The number of blocks computed of a panel; of a tail of unknown width, all."""
        if not tail or self.n.known is None:
            return self.plan.blocks
        return -(-(self.n.known % self.plan.width) // BLOCK)
