"""Cuts the tasks of each place into stages: a stage is submitted as a whole, and its results are available at its end.

    place 0:  a b │ c d                a stage ends where another place waits for it, and begins where it would wait
    place 1:      x y │ z              for another place; stages are merged where that does not delay the end

Fewer stages cost the runtime less and allow more fusion; more stages let places work concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from motet.compiler.placement.search.problem import PlacementSchedule, Problem
from motet.graphs.order import in_order


@dataclass(frozen=True)
class Staging:
    """`stages` in a valid order of submission, each with its tasks in order; inputs and results of the caller are in
    none. `makespan` is the end of the last one."""

    stages: tuple[tuple[int, ...], ...]
    makespan: float


def cut_stages(problem: Problem, schedule: PlacementSchedule, submit: Sequence[float], most_tasks: int) -> Staging:
    """The stages of a schedule; each takes `submit[place]` seconds in addition to its tasks. `most_tasks` limits the
    work of merging them."""
    order = sorted(range(len(problem.tasks)), key=lambda i: (schedule.starts[i], schedule.ends[i], i))
    order = _topological(problem, order)
    staged = _Stages(problem, schedule, submit, _cut(problem, schedule, order))
    return staged.joined(most_tasks)


def _topological(problem: Problem, order: Sequence[int]) -> list[int]:
    """`order` with inputs before their readers, which tasks that take no time may violate."""
    position = {index: at for at, index in enumerate(order)}
    needs = [[source for source, _ in task.inputs] for task in problem.tasks]
    return in_order(needs, [position[index] for index in range(len(problem.tasks))])


def _cut(problem: Problem, schedule: PlacementSchedule, order: Sequence[int]) -> list[list[int]]:
    """The largest stages that delay no other place: a task joins the previous stage at its place if its inputs from
    elsewhere were available when that stage began, and no other place waits for that stage before the task ends.

    A stage that reads from another one thus begins after that one has ended, so that there are no cycles.
    """
    stages = _cut_by_time(problem, schedule, order)
    numbers = _ordered(problem, stages)
    if numbers is None:  # only tasks that take no time can form cycles
        stages = [[index] for index in order if not problem.tasks[index].outside]
        numbers = list(range(len(stages)))
    return [stages[number] for number in numbers]


def _cut_by_time(problem: Problem, schedule: PlacementSchedule, order: Sequence[int]) -> list[list[int]]:
    places, tasks, machine = schedule.places, problem.tasks, problem.machine
    starts, ends = schedule.starts, schedule.ends
    stages: list[list[int]] = []
    opened: dict[int, int] = {}  # the last stage of each place
    deadlines: list[float] = []  # when another place waits for a stage
    for index in order:
        if tasks[index].outside:
            continue
        place = places[index]
        arrival = max(
            (ends[s] + machine.move(places[s], place, b) for s, b in tasks[index].inputs if places[s] != place),
            default=0.0,
        )
        number = opened.get(place)
        if number is None or arrival > starts[stages[number][0]] or ends[index] > deadlines[number] or (
            tasks[stages[number][0]].queues != tasks[index].queues
        ):
            number = opened[place] = len(stages)
            stages.append([])
            deadlines.append(inf)
        stages[number].append(index)
        waited = (
            starts[r] - machine.move(place, places[r], b)
            for r, b in problem.readers[index] if places[r] != place and not tasks[r].outside
        )
        deadlines[number] = min(deadlines[number], min(waited, default=inf))
    return stages


class _Stages:
    """Stages as the tasks of a schedule, with some of them merged."""

    def __init__(
        self, problem: Problem, schedule: PlacementSchedule, submit: Sequence[float], stages: Sequence[Sequence[int]]
    ) -> None:
        self.problem = problem
        self.places = schedule.places
        self.submit = submit
        self.stages = [list(stage) for stage in stages]

    def joined(self, most_tasks: int) -> Staging:
        best = self.evaluate(self.stages)
        left = most_tasks // max(1, len(self.problem.tasks))
        at = 0
        while at < len(self.stages) and left > 0:
            place = self.places[self.stages[at][0]]
            following = next(
                (i for i in range(at + 1, len(self.stages)) if self.places[self.stages[i][0]] == place), None
            )
            found = None
            if following is not None:
                left -= 1
                found = self._join(at, following)
                together = None if found is None else self.evaluate(found)
                if found is not None and together is not None and together <= best * (1 + 1e-9):
                    self.stages, best = found, together
                    continue
            at += 1
        return Staging(tuple(tuple(stage) for stage in self.stages), best)

    def _join(self, first: int, second: int) -> list[list[int]] | None:
        """The stages with two of one place merged; None if that creates a cycle."""
        tasks = self.problem.tasks
        if tasks[self.stages[first][0]].queues != tasks[self.stages[second][0]].queues:
            return None
        stages = [list(stage) for index, stage in enumerate(self.stages) if index != second]
        stages[first] = self.stages[first] + self.stages[second]
        order = _ordered(self.problem, stages)
        return None if order is None else [stages[index] for index in order]

    def evaluate(self, stages: Sequence[Sequence[int]]) -> float:
        """The end of the schedule if processors run the stages in this order."""
        problem, places, machine = self.problem, self.places, self.problem.machine
        ends = [0.0] * len(problem.tasks)
        free: dict[int | None, float] = {}
        for stage in stages:
            place, inside = places[stage[0]], set(stage)
            start = free.get(machine.processors[place], 0.0)
            for task in stage:
                for source, size in problem.tasks[task].inputs:
                    if source not in inside:
                        start = max(start, ends[source] + machine.move(places[source], place, size))
            end = start + self.submit[place] + sum(problem.tasks[task].times[place] for task in stage)
            free[machine.processors[place]] = end
            for task in stage:
                ends[task] = end
        for index, task in enumerate(problem.tasks):
            if task.outside:
                arrivals = (ends[s] + machine.move(places[s], places[index], b) for s, b in task.inputs)
                ends[index] = max(arrivals, default=0.0)
        return max(ends, default=0.0)


def _ordered(problem: Problem, stages: Sequence[Sequence[int]]) -> list[int] | None:
    """The numbers of the stages in a valid order of submission, as close to the given one as possible; None if there is
    none."""
    owner = {task: number for number, stage in enumerate(stages) for task in stage}
    sources = [
        {owner[s] for task in stage for s, _ in problem.tasks[task].inputs if s in owner} - {number}
        for number, stage in enumerate(stages)
    ]
    try:
        return in_order(sources, range(len(stages)))
    except ValueError:
        return None
