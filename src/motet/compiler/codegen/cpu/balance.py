"""Estimates how evenly tasks spread over threads, whose number is unknown when compiling."""

from __future__ import annotations

THREADS = (1, 2, 4, 8, 16)


def unevenness(tasks: int) -> float:
    """How much longer the busiest thread works than an even share, averaged over several numbers of threads; 1.0 if
    `tasks` equal tasks always divide evenly."""
    return sum(-(-tasks // threads) * threads for threads in THREADS) / (len(THREADS) * tasks)
