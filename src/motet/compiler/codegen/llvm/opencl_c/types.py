"""OpenCL C's types for the values of LLVM IR.

A vector is split into parts of 16, 8, 4, 2 and 1 lanes, or of the shorter ones of these, so that its length and the
widest vector of a platform do not matter. Integers are unsigned; one of a width that C lacks is kept zero-extended. A
float of 16 bits is kept as its bits. A lane of a vector of `i1` is a `char`, 0 or -1, as comparisons of vectors give
it; an `i1` is a `bool`. A lane of a vector of pointers is a `ulong`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.llvm.ir import BOOLEAN, Inexpressible, Type, leaves

_WIDTHS = (16, 8, 4, 2, 1)
_NAMES = {8: "char", 16: "short", 32: "int", 64: "long"}
_SUFFIXES = {8: "u", 16: "u", 32: "u", 64: "ul"}


@dataclass(frozen=True)
class LanePart:
    """A scalar, or lanes of a vector, of which `first` is the first."""

    element: Type
    width: int = 1
    lane: bool = False  # of a vector of LLVM's
    first: int = 0

    @property
    def mask(self) -> bool:
        """Whether its lanes are 0 and -1."""
        return self.lane and self.boolean

    @property
    def boolean(self) -> bool:
        return self.element == BOOLEAN

    @property
    def floating(self) -> bool:
        return self.element.is_float

    @property
    def short_float(self) -> bool:
        """Whether it is kept as the bits of a float of 16 bits."""
        return self.floating and self.element.bits == 16

    @property
    def container(self) -> int:
        """The bits of an element in C."""
        return container_bits(self.element)

    @property
    def exact(self) -> bool:
        """Whether C has integers of this width."""
        return self.element.bits == self.container

    @property
    def name(self) -> str:
        """Its type in C, of a pointer as an integer."""
        if self.mask:
            return sized("char", self.width)
        if self.boolean:
            return "bool"
        if self.floating and self.element.bits > 16:
            return sized("float" if self.element.bits == 32 else "double", self.width)
        return sized("u" + _NAMES[self.container], self.width)

    @property
    def signed(self) -> str:
        """The type of signed integers as wide."""
        return sized(_NAMES[self.container], self.width)

    @property
    def unsigned(self) -> str:
        """The type of unsigned integers as wide."""
        return sized("u" + _NAMES[self.container], self.width)

    def of(self, element: Type) -> LanePart:
        """As many lanes of another type."""
        return LanePart(element, self.width, self.lane, self.first)


def sized(name: str, width: int) -> str:
    """The type of `width` lanes."""
    return f"{name}{width}" if width > 1 else name


def container_bits(element: Type) -> int:
    """The bits of an element in C. Raises Inexpressible if they are too many."""
    for bits in _NAMES:
        if element.bits <= bits:
            return bits
    raise Inexpressible(f"a number of {element.bits} bits")


def parts_of(kind: Type, widest: int) -> list[LanePart]:
    """The parts of a value, of at most `widest` lanes, one after the other; those of a structure's fields follow each
    other."""
    found: list[LanePart] = []
    for leaf in leaves(kind):
        first = 0
        for width in (each for each in _WIDTHS if each <= widest):
            while leaf.lanes - first >= width:
                found.append(LanePart(leaf.of(1), width, True, first))
                first += width
        if not leaf.lanes:
            found.append(LanePart(leaf))
    return found


def part_with(parts: Sequence[LanePart], lane: int) -> tuple[int, int]:
    """The number of the part that holds `lane`, and the lane's number in it."""
    for number, part in enumerate(parts):
        if lane < part.first + part.width:
            return number, lane - part.first
    raise Inexpressible(f"the lane {lane} of a vector of {parts[-1].first + parts[-1].width}")


def convert(target: str, text: str) -> str:
    """A conversion of values to the type `target`."""
    return f"CONVERT({target}, {text})" if target[-1].isdigit() else f"({target})({text})"


def reinterpret(target: str, text: str) -> str:
    """The same bits as the type `target`."""
    return f"as_{target}({text})"


def constant(part: LanePart, bits: Sequence[int]) -> str:
    """The constant of `part` with the bits of each lane."""
    if part.width == 1:
        return _scalar(part, bits[0])
    each = [_scalar(LanePart(part.element, 1, part.lane), value) for value in bits]
    lanes = each[:1] if len(set(each)) == 1 else each
    return f"({part.name})({', '.join(lanes)})"


def component(text: str, part: LanePart, lane: int) -> str:
    """A lane of a part."""
    return text if part.width == 1 else f"{text}.s{lane:x}"


def packed(kind: LanePart, parts: Sequence[tuple[LanePart, str]]) -> str:
    """The lanes of a mask as the bits of an integer `kind`."""
    terms = [
        f"(({component(text, part, lane)} & ({kind.unsigned})1) << {part.first + lane})"
        for part, text in parts
        for lane in range(part.width)
    ]
    return f"({kind.name})({' | '.join(terms)})"


def unpacked(part: LanePart, text: str) -> str:
    """The lanes of a part of a mask from the bits of an integer."""
    lanes = [f"(char)-(char)(({text} >> {part.first + lane}) & 1)" for lane in range(part.width)]
    return f"({part.name})({', '.join(lanes)})" if part.width > 1 else lanes[0]


def _scalar(part: LanePart, bits: int) -> str:
    if part.mask:
        return "(char)-1" if bits else "(char)0"
    if part.boolean:
        return "true" if bits else "false"
    if part.floating and not part.short_float:
        return _float(part.element.bits, bits)
    text = f"{bits}{_SUFFIXES[part.container]}"
    return f"({part.name}){text}" if part.container < 32 else text


def _float(size: int, bits: int) -> str:
    """A float, exactly; infinities and NaNs by their bits."""
    single = size == 32
    if (bits >> 23) & 0xFF == 0xFF if single else (bits >> 52) & 0x7FF == 0x7FF:
        return f"as_float({bits:#x}u)" if single else f"as_double({bits:#x}ul)"
    kind, number = ("<f", struct.pack("<I", bits)) if single else ("<d", struct.pack("<Q", bits))
    text = struct.unpack(kind, number)[0].hex() + ("f" if single else "")
    return f"({text})" if text.startswith("-") else text
