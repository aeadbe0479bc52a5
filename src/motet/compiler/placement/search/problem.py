"""The problem of automatic placement, free of MLIR: dependent tasks, places that run them, and transfer costs.

Tasks are in a valid order of execution. A place computes one task at a time, exclusively among all places of the same
processor; transfers overlap with computation. A task that takes no time needs no processor: inputs and results of the
caller are such tasks, fixed to the place where the caller has or expects them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf


@dataclass(frozen=True)
class PlacementTask:
    """`times` has the seconds at each place, infinite where it cannot run; `inputs` are the earlier tasks that it reads
    from, each once, with bytes. A task `outside` is not work but an input or result of the caller. `queues` are those
    of the place that it is bound to."""

    times: tuple[float, ...]
    inputs: tuple[tuple[int, int], ...] = ()
    outside: bool = False
    queues: int = 0


@dataclass(frozen=True)
class Machine:
    """`processors` has the processor of each place, None for places that do not compute. Moving b bytes from place p to
    q takes `latency[p][q] + b * per_byte[p][q]` seconds."""

    processors: tuple[int | None, ...]
    latency: tuple[tuple[float, ...], ...]
    per_byte: tuple[tuple[float, ...], ...]

    def move(self, source: int, target: int, size: int) -> float:
        """Seconds to transfer `size` bytes between two places."""
        return self.latency[source][target] + size * self.per_byte[source][target]


@dataclass(frozen=True)
class Problem:
    tasks: tuple[PlacementTask, ...]
    machine: Machine

    @cached_property
    def readers(self) -> list[list[tuple[int, int]]]:
        """The readers of each task, with bytes."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for source, size in task.inputs:
                found[source].append((index, size))
        return found

    @cached_property
    def allowed(self) -> list[tuple[int, ...]]:
        """The places at which each task can run, at least one."""
        return [tuple(place for place, time in enumerate(task.times) if time < inf) for task in self.tasks]

    @cached_property
    def tails(self) -> list[list[float]]:
        """A lower bound on the seconds from the start of a task at a place to the end of everything: the longest path
        after it, with each task at its best place and no task ever waiting for a processor.

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
    """The place, start and end of each task."""

    places: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @cached_property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)


def dispatch(problem: Problem, places: Sequence[int], priorities: Sequence[float]) -> PlacementSchedule:
    """The schedule for given places: every processor, as soon as it is free, starts the ready task of highest
    priority."""
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
    """A processor: when it is free, the tasks that can start by then, and those that become ready later."""

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
