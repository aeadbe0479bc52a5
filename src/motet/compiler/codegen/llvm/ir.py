"""LLVM IR as data: types, values, instructions, blocks, functions. `reader.py` makes it from the text that LLVM prints.

`str` of a type or a value is LLVM's spelling of it. llvmlite's API for modules cannot take the place of this data: it
tells the opcode and the operands of an instruction, but neither predicates, flags, alignments, lanes of shuffles and
types of addresses nor the elements of constants, and it can neither create nor change instructions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_FLOATS = {"half": ("f16", 16), "bfloat": ("bf16", 16), "float": ("f32", 32), "double": ("f64", 64)}
_UNDEFINED = ("poison", "undef")
_NESTED = re.compile(r"[\[({<\"]")


class Inexpressible(NotImplementedError):
    """IR that OpenCL cannot express, or that Motet does not know."""


@dataclass(frozen=True)
class Type:
    """A scalar (`i32`, `ptr addrspace(4)`, `void`), a vector of `lanes` scalars, a structure of `fields` (`{}`, packed:
    `<{}>`), or an array (`[]`) of `count` elements of the only one of `fields`."""

    element: str
    lanes: int = 0  # 0: not a vector
    fields: tuple[Type, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        if self.is_array:
            return f"[{self.count} x {self.fields[0]}]"
        if self.is_struct:
            fields = ", ".join(map(str, self.fields))
            return self.element.replace("{}", f"{{ {fields} }}") if fields else self.element
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    def of(self, lanes: int) -> Type:
        """The type of a part of `lanes` elements; a single one is not a vector."""
        return Type(self.element, lanes if lanes > 1 else 0)

    @property
    def is_array(self) -> bool:
        return self.element == "[]"

    @property
    def is_struct(self) -> bool:
        return "{}" in self.element

    @property
    def is_float(self) -> bool:
        return self.element in _FLOATS

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("ptr")

    @property
    def bits(self) -> int:
        """Of an element."""
        if self.is_pointer:
            return 64
        return _FLOATS[self.element][1] if self.is_float else int(self.element[1:])

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def zero(self) -> str:
        """Of an element, or of an aggregate."""
        if self.fields:
            return "zeroinitializer"
        return "0.0" if self.is_float else "null" if self.is_pointer else "false" if self.bits == 1 else "0"

    @property
    def suffix(self) -> str:
        """By which the names of intrinsics tell the type."""
        if self.is_pointer:
            element = "p" + ("".join(re.findall(r"\d+", self.element)) or "0")
        else:
            element = _FLOATS[self.element][0] if self.is_float else self.element
        return f"v{self.lanes}{element}" if self.lanes else element


VOID, POINTER = Type("void"), Type("ptr")
BOOLEAN, BYTE, LONG = Type("i1"), Type("i8"), Type("i64")
F32, F64 = Type("float"), Type("double")


@dataclass(frozen=True)
class IrValue:
    """An operand: the name of a local or a global value, or a constant, as LLVM spells it."""

    type: Type
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_local(self) -> bool:
        """Whether it is the result of an instruction, or a parameter."""
        return self.text.startswith("%")

    @property
    def is_undefined(self) -> bool:
        return self.text in _UNDEFINED


@dataclass
class Instruction:
    """An instruction. `detail` is the predicate of a comparison, or the function that is called."""

    opcode: str
    flags: tuple[str, ...] = ()
    result: str = ""
    type: Type = VOID
    operands: list[IrValue] = field(default_factory=list[IrValue])
    detail: str = ""
    over: Type = VOID  # the type that `getelementptr` and `alloca` name
    labels: list[str] = field(default_factory=list[str])  # the blocks that it names; of `phi` one for each operand
    indices: list[int] = field(default_factory=list[int])  # of `extractvalue`; lanes of `shufflevector`, -1: undefined
    align: int = 0

    @property
    def value(self) -> IrValue:
        """The result."""
        return IrValue(self.type, self.result)

    @property
    def words(self) -> str:
        """What precedes the operands."""
        predicate = [self.detail] if self.opcode != "call" and self.detail else []
        return " ".join([self.opcode, *self.flags, *predicate])

    @property
    def spelled(self) -> str:
        """What errors call it."""
        return f"{self.opcode} {self.detail}" if self.detail else self.opcode


@dataclass
class Block:
    """A basic block."""

    label: str = ""
    instructions: list[Instruction] = field(default_factory=list[Instruction])


@dataclass
class IrFunction:
    """A function that has a body."""

    name: str
    parameters: list[IrValue]
    blocks: list[Block] = field(default_factory=lambda: [Block()])


@dataclass
class Module:
    """Functions by name, and constant variables by their spelling."""

    functions: Mapping[str, IrFunction]
    variables: Mapping[str, IrValue]


# -- constants -----------------------------------------------------------------------------------------


def bits_of(value: IrValue) -> int | None:
    """The bits of a constant scalar; None if it is undefined or no constant. Raises Inexpressible for constants that
    LLVM calculates."""
    kind, text = value.type, value.text
    if value.is_local or value.is_undefined:
        return None
    if text in ("true", "false", "null"):
        return int(text == "true")
    if not re.match(r"[-+]?\d", text):
        raise Inexpressible(f"the constant {text.split()[0]}")
    if not kind.is_float:
        return int(text) & ((1 << kind.bits) - 1)
    if text[:3] in ("0xH", "0xR"):
        return int(text[3:], 16)
    wide = int(text, 16) if text.startswith("0x") else struct.unpack("<Q", struct.pack("<d", float(text)))[0]
    return wide if kind.bits == 64 else _narrowed(kind, wide)


def _narrowed(kind: Type, wide: int) -> int:
    """The bits of a double that `kind` has exactly."""
    if (wide >> 52) & 0x7FF == 0x7FF:
        single = (wide >> 63) << 31 | 0xFF << 23 | (wide >> 29) & 0x7FFFFF
    else:
        number = struct.unpack("<d", struct.pack("<Q", wide))[0]
        if kind.element == "half":
            return struct.unpack("<H", struct.pack("<e", number))[0]
        single = struct.unpack("<I", struct.pack("<f", number))[0]
    return single >> 16 if kind.element == "bfloat" else single


def index_of(value: IrValue) -> int | None:
    """The number that a constant index is, or all elements of a vector of indices are; None for other indices."""
    if value.type.lanes and not value.is_local:
        elements = elements_of(value)
        value = elements[0] if all(element == elements[0] for element in elements) else IrValue(value.type, "undef")
    bits = bits_of(value)
    return None if bits is None else bits - (bits >> (value.type.bits - 1) << value.type.bits)


def elements_of(value: IrValue) -> list[IrValue]:
    """The elements of a constant vector, array or structure. Raises Inexpressible for constants that LLVM
    calculates."""
    kind, text = value.type, value.text
    kinds = kind.fields or (kind.of(1),)
    count = 1 if kind.is_struct else kind.count if kind.is_array else kind.lanes
    if value.is_undefined:
        return [IrValue(element, text) for element in kinds] * count
    if text == "zeroinitializer":
        return [IrValue(element, element.zero) for element in kinds] * count
    if text.startswith("splat"):
        return [IrValue(kinds[0], text[len(f"splat ({kinds[0]} ") : -1])] * count
    if text.startswith('c"'):
        return [IrValue(BYTE, str(byte)) for byte in _bytes_of(text[2:-1])]
    if text[0] not in "<{[":
        raise Inexpressible(f"the constant {text.split()[0]}")
    edge = len(kind.element) // 2 if kind.is_struct else 1
    starts = [len(f"{element} ") for element in kinds] * count
    parts = zip(kinds * count, starts, split_top(text[edge:-edge]), strict=True)
    return [IrValue(element, part[start:]) for element, start, part in parts]


def split_top(text: str) -> list[str]:
    """The parts of `text` between commas that are not in brackets or quotes."""
    if not _NESTED.search(text):
        return text.strip().split(", ") if text.strip() else []
    parts, depth, start, quoted = [], 0, 0, False
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _bytes_of(text: str) -> bytes:
    """The bytes of a text constant."""
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda code: bytes([int(code[1], 16)]), text.encode("latin-1"))


# -- types in memory -----------------------------------------------------------------------------------


def size_of(kind: Type) -> int:
    """The bytes between two elements of an array of `kind`."""
    size, align = _layout(kind)
    return -(-size // align) * align


def field_offset(kind: Type, number: int) -> int:
    """The bytes before a field of a structure; for the number of its fields, the bytes that all take."""
    place = 0
    for field_number, part in enumerate(kind.fields):
        size, align = _layout(part)
        if kind.element == "{}":
            place = -(-place // align) * align
        if field_number == number:
            break
        place += size
    return place


def _layout(kind: Type) -> tuple[int, int]:
    """The size and alignment in bytes."""
    if kind.is_array:
        return kind.count * size_of(kind.fields[0]), _layout(kind.fields[0])[1]
    if kind.is_struct:
        align = max((_layout(part)[1] for part in kind.fields), default=1) if kind.element == "{}" else 1
        return -(-field_offset(kind, len(kind.fields)) // align) * align, align
    size = -(-max(kind.lanes, 1) * kind.bits // 8)
    return size, 1 << (size - 1).bit_length()


def leaves(kind: Type) -> list[Type]:
    """The scalars and vectors in a type, in order."""
    if kind == VOID:
        return []
    if kind.is_array or kind.is_struct:
        return [leaf for part in kind.fields for leaf in leaves(part)] * (kind.count if kind.is_array else 1)
    return [kind]


def leaf_range(kind: Type, path: Sequence[int]) -> tuple[int, int]:
    """The first of the leaves of the element of `kind` at `path`, and their number."""
    start = 0
    for number in path:
        inner = part_of(kind, number)
        if kind.is_array:
            start += len(leaves(inner)) * number
        else:
            start += sum(len(leaves(part)) for part in kind.fields[:number])
        kind = inner
    return start, len(leaves(kind))


def part_of(kind: Type, number: int) -> Type:
    """The type of the element `number` of an array or a structure."""
    return kind.fields[number if kind.is_struct else 0]


def address_steps(over: Type, indices: Sequence[IrValue]) -> tuple[int, list[tuple[IrValue, int]]]:
    """The bytes that an address over a type is after its base: those known, and the other indices with the bytes that
    each counts. Raises Inexpressible for indices of what has no elements."""
    known, scaled, kind = 0, list[tuple[IrValue, int]](), over
    for number, index in enumerate(indices):
        constant = index_of(index)
        if number and kind.is_struct:
            if constant is None:
                raise Inexpressible("a field of unknown number")
            known += field_offset(kind, constant)
            kind = kind.fields[constant]
            continue
        if number:
            if not kind.is_array and not kind.lanes:
                raise Inexpressible("an element of a scalar")
            kind = kind.fields[0] if kind.is_array else kind.of(1)
        if constant is None:
            scaled.append((index, size_of(kind)))
        else:
            known += constant * size_of(kind)
    return known, scaled
