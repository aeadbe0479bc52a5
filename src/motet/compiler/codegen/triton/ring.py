"""Contractions on Hopper: warps that only fetch and warps that only multiply, around a ring of tiles in shared memory.

A program stays and makes tile after tile. One warp has the copy engine fill the ring, as far ahead as it is long, also
across the borders of tiles; the others multiply what has come, asynchronously, and give places of the ring back. What
they make goes through shared memory to the copy engine too, piece by piece along N. A tile may be wider than a power of
two, being several beside each other. Blocks of a cluster get what they share at once: the second-level cache gives a
processor less than its tensor cores take. A 32-bit factor that lies across its sum goes through registers, as the left
one. Source: NVIDIA, "CUTLASS: Efficient GEMM in CUDA" (warp-specialised persistent kernels, "ping-pong"), 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.kernel import item_bytes
from motet.compiler.codegen.triton.loops import ceiling, total
from motet.compiler.codegen.triton.matrices import Matrix
from motet.compiler.codegen.triton.products import Contraction, finish, leaving, stay, times
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.ring_text import Parts, RingWriter, module
from motet.compiler.codegen.triton.tiles import RATES, Problem, stored_as
from motet.compiler.codegen.triton.writer import Coordinate
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_LINE = 128  # bytes of a factor along K in one place of the ring
_PLACES = (8, 2)  # most and least of a ring
_FORMS = 3
_ASIDE = 2048  # bytes of shared memory for barriers, and descriptors while they are made
_BEGIN = 8500  # cycles until a program multiplies
_CACHE_BYTES = 64  # that one processor reads from the second-level cache in a cycle
_SHAPES = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (128, (64, 32)), (128, (64,)), (64, (256,)),
    (64, (128, 64)),
)
_CLUSTERS = ((1, 1),)  # blocks below and beside one another


@dataclass(frozen=True)
class Ring:
    """Each block makes tiles of `m` rows and `widths` columns, `k` along the sum at a time, with `stages` places in the
    ring; results leave in pieces of `piece` columns, `outs` of which may be on their way, and which divide the number
    of pieces. A cluster is `high` blocks below or `wide` blocks beside one another. Two `groups` of warps make tiles in
    turn: one stores while the other one multiplies."""

    m: int
    widths: tuple[int, ...]
    k: int
    stages: int
    piece: int
    outs: int = 1
    high: int = 1
    wide: int = 1
    groups: int = 1

    @property
    def n(self) -> int:
        return sum(self.widths)

    @property
    def blocks(self) -> int:
        return self.high * self.wide

    @property
    def rows(self) -> int:
        """Of a cluster's tile."""
        return self.m * self.high

    @property
    def columns(self) -> int:
        return self.n * self.wide

    @property
    def warps(self) -> int:
        """Those of a group that multiplies, which is what a form asks for."""
        return 8 if self.m >= 128 and self.groups == 1 else 4

    @property
    def label(self) -> str:
        cluster = f"{self.high}x{self.wide} of " if self.blocks > 1 else ""
        turns = " in turn" if self.groups > 1 else ""
        return f"ring {cluster}{self.m}x{self.n}x{self.k} stages={self.stages}{turns}"

    def parted(self, rows: bool, columns: bool, across: bool = False) -> str:
        """How what has rows and columns of a tile is parted among the blocks, as an argument of its layout; `across`
        says that its columns come first."""
        if self.blocks == 1:
            return ""
        bases = [[int(rows) << bit, 0] for bit in range(self.high.bit_length() - 1)]
        bases += [[0, int(columns) << bit] for bit in range(self.wide.bit_length() - 1)]
        return f", cga_layout={[basis[::-1] for basis in bases] if across else bases}"


