"""Sizes of persistent kernels' tiles and ring buffers: `persistent.py` chooses them, `persistent_text.py` writes
code."""

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
_LINE = 128  # bytes of an operand along K in one slot
_PLACES = (8, 3)  # most and fewest slots
_FORMS = 3
_ASIDE = 2048  # bytes of shared memory for barriers, and for descriptors during creation
_BEGIN = 8570  # cycles before a program's first multiplication
_SOONER = 150  # cycles less with one group of four consumer warps
_CACHE_BYTES = 90  # that one SM reads from the second-level cache per cycle
_SHAPES = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (128, (64, 32)), (128, (64,)), (64, (256,)),
    (64, (128, 64)),
)
_WIDE_SHAPES = ((128, (64, 64, 64)), (128, (32, 32, 32)), (64, (64, 64, 64)))
_WIDE = 0.98  # relative time of one instruction for all parts
_LONG = 2048  # K from which on blocks are paired
_ENOUGH = 0.9  # minimum tiles per SM for pairs
_BY_THREADS = (128, (128,))  # for multiplication by threads; larger tiles leave no registers for prefetched operands


@dataclass(frozen=True)
class Ring(Stayed):
    """Tiles of `m` rows and `widths` columns, with `k` steps of K and `stages` slots; results are stored in pieces of
    `piece` columns, of which `outs`, a divisor of their number, may be in flight. If `wide`, one instruction multiplies
    all `widths`, which are equal. Two neighbouring `paired` tiles, which share rows, are computed by blocks on
    neighbouring SMs (`clusters.py`)."""

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
    """The problem of a persistent kernel: both operands and the result (None: stored by threads) as matrices, the
    numbers of rows, columns and products, the element types of operands and sums, and whether threads multiply."""

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
        """Whether tensor cores read the left operand from registers, since it is contiguous across K: from shared
        memory they read only 16-bit numbers in either direction."""
        return item_bytes(self.factor) != 2 and self.left.across and not self.by_threads


def rings(
    c: ContractionLaunch, left: Matrix | None, right: Matrix | None, problem: GemmShape, target: GpuTarget
) -> list[Ring]:
    """The ring buffers for a contraction of operands `left` and `right`, best first; none without TMA descriptors."""
    if left is None or right is None or c.batch or c.task.epilogue is None or target.architecture != _HOPPER:
        return []
    if c.factor in ("f64", "tf32x3"):
        return []
    result = leaving(c)
    sizes = item_bytes(stored_as(c.factor)), item_bytes(result.place.dtype) if result is not None else 0
    wide = 128 if c.factor == "i8" else 256  # Triton 3.9 fails on integer tiles of 256 columns
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
    """Whether pairs of tiles pay: for large K and many rows, which dominate the traffic, if reads limit the speed and
    all SMs are busy. On an H100 they take 2 to 4 % less; others take as long, and K of at most 1024 up to 8 % more."""
    if problem.k < _LONG or problem.m <= problem.n or problem.factor not in ("f16", "bf16"):
        return False
    rows, columns = -(-problem.m // ring.m), -(-problem.n // ring.n)
    full = rows * columns >= _ENOUGH * target.processors and columns % 2 == 0
    return full and ring.m == 128 and ring.n < 256 and target.binary == "cubin"


def every_ring(
    sizes: tuple[int, int], pieces: tuple[int, ...], target: GpuTarget, together: int = 0
) -> list[Ring]:
    """The ring buffers that fit in shared memory, for `sizes` bytes of an operand's and a result's element. Results are
    stored in pieces of the first width in `pieces` that is possible; two pieces in flight are worth more than another
    slot. One instruction may compute all parts of a tile if each has at least `together` columns; 0: never."""
    wide = [(m, widths) for m, widths in _WIDE_SHAPES if 0 < together <= widths[0]]
    sides = {(m, sum(widths)) for m, widths in wide}
    made = [Ring(m, widths, _LINE // sizes[0], 0, 0) for m, widths in _SHAPES if (m, sum(widths)) not in sides]
    made += [Ring(m, widths, _LINE // sizes[0], 0, 0, wide=True) for m, widths in wide]
    found = (_fitting(ring, sizes, pieces, target) for ring in made)
    return [ring for ring in found if ring is not None]


def _fitting(ring: Ring, sizes: tuple[int, int], pieces: tuple[int, ...], target: GpuTarget) -> Ring | None:
    """`ring` with its numbers of slots and pieces."""
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
    """The largest divisor of `pieces` such that so many pieces of `size` bytes fit in `room`."""
    return max((count for count in range(1, pieces + 1) if pieces % count == 0 and count * size <= room), default=0)


def ring_cycles(ring: Ring, problem: GemmShape, target: GpuTarget) -> float:
    """The estimated cycles of the busiest SM, as in `tiles.cycles`. Fitted to 41 pairs of shapes and ring buffers
    measured on an H200, to within 4 % on average."""
    waves = -(-(-(-problem.m // ring.m) * -(-problem.n // ring.n)) // target.processors)
    size = item_bytes(stored_as(problem.factor))
    arithmetic = ring.m * ring.n * ring.k / RATES[problem.factor]
    reading = (ring.m + ring.n) * ring.k * size / _CACHE_BYTES
    step = (max(1.07 * arithmetic, reading) + 0.06 * min(arithmetic, reading) + 74) * (_WIDE if ring.wide else 1)
    ending = ring.m * ring.n / 16 + 500
    begin = _BEGIN - (_SOONER if ring.warps == 4 else 0)
    return begin + waves * (-(-problem.k // ring.k) * step + 0.53 * ending)
