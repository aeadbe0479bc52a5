"""exhaustive: all points of a space, the starts first."""

from __future__ import annotations

from itertools import chain

from motet.lab.space import Point, ScheduleSpace


class Exhaustive:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._points = chain(space.starts, space.points())

    def ask(self) -> Point | None:
        return next(self._points, None)

    def tell(self, point: Point, seconds: float | None) -> None:
        """Nothing is learned."""
