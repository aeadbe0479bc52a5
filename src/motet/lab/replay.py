"""Replays a search from records, without the device.

    records of one kernel → a space whose points have a record → strategy → the trials until a figure is reached

A strategy is not told which points have records: one that proposes another point gets the figure of the nearest record.
So strategies of libraries, which draw from all values, are compared with those that draw from the space's points.
Source: the simulation mode of Kernel Tuner (van Werkhoven 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.kernels.schedule import encode_schedule
from motet.errors import OptionError
from motet.lab.points import PointFinder
from motet.lab.space import Point, ScheduleSpace, Value, name_of
from motet.lab.strategies.strategy import Strategy
from motet.records.record import Record, canonical

_REPEATED = 500


@dataclass(frozen=True)
class Replayed:
    """The recorded seconds of a strategy's trials, in order, and the best of all records."""

    seconds: tuple[float, ...]
    best: float

    def trials_to(self, share: float) -> int | None:
        """The trials until one is within `share` of the best record; None if none is."""
        for number, seconds in enumerate(self.seconds, 1):
            if seconds <= self.best * (1 + share):
                return number
        return None


def recorded_space(space: ScheduleSpace, records: Sequence[Record]) -> ScheduleSpace:
    """The points of `space` that have a record with a figure. Raises OptionError if there are none."""
    finder = PointFinder(space)
    found: dict[str, Point] = {}
    for record in records:
        if record.seconds is not None and (point := finder.of_record(record)) is not None:
            found.setdefault(canonical(record.schedule), point)
    if not found:
        raise OptionError("replay: no record of this kernel has a figure for a schedule of this space; explore it "
                          "first, without --replay")
    starts = tuple(start for start in space.starts if start in found.values())
    return replace(space, starts=starts, listed=tuple(found.values()))


def replay(space: ScheduleSpace, strategy: Strategy, records: Sequence[Record], trials: int) -> Replayed:
    """Run `strategy` on the recorded figures, until it has found the best of them. It is made for `space`, which is a
    `recorded_space`."""
    known = {canonical(each.schedule): each.seconds for each in records if each.seconds is not None}
    listed = {name_of(point): key for point in space.listed if (key := _key(space, point)) in known}
    best = min(known[key] for key in listed.values())
    seen: set[str] = set()
    found: list[float] = []
    repeated = 0
    while len(found) < trials and repeated < _REPEATED and best not in found[-1:]:
        point = strategy.ask()
        if point is None:
            break
        key = listed.get(name_of(space.normal(point))) or listed[name_of(_nearest(space, point))]
        strategy.tell(point, known[key])
        repeated = repeated + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            found.append(known[key])
    return Replayed(tuple(found), best)


def _key(space: ScheduleSpace, point: Point) -> str:
    schedule = space.schedule(point)
    return "" if schedule is None else canonical(encode_schedule(schedule))


def _nearest(space: ScheduleSpace, point: Point) -> Point:
    """The listed point with the fewest steps between its values and those of `point`, each step as a share of all
    steps of its parameter; of equally near ones, the first."""
    places: dict[str, dict[Value, float]] = {
        each.name: {value: place / max(1, len(each.values) - 1) for place, value in enumerate(each.values)}
        for each in space.parameters
    }

    def distance(other: Point) -> float:
        return sum(
            (1.0 if name == space.selector else abs(place[other[name]] - place[point[name]]))
            for name, place in places.items() if other[name] != point[name]
        )

    return min(space.listed, key=distance)
