"""streams: assigns the commands of a schedule to streams, for devices that order work by streams and waits.

Commands that keep the device busy share a stream: separate streams would cost waits and gain nothing. If several
streams are estimated not to end earlier than one, there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.graphs.order import reduce_order
from motet.graphs.streams import Assignment, assign_queues, estimate

WAIT = 2e-6  # seconds that a stream loses when it waits for another one


def assign_streams(before: Sequence[int], times: Sequence[float], fills: Sequence[bool], most: int) -> Assignment:
    """Streams, at most `most`, for commands with the order `before`, which includes the order due to shared memory."""
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
