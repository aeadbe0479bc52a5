"""Forms of several products whose results are combined (`multi_matching.py`), with operands loaded by all threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch, leaving
from motet.compiler.codegen.gpu.gemm.persistent_tiles import Ring, every_ring, ring_cycles
from motet.compiler.codegen.gpu.gemm.tiles import RATES, GemmShape, Tile, choose_tiles, cycles, stored_as
from motet.compiler.codegen.gpu.tasks import ceiling, power_of_two, total
from motet.compiler.codegen.triton.gemm import multi_persistent as joined_ring
from motet.compiler.codegen.triton.gemm.multi_matching import (
    MOST,
    Joined,
    Sums,
    ended,
    ended_at_once,
    parted,
    settled,
)
from motet.compiler.codegen.triton.gemm.products import Side, factor_of, multiply, tile_of
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import carried_type, from_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.strides import Extent, StridedAccess
from motet.compiler.targets.gpu import GpuTarget

_FORMS = 6
_RINGS = 3
_GUESS = 1024  # of a dynamic extent
_LEAST_SIDE = 16  # of a tile
_LEAST = 8  # minimum rows, columns and K of each result
_HOPPER = 90
_HOPED = 1.12  # measured slowdown, relative to the model, of forms without ring buffer next to ring buffers
_PIECES = (64, 32)
_LONG, _PARTED = 1024, (64, 64)  # K from which on products of few such tiles are split, unless combined
_KEPT = (64, 128)  # the largest tile that registers hold next to another: larger ones took four times as long
_AT_ONCE = ("bf16",)  # operands; for f16 the assembler serialises the products
_IN_TURN = ("bf16", "f16")
_LAUNCH = 1500  # cycles of a launch after another one
_HANDED_ON = 4  # bytes written and read per result between launches, as 16-bit numbers
_MEMORY = 2000  # bytes per cycle that all SMs together read or write


def pays(products: Sequence[ProductShape], target: GpuTarget) -> bool:
    """Whether one launch is expected to be faster than several, by the cost models of their forms, the cost of
    launches, and the traffic of intermediate results."""
    first = products[0]
    alike = {shape.dtypes[:2] for shape in products} == {first.dtypes[:2]} and first.dtypes[0] == first.dtypes[1]
    if len(products) > MOST or not alike:
        return False
    factor = first.dtypes[0]
    m, n, *depths = (size or _GUESS for size in (first.m, first.n, *(shape.k for shape in products)))
    if factor not in RATES or min(m, n, *depths) < _LEAST:
        return False
    together = len(set(depths)) == 1 and any(len({side(shape) for shape in products}) == 1 for side in (_left, _right))
    batch = first.batch or 1
    if max(depths) >= _LONG and _tiles_of(_PARTED, batch, m, n) < target.processors // 2:
        return False
    if first.dtypes[0] not in (_AT_ONCE if together else _IN_TURN):
        return False
    if not together and _tiles_of(_KEPT, batch, m, n) > target.processors:
        return False
    columns = 1 << (len(products) - 1).bit_length() if together else 1
    one = GemmShape(m, n * columns, depths[0] if together else sum(depths), batch, factor, False)
    apart = sum(_least(replace(one, n=n, k=k), every_ring(_items(factor), _PIECES, target), target) for k in depths)
    between = (len(products) - 1) * (_LAUNCH + one.batch * m * n * _HANDED_ON / _MEMORY)
    around = joined_ring.fits(len(products), together, _items(factor), one, target)
    return _least(one, [fit.ring for fit in around], target) < apart + between


def _tiles_of(sides: tuple[int, int], batch: int, m: int, n: int) -> int:
    return batch * -(-m // sides[0]) * -(-n // sides[1])


def _left(shape: ProductShape) -> int:
    return shape.left


def _right(shape: ProductShape) -> int:
    return shape.right


def _items(factor: str) -> tuple[int, int]:
    size = item_bytes(stored_as(factor))
    return size, size


def _least(problem: GemmShape, rings: Sequence[Ring], target: GpuTarget) -> float:
    """The estimated cycles of the fastest form of a product."""
    found = [cycles(problem, tile, target) for tile in choose_tiles(problem, target, 1)]
    if target.architecture == _HOPPER and problem.batch == 1 and problem.factor not in ("f32", "f64", "tf32x3"):
        found += [ring_cycles(ring, problem, target) for ring in rings]
    return min(found)


def emit(j: Joined, target: GpuTarget) -> tuple[Form, ...]:
    """Forms, best first. Raises `Unsupported`."""
    problem = _problem(j)
    tiles = _tiles(j, problem, target)
    forms = tuple(_form(j, tile) for tile in tiles)
    way = joined_ring.turned(j)
    factors = joined_ring.factors_of(way, target)
    if factors is None:
        return forms
    last = way.products[-1]
    m, n = (total(loops).known or _GUESS for loops in (last.m, last.n))
    turned = replace(problem, m=m, n=n * _columns(j))
    fits = joined_ring.fits(len(j.products), j.together, _sizes(j), turned, target)[:_RINGS]
    around = tuple(joined_ring.form(way, factors, fit, target) for fit in fits)
    hoped = _HOPED * cycles(problem, _wide(j, tiles[0]), target)
    if not fits or not j.together or ring_cycles(fits[0].ring, turned, target) > hoped:
        return (*forms[:1], *around, *forms[1:])
    return (*around, *forms)


def _problem(j: Joined) -> GemmShape:
    """A single product of the same amount of work: with the sum of all K or, if an operand is shared, of all
    columns."""
    last = j.products[-1]
    m, n, batch = (total(loops).known or _GUESS for loops in (last.m, last.n, last.batch))
    depth = [total(c.k).known or _GUESS for c in j.products]
    factor = max((c.factor for c in j.products), key=lambda each: item_bytes(stored_as(each)))
    return GemmShape(m, n * _columns(j), depth[0] if j.together else sum(depth), batch, factor, False)


def _columns(j: Joined) -> int:
    """The number of columns in `_problem` per column of the result."""
    return 1 << (len(j.products) - 1).bit_length() if j.together else 1


def _wide(j: Joined, tile: Tile) -> Tile:
    return replace(tile, n=tile.n * _columns(j))


def _sizes(j: Joined) -> tuple[int, int]:
    """Bytes of an element of an operand, and of a result that TMA can store."""
    result = leaving(j.products[-1])
    return item_bytes(stored_as(j.products[-1].factor)), item_bytes(result.place.dtype) if result is not None else 0


def _tiles(j: Joined, problem: GemmShape, target: GpuTarget) -> list[Tile]:
    """Tiles for each of the products, chosen as for `problem`."""
    count, least = _columns(j), max(32, power_of_two(min(total(c.k).known or _GUESS for c in j.products)))
    found = choose_tiles(problem, target, 2 * _FORMS)
    tiles = [replace(tile, n=tile.n // count, k=min(tile.k, least)) for tile in found]
    return [tile for tile in tiles if tile.n >= _LEAST_SIDE][:_FORMS]


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
    stages = parted(j)
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
