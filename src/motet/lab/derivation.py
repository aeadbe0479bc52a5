"""Derives the space of schedules of a kernel on a target.

On CPUs, each class of kernels that supports the kernel has a space over the fields of its schedule: around the values
that the compiler chooses, those that the class's check accepts. Class `nest` has that of `nest_space.py`. On
GPUs the space has the forms of each launch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec

from motet.compiler.kernels.schedule import (
    KernelSchedule,
    LaunchesSchedule,
    LaunchForm,
    Reason,
    decode_schedule,
    encode_schedule,
)
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import OptionError
from motet.lab.nest_space import nest_space
from motet.lab.space import Point, ScheduleSpace, SpaceParameter, Value

if TYPE_CHECKING:
    from motet.lab.subject import KernelSubject

CLASS = "class"
_NUMBERS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
_TRIED = 1500  # random points with which a value may be legal


def derived_space(subject: KernelSubject, classes: Sequence[str] = ()) -> ScheduleSpace:
    """The space of all schedules of a subject, of those `classes` if given. Raises OptionError for a class that does
    not support the kernel."""
    if not isinstance(subject.program.target, CpuTarget):
        return _launches(subject)
    own = [*_classes(subject)]
    names = [each.name for each in own]
    for name in classes:
        if name not in names:
            raise OptionError(f"class {name}: does not support kernel {subject.listed.name}; expected one of "
                              f"{', '.join(names)}")
    chosen = str(encode_schedule(subject.chosen)[CLASS])
    taken = [each for each in own if each.name in classes] if classes else [
        each for each in own if each.name in (chosen, "nest")
    ]
    return _union([each for each in taken if each.name != "nest"], subject, nest="nest" in [e.name for e in taken])


@dataclass(frozen=True)
class ClassSchedules:
    """A class of kernels that supports a kernel, with the schedule that it chooses, if any."""

    name: str
    schedule: KernelSchedule | None
    reasons: Any  # from a schedule to the reasons why it is not legal


def _classes(subject: KernelSubject) -> Iterator[ClassSchedules]:
    from motet.compiler.codegen.cpu.select import classes_of, own_target

    target = subject.program.target
    assert isinstance(target, CpuTarget)
    target = own_target(subject.kernel, target)
    for each in classes_of(subject.kernel):
        found = each.match(subject.kernel, target)
        if found is None:
            continue

        def reasons(schedule: KernelSchedule, own: Any = each, found: Any = found) -> Sequence[Reason]:
            return own.check(found, schedule, target)

        yield ClassSchedules(each.name, each.choose(found, target), reasons)


def _union(classes: Sequence[ClassSchedules], subject: KernelSubject, nest: bool) -> ScheduleSpace:
    """One space of several classes: parameter `class`, and the fields of each with its name in front."""
    spaces = {each.name: _fields(each, subject) for each in classes if each.schedule is not None}
    if nest and (own := nest_space(subject)) is not None:
        spaces["nest"] = own
    if not spaces:
        raise OptionError(f"kernel {subject.listed.name}: no space can be derived; give a schedule with holes")
    if len(spaces) == 1:
        return next(iter(spaces.values()))
    parameters = [SpaceParameter(CLASS, tuple(spaces))]
    for name, space in spaces.items():
        parameters += [SpaceParameter(f"{name}.{each.name}", each.values) for each in space.parameters]

    def build(point: Point) -> KernelSchedule | None:
        name = str(point[CLASS])
        return spaces[name].schedule(_below(point, name))

    chosen = str(encode_schedule(subject.chosen)[CLASS])
    first = {each.name: each.values[0] for each in parameters}
    starts = [
        {**first, CLASS: name, **{f"{name}.{key}": value for key, value in start.items()}}
        for name in sorted(spaces, key=lambda name: name != chosen) for start in spaces[name].starts
    ]
    return ScheduleSpace(tuple(parameters), build, starts=tuple(starts), selector=CLASS)


def _below(point: Point, name: str) -> Point:
    return {key[len(name) + 1 :]: value for key, value in point.items() if key.startswith(f"{name}.")}


# -- fields of a class -----------------------------------------------------------------------------


def _fields(each: ClassSchedules, subject: KernelSubject) -> ScheduleSpace:
    """The space over the fields of one class's schedule, which begins at the class's choice."""
    assert each.schedule is not None
    given = subject.chosen if type(subject.chosen) is type(each.schedule) else each.schedule
    flat = dict(flattened(given))
    choices = {name: _values(type(given), name, value) for name, value in flat.items()}

    def build(point: Point) -> KernelSchedule | None:
        content = msgspec.to_builtins(given)
        for name, value in point.items():
            _put(content, name, value)
        try:
            schedule = decode_schedule(content)
        except ValueError:
            return None
        return None if each.reasons(schedule) else schedule

    kept = _legal_values(choices, flat, build)
    parameters = tuple(SpaceParameter(name, values) for name, values in kept.items() if len(values) > 1)
    space = ScheduleSpace(parameters, build)
    start = {each.name: flat[each.name] for each in space.parameters}
    return replace(space, starts=(start,))




def _legal_values(
    choices: Mapping[str, tuple[Value, ...]], chosen: Point, build: Any
) -> dict[str, tuple[Value, ...]]:
    """The values that are legal next to the chosen ones, or in one of many random points."""
    kept: dict[str, set[Value]] = {name: {chosen[name]} for name in choices}
    for name, values in choices.items():
        kept[name] |= {value for value in values if build({**chosen, name: value}) is not None}
    generator = random.Random(0)
    names = list(choices)
    for _ in range(_TRIED):
        point = dict(chosen)
        for name in generator.sample(names, min(len(names), generator.randint(2, 4))):
            point[name] = generator.choice(choices[name])
        if any(point[name] not in kept[name] for name in names) and build(point) is not None:
            for name in names:
                kept[name].add(point[name])
    return {name: tuple(value for value in choices[name] if value in kept[name]) for name in names}


def flattened(schedule: KernelSchedule) -> Iterator[tuple[str, Value]]:
    """The fields of a schedule, those with defaults included; those of phases as `phases.0.grain`."""
    for name in schedule.__struct_fields__:
        value: Any = getattr(schedule, name)
        if isinstance(value, list):
            for number, item in enumerate(value):
                for inner in item.__struct_fields__:
                    if inner != "stages":  # the division of stages into phases is kept
                        yield f"{name}.{number}.{inner}", getattr(item, inner)
        else:
            yield name, value


def _put(content: Any, name: str, value: Value) -> None:
    *path, last = name.split(".")
    for part in path:
        content = content[int(part)] if part.isdigit() else content[part]
    content[last] = value


def _values(kind: type, name: str, chosen: Value) -> tuple[Value, ...]:
    """Values of a field: all of a literal or a flag; for a number the common sizes and the chosen one."""
    hint = _hint(kind, name)
    if get_origin(hint) is not None and (options := get_args(hint)) and all(isinstance(o, str) for o in options):
        return tuple(options)
    if isinstance(chosen, bool):
        return (False, True)
    sizes: set[int] = {*_NUMBERS, *([chosen] if isinstance(chosen, int) else [])}
    numbers = sorted(sizes)
    optional = type(None) in get_args(hint)
    return (*([None] if optional else []), *numbers)


def _hint(kind: type, name: str) -> Any:
    """The type of a field."""
    *path, last = name.split(".")
    for part in path:
        if not part.isdigit():
            kind = get_args(get_type_hints(kind)[part])[0]
    return get_type_hints(kind)[last]


# -- GPUs ------------------------------------------------------------------------------------------


def _launches(subject: KernelSubject) -> ScheduleSpace:
    """The forms of each launch, in the compiler's order."""
    forms = subject.listed.forms
    parameters = tuple(
        SpaceParameter(f"launch{number}", tuple(f"{form.form}/{form.number}" for form in each))
        for number, each in enumerate(forms)
    )

    def build(point: Point) -> KernelSchedule | None:
        launches: list[LaunchForm] = []
        for number in range(len(forms)):
            label, _, same = str(point[f"launch{number}"]).rpartition("/")
            launches.append(LaunchForm(label, int(same)))
        return LaunchesSchedule(launches)

    return ScheduleSpace(parameters, build, starts=({each.name: each.values[0] for each in parameters},))
