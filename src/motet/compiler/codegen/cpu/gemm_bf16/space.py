"""The sizes and workspaces of a bf16 product, and the addresses of its operands, shared by its parts."""

from __future__ import annotations

from motet.artifact.expressions import product, round_up
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.packed_lines import LineSpace
from motet.compiler.codegen.cpu.gemm_bf16.plan import packing_of, tile_height
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.kernels.schedule import BfloatProductSchedule
from motet.compiler.kernels.strides import Extent, product_of


class BfloatSpace(LineSpace):
    """A bf16 product with its schedule `plan`, and the module for its code."""

    def __init__(self, c: BfloatProduct, plan: BfloatProductSchedule) -> None:
        super().__init__(c, plan, DEPTH)
        self.c, self.plan = c, plan
        self.packing = packing_of(c)
        self.height = tile_height(self.m)
        self.scratch = plan.rows * (plan.tile_rows if self.blocked else 1) * self.tile_width * 4
        if not plan.in_place:
            self.a_workspace = self.line_workspace(c.a, round_up(self.m.expression, BLOCK), 2)
        if c.image is not None:
            sizes = [Extent.of(axis.size).expression for axis in c.image.axes]
            self.a_workspace = self.workspace(product((*sizes, c.image.padded, 2)))
        if self.packing is None:
            self.b_workspace = self.line_workspace(c.b, round_up(self.n.expression, self.multiple), 2)

    def column_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed column."""
        return f.imul(f.extent(product_of(self.c.depth[:-1])), self.padded_depth(f))

    def amx_rows(self, f: TileFrame) -> Index:
        """The number of rows of one AMX tile."""
        return self.height if self.m.known is not None else f.imin(f.extent(self.m), BLOCK)
