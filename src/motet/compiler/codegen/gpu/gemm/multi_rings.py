"""Rings of several products whose results meet, on Hopper: which have room, and which factors they take.

    at once    a place of the ring has a tile of the factor in common and one of each other factor; each product has
               an accumulator of its own
    in turn    the places go to one product after the other; what is made of the results before stays in registers, as
               narrow as it would be in memory
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.gemm.multi_matching import Joined
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix, matrix_of
from motet.compiler.codegen.gpu.gemm.persistent_tiles import Ring, ring_cycles
from motet.compiler.codegen.gpu.gemm.tiles import GemmShape, stored_as
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_LINE = 128  # bytes of an operand along K in one slot
_PLACES = (8, 3)  # most and fewest slots
_ASIDE = 2048  # bytes of shared memory for barriers, and for descriptors during creation
_AT_ONCE = ((128, 128), (128, 64), (64, 128))  # rows, and columns of each product
_IN_TURN = ((128, 256), (128, 128), (128, 192), (128, 64), (64, 128))
_POINTS = 128 * 256  # elements of all sums of a program


@dataclass(frozen=True)
class Fit:
    """A ring buffer for `count` products: if `at_once`, `ring.widths` are the columns of all, else of the current
    one."""

    ring: Ring
    count: int
    at_once: bool

    @property
    def width(self) -> int:
        """Columns of a tile of the result."""
        return self.ring.widths[0]

    @property
    def label(self) -> str:
        way = "at once" if self.at_once else "in turn"
        return f"ring of {self.count} products {way} {self.ring.m}x{self.width}x{self.ring.k} stages={self.ring.stages}"


def fits(count: int, at_once: bool, sizes: tuple[int, int], problem: GemmShape, target: GpuTarget) -> list[Fit]:
    """The ring buffers that fit in shared memory, best first, for `sizes` bytes of an operand's and a result's element.
    `problem` is a single product of the same amount of work."""
    found: list[Fit] = []
    for m, width in _AT_ONCE if at_once else _IN_TURN:
        if (count if at_once else 1) * m * width > _POINTS:
            continue
        ring = _fitting(m, width, count if at_once else 1, sizes, target)
        if ring is not None:
            found.append(Fit(ring, count, at_once))
    return sorted(found, key=lambda fit: ring_cycles(fit.ring, problem, target))


def _fitting(m: int, width: int, beside: int, sizes: tuple[int, int], target: GpuTarget) -> Ring | None:
    ring = Ring(m, (width,) * beside, _LINE // sizes[0], 0, 0)
    most, least = _PLACES
    for piece in (64, 32):
        pieces = width // piece
        for stages in range(most, least - 1, -1):
            room = target.shared - _ASIDE - stages * (ring.m + ring.n) * ring.k * sizes[0]
            possible = [n for n in range(1, pieces + 1) if pieces % n == 0 and n * m * piece * sizes[1] <= room]
            outs = max(possible, default=0)
            if outs >= min(2, pieces) or (outs and piece == 32):
                return replace(ring, stages=stages, piece=piece, outs=outs)
    return None


# -- which factors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TmaOperands:
    """Both operands of each product as matrices that TMA can load; all left ones have the same layout, and so do all
    right ones. If `at_once`, the left one is shared."""

    lefts: tuple[Matrix, ...]
    rights: tuple[Matrix, ...]


def turned(j: Joined) -> Joined:
    """`j` with the shared operand as the left one."""
    if not j.together or len({c.left.value for c in j.products}) == 1:
        return j
    products = tuple(replace(c, left=c.right, right=c.left, m=c.n, n=c.m) for c in j.products)
    return replace(j, products=products)


def factors_of(j: Joined, target: GpuTarget) -> TmaOperands | None:
    """The operands as TMA descriptors; None if this form does not support them."""
    last = j.products[-1]
    if target.architecture != _HOPPER or any(c.batch for c in j.products):
        return None
    if last.factor in ("f32", "f64", "tf32x3") or {(c.factor, c.sum) for c in j.products} != {(last.factor, last.sum)}:
        return None
    if any(isinstance(c.task.inits[0], StridedAccess) and c.task.inits[0].value in j.values for c in j.products[:-1]):
        return None
    lefts = [matrix_of(c.left, c.m, c.k, c.batch) for c in j.products]
    rights = [matrix_of(c.right, c.k, c.n, c.batch) for c in j.products]
    dtype = stored_as(last.factor)
    known = TmaOperands(tuple(each for each in lefts if each), tuple(each for each in rights if each))
    for matrices in (known.lefts, known.rights):
        alike = {(each.place.dtype, each.across) for each in matrices}
        if len(matrices) != len(j.products) or len(alike) != 1 or matrices[0].place.dtype != dtype:
            return None
    if item_bytes(dtype) != 2 and (known.lefts[0].across or not known.rights[0].across):
        return None
    return known
