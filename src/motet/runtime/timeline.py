"""Timelines and points: the order of all work that runs on more than one device.

A timeline is the monotonic clock of one queue. A point is a value on it; work signals a point when it has ended, and
waits for points before it starts. A failed command poisons its point: work and threads that wait for that point, and no
others, get the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from motet.errors import MotetError


class Timeline(Protocol):
    """The clock that a point refers to; implemented by drivers with their own clocks."""

    def reached(self, value: int) -> bool:
        """Whether the work that signals `value` has ended, in success or failure. Does not block."""
        ...

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Block until `value` is reached; False after `timeout` seconds. Raises the error that poisoned it, as a
        separate object (`raisable`)."""
        ...

    def error(self, value: int) -> MotetError | None:
        """The error that poisoned `value`, if any."""
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
        """Block until reached; False after `timeout` seconds. Raises the error that poisoned the point."""
        return self.timeline.wait(self.value, timeout)


class HostTimeline:
    """A timeline that this process advances, with values from 1 in the order of `next`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._issued = 0
        self._value = 0
        self._ended: set[int] = set()  # values that ended before an earlier one
        self._errors: dict[int, MotetError] = {}

    def next(self) -> Point:
        """A new point, to be ended by `signal` or `fail`."""
        with self._changed:
            self._issued += 1
            return Point(self, self._issued)

    def signal(self, value: int) -> None:
        """End `value` in success."""
        with self._changed:
            self._end(value)

    def fail(self, value: int, error: MotetError) -> None:
        """End `value` in `error`, which waiting for it raises."""
        with self._changed:
            self._errors[value] = error.with_traceback(None)  # the traceback would keep frames and their memory alive
            self._end(value)

    def abandon(self, error: MotetError) -> None:
        """In the child of a fork, where the threads that would end pending values do not exist: end all of them in
        `error`."""
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
    """The same error as a separate object. An exception that is raised keeps every frame that it passes alive, with its
    memory; errors kept by a timeline, which several threads may raise, are therefore never raised themselves."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own


def failed_among(points: Iterable[Point]) -> MotetError | None:
    """The error of the first poisoned point among reached points; None if there is none."""
    return next((error for point in points if (error := point.error) is not None), None)
