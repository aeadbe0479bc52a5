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
from motet.errors import OptionError, ScheduleError

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
class ScheduleSpace:
    """Points over `parameters`. `build` makes the schedule of a point, or returns None if the point has none;
    `constraints` exclude points before. `starts` are points to try first, the compiler's choice first of all."""

    parameters: tuple[SpaceParameter, ...]
    build: Callable[[Point], KernelSchedule | None]
    constraints: tuple[Callable[[Point], bool], ...] = ()
    starts: tuple[Point, ...] = ()
    listed: tuple[Point, ...] = ()  # if given, these are all points
    _made: dict[str, KernelSchedule | None] = field(default_factory=dict[str, "KernelSchedule | None"])

    @classmethod
    def of_text(cls, text: str, kernel: Kernel, holes: Mapping[str, Sequence[Value]]) -> ScheduleSpace:
        """The space of a schedule's text with holes: `$name` stands for each of `holes[name]`. Raises OptionError for
        a hole without values, and values without a hole."""
        from motet.lab.language import parse_schedule

        named = {found[1] or found[2] for found in re.finditer(r"\$(?:(\w+)|\{(\w+)\})", text)}
        for name in sorted(named ^ holes.keys()):
            what = f"the schedule has no ${name}" if name in holes else "it has no values"
            raise OptionError(f"hole {name}: {what}; expected {name}=V,V,… for each $NAME of the schedule")

        def build(point: Point) -> KernelSchedule | None:
            filled = Template(text).substitute({name: _written(value) for name, value in point.items()})
            try:
                return parse_schedule(filled, kernel)
            except ScheduleError:
                return None

        return cls(tuple(SpaceParameter(name, tuple(values)) for name, values in holes.items()), build)

    @property
    def size(self) -> int:
        """The points, legal or not."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

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
        names = [parameter.name for parameter in self.parameters]
        for values in product(*(parameter.values for parameter in self.parameters)):
            point = dict(zip(names, values, strict=True))
            if self.schedule(point) is not None:
                yield point

    def sample(self, generator: random.Random) -> Point | None:
        """A random point with a schedule; None if many attempts find none."""
        if self.listed:
            return generator.choice(self.listed)
        for _ in range(_ATTEMPTS):
            point = {each.name: generator.choice(each.values) for each in self.parameters}
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
        for each in self.parameters:
            if each.name not in point:
                continue
            at = each.values.index(point[each.name])
            ordered = all(isinstance(value, int) and not isinstance(value, bool) for value in each.values)
            steps = (at - 1, at + 1) if ordered else range(len(each.values))
            for to in steps:
                if 0 <= to < len(each.values) and to != at:
                    yield {**point, each.name: each.values[to]}


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
