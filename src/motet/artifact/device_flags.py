"""Parses and prints device flags: the arguments of `--device`, `devices` in Python, and the devices of programs.

    flag        = [name "="] alternative {"," alternative}
    alternative = ["rank:" rank "/"] family ["[" ordinal "]" | (":" | "/") ordinal]
                  ["{" option {("," | "&") option} "}"]
                | "[" ordinal "]" | "@" name | "#hal.device." kind "<" … ">"
    option      = key "=" value
    binding     = [name "="] [place "/"] device     a physical device: its URI or UUID; its place is a rank or a machine

    cpu=host{cpu=x86-64-v4}     gpu=cuda[1],@cpu     gpu=cuda:1     '#hal.device.target<"local", {ordinal = 1 : index}>'

A flag or binding whose name is that of a mesh, `grid[2x2]=riscv:qemu`, stands for one of each node
(`device_meshes.py`). Quotes around a flag are removed. An ordinal alone is the device at that position in the machine's
list, of any family. Flags are the devices to compile a program for; bindings are the physical devices that run an
artifact. For a program, `run` accepts both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from motet.artifact.device_meshes import nodes_of
from motet.artifact.places import rank_of, split_place
from motet.artifact.schema import Alternative, Struct
from motet.errors import OptionError

# Parses an attribute `#…` of a text from an offset on. Returns its alternatives and the offset of its end. Raises
# OptionError.
ReadAttribute = Callable[[str, int], tuple[list[Alternative], int]]

NAME = r"[A-Za-z_$][\w$.-]*"  # the name of a program's device
FAMILY = r"[A-Za-z_][\w.-]*"
_NAME, _FAMILY = re.compile(NAME), re.compile(FAMILY)
_NAMED = re.compile(rf"\s*({NAME})\s*=")
_ORDINAL = re.compile(r"[0-9]{1,9}(?=\s*\])")
_AS_URI = re.compile(r"[:/]([0-9]{1,9})(?![\w.-])")  # in the machine's device names: cuda:1, host/0
_ON_RANK = re.compile(r"rank:([0-9]{1,6})/")
_VALUE = re.compile(r"[^,&{}\[\]=]+")
ALL_NAMED = "it has no name, and other flags name all devices of the program; expected one flag for each device"
_URI = re.compile(rf"({FAMILY})(?:[:/][^,{{}}\[\]?]*(?:\?.*)?|\?.*)")


class DeviceFlag(Struct, frozen=True):
    """A device (`name` is empty if the flag has none) and its alternatives, in order of preference. `uri` is the
    physical device to bind it to, if the flag is a URI."""

    name: str
    alternatives: tuple[Alternative, ...]
    uri: str = ""

    @property
    def expression(self) -> str:
        return ",".join(map(print_alternative, self.alternatives))

    def __str__(self) -> str:
        return f"{self.name}={self.expression}" if self.name else self.expression


# -- flags -----------------------------------------------------------------------------------------


def parse_flags(flags: Iterable[str], attribute: ReadAttribute | None = None) -> tuple[DeviceFlag, ...]:
    """Parses all `--device` flags of a command line that compiles; `attribute`, if given, parses IREE's attributes.

    Raises `OptionError` for invalid text, a repeated name, and a mixture of named and unnamed devices. Whether the
    devices of fallbacks exist depends on the program and is checked by verify-devices.
    """
    return _together(_Parser(node, attribute).flag() for text in flags for node in nodes_of(text))


def parse_flags_or_uris(flags: Iterable[str], attribute: ReadAttribute | None = None) -> tuple[DeviceFlag, ...]:
    """Parses all `--device` flags of a command line that compiles and runs: each is a flag, or the URI of a physical
    device, for whose family the program is then compiled. Of flags with names, one may have none: it is for the other
    devices. Raises the errors of `parse_flags`."""
    return _together((_Parser(node, attribute).flag_or_uri() for text in flags for node in nodes_of(text)), others=1)


def flags_of(
    devices: Mapping[str, str] | str | None, attribute: ReadAttribute | None = None
) -> tuple[DeviceFlag, ...]:
    """Device flags from Python arguments: `{"gpu": "cuda,@cpu"}`, or one expression for all."""
    named = _mapping(devices, "{\"gpu\": \"cuda,@cpu\"}, or one text for all devices")
    return parse_flags((f"{name}={text}" if name else text for name, text in named.items()), attribute)


def _together(flags: Iterable[DeviceFlag], others: int = 0) -> tuple[DeviceFlag, ...]:
    """The flags, of which at most `others` have no name if some have one."""
    parsed = tuple(flags)
    names = [flag.name for flag in parsed if flag.name]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"device '{name}': the name is given twice; expected each name once, "
                              f"with its alternatives joined by commas: {name}=first,second")
    unnamed = [flag.uri or flag.expression for flag in parsed if not flag.name]
    if names and len(unnamed) > others:
        raise OptionError(f"device '{unnamed[others]}': {_unnamed(unnamed[others], names[0], others)}")
    return parsed


def _unnamed(device: str, name: str, others: int) -> str:
    """Why a device without a name is refused, given that the device `name` has one and `others` may have none."""
    if others:
        return (f"several devices have no name, but '{name}' has one; expected all or none to be named, or one without "
                f"a name, for all others: write NAME={device}")
    return f"it has no name, but '{name}' has one; expected all or none to be named: write NAME={device}"


# -- bindings --------------------------------------------------------------------------------------


def parse_bindings(flags: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Physical devices by the names of an artifact's devices, `names`, from a command line. One without a name applies
    to all devices that no other flag names, several bind to them in order. Raises `OptionError` for a repeated name,
    for an empty device, and for more devices than names."""
    bindings: dict[str, str] = {}
    unnamed: list[str] = []
    for text in (node for given in flags for node in nodes_of(given)):
        name, uri = _Parser(text).binding()
        if name in bindings:
            raise OptionError(f"--device {text}: the name '{name}' is given twice; expected each name once")
        if not uri:
            raise OptionError(f"--device {text}: expected NAME=PHYSICAL, such as gpu=cuda:0")
        if name:
            bindings[name] = uri
        else:
            unnamed.append(uri)
    if not unnamed:
        return bindings
    if len(unnamed) == 1:
        if bindings and set(names) == set(bindings):
            raise OptionError(f"--device {unnamed[0]}: {ALL_NAMED}")
        return bindings | {"": unnamed[0]}
    if bindings:
        raise OptionError(f"--device {unnamed[1]}: {_unnamed(unnamed[1], next(iter(bindings)), 1)}")
    if len(unnamed) > len(names):
        raise OptionError(
            f"--device {unnamed[len(names)]}: {len(unnamed)} devices are given; expected at most {len(names)}, for "
            f"{', '.join(names)}"
        )
    return dict(zip(names, unnamed, strict=False))


