"""Replays a search from records, without the device.

    records of one kernel → a space whose points have a record → strategy → the trials until a figure is reached
Source: the simulation mode of Kernel Tuner (van Werkhoven 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.kernels.schedule import encode_schedule
from motet.errors import OptionError
from motet.lab.records import Record, canonical
from motet.lab.space import Point, ScheduleSpace
from motet.lab.strategies.strategy import Strategy

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
    known = {canonical(record.schedule) for record in records if record.seconds is not None}
    if not known:
        raise OptionError("replay: no record of this kernel has a figure; explore it first")

    def has_record(point: Point) -> bool:
        schedule = space.build(point)
        return schedule is not None and canonical(encode_schedule(schedule)) in known

    return space.where(has_record)


def replay(space: ScheduleSpace, strategy: Strategy, records: Sequence[Record], trials: int) -> Replayed:
    """Run `strategy`, made for `recorded_space`, on the recorded figures."""
    known = {canonical(each.schedule): each.seconds for each in records if each.seconds is not None}
    seen: set[str] = set()
    found: list[float] = []
    repeated = 0
    while len(found) < trials and repeated < _REPEATED:
        point = strategy.ask()
        schedule = None if point is None else space.schedule(point)
        if point is None or schedule is None:
            break
        key = canonical(encode_schedule(schedule))
        strategy.tell(point, known[key])
        repeated = repeated + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            found.append(known[key])
    return Replayed(tuple(found), min(known.values()))
