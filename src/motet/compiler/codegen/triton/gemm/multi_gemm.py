"""Products whose results meet as Triton programs: tiles whose parts every thread loads, or a ring of them."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.gemm.multi_matching import Joined, split_stages
from motet.compiler.codegen.gpu.gemm.multi_plan import MultiPlan, MultiTiles
from motet.compiler.codegen.gpu.gemm.tiles import Tile
from motet.compiler.codegen.gpu.tasks import ceiling, total
from motet.compiler.codegen.triton.gemm.multi_persistent import form
from motet.compiler.codegen.triton.gemm.multi_sums import Sums, ended, ended_at_once, settled
from motet.compiler.codegen.triton.gemm.products import Side, factor_of, multiply, tile_of
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import carried_type, from_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.strides import Extent, StridedAccess


def emit(plan: MultiPlan) -> tuple[Form, ...]:
    """The best first. Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(
        _form(choice.j, choice.tile) if isinstance(choice, MultiTiles)
        else form(choice.j, choice.factors, choice.fit, plan.target)
        for choice in plan.choices
    )


def _form(j: Joined, tile: Tile) -> Form:
    """A form whose operands are loaded by all threads."""
    last, task = j.products[-1], j.task
    w = Sums(task.kernel, task.buffers, (tile.m, tile.n))
    batch, pm, pn = tile_of(w, last, tile)
    row = w.define("m", f"{pm} * {tile.m} + {w.range(0)}")
    column = w.define("n", f"{pn} * {tile.n} + {w.range(1)}")
    masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, total(last.m), tile.m), (1, column, total(last.n), tile.n))
        if count.known is None or count.factor % block
    }
    points: list[dict[int, Coordinate]] = []
    for c in j.products:
        at = dict(batch) if c is last else _moved(batch, last, c)
        at |= w.decompose(Coordinate(row, frozenset({0})), c.m) if c.m else {}
        at |= w.decompose(Coordinate(column, frozenset({1})), c.n) if c.n else {}
        points.append(at)
    (_at_once if j.together else _in_turn)(w, j, tile, points, masks)
    tasks = product((ceiling(total(last.m), tile.m), ceiling(total(last.n), tile.n), total(last.batch).expression))
    label = f"{len(j.products)} products {'at once' if j.together else 'in turn'} {tile.label}"
    return Form(w.module(task.symbol, task.about), tasks, tile.warps, tile.stages, label)


def _moved(batch: dict[int, Coordinate], source: ContractionLaunch, to: ContractionLaunch) -> dict[int, Coordinate]:
    """The batch coordinates of one product as those of another, by the layout of their results."""
    return {own: batch[dim] for (_, dim), (_, own) in zip(source.batch, to.batch, strict=True)}


def _in_turn(
    w: Sums, j: Joined, tile: Tile, points: Sequence[dict[int, Coordinate]], masks: dict[int, str]
) -> None:
    """Compute one sum after the other."""
    stages = split_stages(j)
    kept: dict[int, tuple[str, str]] = {}
    for number, (c, at) in enumerate(zip(j.products, points, strict=True)):
        acc = f"acc{number}"
        w.line(f"{acc} = tl.zeros(({tile.m}, {tile.n}), {carried_type(c.sum)})")
        begin = _open_loop(w, c, tile)
        w.remembered = {}
        left = factor_of(w, c, "left", tile, at, masks, begin)
        right = factor_of(w, c, "right", tile, at, masks, begin)
        multiply(w, c, left, right, acc)
        w.level -= bool(begin)
        w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
        if c is not j.products[-1]:
            before = {value: from_storage(name, dtype) for value, (name, dtype) in kept.items()}
            kept |= settled(w, j, stages, number, acc, points, before)
    ended(w, j, f"acc{len(j.products) - 1}", points, kept, stages.rest)


def _at_once(
    w: Sums, j: Joined, tile: Tile, points: Sequence[dict[int, Coordinate]], masks: dict[int, str]
) -> None:
    """Compute all sums in one loop; a shared operand is loaded once."""
    sums = [f"acc{number}" for number in range(len(j.products))]
    for acc in sums:
        w.line(f"{acc} = tl.zeros(({tile.m}, {tile.n}), {carried_type(j.products[0].sum)})")
    begin = _open_loop(w, j.products[0], tile)
    w.remembered = {}
    read: dict[tuple[StridedAccess, Side], str] = {}
    for acc, c, at in zip(sums, j.products, points, strict=True):
        left: tuple[StridedAccess, Side] = c.left, "left"
        right: tuple[StridedAccess, Side] = c.right, "right"
        for key in (left, right):
            if key not in read:
                read[key] = factor_of(w, c, key[1], tile, at, masks, begin)
        multiply(w, c, read[left], read[right], acc)
    w.level -= bool(begin)
    w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
    ended_at_once(w, j, sums, points)


def _open_loop(w: Writer, c: ContractionLaunch, tile: Tile) -> str:
    """Begin the loop along K, if it has several iterations; returns the start of its coordinates."""
    depth: Extent = total(c.k)
    if depth.known is not None and depth.factor <= tile.k:
        return ""
    w.line(f"for k in range(0, {w.extent(depth)}, {tile.k}):")
    w.level += 1
    return "k + "
