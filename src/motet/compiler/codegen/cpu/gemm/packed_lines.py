"""What products of bytes and of bf16 numbers share: operands packed as lines along K, for instructions that sum several
products at once."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.kernels.contraction import Contraction, Loop
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess

LINES = 64  # packed by one task, and gathered at a time


def used_loops(loops: Sequence[Loop], place: StridedAccess) -> list[Loop]:
    """The loops along which `place` has a stride."""
    return [loop for loop in loops if place.strides[loop[1]] != ZERO]


def count_of(loops: Sequence[Loop]) -> Expr:
    return product(size.expression for size, _ in loops)


class LineSpace:
    """The workspaces of the product `c`, and the places of packed lines in them."""

    def __init__(self, c: Contraction) -> None:
        self.kernel, self.outer = c.kernel, c.outer
        self.rank = c.rank
        self.workspaces: list[Expr] = []

    def workspace(self, size: Expr) -> int:
        """Adds a workspace of `size` bytes; its number among the kernel's buffers."""
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

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
