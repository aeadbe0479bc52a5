"""Random problems of placement, and their solution by trying everything."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from math import inf

from motet.compiler.placement.search.problem import Machine, PlacementSchedule, PlacementTask, Problem


def random_machine(rng: random.Random, places: int) -> Machine:
    """`places` that compute, some of them perhaps of one processor, and a memory where nothing does."""
    processors = [place if rng.random() < 0.8 else max(0, place - 1) for place in range(places)]
    count = places + 1
    latency = [[0.0 if p == q else rng.choice([0.0, 0.5, 2.0]) for q in range(count)] for p in range(count)]
    per_byte = [[0.0 if p == q else rng.choice([0.0, 0.01, 0.05]) for q in range(count)] for p in range(count)]
    return Machine((*processors, None), tuple(map(tuple, latency)), tuple(map(tuple, per_byte)))


def random_problem(rng: random.Random, work: int, places: int, inputs: int = 1, density: float = 0.4) -> Problem:
    """`work` tasks that compute, some tied to a place, some taking no time, between arguments and a result."""
    machine = random_machine(rng, places)
    tasks = [PlacementTask((inf,) * places + (0.0,), outside=True) for _ in range(inputs)]
    for index in range(inputs, inputs + work):
        pinned = rng.randrange(places) if rng.random() < 0.2 else None
        idle = rng.random() < 0.1
        times = [
            inf if pinned not in (None, place) else 0.0 if idle else rng.choice([1.0, 2.0, 3.5, 7.0])
            for place in range(places)
        ]
        sources = [source for source in range(index) if rng.random() < density]
        tasks.append(PlacementTask((*times, inf), tuple((source, rng.randrange(0, 200)) for source in sources)))
    last = len(tasks) - 1
    ends = ((last, 10),) if work else ()
    tasks.append(PlacementTask((inf,) * places + (0.0,), ends, outside=True))
    return Problem(tuple(tasks), machine)


def check_schedule(problem: Problem, schedule: PlacementSchedule) -> None:
    """Fails unless every task is where it may be, starts when its inputs are there, and has its processor alone."""
    busy: dict[int, list[tuple[float, float]]] = {}
    for index, task in enumerate(problem.tasks):
        place, start, end = schedule.places[index], schedule.starts[index], schedule.ends[index]
        assert task.times[place] < inf
        assert abs(end - start - task.times[place]) < 1e-9
        for source, size in task.inputs:
            arrival = schedule.ends[source] + problem.machine.move(schedule.places[source], place, size)
            assert start >= arrival - 1e-9, f"task {index} starts before what it reads is there"
        processor = problem.machine.processors[place]
        if processor is not None and end > start:
            busy.setdefault(processor, []).append((start, end))
    for intervals in busy.values():
        for (_, end), (start, _) in itertools.pairwise(sorted(intervals)):
            assert start >= end - 1e-9, "two tasks at once on one processor"


def brute_force(problem: Problem) -> float:
    """The least end of everything: all places of all tasks, and for each all orders of the tasks."""
    count = len(problem.tasks)
    best = inf
    for places in itertools.product(*problem.allowed):
        for order in _orders(problem, [], count):
            best = min(best, _end(problem, places, order))
    return best


def _orders(problem: Problem, done: list[int], count: int) -> Iterator[list[int]]:
    if len(done) == count:
        yield done
        return
    for index in range(count):
        if index not in done and all(source in done for source, _ in problem.tasks[index].inputs):
            yield from _orders(problem, [*done, index], count)


def _end(problem: Problem, places: Sequence[int], order: Sequence[int]) -> float:
    ends = [0.0] * len(order)
    free: dict[int, float] = {}
    for index in order:
        task, place = problem.tasks[index], places[index]
        start = max((ends[s] + problem.machine.move(places[s], place, b) for s, b in task.inputs), default=0.0)
        processor = problem.machine.processors[place]
        if processor is not None and task.times[place] > 0.0:
            start = max(start, free.get(processor, 0.0))
            free[processor] = start + task.times[place]
        ends[index] = start + task.times[place]
    return max(ends, default=0.0)