def bindings_of(devices: Mapping[str, str] | str | None) -> dict[str, str]:
    """Bindings from Python arguments: `{"gpu": "cuda:0"}`, or one device for all."""
    return _mapping(devices, "{\"gpu\": \"cuda:0\"}, or one text for all devices")


def _mapping(devices: Any, expected: str) -> dict[str, str]:
    """Texts by names of devices; "" is the name of a text alone. Raises OptionError for anything else."""
    if devices is None:
        return {}
    if isinstance(devices, str):
        return {"": devices}
    if isinstance(devices, (list, tuple, set, frozenset)):
        raise OptionError(f"devices: {devices!r}: {_meant(cast('Iterable[Any]', devices))}; expected {expected}")
    if not isinstance(devices, Mapping):
        raise OptionError(f"devices: it is of type {type(devices).__qualname__}; expected {expected}")
    given: Mapping[Any, Any] = devices
    for name, text in given.items():
        if not isinstance(name, str) or not isinstance(text, str):
            kind = type(text if isinstance(name, str) else name).__qualname__
            raise OptionError(f"devices: {name!r}: {text!r}: {kind} given; expected texts: {expected}")
    found: dict[str, str] = {}
    for name, text in given.items():
        if "[" in name:
            found |= dict(node.split("=", 1) for node in nodes_of(f"{name}={text}"))
        else:
            found[name] = text
    return found


def _meant(devices: Iterable[Any]) -> str:
    """What to write instead of a list of devices, whose names in the program it does not give."""
    texts = [str(each) for each in devices]
    if len(texts) == 1:
        return f"a list names no devices of the program; for one device write devices={texts[0]!r}"
    named = ", ".join(f'"{name}": {text!r}' for name, text in zip("abcdefgh", texts, strict=False))
    return f"a list names no devices of the program; write devices={{{named}}}, with the program's names"


# -- alternatives ----------------------------------------------------------------------------------


