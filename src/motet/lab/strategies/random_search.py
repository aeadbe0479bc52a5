"""random: the starts, then points drawn uniformly among those with schedules."""

from __future__ import annotations

import random

from motet.lab.space import Point, ScheduleSpace


class RandomSearch:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)
        self._starts = list(space.starts)

    def ask(self) -> Point | None:
        return self._starts.pop(0) if self._starts else self._space.sample(self._random)

    def tell(self, point: Point, seconds: float | None) -> None:
        """Nothing is learned."""
