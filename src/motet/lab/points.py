"""Finds the point of a schedule in a space: records and schedules of other kernels are starting points of a search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from motet.compiler.kernels.schedule import KernelSchedule, decode_schedule, encode_schedule
from motet.lab.derivation import flattened
from motet.lab.space import Point, ScheduleSpace, SpaceParameter, Value
from motet.records.record import Record, canonical

_COMBINED = 1 << 14  # points of a space, or of one class in it, that are searched for a schedule


class PointFinder:
    """The points of `space` by their schedules. Points are enumerated once, if neither a record nor the fields of a
    schedule tell them."""

    def __init__(self, space: ScheduleSpace) -> None:
        self._space = space
        self._enumerated: dict[Value, dict[str, Point]] = {}

    def of_record(self, record: Record) -> Point | None:
        """The point of a record; None if the space does not have its schedule."""
        if record.point and self._makes(record.point, canonical(record.schedule)):
            return self._space.normal(record.point)
        return self.of_schedule(record.schedule)

    def of_schedule(self, content: Mapping[str, Any]) -> Point | None:
        """The point of a schedule that is given as JSON values."""
        wanted = canonical(dict(content))
        try:
            fields = dict(flattened(decode_schedule(content)))
        except ValueError:
            return None
        for selected in self._selected(str(content["class"])):
            point = {**self._space.first, **selected}
            own = self._space.active(point)
            named = {each.name: fields[name] for each in own if (name := self._field(each)) in fields}
            if len(named) == len(own) and self._makes({**point, **named}, wanted):
                return self._space.normal({**point, **named})
            found = self._all(point, own).get(wanted)
            if found is not None:
                return found
        return None

    def _selected(self, kind: str) -> Iterator[dict[str, Value]]:
        """The values of the parameter that selects a class, if there is one."""
        selector = self._space.selector
        if not selector:
            yield {}
        for each in self._space.parameters:
            if selector and each.name == selector and kind in each.values:
                yield {selector: kind}

    def _field(self, parameter: SpaceParameter) -> str:
        return parameter.name.partition(".")[2] if self._space.selector else parameter.name

    def _makes(self, point: Point, wanted: str) -> bool:
        """Whether `point` is one of the space, with the schedule `wanted`."""
        known = {each.name: each.values for each in self._space.parameters}
        if point.keys() != known.keys() or any(value not in known[name] for name, value in point.items()):
            return False
        schedule = self._space.schedule(point)
        return schedule is not None and canonical(encode_schedule(schedule)) == wanted

    def _all(self, point: Point, own: Sequence[SpaceParameter]) -> Mapping[str, Point]:
        """The points with all values of `own`, by their schedules; none if they are too many."""
        selected = point.get(self._space.selector)
        if selected not in self._enumerated:
            found: dict[str, Point] = {}
            if math.prod(len(each.values) for each in own) <= _COMBINED:
                for values in itertools.product(*(each.values for each in own)):
                    candidate = {**point, **dict(zip((each.name for each in own), values, strict=True))}
                    schedule = self._space.schedule(candidate)
                    if schedule is not None:
                        found.setdefault(canonical(encode_schedule(schedule)), candidate)
            self._enumerated[selected] = found
        return self._enumerated[selected]


def seeded(space: ScheduleSpace, schedules: Sequence[KernelSchedule]) -> ScheduleSpace:
    """`space` with the points of `schedules` as further starts, if it has them."""
    finder = PointFinder(space)
    starts = list(space.starts)
    for each in schedules:
        point = finder.of_schedule(encode_schedule(each))
        if point is not None and point not in starts:
            starts.append(point)
    return replace(space, starts=tuple(starts))
