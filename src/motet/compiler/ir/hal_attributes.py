"""Parses the `#hal.device…` attributes in programs of IREE's users into Motet's terms.

    #hal.device.select<[#hal.device.alias<"cuda"[1]>, #hal.device.fallback<@cpu>]>   →   cuda[1], @cpu
    #hal.device.optimal<[#hal.device.affinity<@a, [0, 1]>, #hal.device.promise<@b>]> →   a[0,1]|b
    #hal.device.topology<links = [(@a -> @b = {unified_memory = true})]>             →   a->b:unified

A recursive descent parser, whose errors have their place in the text. It does not need MLIR, so that the command line
can use it.

Source of the grammar: https://github.com/iree-org/iree, compiler/src/iree/compiler/Dialect/HAL/IR/HALAttrs.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import NoReturn, TypeVar

from motet.artifact.schema import Alternative, Link
from motet.compiler.ir.devices import ANY_QUEUE, QUEUES, Affinity, join_or

ALIASES = {
    "amdgpu": "hip", "cpu": "host", "cuda": "cuda", "hip": "hip", "host": "host", "level_zero": "level_zero",
    "local": "host", "metal": "metal", "null": "null", "opencl": "opencl", "riscv": "riscv", "vulkan": "vulkan",
}
# Names from before the introduction of device families; accepted with a warning.
DEPRECATED = {
    "cuda-nvptx": "cuda", "dylib": "host", "llvm-cpu": "host", "local-sync": "host", "local-task": "host",
    "rocm": "hip", "vulkan-spirv": "vulkan",
}
LARGEST_ORDINAL = 999_999_999

DEVICES = ("alias", "target", "ordinal", "select", "fallback")
AFFINITIES = ("affinity", "promise", "optimal")
KINDS = (*DEVICES, *AFFINITIES, "topology")
EXPECTED_DEVICE = "expected one of " + ", ".join(f"#hal.device.{kind}" for kind in DEVICES)
EXPECTED_AFFINITY = "expected one of " + ", ".join(f"#hal.device.{kind}" for kind in AFFINITIES)

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_TOKEN = re.compile(
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|[@#!%]?[A-Za-z_$][\w$.-]*(?<!-)|@|\d[\w.]*|->|::|\S'
)
_SYMBOL = re.compile(r"@[A-Za-z_$][\w$.-]*")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_PREFIX = "#hal.device."
_HONOURED = ("cpu", "cpu_features")
_UNSET = ("", "generic")

T = TypeVar("T")


def own_family(name: str) -> str:
    """The name of a family of devices that IREE's programs call `name`."""
    return ALIASES.get(name) or DEPRECATED.get(name, name)


