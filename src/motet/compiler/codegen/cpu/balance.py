"""Tasks: how an extent divides, and how evenly they spread over threads, whose number is unknown when compiling."""

from __future__ import annotations

import math

THREADS = (1, 2, 4, 8, 16)


def unevenness(tasks: int) -> float:
    """How much longer the busiest thread works than an even share, averaged over several numbers of threads; 1.0 if
    `tasks` equal tasks always divide evenly."""
    return sum(-(-tasks // threads) * threads for threads in THREADS) / (len(THREADS) * tasks)


def divisors(extent: int) -> list[int]:
    """All divisors in ascending order, in the time of the square root of `extent`: a model may have extents of 2^31."""
    low = [number for number in range(1, math.isqrt(extent) + 1) if extent % number == 0]
    return [*low, *(extent // number for number in reversed(low) if number * number != extent)]
