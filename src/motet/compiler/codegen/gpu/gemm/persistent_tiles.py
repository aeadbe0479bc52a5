"""What a ring of tiles is made for, and its sizes: `ring.py` chooses them, `ring_text.py` writes the program."""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch, leaving
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.tiles import RATES, GemmShape, Stayed, stored_as
from motet.compiler.codegen.gpu.tasks import total
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import Extent
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_LINE = 128  # bytes of a factor along K in one place of the ring
_PLACES = (8, 3)  # most and least of a ring
_FORMS = 3
_ASIDE = 2048  # bytes of shared memory for barriers, and descriptors while they are made
_BEGIN = 8570  # cycles until a program multiplies
_SOONER = 150  # cycles less where one group of four warps multiplies
_CACHE_BYTES = 90  # that one processor reads from the second-level cache in a cycle
_SHAPES = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (128, (64, 32)), (128, (64,)), (64, (256,)),
    (64, (128, 64)),
)
_WIDE_SHAPES = ((128, (64, 64, 64)), (128, (32, 32, 32)), (64, (64, 64, 64)))
_WIDE = 0.98  # times as long as an instruction for each part takes one for all
_LONG = 2048  # products of each result, from which on blocks go in pairs
_ENOUGH = 0.9  # tiles for each processor, for that
_BY_THREADS = (128, (128,))  # where threads multiply: of larger tiles registers have no room for what comes next


@dataclass(frozen=True)
class Ring(Stayed):
    """Tiles of `m` rows and `widths` columns, `k` along the sum at a time, `stages` places in the ring; results leave
    in pieces of `piece` columns, `outs` of which may be on their way, and which divide the number of pieces. If it is
    `wide`, one instruction multiplies all `widths`, which are alike. Of `paired` tiles two beside each other,
    which have rows in common, are made by blocks on neighbouring processors (`clusters.py`)."""

    m: int
    widths: tuple[int, ...]
    k: int
    stages: int
    piece: int
    outs: int = 1
    wide: bool = False
    paired: bool = False

    @property
    def label(self) -> str:
        return f"ring {self.m}x{self.n}x{self.k} stages={self.stages}" + (" in pairs" if self.paired else "")


@dataclass(frozen=True)
class PersistentParts:
    """What a ring is written for: both factors and the result (None: stored by the threads) as matrices, how many rows,
    columns and products there are, the element type of factors and sums, and whether threads multiply themselves."""

    left: Matrix
    right: Matrix
    result: Matrix | None
    rows: Extent
    columns: Extent
    depth: Extent
    factor: str
    sum: str
    by_threads: bool = False

    @property
    def in_registers(self) -> bool:
        """Whether the left factor comes to the tensor cores from registers, since it lies across its sum: from shared
        memory they take 16-bit numbers alone in either direction."""
        return item_bytes(self.factor) != 2 and self.left.across and not self.by_threads


def rings(
    c: ContractionLaunch, left: Matrix | None, right: Matrix | None, problem: GemmShape, target: GpuTarget
) -> list[Ring]:
    """What fits a contraction of factors `left` and `right`, the best first; none where they cannot be described."""
    if left is None or right is None or c.batch or c.task.epilogue is None or target.architecture != _HOPPER:
        return []
    if c.factor in ("f64", "tf32x3"):
        return []
    result = leaving(c)
    sizes = item_bytes(stored_as(c.factor)), item_bytes(result.place.dtype) if result is not None else 0
    wide = 128 if c.factor == "i8" else 256  # of 256 columns Triton 3.9 makes no code for integers
    pieces = (32, 64) if left.across and sizes[0] == 4 else (64, 32)
    together = 0
    if sizes[0] == 2 and c.sum == "f32" and not left.across:
        together = 1 if right.across else _LINE // sizes[0]
    found = [ring for ring in every_ring(sizes, pieces, target, together) if max(ring.widths) <= wide]
    if c.factor == "f32":
        found = [ring for ring in every_ring(sizes, (64,), target) if (ring.m, ring.widths) == _BY_THREADS]
    found = sorted(found, key=lambda ring: ring_cycles(ring, problem, target))[:_FORMS]
    known = total(c.m).known is not None and total(c.n).known is not None
    if found and known and _goes_in_pairs(found[0], problem, target):
        return [replace(found[0], paired=True), *found]
    return found