class SpellingError(ValueError):
    """An attribute is invalid; `offset` is the place in the text."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(message)


class AttributeReader:
    """Parses attributes of `text` from `position` on, and advances it.

    `aliases` has the offsets of the definitions of `#name` in the same text. `remarks` collects warnings about
    deprecated syntax.
    """

    def __init__(self, text: str, position: int = 0, aliases: Mapping[str, int] | None = None) -> None:
        self.text = text
        self.position = position
        self.aliases = aliases or {}
        self.remarks: list[str] = []

    def device(self) -> list[Alternative]:
        """Parses a device: its alternatives, with those of nested selections in their place."""
        if (inner := self._alias()) is not None:
            return self._inner(inner, AttributeReader.device)
        start, kind = self._kind(DEVICES, EXPECTED_DEVICE)
        read: Callable[[int], list[Alternative]] = {
            "alias": self._target, "target": self._target, "ordinal": self._ordinal,
            "fallback": self._fallback, "select": self._select,
        }[kind]
        self._expect("<")
        found = read(start)
        self._expect(">")
        self._optional_type()
        return found

    def affinity(self) -> Affinity:
        """Parses an affinity, a promise of one, or a choice of several."""
        if (inner := self._alias()) is not None:
            return self._inner(inner, AttributeReader.affinity)
        start, kind = self._kind(AFFINITIES, EXPECTED_AFFINITY)
        self._expect("<")
        found = self._optimal(start) if kind == "optimal" else self._placed()
        self._expect(">")
        return found

    def links(self) -> list[Link]:
        """Parses a topology: its links in order."""
        if (inner := self._alias()) is not None:
            return self._inner(inner, AttributeReader.links)
        self._kind(("topology",), "expected #hal.device.topology<links = [(@a -> @b = {…}), …]>")
        self._expect("<")
        found: list[Link] = []
        if self.accept("links"):
            self._expect("=")
            found = self._list(self._link)
        self._expect(">")
        return found

    def finish(self) -> None:
        """Raises SpellingError if the text continues."""
        if self.peek():
            self._fail("expected the end of the attribute")

    # -- devices ---------------------------------------------------------------------------------

    def _target(self, start: int) -> list[Alternative]:
        alias = self.text.startswith("#hal.device.alias", start)
        place = self._skip()
        name = self._string("the name of a device in quotes, such as \"local\"")
        family = self._family(name, place, alias)
        ordinal: int | None = None
        if self.peek() == "[":
            self.accept("[")
            ordinal = self._number(LARGEST_ORDINAL, f"device {name!r}: expected an ordinal, a number from 0")
            self._expect("]")
        while self.accept(","):
            if self.peek() == "{":
                for key, (offset, value) in self._dictionary().items():
                    if key == "ordinal":
                        ordinal = self._sub(offset)._number(
                            LARGEST_ORDINAL, f"device {name!r}: ordinal: expected a number from 0"
                        )
                    else:
                        self._remark_option(name, key, value)
            elif self.peek() == "[":
                self._list(lambda: self._executable(name))
            else:
                self._fail("expected {…} with options or […] with executable targets")
        if self.peek() != ">":
            self._fail(f"device {name!r}: expected '>' or ','")
        return [Alternative(family, ordinal)]

    def _family(self, name: str, place: int, alias: bool) -> str:
        if name in ALIASES:
            return ALIASES[name]
        if name in DEPRECATED:
            self.remarks.append(f"device name {name!r} is deprecated; write {DEPRECATED[name]!r}")
            return DEPRECATED[name]
        if alias:
            raise SpellingError(
                f"device alias {name!r}: unknown; available: {', '.join(sorted(ALIASES))}", place
            )
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise SpellingError(f"device target {name!r}: expected a name of letters, digits, _, - and .", place)
        self.remarks.append(
            f"device target {name!r}: no such family; it is kept, and taken as absent where no driver has the name"
        )
        return name

    def _executable(self, device: str) -> None:
        """Parses `#hal.executable.target<"backend", "format", {…}>`, whose content is ignored with a warning: Motet
        chooses how to generate code."""
        start = self._skip()
        if (inner := self._alias()) is not None:
            sub = self._sub(inner)
            sub._executable(device)
            self.remarks += sub.remarks
            return
        if not self.peek().startswith("#"):
            self._fail(f"device {device!r}: expected #hal.executable.target<…>")
        self._value()
        text = self.text[start : self.position]
        for key in _HONOURED:
            for match in re.finditer(rf'[{{,\s]{key}\s*=\s*"([^"]*)"', text):
                self._remark_option(device, key, match[0].partition("=")[2].strip())

    def _remark_option(self, device: str, key: str, value: str) -> None:
        if key in _HONOURED and value.strip('"') not in _UNSET:
            remark = f"device {device!r}: its {key} is not taken from the program; give --device NAME=host{{cpu=LEVEL}}"
            if remark not in self.remarks:
                self.remarks.append(remark)

    def _ordinal(self, start: int) -> list[Alternative]:
        return [Alternative(ordinal=self._number(LARGEST_ORDINAL, "expected a device's number, from 0"))]

    def _fallback(self, start: int) -> list[Alternative]:
        return [Alternative(fallback=self._symbol())]

    def _select(self, start: int) -> list[Alternative]:
        found = [alternative for one in self._list(self.device) for alternative in one]
        if not found:
            raise SpellingError("#hal.device.select: it selects among no devices; expected at least one", start)
        return found

    # -- affinities ------------------------------------------------------------------------------

    def _placed(self) -> Affinity:
        name, mask = self._symbol(), ANY_QUEUE
        if self.accept(","):
            if self.accept("*"):
                return Affinity(((name, mask),))
            place = self._skip()
            queues = self._list(
                lambda: self._number(
                    QUEUES - 1, f"affinity to @{name}: expected a queue, a number from 0 to {QUEUES - 1}"
                )
            )
            if not queues:
                raise SpellingError(
                    f"affinity to @{name}: its list of queues is empty; expected numbers from 0 to {QUEUES - 1}, "
                    "or no list for any queue", place,
                )
            mask = reduce(lambda bits, queue: bits | 1 << queue, queues, 0)
        return Affinity(((name, mask),))

    def _optimal(self, start: int) -> Affinity:
        found = self._list(self.affinity)
        if not found:
            raise SpellingError("#hal.device.optimal: it lists no affinity; expected at least one", start)
        return reduce(join_or, found)

    # -- links -----------------------------------------------------------------------------------

    def _link(self) -> Link:
        self._expect("(")
        source = self._symbol()
        self._expect("->")
        target = self._symbol()
        properties: dict[str, bool] = {"transparent_access": False, "unified_memory": False}
        if self.accept("="):
            for key, (offset, value) in self._dictionary().items():
                if key not in properties:
                    raise SpellingError(
                        f"link @{source} -> @{target}: {key} is unknown; expected {' or '.join(properties)}", offset
                    )
                if value not in ("true", "false", ""):
                    raise SpellingError(
                        f"link @{source} -> @{target}: {key} is {value}; expected true or false", offset
                    )
                properties[key] = value != "false"
        if self.accept(","):
            self._dictionary()  # properties of other compilers
        self._expect(")")
        return Link(source, target, **properties)

    # -- tokens ----------------------------------------------------------------------------------

    def peek(self) -> str:
        """The next token; empty at the end."""
        self._skip()
        match = _TOKEN.match(self.text, self.position)
        return match[0] if match else ""

    def accept(self, token: str) -> bool:
        """Consumes the next token if it is `token`; returns whether it was."""
        if self.peek() != token:
            return False
        self.position += len(token)
        return True

    def _skip(self) -> int:
        match = _SPACE.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return self.position

    def _fail(self, expected: str) -> NoReturn:
        there = self.peek()
        raise SpellingError(f"{expected}; there is {there if there else 'the end'}", self.position)

    def _expect(self, token: str) -> None:
        if not self.accept(token):
            self._fail(f"expected '{token}'")

    def _take(self) -> str:
        token = self.peek()
        self.position += len(token)
        return token

    def _string(self, expected: str) -> str:
        if not self.peek().startswith('"'):
            self._fail(f"expected {expected}")
        return self._take()[1:-1]

    def _symbol(self) -> str:
        if self.peek() == "@":  # @"name"
            start = self.position
            self.position += 1
            name = "@" + self._string("a symbol's name")
            if not _SYMBOL.fullmatch(name):
                raise SpellingError(
                    f'device @"{name[1:]}": expected a name of letters, digits, _, $, - and .', start
                )
        elif _SYMBOL.fullmatch(self.peek()):
            name = self._take()
        else:
            self._fail("expected the name of a device, @ and letters")
        if self.peek() == "::":
            self._fail(f"{name}: expected a device of this module")
        return name[1:]

    def _number(self, highest: int, expected: str) -> int:
        """Parses a number from 0 to `highest`, and its optional type."""
        place = self._skip()
        sign = -1 if self.accept("-") else 1
        if not re.fullmatch(r"\d+|0x[0-9a-fA-F]+", self.peek()):
            self.position = place
            self._fail(expected)
        number = sign * int(self._take(), 0)
        if not 0 <= number <= highest:
            raise SpellingError(f"{expected}; there is {number}", place)
        if self.accept(":"):
            self._take()  # its type
        return number

    def _list(self, element: Callable[[], T]) -> list[T]:
        self._expect("[")
        found: list[T] = []
        while not self.accept("]"):
            if found:
                self._expect(",")
            found.append(element())
        return found

    def _dictionary(self) -> dict[str, tuple[int, str]]:
        """Parses `{key = value, flag}`: offset and text of every value; the text is empty for a flag."""
        self._expect("{")
        found: dict[str, tuple[int, str]] = {}
        while not self.accept("}"):
            if found:
                self._expect(",")
            key, start, text = self._take().strip('"'), self.position, ""
            if self.accept("="):
                start = self._skip()
                self._value()
                text = self.text[start : self.position].strip()
            found[key] = (start, text)
        return found

    def _value(self) -> None:
        """Parses any attribute, up to the comma or bracket that ends it."""
        start = self.position
        while (token := self.peek()) not in (",", "]", "}", ">", ")", ""):
            if token in _CLOSING:
                self._group()
            else:
                self._take()
        if self.position == start:
            self._fail("expected a value")

    def _group(self) -> None:
        expected: list[str] = []
        while token := self._take():
            if token in _CLOSING:
                expected.append(_CLOSING[token])
            elif token == expected[-1]:
                expected.pop()
                if not expected:
                    return
        self._fail(f"expected '{expected[-1]}'")

    def _kind(self, allowed: tuple[str, ...], expected: str) -> tuple[int, str]:
        """Where the attribute begins, and the text after `#hal.device.`."""
        start = self._skip()
        token = self.peek()
        kind = token.removeprefix(_PREFIX)
        if not token.startswith(_PREFIX) or kind not in allowed:
            self._fail(expected)
        self._take()
        return start, kind

    def _alias(self) -> int | None:
        """The offset of an alias's definition, if an alias is next; None otherwise."""
        token = self.peek()
        if token.startswith("#") and token[1:] in self.aliases:
            self._take()
            return self.aliases[token[1:]]
        return None

    def _inner(self, offset: int, read: Callable[[AttributeReader], T]) -> T:
        sub = self._sub(offset)
        found = read(sub)
        self.remarks += sub.remarks
        self._optional_type()
        return found

    def _sub(self, offset: int) -> AttributeReader:
        # A definition may only use earlier aliases.
        before = {name: place for name, place in self.aliases.items() if place < offset}
        return AttributeReader(self.text, offset, before)

    def _optional_type(self) -> None:
        """Parses the optional `: !hal.device`, which some printers add."""
        if self.accept(":") and not self.accept("!hal.device"):
            self._fail("expected !hal.device")
