"""The order in which the steps of a plan are submitted.

    run a on host · run b on host · transfer a to gpu · run c on gpu      b needs nothing of c, nor c of b
    → run a on host · transfer a to gpu · run c on gpu · run b on host

The host works in the thread that submits to it, so what other devices can begin with is submitted before. Each device
keeps the order that the plan has for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from motet.artifact.schema import Step


def submission_order(steps: Sequence[Step], works_here: Callable[[int], bool], same: Callable[[int], int]) -> list[int]:
    """The numbers of `steps`, which stand in an order in which they can run, in the order to submit them.
    `works_here` says of a device that its work keeps the caller waiting, `same` which devices are one."""
    makers = {value: number for number, step in enumerate(steps) for value in step.results}
    readers: list[list[int]] = [[] for _ in steps]
    missing = [0] * len(steps)
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        sources = {makers[value] for value in step.operands if value in makers}
        if step.op == "run":
            before = last.get(same(step.device))
            sources |= set() if before is None else {before}
            last[same(step.device)] = number
        for source in sources:
            readers[source].append(number)
        missing[number] = len(sources)
    # Of a loop that was taken apart, what comes back is asked for when the next turn has gone there.
    late = [(step.op == "run" or step.turn is not None) and works_here(step.device) for step in steps]
    heap = [(late[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        _, number = heapq.heappop(heap)
        order.append(number)
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(heap, (late[reader], reader))
    return order
