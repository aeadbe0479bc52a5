"""The sizes, workspaces and operands of a product of lines, shared by the parts of its emitter."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.artifact.expressions import apply, product, round_up
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.gemm.microkernel import LINE, TileFrame
from motet.compiler.codegen.cpu.gemm.space import ProductSpace
from motet.compiler.codegen.cpu.products.bfloat_image import CopiedImage
from motet.compiler.codegen.cpu.products.byte_image import ByteImage
from motet.compiler.codegen.cpu.products.instructions import BLOCK, LINES, Arithmetic
from motet.compiler.codegen.cpu.products.plan import needs_row_sums, packing_of, tile_height, worth_aligning
from motet.compiler.codegen.cpu.products.product import LineProduct, ProductSchedule
from motet.compiler.codegen.cpu.products.squares import SQUARE
from motet.compiler.kernels.contraction import Loop
from motet.compiler.kernels.strides import Extent, StridedAccess, product_of


def count_of(loops: Sequence[Loop]) -> Expr:
    return product(size.expression for size, _ in loops)


class LineSpace(ProductSpace):
    """The product `found` by schedule `plan`, and where operands are: lines that are packed, copied or gathered, sums,
    and the scratch memory of a thread."""

    def __init__(self, found: LineProduct, plan: ProductSchedule, how: Arithmetic) -> None:
        super().__init__(found.c, plan, how.lanes)
        self.found, self.plan, self.how, self.numbers = found, plan, how, found.numbers
        self.k = found.inner[0]
        self.places = [*found.c.places, *found.zeros]
        self.height = tile_height(self.m)
        self.multiple = BLOCK if self.n.known is not None else plan.width  # of the number of packed columns
        self.packing = packing_of(found)
        self.row_sums = needs_row_sums(found)
        self.column_sums = how.column_factor != 0 or found.a.zero != 0
        self.sums_bytes = plan.rows * (plan.tile_rows if self.blocked else 1) * self.tile_width * 4
        self.scratch = self.sums_bytes if self.numbers.masked else max(self.sums_bytes + plan.width * 4, SQUARE)
        self.repacks = False
        self.scratch_lines = self.scratch_raw = self.scratch_square = self.scratch_sums = 0
        self.workspaces: list[Expr] = []
        self.a_workspace = self.b_workspace = -1  # of lines that are packed in each call
        self.image_workspace = self.sums_workspace = -1
        self.aligns_a = plan.in_place and worth_aligning(found, how)
        if isinstance(found.image, ByteImage):
            self._plan_gathering(found.image)
        elif isinstance(found.image, CopiedImage):
            sizes = [Extent.of(axis.size).expression for axis in found.image.axes]
            self.image_workspace = self._workspace(product((*sizes, found.image.padded, self.numbers.bytes)))
        self._plan_lines()

    def _plan_gathering(self, image: ByteImage) -> None:
        """Place gathered lines in scratch memory after the sums (see `byte_gather.py`), and a transposed image in a
        workspace."""
        depth = self.numbers.depth
        deep = -(-image.depth // depth) * depth
        count = self.plan.rows * self.plan.tile_rows if image.is_a else self.plan.width
        count = -(-count // BLOCK) * BLOCK
        self.repacks = not image.is_a or self.row_sums or self.how.flips_a or self.how.a_scale > 1
        self.scratch_lines = -(-self.scratch // LINE) * LINE
        self.scratch_raw = self.scratch_lines + count * deep * (self.how.a_scale if image.is_a else 1)
        self.scratch_square = self.scratch_raw + (LINES * deep if self.repacks else 0)
        self.scratch_sums = self.scratch_square + (SQUARE if self.repacks else 0)
        self.scratch = self.scratch_sums + count * 4
        if (what := image.transposed) is not None:
            padded = -(-image.channels // depth) * depth
            self.scratch = max(self.scratch, SQUARE + LINES * padded)
            self.image_workspace = self._workspace(apply("*", what.count.expression, what.channels * what.pixels))

    def _plan_lines(self) -> None:
        """Workspaces of lines that are packed for each call, also filters of a convolution, and of the sums of rows."""
        image = self.found.gathered
        if image is not None and image.is_a:
            return
        rows = round_up(self.m.expression, BLOCK)
        if not self.plan.in_place or self.aligns_a:
            self.a_workspace = self._line_workspace(self.c.a, rows, self.how.a_scale)
        if self.packing is None and image is None:
            self.b_workspace = self._line_workspace(self.c.b, round_up(self.n.expression, self.multiple), 1)
        if self.row_sums:
            lines = apply("*", count_of(self.c.outer_of(self.c.a)), rows)
            self.sums_workspace = self._workspace(apply("*", lines, 4))

    def _workspace(self, size: Expr) -> int:
        """Adds a workspace of `size` bytes; its number among the kernel's buffers."""
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

    def _line_workspace(self, place: StridedAccess, count: Expr, scale: int) -> int:
        """Adds a workspace for `count` packed lines of `place` in each of its outer iterations; its number."""
        lines = apply("*", count_of(self.c.outer_of(place)), count)
        item_bytes = scale * self.numbers.bytes
        return self._workspace(product((lines, round_up(self.k.expression, self.numbers.depth), item_bytes)))

    # -- extents -------------------------------------------------------------------------------------

    def padded_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed line along the innermost loop of K."""
        return f.imul(f.iceil(f.extent(self.k), self.numbers.depth), self.numbers.depth)

    def column_depth(self, f: TileFrame) -> Index:
        """The numbers of a packed column."""
        return f.imul(f.extent(product_of(self.c.depth[:-1])), self.padded_depth(f))

    def stepped_depth(self, f: TileFrame) -> Index:
        """The numbers along the innermost loop of K, in whole instructions."""
        return f.imul(f.iceil(f.extent(self.k), self.how.step), self.how.step)

    def padded_rows(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.m), BLOCK), BLOCK)

    def padded_columns(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.n), self.multiple), self.multiple)

    def amx_rows(self, f: TileFrame) -> Index:
        """The number of rows of one AMX tile."""
        return f.imin(f.extent(self.m), BLOCK) if self.m.known is None else self.height

    def row(self, f: TileFrame, tile: Index) -> Index:
        return f.imul(tile, self.plan.rows) if self.how.way == "tiles" else super().row(f, tile)

    def first_row(self, f: TileFrame, tile: Index) -> Index:
        """The first row that register tile `tile` reads: the last AMX tile ends with the last row."""
        row = self.row(f, tile)
        return f.imin(row, f.isub(f.extent(self.m), self.amx_rows(f))) if self.how.way == "tiles" else row

    def blocks(self, tail: bool) -> int:
        """The number of blocks computed of a panel; of a tail of unknown width, all."""
        if not tail or self.n.known is None:
            return self.plan.blocks
        return -(-(self.n.known % self.plan.width) // BLOCK)

    # -- operands ------------------------------------------------------------------------------------

    def a_row(self, f: TileFrame) -> Index:
        """A's stride between rows, in numbers as they are stored."""
        return self.stride(f, self.c.a) if self.plan.in_place else f.imul(self.padded_depth(f), self.how.a_scale)

    def a_is_aligned(self, f: TileFrame) -> ir.Value:
        place = f.ptrtoint(f.address(self.c.a, [0] * self.c.rank), I64)
        return f.icmp_unsigned("==", f.and_(place, f.index(LINE - 1)), f.index(0))

    def address_a(self, f: TileFrame, at: list[Index]) -> ir.Value:
        """The address of A's first row at outer coordinates `at`, which is not gathered."""
        if self.found.copied is not None:
            return f.at(self.memory(f, self.image_workspace), f.offset(self.c.a, at), self.numbers.element)
        if self.aligns_a:
            packed = self.memory(f, self.a_workspace)
            return f.select(self.a_is_aligned(f), f.address(self.c.a, at), packed)
        if self.plan.in_place:
            return f.address(self.c.a, at)
        row = f.imul(self.outer_number(f, at, self.c.a), self.padded_rows(f))
        offset = f.imul(f.imul(row, self.padded_depth(f)), self.how.a_scale)
        return f.at(self.memory(f, self.a_workspace), offset, self.numbers.element)

    def address_b(self, f: TileFrame, at: list[Index]) -> ir.Value:
        """The address of B's first packed column at outer coordinates `at`."""
        memory = f.pointer(self.c.b.value) if self.packing is not None else self.memory(f, self.b_workspace)
        column = f.imul(self.outer_number(f, at, self.c.b), self.padded_columns(f))
        return f.at(memory, f.imul(column, self.column_depth(f)), self.numbers.element)

    def panel(self, f: TileFrame, b: ir.Value, p: Index) -> ir.Value:
        """The address of panel `p` of the packed columns at `b`."""
        return f.at(b, f.imul(f.imul(p, self.plan.width), self.column_depth(f)), self.numbers.element)
