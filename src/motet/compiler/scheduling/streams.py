"""streams: which commands of a schedule share a stream, for devices that order work by streams and waits.

Commands that fill the device follow one another, as they would anyway: a stream of their own would cost waits and
gain nothing. Where streams end no earlier than one after the other would, by estimate, there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.graphs.order import reduce_order
from motet.graphs.streams import Assignment, assign_queues, estimate

WAIT = 2e-6  # seconds that a stream loses where it waits for another


def assign_streams(before: Sequence[int], times: Sequence[float], fills: Sequence[bool], most: int) -> Assignment:
    """Streams, at most `most`, for commands with the order `before`, which includes all that shared memory asks for."""
    one = Assignment([0] * len(before), [[] for _ in before])
    if most < 2:
        return one
    chained = list(before)
    last = -1
    for number, full in enumerate(fills):
        if full:
            chained[number] |= 1 << last if last >= 0 else 0
            last = number
    order, _ = reduce_order(chained)
    assigned = assign_queues(order, times, most)
    gains = estimate(assigned, times, WAIT) < sum(times)
    return assigned if gains else one
