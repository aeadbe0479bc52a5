"""Replays a search from records, without the device.

    records of one kernel → a space whose points have a record → strategy → the trials until a figure is reached
Source: the simulation mode of Kernel Tuner (van Werkhoven 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.kernels.schedule import encode_schedule
from motet.errors import OptionError
from motet.lab.records import Record, canonical
from motet.lab.search import point_of
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
    done = [record for record in records if record.seconds is not None]
    found: dict[str, Point] = {}
    for record in done:
        if (point := point_of(space, record.schedule)) is not None:
            found.setdefault(canonical(record.schedule), point)
    if not found:
        raise OptionError("replay: no record of this kernel has a figure; explore it first")
    starts = tuple(start for start in space.starts if start in found.values())
    return replace(space, starts=starts, listed=tuple(found.values()))


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
        if key not in known:  # a mixture of recorded points
            strategy.tell(point, None)
            repeated += 1
            continue
        strategy.tell(point, known[key])
        repeated = repeated + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            found.append(known[key])
    return Replayed(tuple(found), min(known.values()))
