"""Writes contractions as Triton programs, one tile of the result per program. `tiles.py` chooses tiles;
`contraction.py` describes contractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.tiles import PRECISIONS, Tile, stored_as
from motet.compiler.codegen.gpu.tasks import ceiling, power_of_two, total
from motet.compiler.codegen.triton.gemm.block_pointers import next_blocks, point_to_blocks
from motet.compiler.codegen.triton.gemm.descriptors import describe
from motet.compiler.codegen.triton.text.program import Form, FormTile, tile_along
from motet.compiler.codegen.triton.text.scalars import carried_type, constant, rounded
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.strides import Extent, StridedAccess

_TOGETHER = 128  # tiles computed at a time

Side = Literal["left", "right"]  # of a product


def product_form(c: ContractionLaunch, tile: Tile, left: Matrix | None, right: Matrix | None) -> Form:
    """A contraction by `tile`s; `left` and `right` are its operands if TMA or block loads can load them."""
    described = None if left is None or right is None or tile.kind == "pointers" else (left, right)
    w = Writer(c.task.kernel, c.task.buffers, (tile.m, tile.n))
    _tile(w, c, tile, described)
    tasks = product((ceiling(total(c.m), tile.m), ceiling(total(c.n), tile.n), total(c.batch).expression))
    return Form(w.module(c.task.symbol, c.task.about), tasks, tile.warps, tile.stages, tile.label, early=False,
                tiles=blocks_along(c, tile.m, tile.n, tile.k))


def blocks_along(c: ContractionLaunch, m: int, n: int, k: int) -> tuple[FormTile, ...]:
    """The tiles of a block along the loops of a contraction."""
    return tile_along(c.m, m), tile_along(c.n, n), tile_along(c.k, k)


def stay(tiles: Expr, processors: int) -> Expr:
    """The grid of persistent programs: the number of SMs, or of tiles if there are fewer."""
    return min(tiles, processors) if isinstance(tiles, int) else ["min", tiles, processors]


def _tile(w: Writer, c: ContractionLaunch, tile: Tile, described: tuple[Matrix, Matrix] | None) -> None:
    """Write the lines that compute a program's tile."""
    rows, columns, depth = total(c.m), total(c.n), total(c.k)
    batch, pm, pn = tile_of(w, c, tile)
    corner = w.define("m", f"{pm} * {tile.m}"), w.define("n", f"{pn} * {tile.n}")
    if described is not None and tile.kind == "blocks":
        point_to_blocks(w, described, tile, batch, corner)
    elif described is not None:
        _describe(w, described, tile, batch)
    row = w.define("m", f"{corner[0]} + {w.range(0)}")
    column = w.define("n", f"{corner[1]} + {w.range(1)}")
    masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, tile.m), (1, column, columns, tile.n))
        if count.known is None or count.factor % block
    }
    at = dict(batch)
    at |= w.decompose(Coordinate(row, frozenset({0})), c.m) if c.m else {}
    at |= w.decompose(Coordinate(column, frozenset({1})), c.n) if c.n else {}
    w.line(f"acc = tl.zeros(({tile.m}, {tile.n}), {carried_type(c.sum)})")
    turns = depth.known is None or depth.factor > tile.k or described is not None
    if turns:
        w.line(f"for k in range(0, {w.extent(depth)}, {tile.k}):")
        w.level += 1
    if described is not None and tile.kind == "blocks":
        x, y = next_blocks(w, described, tile)
        multiply(w, c, x, y)
    elif described is not None:
        _described_step(w, c, described, corner)
    else:
        _step(w, c, tile, at, masks, "k + " if turns else "")
    w.level -= turns
    w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
    finish(w, c, "acc", at)


def finish(w: Writer, c: ContractionLaunch, value: str, at: Mapping[int, Coordinate]) -> None:
    """Write the epilogue of the sum of products `value`."""
    value = whole(w, c, value, at)
    if c.task.epilogue is not None:
        w.finish(c.task.epilogue, value, at, c.task.stored)


def whole(
    w: Writer, c: ContractionLaunch, value: str, at: Mapping[int, Coordinate], beside: Mapping[int, str] | None = None
) -> str:
    """Add the initial value to the sum of products `value`, rounded as in the program, in its compute type. `beside`
    are values that need not be loaded."""
    task = c.task
    dtype = task.kernel.values[task.stage.outputs[0].value].dtype
    init = task.inits[0]
    if isinstance(init, StridedAccess):
        known = (beside or {}).get(init.value)
        value = w.define("x", f"{value} + {known or w.read(init, at)}")
    elif init:
        value = w.define("x", f"{value} + {constant(init, dtype)}")
    if carried_type(dtype) != carried_type(c.sum):
        value = w.define("x", f"{value}.to({carried_type(dtype)})")
    return w.define("x", rounded(value, dtype))


