"""The interface of search strategies."""

from __future__ import annotations

from typing import Protocol

from motet.lab.space import Point


class Strategy(Protocol):
    """Proposes points (`ask`), and learns the seconds of each (`tell`), None for one that failed. Several points may be
    asked for before any is told. `ask` returns None if there are no more points."""

    def ask(self) -> Point | None: ...

    def tell(self, point: Point, seconds: float | None) -> None: ...
