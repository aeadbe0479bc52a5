"""Parses device flags, the arguments of `--device`, into names and alternatives.

    flag        = [name "="] alternative {"," alternative}
    alternative = target ["[" ordinal "]" | (":" | "/") ordinal] ["{" key "=" value {"," key "=" value} "}"]
                | "[" ordinal "]" | "@" name | "#hal.device." kind "<" … ">"

    cpu=host{cpu=x86-64-v4}     gpu=cuda[1],@cpu     gpu=cuda:1     '#hal.device.target<"local", {ordinal = 1 : index}>'

Quotes around a flag are removed. An ordinal alone is the device at that position in the machine's list, of any family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from motet.compiler.ir.hal_attributes import AttributeReader, SpellingError
from motet.errors import OptionError

_NAME = re.compile(r"[A-Za-z_$][\w$.-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.-]*")
_ORDINAL = re.compile(r"[0-9]{1,9}(?=\s*\])")
_AS_URI = re.compile(r"[:/]([0-9]{1,9})(?![\w.-])")  # in the machine's device names: cuda:1, host/0
_VALUE = re.compile(r"[^,{}\[\]=]+")


@dataclass(frozen=True)
class FlagAlternative:
    """One alternative of a device: code for `target` with `options`, on the `ordinal`-th device of its kind (None:
    any); or, if `fallback` is set, the device named `target`. Without a target, `ordinal` counts all devices."""

    target: str
    ordinal: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    fallback: bool = False

    def __str__(self) -> str:
        ordinal = "" if self.ordinal is None else f"[{self.ordinal}]"
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return ("@" if self.fallback else "") + self.target + ordinal + (f"{{{options}}}" if options else "")


@dataclass(frozen=True)
class DeviceFlag:
    """A device (`name` is empty if the flag has none) and its alternatives, in order of preference."""

    name: str
    alternatives: tuple[FlagAlternative, ...]

    @property
    def expression(self) -> str:
        return ",".join(map(str, self.alternatives))


def parse_device_flags(flags: Iterable[str]) -> tuple[DeviceFlag, ...]:
    """Parse all `--device` flags of a command line.

    Raises `OptionError` for invalid text, a repeated name, and a mixture of named and unnamed devices. Whether the
    devices of fallbacks exist depends on the program and is checked by verify-devices.
    """
    parsed = tuple(parse_device_flag(flag) for flag in flags)
    names = [flag.name for flag in parsed if flag.name]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"device '{name}': the name is given twice; expected each name once, "
                              f"with its alternatives joined by commas: {name}=first,second")
    if names and len(names) < len(parsed):
        unnamed = next(flag.expression for flag in parsed if not flag.name)
        raise OptionError(f"device '{unnamed}': it has no name, but '{names[0]}' has one; "
                          f"expected all or none to be named: write NAME={unnamed}")
    return parsed


def device_flags_of(devices: Mapping[str, str] | str | None) -> tuple[DeviceFlag, ...]:
    """Device flags from Python arguments: `{"gpu": "cuda,@cpu"}`, or one expression for all."""
    if devices is None:
        return ()
    if isinstance(devices, str):
        return parse_device_flags([devices])
    return parse_device_flags(f"{name}={text}" if name else text for name, text in devices.items())


def parse_device_flag(text: str) -> DeviceFlag:
    """Parse one flag. Raises `OptionError` with the position of the error."""
    return _Parser(_unquoted(text)).flag()


def _unquoted(text: str) -> str:
    stripped = text.strip()
    quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'"
    return stripped[1:-1] if quoted else text


class _Parser:
    """Parses one flag from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def flag(self) -> DeviceFlag:
        name = ""
        if match := re.match(rf"\s*({_NAME.pattern})\s*=", self.text):
            name, self.position = match[1], match.end()
        alternatives = self.element()
        while self.accept(","):
            alternatives += self.element()
        if self.position < len(self.text):
            self.fail("',' and another alternative, or the end")
        return DeviceFlag(name, tuple(alternatives))

    def element(self) -> list[FlagAlternative]:
        self.skip_space()
        if not self.text.startswith("#", self.position):
            return [self.alternative()]
        reader = AttributeReader(self.text, self.position)
        try:
            found = reader.device()
        except SpellingError as error:
            raise OptionError(f"device '{self.text}': column {error.offset + 1}: {error}") from None
        self.position = reader.position
        self.skip_space()
        if self.position < len(self.text) and self.text[self.position] != ",":
            self.fail("',' or the end after this attribute")
        return [
            FlagAlternative(one.fallback, fallback=True) if one.fallback else FlagAlternative(one.family, one.ordinal)
            for one in found
        ]

    def alternative(self) -> FlagAlternative:
        self.skip_space()
        if self.text.startswith("[", self.position):
            return self.numbered("")
        if self.accept("@"):
            return FlagAlternative(self.take(_NAME, "the name of another device after '@'"), fallback=True)
        target = self.take(_TARGET, "a target such as host or cuda, or @ and the name of another device")
        return self.numbered(target)

    def numbered(self, target: str) -> FlagAlternative:
        ordinal = None
        options: tuple[tuple[str, str], ...] = ()
        if self.accept("["):
            ordinal = int(self.take(_ORDINAL, "an ordinal, a number from 0, and ']'"))
            self.accept("]")
        elif target and (spelled := _AS_URI.match(self.text, self.position)) is not None:
            ordinal, self.position = int(spelled[1]), spelled.end()
        if self.accept("{"):
            options = self.options()
        if self.position < len(self.text) and self.text[self.position] != ",":
            self.fail(f"',' or the end after '{target}'" if ordinal is None and not options
                      else "',' or the end after this alternative")
        return FlagAlternative(target, ordinal, options)

    def options(self) -> tuple[tuple[str, str], ...]:
        options: dict[str, str] = {}
        if self.accept("}"):
            return ()
        while True:
            start = self.position
            key = self.take(_NAME, "the name of an option")
            if key in options:
                self.position = start
                self.fail(f"another option than '{key}', which is given twice")
            if not self.accept("="):
                self.fail(f"'=' and a value after '{key}'")
            options[key] = self.take(_VALUE, f"a value for '{key}'").strip()
            if self.accept("}"):
                return tuple(options.items())
            if not self.accept(","):
                self.fail("',' and another option, or '}'")

    def accept(self, character: str) -> bool:
        self.skip_space()
        if not self.text.startswith(character, self.position):
            return False
        self.position += 1
        self.skip_space()
        return True

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        self.skip_space()
        match = pattern.match(self.text, self.position)
        if match is None:
            self.fail(expected)
        self.position = match.end()
        self.skip_space()
        return match[0]

    def skip_space(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def fail(self, expected: str) -> NoReturn:
        rest = self.text[self.position:]
        there = f"'{rest}'" if rest else "the end"
        raise OptionError(f"device '{self.text}': column {self.position + 1}: expected {expected}; "
                          f"there is {there}")
