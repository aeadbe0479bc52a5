"""Extents of one symbol, as a line and a number that repeats: for n from `begin` on, slope · n + offsets[n mod period].

    (n - 1) // 2 + 1   →   slope 1/2, offsets 0, 1/2

Sums, quotients by numbers, minima and maxima of such extents are such extents again, so that equality for all n is
decided by comparing finitely many numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from motet.artifact.expressions import evaluate, symbols_of
from motet.artifact.schema import Expr

_LONGEST = 4096  # of periods
_LATEST = 1 << 16  # of what precedes the line
_ROUNDED: dict[str, Callable[[Fraction], int]] = {"//": math.floor, "ceildiv": math.ceil}
_SIDES: dict[str, Callable[[Fraction, Fraction], bool]] = {"min": operator.lt, "max": operator.gt}


@dataclass(frozen=True)
class Periodic:
    begin: int
    slope: Fraction
    offsets: tuple[Fraction, ...]

    @property
    def period(self) -> int:
        return len(self.offsets)

    def offset(self, n: int) -> Fraction:
        return self.offsets[n % self.period]


def equal_from_one_on(left: Expr, right: Expr) -> bool:
    """Whether two extents of the same symbol are equal for all its values from 1 on; False, too, for those that are not
    of this form or take long to compare."""
    one, other = periodic(left), periodic(right)
    if one is None or other is None or one.slope != other.slope:
        return False
    if any(one.offset(n) != other.offset(n) for n in range(math.lcm(one.period, other.period))):
        return False
    before = (dict.fromkeys(symbols_of(left) | symbols_of(right), n) for n in range(1, max(one.begin, other.begin)))
    return all(evaluate(left, values) == evaluate(right, values) for values in before)


def periodic(extent: Expr) -> Periodic | None:
    """The form of an extent with at most one symbol; None if it has none, or one of many numbers."""
    if isinstance(extent, int):
        return Periodic(1, Fraction(0), (Fraction(extent),))
    if isinstance(extent, str):
        return Periodic(1, Fraction(1), (Fraction(0),))
    kind, left, right = str(extent[0]), periodic(extent[1]), periodic(extent[2])
    if left is None or right is None:
        return None
    if kind in ("*", "//", "ceildiv"):
        found = _by_number(kind, left, extent[2]) or (_by_number(kind, right, extent[1]) if kind == "*" else None)
    elif kind in _SIDES:
        found = _side(left, right, _SIDES[kind])
    else:
        found = _sum(left, right, 1 if kind == "+" else -1)
    return found if found and found.period <= _LONGEST and found.begin <= _LATEST else None


def _sum(left: Periodic, right: Periodic, sign: int) -> Periodic:
    offsets = (left.offset(n) + sign * right.offset(n) for n in range(math.lcm(left.period, right.period)))
    return Periodic(max(left.begin, right.begin), left.slope + sign * right.slope, tuple(offsets))


def _by_number(kind: str, value: Periodic, number: Expr) -> Periodic | None:
    if not isinstance(number, int) or (number < 1 and kind != "*"):
        return None
    if kind == "*":
        return Periodic(value.begin, value.slope * number, tuple(offset * number for offset in value.offsets))
    slope = value.slope / number
    period = math.lcm(value.period, slope.denominator)
    if period > _LONGEST:
        return None
    rounded = _ROUNDED[kind]
    offsets = (rounded(slope * n + value.offset(n) / number) - slope * n for n in range(period))
    return Periodic(value.begin, slope, tuple(offsets))


def _side(left: Periodic, right: Periodic, comes_first: Callable[[Fraction, Fraction], bool]) -> Periodic:
    """The minimum or maximum: of two lines, one of them from where they meet."""
    period, begin = math.lcm(left.period, right.period), max(left.begin, right.begin)
    pairs = [(left.offset(n), right.offset(n)) for n in range(period)]
    if left.slope == right.slope:
        return Periodic(begin, left.slope, tuple(a if comes_first(a, b) else b for a, b in pairs))
    meeting = max((b - a) / (left.slope - right.slope) for a, b in pairs)
    taken = left if comes_first(left.slope, right.slope) else right
    return Periodic(max(begin, math.ceil(meeting)), taken.slope, tuple(taken.offset(n) for n in range(period)))
