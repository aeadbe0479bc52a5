"""Orders commands for a device: those that start the longest remaining path first.

Source: list scheduling by upward ranks, as in HEFT (Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity
task scheduling for heterogeneous computing", 2002); the device's cores take ready commands in this order.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.runtime.device import Work

_BYTES = 1e9  # bytes per second that one core copies, on the scale of the seconds of work
_GUESS = 10e-6  # of a launch of unknown duration
_LEAST = 1e-6  # of any command, so that dependences come before their dependents


def order_by_ranks(work: Sequence[Work], parts: Sequence[int], harts: int) -> list[int]:
    """The numbers of all commands, each after its dependences. `parts` is the maximum number of cores that can run each
    command together."""
    ranks = [0.0] * len(work)
    for number in range(len(work) - 1, -1, -1):  # dependences of a command precede it
        item = work[number]
        ranks[number] += _LEAST + _seconds(item) / max(1, min(parts[number], harts))
        for earlier in item.after:
            ranks[earlier] = max(ranks[earlier], ranks[number])
    return sorted(range(len(work)), key=lambda number: (-ranks[number], number))


def _seconds(item: Work) -> float:
    return item.references[0].bytes / _BYTES if item.op == "copy" else item.seconds or _GUESS
