"""Affine expressions over the dimensions of loops: `3·d0 - d2 + 7`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """`constant` plus the sum of coefficient times dimension over `terms`, which are sorted by dimension and have no
    zero coefficients."""

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[int, int], constant: int = 0) -> Affine:
        return Affine(tuple(sorted((d, c) for d, c in terms.items() if c)), constant)

    @staticmethod
    def dim(dim: int) -> Affine:
        return Affine(((dim, 1),))

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that it depends on, in order."""
        return tuple(dim for dim, _ in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def single(self) -> int | None:
        """The dimension, if the expression is a single dimension with coefficient 1; None otherwise."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.constant else None

    def coefficient(self, dim: int) -> int:
        return next((c for d, c in self.terms if d == dim), 0)

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for dim, coefficient in other.terms:
            terms[dim] = terms.get(dim, 0) + coefficient
        return Affine.of(terms, self.constant + other.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def __mul__(self, factor: int) -> Affine:
        return Affine.of({d: c * factor for d, c in self.terms}, self.constant * factor)

    def plus(self, number: int) -> Affine:
        return Affine(self.terms, self.constant + number)

    def substitute(self, replaced: Mapping[int, Affine]) -> Affine:
        """The expression with the dimensions in `replaced` substituted."""
        total = Affine((), self.constant)
        for dim, coefficient in self.terms:
            total += replaced.get(dim, Affine.dim(dim)) * coefficient
        return total

    def renumber(self, dims: Mapping[int, int]) -> Affine:
        """The expression over other dimensions: `dims` maps each that remains to its new number; the others are 0."""
        terms: dict[int, int] = {}
        for dim, coefficient in self.terms:
            if dim in dims:
                terms[dims[dim]] = terms.get(dims[dim], 0) + coefficient
        return Affine.of(terms, self.constant)

    def range(self, extents: Mapping[int, int]) -> tuple[int, int]:
        """The least and greatest values while each dimension runs from 0 up to its extent."""
        low = high = self.constant
        for dim, coefficient in self.terms:
            last = coefficient * (extents[dim] - 1)
            low, high = low + min(0, last), high + max(0, last)
        return low, high


def identity_map(rank: int) -> tuple[Affine, ...]:
    return tuple(map(Affine.dim, range(rank)))


def compose_maps(outer: Sequence[Affine], inner: Sequence[Affine]) -> tuple[Affine, ...]:
    """The map `outer(inner(d))`: entry i of `inner` replaces dimension i of `outer`."""
    replaced = dict(enumerate(inner))
    return tuple(entry.substitute(replaced) for entry in outer)
