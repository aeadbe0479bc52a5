"""List schedulers: place one task after the other where it ends first, most urgent first.

Sources: HEFT, Topcuoglu, Hariri, Wu: "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE TPDS 13(3), 2002. With `look_ahead`, the successors of a task influence the choice of its place: PEFT,
Arabnejad, Barbosa: "List scheduling algorithm for heterogeneous systems by an optimistic cost table", IEEE TPDS
25(3), 2014.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from motet.compiler.placement.search.problem import PlacementSchedule, Problem


def upward_ranks(problem: Problem) -> list[float]:
    """For each task, the seconds from its start to the end along its longest path, with means over all places: its
    urgency. Never less than the rank of a reader."""
    machine = problem.machine
    places = range(len(machine.processors))
    pairs = max(1, len(places) ** 2)
    latency = sum(machine.latency[p][q] for p in places for q in places) / pairs
    per_byte = sum(machine.per_byte[p][q] for p in places for q in places) / pairs
    ranks = [0.0] * len(problem.tasks)
    for index in reversed(range(len(problem.tasks))):
        allowed = problem.allowed[index]
        mean = sum(problem.tasks[index].times[place] for place in allowed) / len(allowed)
        after = (latency + size * per_byte + ranks[reader] for reader, size in problem.readers[index])
        ranks[index] = mean + max(after, default=0.0)
    return ranks


def heft(problem: Problem, ranks: Sequence[float], look_ahead: bool = False) -> PlacementSchedule:
    """A schedule by earliest ends; tasks also fill gaps between earlier ones."""
    machine, tasks = problem.machine, problem.tasks
    count = len(tasks)
    places, starts, ends = [0] * count, [0.0] * count, [0.0] * count
    busy: dict[int, list[tuple[float, float]]] = {p: [] for p in machine.processors if p is not None}
    for index in sorted(range(count), key=lambda i: (-ranks[i], i)):
        task = tasks[index]
        best: tuple[float, float, float, int] | None = None
        for place in problem.allowed[index]:
            ready = max((ends[s] + machine.move(places[s], place, b) for s, b in task.inputs), default=0.0)
            processor, time = machine.processors[place], task.times[place]
            start = ready if processor is None or time == 0.0 else _gap(busy[processor], ready, time)
            end = start + time
            after = problem.tails[index][place] - time if look_ahead else 0.0
            if best is None or (end + after, end) < best[:2]:
                best = (end + after, end, start, place)
        if best is None:
            raise ValueError(f"task {index} can be nowhere")
        _, ends[index], starts[index], place = best
        places[index] = place
        processor = machine.processors[place]
        if processor is not None and ends[index] > starts[index]:
            insort(busy[processor], (starts[index], ends[index]))
    return PlacementSchedule(tuple(places), tuple(starts), tuple(ends))


def _gap(busy: Sequence[tuple[float, float]], ready: float, time: float) -> float:
    """The earliest time, not before `ready`, at which a processor is free for `time` seconds."""
    start = ready
    # Gaps that end before `ready` are irrelevant; most tasks come last, so search from the end.
    first = len(busy)
    while first and busy[first - 1][1] > ready:
        first -= 1
    for begin, end in busy[first:]:
        if start + time <= begin:
            return start
        start = max(start, end)
    return start
