"""The tasks of matrix products, blocks of register tiles and panels at a group of outer iterations, and the loops over
the tiles and panels of a task.

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
    tiles by `panels` panels, at `group` outer iterations, by `depth_block` steps of K at a time, None for all."""

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
    @property
    def depth_block(self) -> int | None: ...


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


def first_row(f: TileFrame, m: Extent, rows: int, tile: Index) -> Index:
    """The first row of register tile `tile`: tiles are of nearly equal size if M is known, else of `rows` rows."""
    if m.known is None:
        return f.imul(tile, rows)
    size, longer = divmod(m.known, -(-m.known // rows))
    return f.iadd(f.imul(tile, size), f.imin(tile, longer))


def loop_over_tiles(
    f: TileFrame, m: Extent, rows: int, tiles: Range, one: Callable[[Index, Index, int], None]
) -> None:
    """Emit `one(tile, first row, rows)` for the register tiles [tiles): of nearly equal size if M is known; else whole
    tiles, then tiles of the remaining powers of two."""
    begin, end = tiles
    if m.known is not None:
        count = -(-m.known // rows)
        size, longer = divmod(m.known, count)
        for here, low, high in ((size + 1, 0, longer), (size, longer, count)):
            if high > low:
                f.loop(begin if low == 0 else f.imax(begin, low), f.imin(end, high), 1,
                       lambda t, _, here=here: one(t, first_row(f, m, rows, t), here))
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


def loop_over_panels(
    f: TileFrame, n: Extent, width: int, panels: Range, panel: Callable[[Index, bool], None]
) -> None:
    """Emit `panel(number, False)` for whole panels in a loop, then `panel(number, True)` for the incomplete one."""
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
