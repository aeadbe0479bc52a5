"""Iterated local search: moves tasks to other places as long as the whole ends earlier.

It improves the greedy decisions of a list scheduler. Moves are single tasks and runs of tasks that depend on one
another and are at one place; those on the critical path come first. If no such move helps, some neighbours are moved at
random, and the search continues from there (Lourenço, Martin, Stützle, Handbook of Metaheuristics, 2003). The random
numbers are seeded: equal problems have equal results.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from motet.compiler.placement.search.problem import PlacementSchedule, Problem, dispatch

LARGEST_KICK = 6  # tasks moved at random


def improve(
    problem: Problem, schedule: PlacementSchedule, priorities: Sequence[float], most_tasks: int
) -> PlacementSchedule:
    """A schedule no worse than `schedule`. `most_tasks` limits the work: the total number of tasks scheduled during the
    search."""
    search = _LocalSearch(problem, priorities, most_tasks // max(1, len(problem.tasks)))
    best = search.descend(schedule)
    movable = [index for index, allowed in enumerate(problem.allowed) if len(allowed) > 1]
    rng = random.Random(len(problem.tasks))
    while search.left > 0 and movable:
        start = search.evaluate(_kicked(problem, best, movable, rng))
        found = search.descend(start)
        if found.makespan < best.makespan * (1 - 1e-9):
            best = found
    return best


class _LocalSearch:
    """`left` is the number of schedules that may still be constructed."""

    def __init__(self, problem: Problem, priorities: Sequence[float], left: int) -> None:
        self.problem = problem
        self.priorities = priorities
        self.left = left

    def evaluate(self, places: Sequence[int]) -> PlacementSchedule:
        self.left -= 1
        return dispatch(self.problem, places, self.priorities)

    def descend(self, schedule: PlacementSchedule) -> PlacementSchedule:
        """Takes the first move that helps, until none does."""
        improved = True
        while improved:
            improved = False
            for run, place in _moves(self.problem, schedule):
                if self.left <= 0:
                    return schedule
                places = list(schedule.places)
                for index in run:
                    places[index] = place
                found = self.evaluate(places)
                if found.makespan < schedule.makespan * (1 - 1e-9):
                    schedule, improved = found, True
                    break
        return schedule


def _kicked(problem: Problem, schedule: PlacementSchedule, movable: Sequence[int], rng: random.Random) -> list[int]:
    """The places of a schedule, with a task and some of its neighbours moved to another place."""
    places = list(schedule.places)
    first = rng.choice(movable)
    place = rng.choice([other for other in problem.allowed[first] if other != places[first]])
    taken = [first]
    for _ in range(rng.randrange(LARGEST_KICK)):
        around = rng.choice(taken)
        near = [i for i, _ in (*problem.tasks[around].inputs, *problem.readers[around])]
        near = [i for i in near if place in problem.allowed[i] and i not in taken]
        if near:
            taken.append(rng.choice(near))
    for index in taken:
        places[index] = place
    return places


def _moves(problem: Problem, schedule: PlacementSchedule) -> Iterator[tuple[Sequence[int], int]]:
    """Sets of tasks and a place to move them to: whole runs of the critical path, growing parts of them from both
    ends, then its single tasks."""
    path = critical_path(problem, schedule)
    runs: list[list[int]] = []
    for index in path:
        if runs and schedule.places[runs[-1][-1]] == schedule.places[index]:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [run for run in runs if len(run) > 1]
    for run in list(parts):
        length = len(run) // 2
        while length > 1:
            parts += [run[:length], run[-length:]]
            length //= 2
    # A run between two runs at another place is first tried together with them.
    parts += [before + after for before, after in pairwise(runs) if len(before) + len(after) < len(path)]
    parts += [[index] for index in path]
    for part in parts:
        places = set(problem.allowed[part[0]])
        for index in part[1:]:
            places &= set(problem.allowed[index])
        for place in sorted(places):
            if any(schedule.places[index] != place for index in part):
                yield part, place


def critical_path(problem: Problem, schedule: PlacementSchedule) -> list[int]:
    """The tasks that determine the end, in order: each preceded by its latest input, or its processor's last task."""
    machine, places = problem.machine, schedule.places
    if not places:
        return []
    by_end: dict[tuple[int, float], int] = {}
    for index, place in enumerate(places):
        processor = machine.processors[place]
        if processor is not None and schedule.ends[index] > schedule.starts[index]:
            by_end[processor, schedule.ends[index]] = index
    current: int | None = max(range(len(places)), key=lambda i: (schedule.ends[i], -i))
    path: list[int] = []
    while current is not None:
        path.append(current)
        place, start = places[current], schedule.starts[current]
        arrivals = [
            (schedule.ends[s] + machine.move(places[s], place, b), s) for s, b in problem.tasks[current].inputs
        ]
        latest = max(arrivals, default=None)
        processor = machine.processors[place]
        if latest is not None and latest[0] >= start:
            current = latest[1]
        elif processor is not None and schedule.ends[current] > start and (processor, start) in by_end:
            current = by_end[processor, start]
        else:
            current = latest[1] if latest is not None else None
    return path[::-1]
