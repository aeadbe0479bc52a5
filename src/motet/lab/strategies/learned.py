"""model: proposes the points that a cost model ranks first, among random points and neighbours of the best.

The model is trained on what was told so far: records that a search resumes with are told before its first trial.
"""

from __future__ import annotations

import random

from motet.lab.cost_model import CostModel
from motet.lab.space import Point, ScheduleSpace, name_of

_FIRST, _CANDIDATES, _GREEDY = 12, 96, 0.8


class LearnedSearch:
    """`model` is kept for reports: its error is that of predictions made before each point was told."""

    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)
        self._starts = list(space.starts)
        self._asked: set[str] = set()
        self._told: dict[str, tuple[Point, float]] = {}
        self.model = CostModel(space, seed)
        self._trained = 0

    def ask(self) -> Point | None:
        point = self._starts.pop(0) if self._starts else self._next()
        if point is not None:
            self._asked.add(name_of(point))
        return point

    def tell(self, point: Point, seconds: float | None) -> None:
        if seconds is not None:
            if name_of(point) not in self._told:
                self.model.observe(point, seconds)
            self._told[name_of(point)] = point, seconds

    def _next(self) -> Point | None:
        drawn = self._space.sample(self._random)
        if len(self._told) < _FIRST or self._random.random() > _GREEDY or drawn is None:
            return drawn
        if len(self._told) >= self._trained + 4 or not self._trained:
            self.model.train(list(self._told.values()))
            self._trained = len(self._told)
        pool = [point for _ in range(_CANDIDATES) if (point := self._space.sample(self._random)) is not None]
        for point, _ in sorted(self._told.values(), key=lambda each: each[1])[:3]:
            if self._space.schedule(point) is not None:
                pool += self._space.neighbours(point)
        fresh = [point for point in pool if name_of(point) not in self._asked]
        if not fresh:
            return drawn
        predicted = self.model.predict(fresh)
        return fresh[min(range(len(fresh)), key=predicted.__getitem__)]
