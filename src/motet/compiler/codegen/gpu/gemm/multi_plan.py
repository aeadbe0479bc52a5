"""products: several sums of products whose results meet; which forms there are, and whether one launch pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.gemm import multi_matching, multi_rings
from motet.compiler.codegen.gpu.gemm.launch import leaving
from motet.compiler.codegen.gpu.gemm.multi_matching import MOST, Joined
from motet.compiler.codegen.gpu.gemm.multi_rings import Fit, TmaOperands
from motet.compiler.codegen.gpu.gemm.persistent_tiles import Ring, every_ring, ring_cycles
from motet.compiler.codegen.gpu.gemm.tiles import RATES, GemmShape, Tile, choose_tiles, cycles, stored_as
from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart, seen_by
from motet.compiler.codegen.gpu.tasks import power_of_two, total
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.targets.gpu import GpuTarget

_FORMS = 6
_RINGS = 3
_GUESS = 1024  # of a dynamic extent
_LEAST_SIDE = 16  # of a tile
_LEAST = 8  # minimum rows, columns and K of each result
_HOPPER = 90
_HOPED = 1.12  # measured slowdown, relative to the model, of forms without ring buffer next to ring buffers
_PIECES = (64, 32)
_LONG, _PARTED = 1024, (64, 64)  # sums so long are parted where there are few such tiles, but not those that are joined
_KEPT = (64, 128)  # the largest tile that registers hold next to another: larger ones took four times as long
_AT_ONCE = ("bf16",)  # operands; for f16 the assembler serialises the products
_IN_TURN = ("bf16", "f16")
_LAUNCH = 1500  # cycles of a launch after another one
_HANDED_ON = 4  # bytes written and read per result between launches, as 16-bit numbers
_MEMORY = 2000  # bytes per cycle that all SMs together read or write


@dataclass(frozen=True)
class MultiTiles:
    """A tile of each product, whose parts every thread loads."""

    j: Joined
    tile: Tile


@dataclass(frozen=True)
class MultiRing:
    """Programs that stay, and go around a ring of tiles of all products."""

    j: Joined
    factors: TmaOperands
    fit: Fit


@dataclass(frozen=True)
class MultiPlan:
    """Products whose results meet, and the ways to write them, the preferred one first."""

    choices: tuple[MultiTiles | MultiRing, ...]
    target: GpuTarget


class ProductLaunches(LaunchClass[Joined, MultiPlan, FormT]):
    name = "products"
    rank = 1

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        for count in range(len(stages), 1, -1):
            if multi_matching.matched(kernel, stages[:count], seen_by(kernel, stages[:count], set())) is not None:
                return count
        return 0

    def match(self, launch: LaunchPart, target: GpuTarget) -> Joined | None:
        return multi_matching.match(launch, target)

    def plan(self, found: Joined, target: GpuTarget) -> MultiPlan:
        return MultiPlan(choices(found, target), target)


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
    around = multi_rings.fits(len(products), together, _items(factor), one, target)
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


def choices(j: Joined, target: GpuTarget) -> tuple[MultiTiles | MultiRing, ...]:
    """The best first."""
    problem = _problem(j)
    tiles = _tiles(j, problem, target)
    plain = [MultiTiles(j, tile) for tile in tiles]
    way = multi_rings.turned(j)
    factors = multi_rings.factors_of(way, target)
    if factors is None:
        return tuple(plain)
    last = way.products[-1]
    m, n = (total(loops).known or _GUESS for loops in (last.m, last.n))
    turned = replace(problem, m=m, n=n * _columns(j))
    fits = multi_rings.fits(len(j.products), j.together, _sizes(j), turned, target)[:_RINGS]
    around = [MultiRing(way, factors, fit) for fit in fits]
    hoped = _HOPED * cycles(problem, _wide(j, tiles[0]), target)
    if not fits or not j.together or ring_cycles(fits[0].ring, turned, target) > hoped:
        return (*plain[:1], *around, *plain[1:])
    return (*around, *plain)


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
