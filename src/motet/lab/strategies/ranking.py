"""ranking: the compiler's order: its own choice first, then neighbours of the fastest point so far.

Neighbours of equally fast points, and of points that wait to be told, follow in the order of the space's values: for
launches of GPUs that is the compiler's ranking of forms. Source: best-first search, Pearl 1984.
"""

from __future__ import annotations

import heapq
from itertools import count

from motet.lab.space import Point, ScheduleSpace, name_of


class Ranking:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space = space
        self._order = count()
        first = next(space.points(), None) if not space.starts else None
        self._waiting: list[tuple[float, int, Point]] = []  # the seconds of the neighbour that proposed it
        self._asked: set[str] = set()
        self._untold: list[Point] = []  # asked for, whose neighbours were not proposed
        self._put(-1.0, *(space.starts or ([] if first is None else [first])))

    def ask(self) -> Point | None:
        point = self._next()
        if point is None:
            for each in self._untold:
                self._put(float("inf"), *self._space.neighbours(each))
            self._untold.clear()
            point = self._next()
        if point is not None:
            self._asked.add(name_of(point))
            self._untold.append(point)
        return point

    def _next(self) -> Point | None:
        while self._waiting:
            point = heapq.heappop(self._waiting)[2]
            if name_of(point) not in self._asked:
                return point
        return None

    def tell(self, point: Point, seconds: float | None) -> None:
        self._untold = [each for each in self._untold if each != point]
        self._asked.add(name_of(point))
        self._put(float("inf") if seconds is None else seconds, *self._space.neighbours(point))

    def _put(self, seconds: float, *points: Point) -> None:
        for point in points:
            if name_of(point) not in self._asked:
                heapq.heappush(self._waiting, (seconds, next(self._order), point))
