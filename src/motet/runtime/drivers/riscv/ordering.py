"""In which order a device wants commands: those first that begin the longest path of what is left.

Source: list scheduling by upward ranks, as of HEFT (Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity
task scheduling for heterogeneous computing", 2002); the device's cores take what may run in this order.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.runtime.device import Work

_BYTES = 1e9  # copied in a second, by one core of what work's seconds are about
_GUESS = 10e-6  # of a launch of which nothing is known
_LEAST = 1e-6  # of any command: those that others need come before them


def order_by_ranks(work: Sequence[Work], parts: Sequence[int], harts: int) -> list[int]:
    """The numbers of all commands, each behind those that it waits for. `parts` is for each how many cores could do it
    together, at most."""
    ranks = [0.0] * len(work)
    for number in range(len(work) - 1, -1, -1):  # what a command waits for stands before it
        item = work[number]
        ranks[number] += _LEAST + _seconds(item) / max(1, min(parts[number], harts))
        for earlier in item.after:
            ranks[earlier] = max(ranks[earlier], ranks[number])
    return sorted(range(len(work)), key=lambda number: (-ranks[number], number))


def _seconds(item: Work) -> float:
    return item.references[0].bytes / _BYTES if item.op == "copy" else item.seconds or _GUESS