def parse_alternative(text: str) -> Alternative:
    """Parses the output of `print_alternative`. Raises `OptionError`."""
    return _Parser(text).alone()


def print_alternative(alternative: Alternative) -> str:
    """The text of an alternative: `cuda`, `host[1]`, `riscv{harts=4,memory=1G}` or `@cpu`."""
    if alternative.fallback:
        return f"@{alternative.fallback}"
    ordinal = "" if alternative.ordinal is None else f"[{alternative.ordinal}]"
    options = f"{{{alternative.options.replace('&', ',')}}}" if alternative.options else ""
    rank = "" if alternative.rank is None else f"rank:{alternative.rank}/"
    return rank + alternative.family + ordinal + options


def options_of(alternative: Alternative) -> dict[str, str]:
    """The options of an alternative by key."""
    pairs = (option.partition("=") for option in alternative.options.split("&") if option)
    return {key: value for key, _, value in pairs}


# -- parsing ---------------------------------------------------------------------------------------


class _Parser:
    """Parses one text from left to right. Errors give the column of the invalid part."""

    def __init__(self, text: str, attribute: ReadAttribute | None = None) -> None:
        stripped = text.strip()
        quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'"
        self.text = stripped[1:-1] if quoted else text
        self.attribute = attribute
        self.position = 0

    # -- wholes --

    def flag(self) -> DeviceFlag:
        name = self.name()
        alternatives = self.element()
        while self.accept(","):
            alternatives += self.element()
        if self.position < len(self.text):
            self.fail("',' and another alternative, or the end")
        return DeviceFlag(name, tuple(alternatives))

    def flag_or_uri(self) -> DeviceFlag:
        name, uri = self.binding()
        place, there = split_place(uri)
        match = _URI.fullmatch(there)
        if match is not None:
            return DeviceFlag(name, (Alternative(match[1]),), uri)
        if place and _FAMILY.fullmatch(there):
            return DeviceFlag(name, (Alternative(there, rank=rank_of(place)),), uri)
        self.position = 0
        return self.flag()

    def binding(self) -> tuple[str, str]:
        name = self.name()
        return name, self.text[self.position :].strip()

    def alone(self) -> Alternative:
        found = self.alternative()
        if self.position < len(self.text):
            self.fail("the end after one alternative")
        return found

    # -- parts --

    def name(self) -> str:
        match = _NAMED.match(self.text)
        if match is None:
            return ""
        self.position = match.end()
        return match[1]

    def element(self) -> list[Alternative]:
        self.skip_space()
        if self.attribute is None or not self.text.startswith("#", self.position):
            return [self.alternative()]
        found, self.position = self.attribute(self.text, self.position)
        self.skip_space()
        if self.position < len(self.text) and self.text[self.position] != ",":
            self.fail("',' or the end after this attribute")
        return found

    def alternative(self) -> Alternative:
        self.skip_space()
        if self.text.startswith("[", self.position):
            return self.numbered("")
        if self.accept("@"):
            return Alternative(fallback=self.take(_NAME, "the name of another device after '@'"))
        rank = int(match[1]) if (match := _ON_RANK.match(self.text, self.position)) is not None else None
        self.position = self.position if match is None else match.end()
        family = self.take(_FAMILY, "a target such as host or cuda, or @ and the name of another device")
        return self.numbered(family, rank)

    def numbered(self, family: str, rank: int | None = None) -> Alternative:
        ordinal = None
        options: dict[str, str] = {}
        if self.accept("["):
            ordinal = int(self.take(_ORDINAL, "an ordinal, a number from 0, and ']'"))
            self.accept("]")
        elif family and (spelled := _AS_URI.match(self.text, self.position)) is not None:
            ordinal, self.position = int(spelled[1]), spelled.end()
        if self.accept("{"):
            options = self.options()
        if self.position < len(self.text) and self.text[self.position] != ",":
            more = f"'[ordinal]', '{{attribute=value}}', ',' or the end after '{family}'"
            self.fail(more if ordinal is None and not options else "',' or the end after this alternative")
        given = "&".join(f"{key}={value}" for key, value in options.items())
        return Alternative(family, ordinal, options=given, rank=rank)

    def options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        if self.accept("}"):
            return options
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
                return options
            if not self.accept(",") and not self.accept("&"):
                self.fail("',' and another option, or '}'")

    # -- characters --

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
