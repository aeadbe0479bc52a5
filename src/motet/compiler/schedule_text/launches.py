"""Schedules of GPUs in the declarative form: what is said of tiles, warps and stages selects the form of each launch.

    {"i#128": {"block"}, "j#64": {"block"}, "k#64": {"stages": 8}, "form": "ring", "warp_specialize": null}

`i#128` is the tile of a block along `i`; with `warp` or `thread`, the tile of one, of which a block has as many as it
has warps or threads. `launch1` has the entries of another launch than the main one, that with the most forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from motet.compiler.kernels.launch_choices import THREADS, LaunchChoice
from motet.compiler.kernels.schedule import LaunchesSchedule
from motet.compiler.schedule_text.other_names import OF_LAUNCHES
from motet.compiler.schedule_text.plain import Plain, plain_mapping, read_plain
from motet.errors import ScheduleError

LEVELS = ("block", "warp", "thread")
NUMBERS = ("warps", "stages", "cluster")
WORDS = (*NUMBERS, "form", "warp_specialize")
_LOOP = re.compile(r"([A-Za-z]\w*?)(?:#(\d+))?")
_LAUNCH = re.compile(r"launch(\d+)")
_SHOWN = 8  # forms in an error

Choices = Sequence[LaunchChoice]


@dataclass(frozen=True)
class LaunchRule:
    """What a primitive requires of a form. `value` is the loop or number that errors name."""

    primitive: str
    value: str
    holds: Callable[[LaunchChoice], bool]


def parse_launches(
    text_or_mapping: str | Mapping[Any, Any], launches: Sequence[Choices]
) -> LaunchesSchedule:
    """The schedule that text describes for a kernel whose launches have the forms `launches`: of each, the first form,
    in the compiler's order, for which all is true. Raises ScheduleError, with the legal forms, if there is none, and
    OptionError for text that is none."""
    content = read_plain(text_or_mapping) if isinstance(text_or_mapping, str) else plain_mapping(text_or_mapping)
    chosen = [each[0] for each in launches]
    main = main_launch(launches)
    own = {key: value for key, value in content.items() if not _LAUNCH.fullmatch(key)}
    if own:
        chosen[main] = narrowed(launches[main], _rules(own, launches[main]), main)[0]
    for key, value in content.items():
        match = _LAUNCH.fullmatch(key)
        if match is None:
            continue
        number = int(match[1])
        if number >= len(launches) or (number == main and own) or not isinstance(value, dict):
            legal = ", ".join(f"launch{n}: {{…}}" for n in range(len(launches)))
            raise ScheduleError("launch", key, "there is none, or it has entries already", f"one of {legal}")
        chosen[number] = narrowed(launches[number], _rules(value, launches[number]), number)[0]
    return LaunchesSchedule([each.form for each in chosen])


def selects(content: Mapping[str, Plain]) -> bool:
    """Whether an entry says more of a launch than that a loop is there."""
    return any("#" in key or key in WORDS or value for key, value in content.items())


def main_launch(launches: Sequence[Choices]) -> int:
    """The number of the launch whose entries stand outside of `launchN`: the first with the most forms."""
    return max(range(len(launches)), key=lambda n: (len(launches[n]), -n))


def narrowed(choices: Choices, rules: Sequence[LaunchRule], launch: int = 0) -> list[LaunchChoice]:
    """The forms for which all rules hold. Raises ScheduleError that names the first rule after which none is left."""
    left = list(choices)
    for rule in rules:
        kept = [each for each in left if rule.holds(each)]
        if not kept:
            shown = "; ".join(choice_text(each) for each in left[:_SHOWN])
            more = f"; or {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            before = " with the entries before it" if len(left) < len(choices) else ""
            raise ScheduleError(rule.primitive, rule.value, f"no form of launch{launch}{before} has it",
                                f"one of {shown}{more}")
        left = kept
    return left


# -- rules -----------------------------------------------------------------------------------------


def tile_rule(dim: str, elements: int, level: str) -> LaunchRule:
    """A tile of a block, a warp or a thread along `dim`."""
    def holds(choice: LaunchChoice) -> bool:
        if level == "block":
            return choice.elements(dim, "block") == elements
        if (own := choice.elements(dim, "thread")) is not None and level == "thread":
            return own == elements
        block = choice.elements(dim, "block")
        return block is not None and block % elements == 0

    return LaunchRule("tile", f"{dim}#{elements}", holds)


def parts_rule(parts: Mapping[str, int], level: str) -> LaunchRule:
    """Tiles of warps or threads along `parts`: a block consists of as many as it has warps or threads."""
    shown = ", ".join(f"{dim}#{elements}" for dim, elements in parts.items())

    def holds(choice: LaunchChoice) -> bool:
        blocks = {dim: choice.elements(dim, "block") for dim in parts}
        if level == "thread" and all(choice.elements(dim, "thread") is not None for dim in parts):
            return True
        count = (choice.form.warps or 1) * (THREADS if level == "thread" else 1)
        return count == prod((blocks[dim] or 0) // elements for dim, elements in parts.items())

    return LaunchRule(level, shown, holds)


def number_rule(name: str, value: int) -> LaunchRule:
    """The number of warps of a block, stages of a loop in flight, or blocks of a cluster."""
    def holds(choice: LaunchChoice) -> bool:
        return {"warps": choice.form.warps, "stages": choice.form.stages, "cluster": choice.form.cluster}[name] == value

    return LaunchRule(name, str(value), holds)


def form_rule(name: str) -> LaunchRule:
    """The kind of a form, or its whole label."""
    return LaunchRule("form", name, lambda choice: name in (choice.way, choice.form.form))


def specialized_rule(wanted: bool) -> LaunchRule:
    return LaunchRule("warp_specialize", str(wanted).lower(), lambda choice: choice.specialized == wanted)


def _rules(content: Mapping[str, Plain], choices: Choices) -> list[LaunchRule]:
    rules: list[LaunchRule] = []
    parts: dict[str, dict[str, int]] = {"warp": {}, "thread": {}}
    for key, value in content.items():
        if key in WORDS:
            rules.append(_word(key, value))
            continue
        match = _LOOP.fullmatch(key)
        dims = _dims(choices)
        if match is None or match[1] not in dims:
            legal = f"one of {', '.join([*dims, *WORDS])}"
            raise ScheduleError("loop", key, "there is no such loop or primitive of a launch", legal)
        dim, size = match[1], int(match[2]) if match[2] else None
        rules += _of_loop(key, dim, size, _loop_flags(key, value), parts)
    return rules + [parts_rule(tiles, level) for level, tiles in parts.items() if tiles]


def _of_loop(
    key: str, dim: str, size: int | None, flags: Mapping[str, Plain], parts: dict[str, dict[str, int]]
) -> Iterator[LaunchRule]:
    levels = [name for name in LEVELS if name in flags]
    if size is None and levels:
        raise ScheduleError("tile", key, "a launch has no loop over a whole dimension", f"a tile's size, as {dim}#64")
    if len(levels) > 1:
        raise ScheduleError(levels[1], key, f"it is the tile of a {levels[0]} already", "another tile for it")
    if size is not None:
        level = levels[0] if levels else "block"
        yield tile_rule(dim, size, level)
        if level != "block":
            parts[level][dim] = size
    for name in NUMBERS:
        if name in flags:
            yield _word(name, flags[name])


def _loop_flags(key: str, value: Plain) -> Mapping[str, Plain]:
    if isinstance(value, str):
        words = (word.partition("=") for word in value.split())
        value = {name: (int(given) if given.isdigit() else given) if sign else None for name, sign, given in words}
    if isinstance(value, list):
        value = {str(each): None for each in value}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ScheduleError("loop", key, f"{value!r} are no flags", 'flags as {"block"}')
    for name in value:
        if name not in (*LEVELS, *NUMBERS):
            legal = f"one of {', '.join((*LEVELS, *NUMBERS))} of a loop, or form and warp_specialize"
            raise ScheduleError(name, key, "launches of GPUs have no such primitive", OF_LAUNCHES.get(name, legal))
    return value


def _word(name: str, value: Plain) -> LaunchRule:
    if name in NUMBERS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ScheduleError(name, str(value), "it is no number", f'a number from 1, as "{name}": 4')
        return number_rule(name, value)
    if name == "form":
        if not isinstance(value, str):
            raise ScheduleError(name, str(value), "it is no name", 'a name, as "form": "ring"')
        return form_rule(value)
    if value is not None and not isinstance(value, bool):
        raise ScheduleError(name, str(value), "it has a value", f'"{name}" without one')
    return specialized_rule(value is not False)


def _dims(choices: Choices) -> list[str]:
    return list(dict.fromkeys(dim for each in choices for tile in each.tiles for dim in tile.dims))


# -- text ------------------------------------------------------------------------------------------


def choice_mapping(choice: LaunchChoice) -> dict[str, Plain]:
    """A form in the declarative form."""
    found: dict[str, Plain] = {each.label: {each.level: None} for each in choice.tiles}
    if choice.way != "tiles":
        found["form"] = choice.way
    for name, value in (("warps", choice.form.warps), ("stages", choice.form.stages), ("cluster", choice.form.cluster)):
        if value is not None and (value != 1 or name == "warps"):
            found[name] = value
    if choice.specialized:
        found["warp_specialize"] = None
    return found


def choice_text(choice: LaunchChoice) -> str:
    """A form as one line of text."""
    from motet.compiler.schedule_text.formatting import plain_text

    return plain_text(choice_mapping(choice))


def launches_text(schedule: LaunchesSchedule, launches: Sequence[Choices]) -> str:
    """`schedule` in the declarative form, which `parse_launches` reads."""
    from motet.compiler.schedule_text.formatting import plain_text

    main = main_launch(launches)
    found: dict[str, Plain] = {}
    for number, (form, choices) in enumerate(zip(schedule.launches, launches, strict=True)):
        chosen = next(each for each in choices if (each.form.form, each.form.number) == (form.form, form.number))
        entries = choice_mapping(chosen)
        if narrowed(choices, _rules(entries, choices), number)[0] is not chosen:
            entries = dict[str, Plain](form=chosen.form.form)
        if number == main:
            found |= entries
        elif len(choices) > 1:
            found[f"launch{number}"] = entries
    return plain_text(found)
