"""Finds an optimal schedule of a small problem by branch and bound.

Tasks are appended in the order of their starts, without loss of generality: in some optimal schedule every task starts
as soon as its inputs and its processor allow, and its tasks can be sorted by start. A branch is pruned if a ready task
can no longer end the whole in time (its tail, `Problem.tails`), or if the processors have too much work left in total.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.compiler.placement.search.problem import PlacementSchedule, Problem


def best_schedule(
    problem: Problem, known: PlacementSchedule, most_nodes: int = 20_000
) -> tuple[PlacementSchedule, bool]:
    """A schedule no worse than `known`, and whether it is proven optimal. The search ends after `most_nodes` nodes
    rather than after a time, so that the result is deterministic."""
    search = _BranchAndBound(problem, known, most_nodes)
    search.descend()
    return search.best, search.nodes <= most_nodes


@dataclass
class _BranchAndBound:
    problem: Problem
    best: PlacementSchedule
    most_nodes: int
    nodes: int = 0
    places: list[int] = field(init=False)
    starts: list[float] = field(init=False)
    ends: list[float] = field(init=False)
    missing: list[int] = field(init=False)
    free: dict[int, float] = field(init=False)
    least: list[float] = field(init=False)  # seconds of a task at its fastest place
    last_start: float = 0.0
    remaining: float = 0.0

    def __post_init__(self) -> None:
        tasks = self.problem.tasks
        self.places, self.starts, self.ends = [-1] * len(tasks), [0.0] * len(tasks), [0.0] * len(tasks)
        self.missing = [len(task.inputs) for task in tasks]
        self.free = {p: 0.0 for p in self.problem.machine.processors if p is not None}
        self.least = [min(task.times) for task in tasks]
        self.remaining = sum(self.least)

    def descend(self) -> None:
        self.nodes += 1
        if self.nodes > self.most_nodes:
            return
        ready = [i for i, place in enumerate(self.places) if place < 0 and not self.missing[i]]
        if not ready:
            self._finish()
            return
        if not self._can_improve(ready):
            return
        # Tasks that take no time are placed first, at each of their places.
        timeless = next((i for i in ready if not any(self.problem.tasks[i].times[p] for p in self._allowed(i))), None)
        candidates = ready if timeless is None else [timeless]
        choices = [choice for index in candidates for choice in self._choices(index)]
        for _, index, place, start in sorted(choices):
            self._append(index, place, start)

    def _allowed(self, index: int) -> tuple[int, ...]:
        return self.problem.allowed[index]

    def _arrival(self, index: int, place: int) -> float:
        machine = self.problem.machine
        inputs = self.problem.tasks[index].inputs
        return max((self.ends[s] + machine.move(self.places[s], place, b) for s, b in inputs), default=0.0)

    def _choices(self, index: int) -> list[tuple[float, int, int, float]]:
        """The places of ready tasks: the lower bound of the total, the task, the place, the start."""
        found: list[tuple[float, int, int, float]] = []
        for place in self._allowed(index):
            start = self._arrival(index, place)
            if self._needs_turn(index, place):
                start = max(start, self.free[self.problem.machine.processors[place] or 0])
                if start < self.last_start:
                    continue
            bound = start + self.problem.tails[index][place]
            if bound < self.best.makespan:
                found.append((bound, index, place, start))
        return found

    def _needs_turn(self, index: int, place: int) -> bool:
        return self.problem.machine.processors[place] is not None and self.problem.tasks[index].times[place] > 0.0

    def _can_improve(self, ready: list[int]) -> bool:
        least = self.best.makespan
        for index in ready:
            tails = self.problem.tails[index]
            if min(self._arrival(index, place) + tails[place] for place in self._allowed(index)) >= least:
                return False
        if not self.free:
            return True
        taken = sum(max(end, self.last_start) for end in self.free.values())
        return (taken + self.remaining) / len(self.free) < least

    def _append(self, index: int, place: int, start: float) -> None:
        problem = self.problem
        end = start + problem.tasks[index].times[place]
        processor = problem.machine.processors[place] if self._needs_turn(index, place) else None
        kept = self.last_start, self.free.get(processor, 0.0) if processor is not None else 0.0, self.remaining
        self.places[index], self.starts[index], self.ends[index] = place, start, end
        self.remaining -= self.least[index]
        if processor is not None:
            self.last_start, self.free[processor] = start, end
        for reader, _ in problem.readers[index]:
            self.missing[reader] -= 1
        self.descend()
        for reader, _ in problem.readers[index]:
            self.missing[reader] += 1
        self.last_start, before, self.remaining = kept
        if processor is not None:
            self.free[processor] = before
        self.places[index] = -1

    def _finish(self) -> None:
        found = PlacementSchedule(tuple(self.places), tuple(self.starts), tuple(self.ends))
        if found.makespan < self.best.makespan:
            self.best = found
