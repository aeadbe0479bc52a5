"""Enumerates the tiles of contractions that fit a target, and ranks them by a cost model.

How operands are loaded:

    pointers      every thread loads its part, by any addresses
    descriptors   TMA loads tiles (`operand_layout.py`)
    blocks        Intel's 2-D block loads, by block pointers (`xpu_tiles.py`)

Persistent kernels with a ring buffer have separate tiles (`persistent.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from motet.compiler.codegen.gpu.gemm.xpu_tiles import xpu_tiles
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.targets.gpu import GpuTarget

Kind = Literal["pointers", "descriptors", "blocks"]
PRECISIONS = {"f32": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}
_CACHE_BYTES = 64  # that one SM reads from the second-level cache per cycle
RATES = {  # multiply-adds per cycle
    "f16": 2048, "bf16": 2048, "tf32": 1024, "tf32x3": 340, "f32": 128, "f64": 64, "i8": 4096, "f8E4M3FN": 4096,
    "f8E5M2": 4096,
}
_DEPTHS = {
    "f16": 64, "bf16": 64, "tf32": 32, "tf32x3": 32, "f32": 16, "f64": 16, "i8": 128, "f8E4M3FN": 128, "f8E5M2": 128,
}
_POINTS = {"f64": 64 * 64, "f32": 128 * 64, "tf32x3": 128 * 128}  # elements of the largest tile; others: 128 * 256
_SIDES = (16, 32, 64, 128, 256)
_BEGIN = {"pointers": 1500, "descriptors": 3000, "blocks": 1500}  # cycles before a program's first multiplication
_NARROW = 4  # slowdown of loads of single elements
_ENGINE = 0.93  # time of TMA loads relative to loads by threads
_SHORT = 16  # iterations up to which a deep pipeline takes longer to fill than it gains
_HOPPER = 90
_MOST_DEEP = 6  # stages of a small tile
_LATENCY = 1100  # cycles of a load from memory
_IN_WARPS = 1.4  # slowdown of products of tiles too low for groups of warps


class Stayed:
    """Base of tiles of persistent programs: `m` rows and `widths` columns."""

    m: int
    widths: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.widths)

    @property
    def warps(self) -> int:
        """The number of consumer warps, which is that of the form."""
        return 8 if self.m >= 128 else 4


@dataclass(frozen=True)
class Tile:
    m: int
    n: int
    k: int
    warps: int
    stages: int
    kind: Kind = "pointers"

    @property
    def label(self) -> str:
        """The form's label in tunings."""
        kind = "" if self.kind == "pointers" else f"{self.kind} "
        return f"{kind}{self.m}x{self.n}x{self.k} warps={self.warps} stages={self.stages}"


@dataclass(frozen=True)
class GemmShape:
    """The shape of a product: rows, columns, K and batch (guesses if dynamic), the dtype `factor` (see
    `products.ContractionLaunch`), whether TMA can load both operands, and whether threads must load one of them element
    by element."""

    m: int
    n: int
    k: int
    batch: int
    factor: str
    described: bool
    narrow: bool = False


def stored_as(factor: str) -> str:
    """The dtype of operands in memory."""
    return "f32" if factor in PRECISIONS else factor


def choose_tiles(problem: GemmShape, target: GpuTarget, most: int) -> list[Tile]:
    """About `most` tiles, fastest first, with at least one of every kind, followed by smaller ones in case those do not
    fit. Empty if none fits the target."""
    tiles = sorted(_all(problem, target), key=lambda tile: (cycles(problem, tile, target), tile.m * tile.n))
    kinds = {tile.kind: tile for tile in reversed(tiles)}  # the best of each kind
    best = [tile for number, tile in enumerate(tiles) if number <= most - len(kinds) or tile in kinds.values()]
    least = min((tile.m * tile.n for tile in best), default=0)
    smaller = [tile for tile in tiles if tile.kind == "pointers" and tile.m * tile.n < least]
    return [*best, *smaller[:2]]


def _all(problem: GemmShape, target: GpuTarget) -> list[Tile]:
    if target.xpu is not None:
        sizes = power_of_two(problem.m), power_of_two(problem.n), power_of_two(problem.k)
        return [
            Tile(tile.m, tile.n, tile.k, tile.warps, 2 if tile.blocks else 1, "blocks" if tile.blocks else "pointers")
            for tile in xpu_tiles(target.xpu, problem.factor, sizes, problem.described)
        ]
    found: list[Tile] = []
    described = problem.described and target.is_cuda and target.architecture == _HOPPER
    described = described and problem.factor not in ("f32", "f64", "tf32x3")
    kinds: tuple[Kind, ...] = ("pointers", "descriptors") if described else ("pointers",)
    for m in _SIDES:
        for n in _SIDES:
            if m * n > _POINTS.get(problem.factor, 128 * 256) or m > max(16, 4 * power_of_two(problem.m)):
                continue
            if n > max(16, 4 * power_of_two(problem.n)):
                continue
            for kind in kinds:
                found += _tiles(problem, m, n, kind, target)
    return found


