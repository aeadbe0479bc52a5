"""Writes block pointers to the operands of products as Triton text (`tl.make_block_ptr`), for 2-D block loads.

A block out of bounds is filled with zeros by the load, so that products need no masks.
"""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.tiles import Tile
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer

_LEFT, _RIGHT = "a", "b"


def point_to_blocks(
    w: Writer, operands: tuple[Matrix, Matrix], tile: Tile, at: Mapping[int, Coordinate], corner: tuple[str, str]
) -> None:
    """Define the pointers to the first blocks of both operands of the tile that begins at `corner`."""
    left, right = operands
    w.line(f"{_LEFT} = {_pointer(w, left, at, (tile.m, tile.k), (corner[0], '0'), not left.across)}")
    w.line(f"{_RIGHT} = {_pointer(w, right, at, (tile.k, tile.n), ('0', corner[1]), not right.across)}")


def next_blocks(w: Writer, operands: tuple[Matrix, Matrix], tile: Tile) -> tuple[str, str]:
    """Load the blocks of one iteration along K, and advance; returns their names."""
    x, y = (w.define("x", f"tl.load({name}, boundary_check=(0, 1))") for name in (_LEFT, _RIGHT))
    w.line(f"{_LEFT} = tl.advance({_LEFT}, (0, {tile.k}))")
    w.line(f"{_RIGHT} = tl.advance({_RIGHT}, ({tile.k}, 0))")
    return x, y


def _pointer(
    w: Writer, matrix: Matrix, at: Mapping[int, Coordinate], block: tuple[int, int], first: tuple[str, str],
    is_row_major: bool,
) -> str:
    """A pointer to blocks of the operand as the product sees it: its rows are lines if it `is_row_major`, else its
    columns are."""
    base = w.offset(matrix.place, at).text
    pointer = f"v{matrix.place.value}" if base == "0" else f"v{matrix.place.value} + ({base})"
    lines, length, stride = (w.extent(each) for each in (matrix.lines, matrix.length, matrix.stride))
    shape, strides, order = (
        (f"{lines}, {length}", f"{stride}, 1", "1, 0") if is_row_major else
        (f"{length}, {lines}", f"1, {stride}", "0, 1")
    )
    begin = ", ".join(f"tl.cast({each}, tl.int32)" if w.wide and each != "0" else each for each in first)
    return f"tl.make_block_ptr({pointer}, ({shape}), ({strides}), ({begin}), {block}, ({order}))"
