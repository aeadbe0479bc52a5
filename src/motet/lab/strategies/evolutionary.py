"""evolutionary: children of two of the best points so far, with mutations; the starts and random points at first.

Source: regularized evolution, Real et al. 2019, with a steady population of the best.
"""

from __future__ import annotations

import random

from motet.lab.space import Point, ScheduleSpace, name_of

_POPULATION, _PARENTS, _MUTATION, _ATTEMPTS = 16, 4, 0.25, 200


class Evolutionary:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)
        self._starts = list(space.starts)
        self._asked: set[str] = set()
        self._best: list[tuple[float, Point]] = []

    def ask(self) -> Point | None:
        point = self._starts.pop(0) if self._starts else self._child() or self._space.sample(self._random)
        if point is not None:
            self._asked.add(name_of(point))
        return point

    def tell(self, point: Point, seconds: float | None) -> None:
        if seconds is not None:
            self._best = sorted([*self._best, (seconds, point)], key=lambda each: each[0])[:_POPULATION]

    def _child(self) -> Point | None:
        if len(self._best) < _PARENTS or self._random.random() < 0.1:
            return None
        for _ in range(_ATTEMPTS):
            first, second = (self._parent() for _ in range(2))
            child = {
                each.name: self._random.choice(each.values) if self._random.random() < _MUTATION
                else (first if self._random.random() < 0.5 else second)[each.name]
                for each in self._space.parameters
            }
            child = self._space.normal(child)
            if name_of(child) not in self._asked and self._space.schedule(child) is not None:
                return child
        return None

    def _parent(self) -> Point:
        """The best of a few."""
        return min(self._random.choices(self._best, k=_PARENTS), key=lambda each: each[0])[1]
