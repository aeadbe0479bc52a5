"""The order in which the steps of a plan are submitted.

    run a on host · run b on host · transfer a to gpu · run c on gpu      b and c are independent
    → run a on host · transfer a to gpu · run c on gpu · run b on host

The host works in the thread that submits to it, so that work of other devices is submitted first. Each device keeps
the order that the plan has for it, and so do the messages to each rank. Loops block the caller, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.artifact.schema import Step
from motet.graphs.order import in_order


def submission_order(steps: Sequence[Step], works_here: Callable[[int], bool], same: Callable[[int], int]) -> list[int]:
    """The numbers of `steps`, given in an executable order, in the order of submission. `works_here` tells whether a
    device blocks the caller while it works, `same` identifies equal devices."""
    makers = {value: number for number, step in enumerate(steps) for value in step.results}
    needs: list[set[int]] = []
    last: dict[int, int] = {}
    sent: dict[int, int] = {}
    for number, step in enumerate(steps):
        sources = {makers[value] for value in step.operands if value in makers}
        if step.op == "run":
            before = last.get(same(step.device))
            sources |= set() if before is None else {before}
            last[same(step.device)] = number
        elif step.op == "send":  # its receiver expects messages in the order of the plan
            before = sent.get(step.peer)
            sources |= set() if before is None else {before}
            sent[step.peer] = number
        needs.append(sources)
    # In an unrolled loop, transfers back are requested after the next iteration's transfers to the device.
    late = [
        step.op == "loop" or ((step.op == "run" or step.turn is not None) and works_here(step.device))
        for step in steps
    ]
    return in_order(needs, late)
