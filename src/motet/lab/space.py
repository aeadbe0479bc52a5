"""Spaces of schedules: parameters with values, constraints, and the schedule of each point.

    ScheduleSpace.of_text('{"i": {"parallelize"}, "k": {}, "i#$ti": {"unroll"}, "j#$tj": {"vectorize"}}', kernel,
                  {"ti": [2, 4, 6], "tj": [16, 32]})                                 a schedule with holes

`derivation.py` derives spaces from a kernel and its target.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from string import Template
from typing import TYPE_CHECKING

from motet.compiler.kernels.schedule import KernelSchedule
from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.compiler.kernels.kernel import Kernel

Value = int | str | bool | None
Point = Mapping[str, Value]
_ATTEMPTS = 20_000
_NEAREST = 12


@dataclass(frozen=True)
class SpaceParameter:
    """A choice among `values`, in order of size if they are numbers."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class FilledText:
    """A schedule's text with holes, which a point fills."""

    text: str
    parse: Callable[[str], KernelSchedule]
    reasons: Callable[[KernelSchedule], Sequence[object]]

    def __call__(self, point: Point) -> KernelSchedule | None:
        found = self._parsed(point)
        return None if isinstance(found, str) else found

    def why(self, point: Point) -> str:
        """Why the text of a point is no legal schedule; "" if it is one."""
        found = self._parsed(point)
        return found if isinstance(found, str) else ""

    def _parsed(self, point: Point) -> KernelSchedule | str:
        try:
            found = self.parse(Template(self.text).substitute({k: _written(value) for k, value in point.items()}))
        except OptionError as error:
            return str(error)
        return "; ".join(map(str, self.reasons(found))) or found