def _tiles(problem: GemmShape, m: int, n: int, kind: Kind, target: GpuTarget) -> list[Tile]:
    """The tiles of `m` by `n`: with as many stages as fit, and, for a medium size, with so many that two programs fit
    on one SM."""
    if kind != "pointers" and (m < 64 or n < 64):
        return []
    k = _depth(problem, m, n)
    warps = _warps(problem, m, n)
    one = (m + n) * k * item_bytes(stored_as(problem.factor))
    room = target.shared - 4096
    steps = -(-problem.k // k)
    most = 3 if problem.factor == "f32" else 4 if m * n > 64 * 128 or steps <= _SHORT else 6
    stages = [min(most, max(1, steps), room // one)]
    if m * n == 128 * 128:
        half = min(stages[0], (target.shared // 2 - 2048) // one)
        if 2 <= half < stages[0]:
            stages.append(half)
    tiles = [Tile(m, n, k, warps, count, kind) for count in stages if count >= 1]
    return [*tiles, *_deep(tiles, problem, target)]


def _deep(tiles: Sequence[Tile], problem: GemmShape, target: GpuTarget) -> list[Tile]:
    """Variants of small `tiles` with more stages: all or most of a short product's operands are loaded at once."""
    found: list[Tile] = []
    for tile in tiles:
        k = max(tile.k, min(2 * _DEPTHS[problem.factor], power_of_two(problem.k)))
        room = (target.shared - 4096) // ((tile.m + tile.n) * k * item_bytes(stored_as(problem.factor)))
        deep = replace(tile, k=k, stages=min(_MOST_DEEP, -(-problem.k // k), room))
        if _is_short(problem, tile, target) and deep.stages * k > tile.stages * tile.k:
            found.append(deep)
    return found


def _is_short(problem: GemmShape, tile: Tile, target: GpuTarget) -> bool:
    """Whether a product mostly waits for the first of its operands."""
    small = tile.kind == "pointers" and tile.m * tile.n <= 64 * 64 and problem.factor in ("f16", "bf16")
    alone = problem.batch == 1 and problem.k <= _SHORT * _DEPTHS[problem.factor]
    return small and alone and target.architecture == _HOPPER


def _depth(problem: GemmShape, m: int, n: int) -> int:
    """The steps of K per iteration; tiles of few rows have more, so that enough loads are in flight."""
    least = 32 if item_bytes(stored_as(problem.factor)) == 1 else 16
    depth = _DEPTHS[problem.factor]
    if problem.factor == "f32" and m * n <= 64 * 64:
        depth = 32
    if min(m, n) <= 16 and problem.factor not in ("f32", "f64"):
        depth *= 4 if m * n <= 16 * 32 else 2
    return min(depth, max(least, power_of_two(problem.k)))


def _warps(problem: GemmShape, m: int, n: int) -> int:
    if problem.factor == "f32":
        return 8 if m * n > 64 * 128 else 4
    return 8 if m * n >= 128 * 256 or (m * n >= 128 * 128 and m != n) else 4 if m * n >= 16 * 64 else 2


def cycles(problem: GemmShape, tile: Tile, target: GpuTarget) -> float:
    """The estimated cycles of the busiest SM. Arithmetic and loads overlap; the start and the end of a tile add
    latency. Fitted to some 300 pairs of shapes and tiles measured on an H200."""
    tiles = -(-problem.m // tile.m) * -(-problem.n // tile.n) * problem.batch
    steps = -(-problem.k // tile.k)
    size = item_bytes(stored_as(problem.factor))
    share = min(1.0, tile.m * tile.n / (64 * 64), max(tile.m, 16) / 64)
    arithmetic = tile.m * tile.n * tile.k / (RATES[problem.factor] * share)
    reading = (tile.m + tile.n) * tile.k * size / _CACHE_BYTES
    if tile.kind != "pointers":
        reading *= _ENGINE
    elif problem.narrow:
        reading *= _NARROW
    if _is_short(problem, tile, target):
        arithmetic *= _IN_WARPS if tile.m < 64 <= problem.m else 1
        reading = max(reading, _LATENCY / max(1, tile.stages - 1))
    step = max(1.1 * arithmetic, reading) + 0.1 * min(arithmetic, reading) + 20
    ending = tile.m * tile.n * 4 / _CACHE_BYTES + 500
    programs_per_sm = 2 if _two_fit(tile, size, target) else 1
    waves = -(-tiles // target.processors)
    hidden = 0.5 if programs_per_sm == 2 and waves > 1 else 1.0
    return waves * (steps * step + hidden * (ending + _BEGIN[tile.kind]))


def _two_fit(tile: Tile, size: int, target: GpuTarget) -> bool:
    """Whether two programs fit on one SM."""
    ring = tile.stages * (tile.m + tile.n) * tile.k * size
    return 2 * ring <= target.shared and tile.m * tile.n <= 128 * 128

