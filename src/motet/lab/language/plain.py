"""Reads schedules' text, in YAML or JSON, as mappings whose keys stay in order.

    {"i": {"parallelize"}, "j#16": {"unroll": 4}}     →     {"i": {"parallelize": None}, "j#16": {"unroll": 4}}

A key that occurs twice is an error, as are anchors and tags. Only the scalars of JSON have a type; others are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from motet.errors import OptionError

Plain = str | int | bool | None | dict[str, "Plain"] | list["Plain"]

_DEPTH = 16  # of nested mappings; a schedule with regions of every dimension has fewer
_WORDS: dict[str, bool | None] = {"": None, "null": None, "~": None, "true": True, "false": False}


def read_plain(text: str) -> dict[str, Plain]:
    """The mapping that `text` describes. Raises OptionError, with line and column, unless it is one."""
    try:
        import yaml
    except ImportError:
        raise OptionError("schedules as text need PyYAML: pip install 'motet[lab]'") from None
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        found = _EventReader(events, yaml).document()
    except yaml.YAMLError as error:
        raise OptionError(f"schedule{_place(getattr(error, 'problem_mark', None))}: {_problem(error)}") from None
    if not isinstance(found, dict):
        raise OptionError('schedule: expected a mapping of loops, as {"i": {"parallelize"}, "i#4": {"unroll"}}')
    return found


def plain_mapping(content: Mapping[Any, Any] | object, where: str = "schedule") -> dict[str, Plain]:
    """`content`, values of Python, as `read_plain` returns it; sets and tuples of flags are mappings to None."""
    if not isinstance(content, Mapping):
        raise OptionError(f"{where}: expected a mapping of loops, not {type(content).__name__}")
    return {_key(key, where): _plain(value, f"{where}: {key}") for key, value in content.items()}


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise OptionError(f"{where}: the key {key!r} is no text; expected a loop, as i or i#4")
    return key


def _plain(value: object, where: str) -> Plain:
    if isinstance(value, Mapping):
        return plain_mapping(value, where)
    if isinstance(value, set | frozenset):
        return {_key(flag, where): None for flag in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(each, where) for each in value]
    if value is None or isinstance(value, str | int | bool):
        return value
    raise OptionError(f"{where}: {value!r} is of type {type(value).__name__}; expected text, a number or a mapping")


class _EventReader:
    """Reads the events of a YAML parser."""

    def __init__(self, events: Iterator[Any], yaml: Any) -> None:
        self.events = events
        self.yaml = yaml

    def document(self) -> Plain:
        next(self.events)
        event = next(self.events)
        if isinstance(event, self.yaml.StreamEndEvent):
            return {}
        found = self.value(next(self.events), 0)
        next(self.events)
        if not isinstance(event := next(self.events), self.yaml.StreamEndEvent):
            raise OptionError(f"schedule{_place(event.start_mark)}: a second document; expected one")
        return found

    def value(self, event: Any, depth: int) -> Plain:
        yaml = self.yaml
        if depth > _DEPTH:
            raise OptionError(f"schedule{_place(event.start_mark)}: nested deeper than {_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
            raise OptionError(f"schedule{_place(event.start_mark)}: anchors, aliases and tags are not supported")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.style is None else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self.items(depth)
        return self.mapping(depth)

    def items(self, depth: int) -> list[Plain]:
        found: list[Plain] = []
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            found.append(self.value(event, depth + 1))
        return found

    def mapping(self, depth: int) -> dict[str, Plain]:
        found: dict[str, Plain] = {}
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            place = _place(event.start_mark)
            if not isinstance(event, self.yaml.ScalarEvent):
                raise OptionError(f"schedule{place}: expected a loop as a key, as i or i#4")
            if event.value in found:
                raise OptionError(f"schedule{place}: {event.value} is twice in one mapping; expected each loop once")
            found[event.value] = self.value(next(self.events), depth + 1)
        return found


def _scalar(text: str) -> Plain:
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _place(mark: Any) -> str:
    return "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"


def _problem(error: Exception) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem}; expected YAML or JSON"
