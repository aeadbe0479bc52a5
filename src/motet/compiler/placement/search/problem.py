"""The problem of automatic placement, free of MLIR: tasks that wait for one another, places to run them, and what
it takes to move what they hand on.

Tasks stand in an order in which they can run. A place computes one task at a time, together with all places of the
same processor; what is moved is moved while others compute. A task that takes no time needs no processor: what a
caller gives or gets is such a task, tied to the place where the caller has or wants it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf


@dataclass(frozen=True)
class PlacementTask:
    """`times` has the seconds at each place, infinite where it cannot be; `inputs` are the earlier tasks it reads
    from, each once, with how many bytes. What is `outside` is no work: what a caller gives, or gets.
    `queues` are those of the place that it is bound to."""

    times: tuple[float, ...]
    inputs: tuple[tuple[int, int], ...] = ()
    outside: bool = False
    queues: int = 0


@dataclass(frozen=True)
class Machine:
    """`processors` has the processor of each place, None where nothing computes. Moving b bytes from place p to q
    takes `latency[p][q] + b * per_byte[p][q]` seconds."""

    processors: tuple[int | None, ...]
    latency: tuple[tuple[float, ...], ...]
    per_byte: tuple[tuple[float, ...], ...]

    def move(self, source: int, target: int, size: int) -> float:
        """Seconds until what lies at one place is at another."""
        return self.latency[source][target] + size * self.per_byte[source][target]


@dataclass(frozen=True)
class Problem:
    tasks: tuple[PlacementTask, ...]
    machine: Machine

    @cached_property
    def readers(self) -> list[list[tuple[int, int]]]:
        """The tasks that read from each, with how many bytes."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for source, size in task.inputs:
                found[source].append((index, size))
        return found

    @cached_property
    def allowed(self) -> list[tuple[int, ...]]:
        """The places at which each task can be, never none."""
        return [tuple(place for place, time in enumerate(task.times) if time < inf) for task in self.tasks]

    @cached_property
    def tails(self) -> list[list[float]]:
        """Seconds from the start of a task at a place to the end of everything, at the least: the longest path
        after it, each task of which is at the best place, as if no task ever waited for a processor.

        Source: the optimistic cost table of Arabnejad, Barbosa: "List scheduling algorithm for heterogeneous
        systems by an optimistic cost table", IEEE TPDS 25(3), 2014.
        """
        machine = self.machine
        tails: list[list[float]] = [[] for _ in self.tasks]
        for index in reversed(range(len(self.tasks))):
            times = self.tasks[index].times
            row = [inf] * len(times)
            for place in self.allowed[index]:
                after = 0.0
                for reader, size in self.readers[index]:
                    following = tails[reader]
                    best = min(machine.move(place, other, size) + following[other] for other in self.allowed[reader])
                    after = max(after, best)
                row[place] = times[place] + after
            tails[index] = row
        return tails


@dataclass(frozen=True)
class PlacementSchedule:
    """Where each task is, and when it starts and ends."""

    places: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @cached_property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)


def dispatch(problem: Problem, places: Sequence[int], priorities: Sequence[float]) -> PlacementSchedule:
    """The schedule of tasks whose places are known, where every processor, as soon as it is free, takes of the tasks
    that could start the one with the highest priority."""
    tasks, machine = problem.tasks, problem.machine
    count = len(tasks)
    starts, ends = [0.0] * count, [0.0] * count
    missing = [len(task.inputs) for task in tasks]
    processors = [machine.processors[place] for place in places]
    lanes = {processor: _Lane() for processor in set(machine.processors) if processor is not None}
    fresh = [index for index in range(count) if not missing[index]]
    while True:
        while fresh:
            index = fresh.pop()
            place = places[index]
            ready = max((ends[s] + machine.move(places[s], place, b) for s, b in tasks[index].inputs), default=0.0)
            processor, time = processors[index], tasks[index].times[place]
            if processor is not None and time > 0.0:
                heapq.heappush(lanes[processor].coming, (ready, -priorities[index], index))
                continue
            starts[index], ends[index] = ready, ready + time
            _release(problem, index, missing, fresh)
        lane = min(lanes.values(), key=_Lane.next_start, default=None)
        if lane is None or (start := lane.next_start()) == inf:
            return PlacementSchedule(tuple(places), tuple(starts), tuple(ends))
        while lane.coming and lane.coming[0][0] <= start:
            _, priority, index = heapq.heappop(lane.coming)
            heapq.heappush(lane.waiting, (priority, index))
        _, index = heapq.heappop(lane.waiting)
        starts[index] = start
        lane.free = ends[index] = start + tasks[index].times[places[index]]
        _release(problem, index, missing, fresh)


class _Lane:
    """A processor: when it is free, the tasks that could start by then, and those that can later."""

    def __init__(self) -> None:
        self.free = 0.0
        self.waiting: list[tuple[float, int]] = []
        self.coming: list[tuple[float, float, int]] = []

    def next_start(self) -> float:
        if self.waiting:
            return self.free
        return max(self.free, self.coming[0][0]) if self.coming else inf


def _release(problem: Problem, index: int, missing: list[int], fresh: list[int]) -> None:
    for reader, _ in problem.readers[index]:
        missing[reader] -= 1
        if not missing[reader]:
            fresh.append(reader)