@dataclass(frozen=True)
class ScheduleSpace:
    """Points over `parameters`. `build` makes the schedule of a point, or returns None if the point has none;
    `constraints` exclude points before. `starts` are points to try first, the compiler's choice first of all.

    In a space of several classes of schedules, the parameter `selector` has the class, and `CLASS.NAME` counts only
    in points of that class: in all others it has its first value, so that a schedule has one point."""

    parameters: tuple[SpaceParameter, ...]
    build: Callable[[Point], KernelSchedule | None]
    constraints: tuple[Callable[[Point], bool], ...] = ()
    starts: tuple[Point, ...] = ()
    listed: tuple[Point, ...] = ()  # if given, these are all points
    selector: str = ""
    _made: dict[str, KernelSchedule | None] = field(default_factory=dict[str, "KernelSchedule | None"])

    @classmethod
    def of_text(
        cls, text: str, kernel: Kernel, holes: Mapping[str, Sequence[Value]],
        reasons: Callable[[KernelSchedule], Sequence[object]] = lambda schedule: (),
        parse: Callable[[str], KernelSchedule] | None = None,
    ) -> ScheduleSpace:
        """The space of a schedule's text with holes: `$name` stands for each of `holes[name]`. `reasons` are those why
        a target cannot run a schedule (`KernelSubject.reasons`), and `parse` reads text, by default as loops of
        `kernel` (`KernelSubject.parse`). Raises OptionError for a hole without values, and values without a hole."""
        from motet.compiler.schedule_text.parsing import parse_schedule

        named = {found[1] or found[2] for found in re.finditer(r"\$(?:(\w+)|\{(\w+)\})", text)}
        for name in sorted(named ^ holes.keys()):
            what = f"the schedule has no ${name}" if name in holes else "it has no values"
            raise OptionError(f"hole {name}: {what}; expected {name}=V,V,… for each $NAME of the schedule")
        filled = FilledText(text, parse or (lambda filled: parse_schedule(filled, kernel)), reasons)
        return cls(tuple(SpaceParameter(name, tuple(values)) for name, values in holes.items()), filled)

    def why(self, point: Point) -> str:
        """Why a point of a schedule with holes has no schedule, "" if it has one, or is of another space."""
        return self.build.why(point) if isinstance(self.build, FilledText) else ""

    @property
    def size(self) -> int:
        """The points, legal or not."""
        return sum(math.prod(len(each.values) for each in self.active(point)) for point in self._selections())

    @property
    def first(self) -> Point:
        """The point with the first value of each parameter."""
        return {each.name: each.values[0] for each in self.parameters}

    def active(self, point: Point) -> list[SpaceParameter]:
        """The parameters that count in a point, without the one that selects the class."""
        if not self.selector:
            return list(self.parameters)
        return [each for each in self.parameters if each.name.partition(".")[0] == point[self.selector]]

    def normal(self, point: Point) -> Point:
        """`point` with the first value of each parameter that does not count."""
        if not self.selector:
            return point
        kept = {self.selector, *(each.name for each in self.active(point))}
        return {name: point[name] if name in kept else value for name, value in self.first.items()}

    def _selections(self) -> Iterator[Point]:
        """A point of each class."""
        first = self.first
        values = next((each.values for each in self.parameters if each.name == self.selector), (None,))
        for value in values:
            yield {**first, self.selector: value} if self.selector else first

    def where(self, constraint: Callable[[Point], bool]) -> ScheduleSpace:
        """The space of those points for which `constraint` holds as well."""
        return replace(self, constraints=(*self.constraints, constraint), _made={})

    def schedule(self, point: Point) -> KernelSchedule | None:
        """The schedule of a point; None if the point is excluded or has none."""
        key = name_of(point)
        if key not in self._made:
            allowed = all(constraint(point) for constraint in self.constraints)
            self._made[key] = self.build(point) if allowed else None
        return self._made[key]

    def points(self) -> Iterator[Point]:
        """All points with schedules, in order."""
        if self.listed:
            yield from self.listed
            return
        for start in self._selections():
            own = self.active(start)
            for values in product(*(each.values for each in own)):
                point = {**start, **dict(zip((each.name for each in own), values, strict=True))}
                if self.schedule(point) is not None:
                    yield point

    def sample(self, generator: random.Random) -> Point | None:
        """A random point with a schedule; None if many attempts find none."""
        if self.listed:
            return generator.choice(self.listed)
        for _ in range(_ATTEMPTS):
            point = self.normal({each.name: generator.choice(each.values) for each in self.parameters})
            if self.schedule(point) is not None:
                return point
        return None

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The points with schedules that differ in one parameter: by one step for numbers. Of listed points, those
        that differ in the fewest parameters."""
        found = [moved for moved in self._steps(point) if self.schedule(moved) is not None]
        if self.listed:
            names = {name_of(each) for each in self.listed}
            found = [moved for moved in found if name_of(moved) in names]
        if self.listed and not found:
            others = [each for each in self.listed if each != point]
            found = sorted(others, key=lambda each: _differing(each, point))[:_NEAREST]
        yield from found

    def _steps(self, point: Point) -> Iterator[Point]:
        """The points that differ in one parameter, by one step for numbers."""
        counted = [each for each in self.parameters if each.name == self.selector] + self.active(point)
        for each in counted:
            if each.name not in point:
                continue
            at = each.values.index(point[each.name])
            ordered = all(isinstance(value, int) and not isinstance(value, bool) for value in each.values)
            steps = (at - 1, at + 1) if ordered else range(len(each.values))
            for to in steps:
                if 0 <= to < len(each.values) and to != at:
                    yield self.normal({**point, each.name: each.values[to]})


def _differing(a: Point, b: Point) -> int:
    return sum(a[name] != b.get(name) for name in a)


def name_of(point: Point) -> str:
    """A point as text, equal for equal points."""
    return json.dumps(dict(sorted(point.items())))


def _written(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parse_holes(texts: Sequence[str]) -> dict[str, list[Value]]:
    """The values of holes given as `name=4,8,12`. Raises OptionError."""
    found: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values or name in found:
            raise OptionError(f"--hole {text}: expected NAME=VALUE,VALUE,… once for each $NAME of the schedule")
        found[name] = [int(value) if re.fullmatch(r"-?\d+", value) else value for value in values.split(",")]
    return found
