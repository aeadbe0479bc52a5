"""Extents, strides and strided accesses: the memory layout of an access's elements, static or dynamic.

An extent is a product of a number and symbols. A strided access is an offset and one stride per dimension of a loop
nest, in elements. Adjacent dimensions are merged where all accesses allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage, Value


@dataclass(frozen=True)
class Extent:
    """`factor * product(symbols)`; the symbols are sorted, and absent where the factor is zero."""

    factor: int = 1
    symbols: tuple[str, ...] = ()

    @staticmethod
    def of(size: Size) -> Extent:
        return Extent(size) if isinstance(size, int) else Extent(1, (size,))

    def __mul__(self, other: Extent | int) -> Extent:
        if isinstance(other, int):
            other = Extent(other)
        factor = self.factor * other.factor
        return Extent(factor, tuple(sorted(self.symbols + other.symbols)) if factor else ())

    @property
    def known(self) -> int | None:
        return None if self.symbols else self.factor

    @property
    def expression(self) -> Expr:
        return product((self.factor, *self.symbols))


ZERO, ONE = Extent(0), Extent(1)


@dataclass(frozen=True)
class Bound:
    """A bound along one axis of a padded value: a point is inside if `0 <= entry < extent`."""

    entry: Affine
    extent: Extent


@dataclass(frozen=True)
class StridedAccess:
    """Element `sum(offset) + sum(strides[d] * i_d)` of `value`'s memory; outside `bounds`, the number `padding`."""

    value: int
    dtype: str
    offset: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    bounds: tuple[Bound, ...] = ()
    padding: float | int | None = None


def memory_strides(value: Value) -> tuple[Extent, ...]:
    """The stride in elements of each logical dimension of `value`, by its physical order."""
    strides = [ONE] * value.rank
    running = ONE
    for axis in reversed(value.order):
        strides[axis] = running
        running = running * Extent.of(value.shape[axis])
    return tuple(strides)


def place_of(kernel: Kernel, access: Access, rank: int) -> StridedAccess | None:
    """`access` as a strided access in a nest of `rank` dimensions, without its padding; None if a stride is not a
    product (a diagonal of dynamic extents)."""
    value = kernel.values[access.value]
    strides = [ZERO] * rank
    offset: list[Extent] = []
    for entry, stride in zip(access.map, memory_strides(value), strict=True):
        if entry.constant:
            offset.append(stride * entry.constant)
        for dim, coefficient in entry.terms:
            total = _sum(strides[dim], stride * coefficient)
            if total is None:
                return None
            strides[dim] = total
    return StridedAccess(access.value, value.dtype, tuple(offset), tuple(strides))


def bounded_place_of(kernel: Kernel, access: Access, sizes: Sequence[Size]) -> StridedAccess | None:
    """`access` as a strided access in a nest of `sizes`, with the bounds that its padding requires: those that some
    point exceeds. None as in `place_of`."""
    place = place_of(kernel, access, len(sizes))
    if place is None or access.padding is None:
        return place
    bounds = tuple(
        Bound(entry, Extent.of(extent))
        for entry, extent in zip(access.map, kernel.values[access.value].shape, strict=True)
        if not _is_always_inside(entry, extent, sizes)
    )
    return replace(place, bounds=bounds, padding=access.padding if bounds else None)


def _is_always_inside(entry: Affine, extent: Size, sizes: Sequence[Size]) -> bool:
    if entry.single is not None and sizes[entry.single] == extent:
        return True
    span = span_of(entry, sizes)
    return span is not None and isinstance(extent, int) and span[0] >= 0 and span[1] < extent


def span_of(entry: Affine, sizes: Sequence[Size]) -> tuple[int, int] | None:
    """The least and greatest value of `entry` over loops of `sizes`; None if an extent is dynamic."""
    low = high = entry.constant
    for dim, coefficient in entry.terms:
        size = sizes[dim]
        if not isinstance(size, int):
            return None
        low, high = low + min(0, coefficient * (size - 1)), high + max(0, coefficient * (size - 1))
    return low, high


def initial_of(kernel: Kernel, stage: Stage) -> StridedAccess | float | int | None:
    """The initial value of the sums of `stage`; None for a padded tensor and for a temporary of the kernel."""
    init = stage.inits[0]
    if not isinstance(init, Access):
        return init
    if init.padding is not None or kernel.values[init.value].role == "temporary":
        return None
    return place_of(kernel, init, len(stage.sizes))


def _sum(a: Extent, b: Extent) -> Extent | None:
    if a == ZERO or b == ZERO:
        return b if a == ZERO else a
    return Extent(a.factor + b.factor, a.symbols) if a.symbols == b.symbols else None


def select(place: StridedAccess, dims: Sequence[int]) -> StridedAccess:
    """`place` over `dims` only, in that order."""
    return replace(place, strides=tuple(place.strides[d] for d in dims))


def merge(
    sizes: Sequence[Extent], dims: Sequence[int], places: Sequence[StridedAccess], frozen: frozenset[int] = frozenset()
) -> list[tuple[Extent, int]]:
    """Merge `dims` of one kind where all `places` treat a pair as one loop: (extent, innermost dimension) each.

    A merged dimension has the strides of its innermost one. `frozen` dimensions are not merged.
    """
    groups = [(sizes[d], d) for d in dims if sizes[d] != ONE]
    merged = True
    while merged:
        merged = False
        for outer_size, outer in groups:
            inner = next(
                (
                    (size, d)
                    for size, d in groups
                    if d != outer and not {d, outer} & frozen
                    and all(p.strides[outer] == p.strides[d] * size for p in places)
                ),
                None,
            )
            if inner is not None:
                groups = [g for g in groups if g[1] not in (outer, inner[1])]
                groups.append((outer_size * inner[0], inner[1]))
                merged = True
                break
    return groups


def product_of(loops: Sequence[tuple[Extent, int]]) -> Extent:
    """The number of points of `loops`, given as extents with their dimensions."""
    result = ONE
    for size, _ in loops:
        result = result * size
    return result


def physical_order(kernel: Kernel, stage: Stage) -> list[int]:
    """The stage's dimensions, outermost first: in the memory order of the first output, then the rest in that of the
    first inputs, parallel ones before reductions."""
    found: list[int] = []
    for access in (*stage.outputs, *stage.inputs):
        for axis in kernel.values[access.value].order:
            found += [d for d, _ in access.map[axis].terms if d not in found]
    found += [d for d in range(len(stage.sizes)) if d not in found]
    return sorted(found, key=lambda d: stage.iterators[d] == "reduction")
