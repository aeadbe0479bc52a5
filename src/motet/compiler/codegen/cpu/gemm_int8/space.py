"""The sizes and workspaces of an 8-bit product, and the addresses of its operands, shared by its parts."""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import apply, round_up
from motet.compiler.codegen.cpu.emit.builder import I64
from motet.compiler.codegen.cpu.gemm.microkernel import LINE, TileFrame
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES, LineSpace, count_of, used_loops
from motet.compiler.codegen.cpu.gemm_int8.packing import SQUARE
from motet.compiler.codegen.cpu.gemm_int8.plan import needs_row_sums, packing_of, worth_aligning
from motet.compiler.codegen.cpu.gemm_int8.reading import DotProduct
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, Arithmetic
from motet.compiler.kernels.schedule import IntegerProductSchedule


class Int8Space(LineSpace):
    """An 8-bit product with its schedule `plan`, and the module for its code."""

    def __init__(self, found: DotProduct, plan: IntegerProductSchedule, how: Arithmetic) -> None:
        super().__init__(found.c, plan, DEPTH)
        self.found, self.plan, self.c = found, plan, found.c
        self.how = how
        self.image = found.image
        filters = None if found.image is None else found.image.filter_packing
        self.packing = packing_of(found) if found.image is None else filters if found.image.is_a else None
        self.row_sums = needs_row_sums(found)
        self.column_sums = self.how.column_factor != 0 or found.a.zero != 0
        tile_height = plan.rows * (plan.tile_rows if self.blocked else 1)
        self.scratch_columns = tile_height * self.tile_width * 4
        self.scratch = max(self.scratch_columns + plan.width * 4, SQUARE)
        self.repacks = False
        self.scratch_lines = self.scratch_raw = self.scratch_square = self.scratch_sums = 0
        self._plan_gathering()
        self.sums_workspace = self.image_workspace = -1
        self.aligns_a = plan.in_place and worth_aligning(self.c, self.how)
        self._plan_workspaces()

    def _plan_gathering(self) -> None:
        """Place gathered lines in scratch memory after the sums (see `gather.py`)."""
        image = self.image
        if image is None:
            return
        deep = -(-image.depth // DEPTH) * DEPTH
        count = self.plan.rows * self.plan.tile_rows if image.is_a else self.plan.width
        count = -(-count // BLOCK) * BLOCK
        self.repacks = not image.is_a or self.row_sums or self.how.flips_a or self.how.a_bytes > 1
        self.scratch_lines = -(-self.scratch // LINE) * LINE
        self.scratch_raw = self.scratch_lines + count * deep * (self.how.a_bytes if image.is_a else 1)
        self.scratch_square = self.scratch_raw + (LINES * deep if self.repacks else 0)
        self.scratch_sums = self.scratch_square + (SQUARE if self.repacks else 0)
        self.scratch = self.scratch_sums + count * 4
        if image.transposed is not None:
            padded = -(-image.channels // DEPTH) * DEPTH
            self.scratch = max(self.scratch, SQUARE + LINES * padded)

    def _plan_workspaces(self) -> None:
        """Of a convolution, the transposed image, and filters that are packed for each call."""
        image = self.image
        if image is not None and (what := image.transposed) is not None:
            self.image_workspace = self.workspace(apply("*", what.count.expression, what.channels * what.pixels))
        if image is not None and image.is_a:
            return
        rows = round_up(self.m.expression, BLOCK)
        if not self.plan.in_place or self.aligns_a:
            self.a_workspace = self.line_workspace(self.c.a, rows, self.how.a_bytes)
        if self.packing is None and image is None:
            self.b_workspace = self.line_workspace(self.c.b, round_up(self.n.expression, self.multiple), 1)
        if self.row_sums:
            lines = apply("*", count_of(used_loops(self.c.outer, self.c.a)), rows)
            self.sums_workspace = self.workspace(apply("*", lines, 4))

    @property
    def amx_rows(self) -> int:
        """The number of rows of one AMX tile."""
        known = self.m.known
        return 16 if known is None else -(-known // -(-known // 16))

    def a_is_aligned(self, f: TileFrame) -> ir.Value:
        place = f.ptrtoint(f.address(self.c.a, [0] * self.c.rank), I64)
        return f.icmp_unsigned("==", f.and_(place, f.index(LINE - 1)), f.index(0))
