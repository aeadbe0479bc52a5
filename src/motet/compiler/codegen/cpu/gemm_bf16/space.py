"""The sizes and workspaces of a bf16 product, and the addresses of its operands, shared by its parts."""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import apply, product, round_up
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.packed_lines import LineSpace, count_of, used_loops
from motet.compiler.codegen.cpu.gemm_bf16.plan import packing_of, tile_height
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.kernels.schedule import BfloatProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, product_of


class BfloatSpace(LineSpace):
    """A bf16 product with its schedule `plan`, and the module for its code."""

    def __init__(self, c: BfloatProduct, plan: BfloatProductSchedule) -> None:
        super().__init__(c)
        self.c, self.plan = c, plan
        self.packing = packing_of(c)
        self.module = ir.Module(self.kernel.name)
        self.m = c.m[0] if c.m else ONE
        self.n, self.k = c.n[0], c.depth[-1][0]
        self.row_dim = c.m[1] if c.m else None
        self.height = tile_height(self.m)
        self.blocked = plan.depth_block is not None
        self.tile_width = plan.width * (plan.panels if self.blocked else 1)
        self.scratch = plan.rows * (plan.tile_rows if self.blocked else 1) * self.tile_width * 4
        self.a_workspace = self.b_workspace = -1
        deep = round_up(self.k.expression, DEPTH)
        if not plan.in_place:
            lines = apply("*", count_of(used_loops(c.outer, c.a)), round_up(self.m.expression, BLOCK))
            self.a_workspace = self.workspace(product((lines, deep, 2)))
        if c.image is not None:
            sizes = [Extent.of(axis.size).expression for axis in c.image.axes]
            self.a_workspace = self.workspace(product((*sizes, c.image.padded, 2)))
        if self.packing is None:
            columns = round_up(self.n.expression, BLOCK if self.n.known is not None else plan.width)
            self.b_workspace = self.workspace(product((count_of(used_loops(c.outer, c.b)), columns, deep, 2)))

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
