"""The ratio of two times, with the interval that noise leaves it in."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_CERTAIN = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median of ratios, which with a probability of 95 % is between `low` and `high`: None for fewer than six."""

    median: float
    low: float | None
    high: float | None

    @property
    def span(self) -> str:
        """The interval as text behind a figure; "" if there is none."""
        return "" if self.low is None else f" (95 %: {self.low:.3f} to {self.high:.3f})"

    @property
    def is_noise(self) -> bool:
        """Whether the times may be equal."""
        return self.low is None or self.high is None or self.low <= 1 <= self.high


def ratio_of(pairs: Iterable[tuple[float, float]]) -> Ratio:
    """The ratio of the first to the second time of `pairs`, of one sample of each."""
    ratios = sorted(first / second for first, second in pairs)
    return Ratio(statistics.median(ratios), *interval(ratios))


def interval(ascending: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Two of the values between which the median of their distribution is with a probability of 95 %, whatever the
    distribution; None for fewer than six values.

    Source: Conover, "Practical nonparametric statistics", 1999, section 3.2 (confidence intervals for quantiles).
    """
    count = len(ascending)
    outside, below = 0.0, -1  # the probability that the median is below one of the first values, or above the last
    while below + 1 < count // 2:
        outside += 2 * math.comb(count, below + 1) / 2**count
        if outside > 1 - _CERTAIN:
            break
        below += 1
    return (ascending[below], ascending[count - 1 - below]) if below >= 0 else (None, None)
