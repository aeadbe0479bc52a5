"""local: hill climbing from the fastest start, and from random points when there is no better neighbour.

Points that wait to be told count as asked; the best told point is climbed from.
"""

from __future__ import annotations

import random

from motet.lab.space import Point, ScheduleSpace, name_of


class LocalSearch:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)
        self._starts = list(space.starts)
        self._queue: list[Point] = []
        self._asked: set[str] = set()
        self._at: Point | None = None
        self._seconds = float("inf")

    def ask(self) -> Point | None:
        for _ in range(1000):
            if not self._queue and not self._starts:
                self._extend()
            waiting = self._starts or self._queue
            point = waiting.pop(0) if waiting else None
            if point is None:
                return None
            if name_of(point) not in self._asked:
                self._asked.add(name_of(point))
                return point
        return None

    def _extend(self) -> None:
        """Neighbours of the current point that were not asked for; a random point if there are none."""
        near = [] if self._at is None else [
            point for point in self._space.neighbours(self._at) if name_of(point) not in self._asked
        ]
        if not near:
            self._at, self._seconds = None, float("inf")
            drawn = self._space.sample(self._random)
            near = [] if drawn is None else [drawn]
        self._random.shuffle(near)
        self._queue = near

    def tell(self, point: Point, seconds: float | None) -> None:
        if seconds is not None and seconds < self._seconds:
            self._at, self._seconds = point, seconds
            self._queue.clear()
