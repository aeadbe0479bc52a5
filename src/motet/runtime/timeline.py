"""Timelines and points: the order of everything that runs on more than one device.

A timeline is the monotonic clock of one queue. A point is a value on it; work signals a point when it has ended,
and waits for points before it begins. A failed command poisons its point: whoever waits for that point, and
nobody else, gets the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from motet.errors import MotetError


class Timeline(Protocol):
    """What a point refers to; drivers with clocks of their own implement this."""

    def reached(self, value: int) -> bool:
        """Whether what signals `value` has ended, in success or failure. Does not block."""
        ...

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Blocks until `value` is reached; False if `timeout` seconds passed first. Raises what poisoned it, as an
        object of its own (`raisable`)."""
        ...

    def error(self, value: int) -> MotetError | None:
        """What poisoned `value`, if anything did."""
        ...


@dataclass(frozen=True)
class Point:
    """A value on a timeline."""

    timeline: Timeline
    value: int

    @property
    def reached(self) -> bool:
        return self.timeline.reached(self.value)

    @property
    def error(self) -> MotetError | None:
        return self.timeline.error(self.value)

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until reached; False if `timeout` seconds passed first. Raises what poisoned the point."""
        return self.timeline.wait(self.value, timeout)


class HostTimeline:
    """A timeline that this process advances, with values from 1 in the order of `next`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._issued = 0
        self._value = 0
        self._ended: set[int] = set()  # values ended before an earlier one has
        self._errors: dict[int, MotetError] = {}

    def next(self) -> Point:
        """A new point, which `signal` or `fail` must end."""
        with self._changed:
            self._issued += 1
            return Point(self, self._issued)

    def signal(self, value: int) -> None:
        """`value` has ended in success."""
        with self._changed:
            self._end(value)

    def fail(self, value: int, error: MotetError) -> None:
        """`value` has ended in `error`; waiting for it raises that."""
        with self._changed:
            self._errors[value] = error.with_traceback(None)  # which would hold the memory of who raised it
            self._end(value)

    def abandon(self, error: MotetError) -> None:
        """In the child of a fork: whoever was to end the pending values is not there; all end in `error`."""
        self._changed = threading.Condition()  # another thread may have held the old one
        for value in range(self._value + 1, self._issued + 1):
            if value not in self._ended:
                self.fail(value, error)

    def reached(self, value: int) -> bool:
        return value <= self._value or value in self._ended

    def error(self, value: int) -> MotetError | None:
        return self._errors.get(value)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        if not self.reached(value):
            with self._changed:
                if not self._changed.wait_for(lambda: self.reached(value), timeout):
                    return False
        if self._errors and (error := self._errors.get(value)) is not None:
            raise raisable(error)
        return True

    def _end(self, value: int) -> None:
        self._ended.add(value)
        while self._value + 1 in self._ended:
            self._value += 1
            self._ended.remove(self._value)
        self._changed.notify_all()


def raisable(error: MotetError) -> MotetError:
    """The same error as an object of its own. One that is raised holds every frame that it passes, and with them
    their memory: what a timeline keeps, and several threads may want to raise, is never raised itself."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own


def failed_among(points: Iterable[Point]) -> MotetError | None:
    """The error of the first poisoned point among points that are reached."""
    return next((error for point in points if (error := point.error) is not None), None)
