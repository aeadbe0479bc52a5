"""exhaustive: all points of a space, the starts first."""

from __future__ import annotations

from motet.lab.space import Point, ScheduleSpace


class Exhaustive:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._points = iter([*space.starts, *space.points()]) if space.size < 1 << 20 else space.points()

    def ask(self) -> Point | None:
        return next(self._points, None)

    def tell(self, point: Point, seconds: float | None) -> None:
        """Nothing is learned."""
