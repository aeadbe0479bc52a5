"""The sizes and workspaces of a bf16 product, and the addresses of its operands, shared by its parts."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.artifact.expressions import apply, product, round_up
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm_bf16.plan import packing_of, tile_height, used_loops
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.kernels.contraction import Loop
from motet.compiler.kernels.schedule import BfloatProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, product_of


class BfloatSpace:
    """A bf16 product with its schedule `plan`, and the module for its code."""

    def __init__(self, c: BfloatProduct, plan: BfloatProductSchedule) -> None:
        self.c, self.plan, self.kernel = c, plan, c.kernel
        self.packing = packing_of(c)
        self.module = ir.Module(self.kernel.name)
        self.m = c.m[0] if c.m else ONE
        self.n, self.k = c.n[0], c.depth[-1][0]
        self.row_dim = c.m[1] if c.m else None
        self.height = tile_height(self.m)
        self.blocked = plan.depth_block is not None
        self.tile_width = plan.width * (plan.panels if self.blocked else 1)
        self.scratch = plan.rows * (plan.tile_rows if self.blocked else 1) * self.tile_width * 4
        self.workspaces: list[Expr] = []
        self.a_workspace = self.b_workspace = -1
        deep = round_up(self.k.expression, DEPTH)
        if not plan.in_place:
            lines = apply("*", count_of(used_loops(c.outer, c.a)), round_up(self.m.expression, BLOCK))
            self.a_workspace = self._workspace(product((lines, deep, 2)))
        if c.image is not None:
            sizes = [Extent.of(axis.size).expression for axis in c.image.axes]
            self.a_workspace = self._workspace(product((*sizes, c.image.padded, 2)))
        if self.packing is None:
            columns = round_up(self.n.expression, BLOCK if self.n.known is not None else plan.width)
            self.b_workspace = self._workspace(product((count_of(used_loops(c.outer, c.b)), columns, deep, 2)))

    def _workspace(self, size: Expr) -> int:
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

    def memory(self, f: TileFrame, buffer: int) -> ir.Value:
        with f.goto_entry_block():
            return f.load(f.at(f.arguments[0], buffer, PTR), typ=PTR, align=8)

    def padded_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed line along the innermost loop of K."""
        return f.imul(f.iceil(f.extent(self.k), DEPTH), DEPTH)

    def column_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed column."""
        return f.imul(f.extent(product_of(self.c.depth[:-1])), self.padded_depth(f))

    def padded_rows(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.m), BLOCK), BLOCK)

    def padded_columns(self, f: TileFrame) -> Index:
        multiple = BLOCK if self.n.known is not None else self.plan.width
        return f.imul(f.iceil(f.extent(self.n), multiple), multiple)

    def amx_rows(self, f: TileFrame) -> Index:
        """The number of rows of one AMX tile."""
        return self.height if self.m.known is not None else f.imin(f.extent(self.m), BLOCK)

    def outer_number(self, f: TileFrame, at: list[Index], place: StridedAccess) -> Index:
        result: Index = 0
        for size, dim in used_loops(self.c.outer, place):
            result = f.iadd(f.imul(result, f.extent(size)), at[dim])
        return result


def count_of(loops: Sequence[Loop]) -> Expr:
    return product(size.expression for size, _ in loops)