def rings(c: Contraction, left: Matrix | None, right: Matrix | None, problem: Problem, target: GpuTarget) -> list[Ring]:
    """What fits a contraction of factors `left` and `right`, the best first; none where they cannot be described."""
    if left is None or right is None or c.batch or c.task.epilogue is None or target.architecture != _HOPPER:
        return []
    if c.factor in ("f32", "f64", "tf32x3"):
        return []
    result = leaving(c)
    sizes = item_bytes(stored_as(c.factor)), item_bytes(result.place.dtype) if result is not None else 0
    found = every_ring(sizes, target)
    return sorted(found, key=lambda ring: ring_cycles(ring, problem, target))[:_FORMS]


def every_ring(sizes: tuple[int, int], target: GpuTarget) -> list[Ring]:
    """Those that have room where a factor's and a result's element take `sizes` bytes: as many places as there is room
    for, of outgoing pieces as many as then have it."""
    found = (
        _fitting(Ring(m, widths, _LINE // sizes[0], 0, 0, 0, high, wide), sizes, target)
        for m, widths in _SHAPES for high, wide in _CLUSTERS if wide == 1 or len(widths) == 1
    )
    return [ring for ring in found if ring is not None]


def _fitting(ring: Ring, sizes: tuple[int, int], target: GpuTarget) -> Ring | None:
    """`ring` with places and pieces. Pieces have columns of one part and one block alone."""
    pieces = ring.widths if ring.wide > 1 else [piece for piece in (64, 32) if ring.widths[-1] % piece == 0]
    most, least = _PLACES
    for stages in range(most, least - 1, -1):
        room = target.shared - _ASIDE - stages * (ring.m + ring.n) * ring.k * sizes[0]
        for piece in pieces:
            outs = _outs(ring.n // piece, room, ring.m * piece * sizes[1])
            if outs >= min(2, ring.n // piece) or (outs and stages == least):
                return replace(ring, stages=stages, piece=piece, outs=outs)
    return None


def _outs(pieces: int, room: int, size: int) -> int:
    """How many pieces of `size` bytes have room at once, one of those numbers that all pieces are a multiple of."""
    return max((count for count in range(1, pieces + 1) if pieces % count == 0 and count * size <= room), default=0)


def ring_cycles(ring: Ring, problem: Problem, target: GpuTarget) -> float:
    """What a product takes on the busiest processor, as `tiles.cycles`; what blocks share each reads a part of."""
    tiles = -(-problem.m // ring.rows) * -(-problem.n // ring.columns)
    waves = -(-tiles // (target.processors // ring.blocks))
    size = item_bytes(stored_as(problem.factor))
    arithmetic = ring.m * ring.n * ring.k / RATES[problem.factor]
    reading = 0.93 * (ring.m / ring.wide + ring.n / ring.high) * ring.k * size / _CACHE_BYTES
    step = max(1.04 * arithmetic, reading) + 0.1 * min(arithmetic, reading) + 20
    ending = ring.m * ring.n * 4 / _CACHE_BYTES + 500
    return _BEGIN + waves * (-(-problem.k // ring.k) * step + 0.7 * ending)


def ring_form(c: Contraction, left: Matrix, right: Matrix, ring: Ring, target: GpuTarget) -> Form:
    """Raises `Unsupported`."""
    task, result = c.task, leaving(c)
    w = RingWriter(task.kernel, task.buffers, (ring.rows, ring.piece * ring.wide), result, ring.outs)
    wide = ".to(tl.int64)" if w.wide else ""
    row, column = (w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn"))
    rows, columns = total(c.m), total(c.n)
    w.masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, ring.rows), (1, column, columns, ring.columns))
        if count.known is None or count.factor % block
    }
    at = w.decompose(Coordinate(row, frozenset({0})), c.m) | w.decompose(Coordinate(column, frozenset({1})), c.n)
    finish(w, c, "acc", at)
    parts = Parts(left, right, result, rows, columns, total(c.k), stored_as(c.factor), c.sum)
    tiles = times(ceiling(rows, ring.rows), ceiling(columns, ring.columns))
    tasks = times(stay(tiles, target.processors // ring.blocks), ring.blocks)
    source = module(w, parts, ring, task.symbol, task.about)
    return Form(source, tasks, ring.warps, ring.stages, ring.label, ring.blocks)