def tile_of(w: Writer, c: ContractionLaunch, tile: Tile) -> tuple[dict[int, Coordinate], str, str]:
    """The tile of a program: groups of rows of tiles process their columns together, so that shared operands are still
    in the cache."""
    p = w.program()
    m, n = (_blocks(w, total(loops), block) for loops, block in ((c.m, tile.m), (c.n, tile.n)))
    at: dict[int, Coordinate] = {}
    if c.batch:
        at = w.decompose(Coordinate(w.define("p", f"{p} // ({m} * {n})")), c.batch)
        p = w.define("p", f"{p} % ({m} * {n})")
    if m == "1" or n == "1":
        return (at, "0", p) if m == "1" else (at, p, "0")
    group = group_of(tile.m, tile.n)
    first = w.define("g", f"{p} // ({group} * {n}) * {group}")
    height = w.define("g", f"tl.minimum({m} - {first}, {group})")
    rest = w.define("g", f"{p} % ({group} * {n})")
    return at, w.define("p", f"{first} + {rest} % {height}"), w.define("p", f"{rest} // {height}")


def group_of(m: int, n: int) -> int:
    """The number of rows of tiles in a group, such that the tiles that all SMs compute at a time form about a
    square."""
    return power_of_two(round((_TOGETHER * n / m) ** 0.5 * 0.75))


def _blocks(w: Writer, count: Extent, block: int) -> str:
    return f"tl.cdiv({w.extent(count)}, {block})" if count.known is None else str(-(-count.factor // block))


# -- operands --------------------------------------------------------------------------------------


def _describe(w: Writer, described: tuple[Matrix, Matrix], tile: Tile, at: Mapping[int, Coordinate]) -> None:
    left, right = described
    lines = (tile.k, tile.m) if left.across else (tile.m, tile.k)
    w.line(f"a = tl.make_tensor_descriptor({describe(w, left, at, lines)})")
    lines = (tile.n, tile.k) if right.across else (tile.k, tile.n)
    w.line(f"b = tl.make_tensor_descriptor({describe(w, right, at, lines)})")


def _described_step(
    w: Writer, c: ContractionLaunch, described: tuple[Matrix, Matrix], corner: tuple[str, str]
) -> None:
    """One iteration along K, loading by descriptors, which give zeros out of bounds. The tile begins at `corner`."""
    left, right = described
    m, n, k = (f"tl.cast({at}, tl.int32)" if w.wide else at for at in (*corner, "k"))
    x = w.define("x", f"a.load([{k}, {m}]).T" if left.across else f"a.load([{m}, {k}])")
    y = w.define("x", f"b.load([{n}, {k}]).T" if right.across else f"b.load([{k}, {n}])")
    multiply(w, c, x, y)


def _step(
    w: Writer, c: ContractionLaunch, tile: Tile, at: dict[int, Coordinate], masks: dict[int, str], begin: str
) -> None:
    """One iteration along K: loads and multiplies both operands."""
    w.remembered = {}
    left = factor_of(w, c, "left", tile, at, masks, begin)
    right = factor_of(w, c, "right", tile, at, masks, begin)
    multiply(w, c, left, right)


def multiply(w: Writer, c: ContractionLaunch, left: str, right: str, acc: str = "acc") -> None:
    precision = f', input_precision="{PRECISIONS[c.factor]}"' if c.factor in PRECISIONS else ""
    w.line(f"{acc} = tl.dot({left}, {right}, {acc}{precision}, out_dtype={carried_type(c.sum)})")


def factor_of(
    w: Writer, c: ContractionLaunch, side: Side, tile: Tile, at: dict[int, Coordinate], masks: dict[int, str],
    begin: str,
) -> str:
    """A tile of a factor; `masks` are those of the result's rows and columns."""
    if side == "left":
        source, shape, axis = c.left, (tile.m, tile.k), 1
    else:
        source, shape, axis = c.right, (tile.k, tile.n), 0
    w.shape = shape
    w.masks = {a: mask for a, mask in masks.items() if a != axis}
    depth = w.define("k", f"{begin}{w.range(axis)}")
    length = total(c.k)
    if length.known is None or length.factor % shape[axis]:
        w.masks[axis] = w.define("b", f"{depth} < {w.extent(length)}")
    points = at | w.decompose(Coordinate(depth, frozenset({axis})), c.k)
    value = w.read(source, points, other="0", raw=True)
    dtype = source.dtype
    wanted = stored_as(c.factor)
    return value if dtype == wanted else w.define("x", f"{value}.to({carried_type(wanted)})")
