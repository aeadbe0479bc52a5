"""How evenly tasks spread over threads, of which the compiler does not know how many there will be."""

from __future__ import annotations

THREADS = (1, 2, 4, 8, 16)


def unevenness(tasks: int) -> float:
    """How much longer than an even share the busiest thread works, on average over some numbers of threads; 1 where
    `tasks` equal tasks spread evenly over all of them."""
    return sum(-(-tasks // threads) * threads for threads in THREADS) / (len(THREADS) * tasks)
