"""Linear expressions over loop counters: `3·d0 - d2 + 7`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """`constant` plus the sum of coefficient times dimension over `terms`, which are sorted by dimension and have no
    zero coefficients."""

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[int, int], constant: int = 0) -> Linear:
        return Linear(tuple(sorted((d, c) for d, c in terms.items() if c)), constant)

    @staticmethod
    def dim(dim: int) -> Linear:
        return Linear(((dim, 1),))

    @property
    def dims(self) -> frozenset[int]:
        return frozenset(dim for dim, _ in self.terms)

    @property
    def single(self) -> int | None:
        """The dimension, if the expression is a single dimension with coefficient 1; None otherwise."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.constant else None

    def coefficient(self, dim: int) -> int:
        return next((c for d, c in self.terms if d == dim), 0)

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for dim, coefficient in other.terms:
            terms[dim] = terms.get(dim, 0) + coefficient
        return Linear.of(terms, self.constant + other.constant)

    def __sub__(self, other: Linear) -> Linear:
        return self + other * -1

    def __mul__(self, factor: int) -> Linear:
        return Linear.of({d: c * factor for d, c in self.terms}, self.constant * factor)

    def plus(self, number: int) -> Linear:
        return Linear(self.terms, self.constant + number)

    def substitute(self, replaced: Mapping[int, Linear]) -> Linear:
        """The expression with the dimensions in `replaced` substituted."""
        total = Linear((), self.constant)
        for dim, coefficient in self.terms:
            total += replaced.get(dim, Linear.dim(dim)) * coefficient
        return total

    def range(self, extents: Mapping[int, int]) -> tuple[int, int]:
        """The least and greatest values while each dimension runs from 0 up to its extent."""
        low = high = self.constant
        for dim, coefficient in self.terms:
            last = coefficient * (extents[dim] - 1)
            low, high = low + min(0, last), high + max(0, last)
        return low, high
