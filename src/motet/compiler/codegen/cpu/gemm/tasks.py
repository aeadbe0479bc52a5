"""The tasks of matrix products: blocks of register tiles and panels, at a group of outer iterations.

Tasks are numbered with rows fastest, then columns, then groups of outer iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.kernels.strides import Extent, product_of

Range = tuple[Index, Index]


class Cut(Protocol):
    """How a product is divided. A register tile has `rows` rows, a panel `width` columns; a task computes `tile_rows`
    tiles by `panels` panels, at `group` outer iterations."""

    @property
    def rows(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def tile_rows(self) -> int: ...
    @property
    def panels(self) -> int: ...
    @property
    def group(self) -> int: ...


@dataclass(frozen=True)
class ProductTasks:
    """Tasks over M, N and the outer iterations, which loop over a subset of the `rank` dimensions."""

    cut: Cut
    m: Extent
    n: Extent
    outer: Sequence[tuple[Extent, int]]
    rank: int

    @property
    def count(self) -> Expr:
        cut = self.cut
        row_tasks = ceildiv(ceildiv(self.m.expression, cut.rows), cut.tile_rows)
        column_tasks = ceildiv(ceildiv(self.n.expression, cut.width), cut.panels)
        return product((ceildiv(product_of(self.outer).expression, cut.group), row_tasks, column_tasks))

    def walk(self, f: TileFrame, index: Index, block: Callable[[list[Index], Range, Range], None]) -> None:
        """Emit task `index`: `block(coordinates, register tiles, panels)` for each of its outer iterations."""
        cut = self.cut
        tiles, panels = f.iceil(f.extent(self.m), cut.rows), f.iceil(f.extent(self.n), cut.width)
        row_tasks, column_tasks = f.iceil(tiles, cut.tile_rows), f.iceil(panels, cut.panels)
        row_task, rest = f.irem(index, row_tasks), f.idiv(index, row_tasks)
        column_task, outer_task = f.irem(rest, column_tasks), f.idiv(rest, column_tasks)
        first_tile, first_panel = f.imul(row_task, cut.tile_rows), f.imul(column_task, cut.panels)
        tile_range = (first_tile, f.imin(f.iadd(first_tile, cut.tile_rows), tiles))
        panel_range = (first_panel, f.imin(f.iadd(first_panel, cut.panels), panels))
        first = f.imul(outer_task, cut.group)
        last = f.iadd(first, cut.group)
        if cut.group > 1:
            last = f.imin(last, f.extent(product_of(self.outer)))
        f.loop(first, last, 1, lambda outer, _: block(self._coordinates(f, outer), tile_range, panel_range))

    def _coordinates(self, f: TileFrame, outer: Index) -> list[Index]:
        coordinates: list[Index] = [0] * self.rank
        for size, dim in reversed(self.outer):
            coordinates[dim] = f.irem(outer, f.extent(size))
            outer = f.idiv(outer, f.extent(size))
        return coordinates