def _goes_in_pairs(ring: Ring, problem: GemmShape, target: GpuTarget) -> bool:
    """Whether pairs of tiles pay: for long sums of many rows, which are what is read most, while reading binds and all
    processors have work. On an H100 2 to 4 % less; others take as long, and sums of 1024 and less up to 8 % more."""
    if problem.k < _LONG or problem.m <= problem.n or problem.factor not in ("f16", "bf16"):
        return False
    rows, columns = -(-problem.m // ring.m), -(-problem.n // ring.n)
    full = rows * columns >= _ENOUGH * target.processors and columns % 2 == 0
    return full and ring.m == 128 and ring.n < 256 and target.binary == "cubin"


def every_ring(
    sizes: tuple[int, int], pieces: tuple[int, ...], target: GpuTarget, together: int = 0
) -> list[Ring]:
    """Those that have room where a factor's and a result's element take `sizes` bytes. Results leave in `pieces` of as
    many columns, the first that is possible: two of them at least on their way are worth more than another place.
    Parts of a tile of `together` columns at least one instruction may multiply; 0: none."""
    wide = [(m, widths) for m, widths in _WIDE_SHAPES if 0 < together <= widths[0]]
    sides = {(m, sum(widths)) for m, widths in wide}
    made = [Ring(m, widths, _LINE // sizes[0], 0, 0) for m, widths in _SHAPES if (m, sum(widths)) not in sides]
    made += [Ring(m, widths, _LINE // sizes[0], 0, 0, wide=True) for m, widths in wide]
    found = (_fitting(ring, sizes, pieces, target) for ring in made)
    return [ring for ring in found if ring is not None]


def _fitting(ring: Ring, sizes: tuple[int, int], pieces: tuple[int, ...], target: GpuTarget) -> Ring | None:
    """`ring` with places and pieces."""
    most, least = _PLACES
    for piece in pieces:
        if ring.widths[-1] % piece:
            continue
        for stages in range(most, least - 1, -1):
            room = target.shared - _ASIDE - stages * (ring.m + ring.n) * ring.k * sizes[0]
            outs = _outs(ring.n // piece, room, ring.m * piece * sizes[1])
            if outs >= min(2, ring.n // piece):
                return replace(ring, stages=stages, piece=piece, outs=outs)
    return None


def _outs(pieces: int, room: int, size: int) -> int:
    """How many pieces of `size` bytes have room at once, one of those numbers that all pieces are a multiple of."""
    return max((count for count in range(1, pieces + 1) if pieces % count == 0 and count * size <= room), default=0)


def ring_cycles(ring: Ring, problem: GemmShape, target: GpuTarget) -> float:
    """What a product takes on the busiest processor, as `tiles.cycles`. Fitted to what an H200 took for 41 pairs of
    shapes and rings, to within 4 % in the mean."""
    waves = -(-(-(-problem.m // ring.m) * -(-problem.n // ring.n)) // target.processors)
    size = item_bytes(stored_as(problem.factor))
    arithmetic = ring.m * ring.n * ring.k / RATES[problem.factor]
    reading = (ring.m + ring.n) * ring.k * size / _CACHE_BYTES
    step = (max(1.07 * arithmetic, reading) + 0.06 * min(arithmetic, reading) + 74) * (_WIDE if ring.wide else 1)
    ending = ring.m * ring.n / 16 + 500
    begin = _BEGIN - (_SOONER if ring.warps == 4 else 0)
    return begin + waves * (-(-problem.k // ring.k) * step + 0.53 * ending)
