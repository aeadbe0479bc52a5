"""ranking: the compiler's order: its own choice first, then the points around it, those with the fewest changes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from motet.lab.space import Point, ScheduleSpace, name_of


class Ranking:
    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._points = _around(space)

    def ask(self) -> Point | None:
        return next(self._points, None)

    def tell(self, point: Point, seconds: float | None) -> None:
        """The order is fixed."""


def _around(space: ScheduleSpace) -> Iterator[Point]:
    """Breadth first, from the starts."""
    waiting: list[Point] = list(space.starts) or list(_first(space))
    seen = {name_of(point) for point in waiting}
    while waiting:
        point = waiting.pop(0)
        yield point
        for near in space.neighbours(point):
            if name_of(near) not in seen:
                seen.add(name_of(near))
                waiting.append(near)


def _first(space: ScheduleSpace) -> Iterator[Point]:
    point = next(space.points(), None)
    if point is not None:
        yield point
