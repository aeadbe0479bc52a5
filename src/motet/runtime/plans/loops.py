"""Executes the loops of plans: alternately the condition and the body.

    condition → read by the host → body → condition → …      carried values stay on the device that computed them

Only the condition is waited for. If it depends only on a counter of the host, iterations are submitted ahead of their
execution, at most two: the third waits for the first. Memory of an iteration is reused by iterations that start after
all its users have ended: the next one, or the one after that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from motet.runtime.lifetimes import Use
from motet.runtime.plans.frame import PlanFrame
from motet.runtime.plans.interrupts import Interrupts
from motet.runtime.plans.loop_memory import LoopMemory
from motet.runtime.plans.recorded import LoopStep, RecordedPlan
from motet.runtime.plans.steps import submit_steps
from motet.runtime.plans.underway import Awaited, Underway
from motet.runtime.plans.values import PlacedCopy, PlacedValue

_AHEAD = 2  # iterations in flight


def run_loop(frame: PlanFrame, repeat: LoopStep) -> None:
    """Execute a loop step of `frame`, whose values it reads and defines."""
    step, underway = repeat.step, frame.underway
    given = [frame.values[number] for number in step.operands]
    memory = LoopMemory(frame, given)
    flying: deque[Awaited] = deque()
    noted = underway.noted
    around = None if noted is None else noted.iteration
    before, underway.pending = underway.pending, Awaited()
    try:
        with Interrupts() as interrupts:
            results = _iterate(frame, repeat, memory, flying, interrupts)
    finally:
        before.add(underway.pending)
        for each in flying:
            before.add(each)
        underway.pending = before
        if noted is not None and around is not None:
            noted.iteration = around
    memory.hand_back()
    frame.values.update(zip(step.results, _as_own(results, given, frame.place), strict=True))


def _iterate(
    frame: PlanFrame, repeat: LoopStep, memory: LoopMemory, flying: deque[Awaited], interrupts: Interrupts
) -> list[PlacedValue]:
    """Run the iterations; returns the values passed on when the condition is false."""
    underway = frame.underway
    carried, same = list(memory.given[: repeat.carried]), memory.given[repeat.carried :]
    around = () if underway.noted is None else underway.noted.iteration
    while True:
        interrupts.check()
        if underway.noted is not None:
            underway.noted.iteration = (*around, memory.iteration)
        condition = _execute(repeat.condition, [*carried, *same], underway, memory)
        goes_on, *passed = _results(condition)
        found = _read(condition, goes_on)
        memory.give_back([goes_on, *carried], passed)
        if not found:
            return passed
        body = _execute(repeat.body, [*passed, *same], underway, memory)
        carried = _results(body)
        memory.give_back(passed, carried)
        part = underway.cut()
        part.held += [condition.values, body.values]
        flying.append(part)
        if len(flying) >= _AHEAD:
            flying[0].wait()
            flying.popleft()
        memory.next_iteration()


def _execute(
    recorded: RecordedPlan, inputs: Sequence[PlacedValue], underway: Underway, memory: LoopMemory
) -> PlanFrame:
    part = memory.of_part(recorded.lifetimes)
    frame = PlanFrame(recorded, underway, dict(zip(recorded.plan.inputs, inputs, strict=True)), part, {})
    submit_steps(frame, run_loop)
    memory.end_of(part)
    return frame


def _results(frame: PlanFrame) -> list[PlacedValue]:
    return [frame.values[number] for number in frame.recorded.plan.results]


def _read(frame: PlanFrame, value: PlacedValue) -> bool:
    """Whether a number is true; waits for it."""
    found, points, _ = frame.host_bytes(value)
    for point in points:
        point.wait()
    return bool(np.asarray(found).reshape(-1).view(np.uint8)[0])


def _as_own(results: Sequence[PlacedValue], given: Sequence[PlacedValue], place: int) -> list[PlacedValue]:
    """The results of the step at `place`. Operands of the loop, and repeated results, are marked as not owned, so that
    their memory is not returned twice."""
    times = Counter(map(id, [*results, *given]))
    found: list[PlacedValue] = []
    for value in results:
        copies: dict[int, PlacedCopy] = {}
        for home, copy in value.copies.items():
            use = copy.use if times[id(value)] == 1 else None
            copies[home] = replace(copy, use=None if use is None else Use(1 << place, use.points))
        found.append(replace(value, copies=copies))
    return found
