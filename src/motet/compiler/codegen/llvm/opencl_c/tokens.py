"""The tokens of LLVM's printed IR, with its types and constants."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from motet.compiler.codegen.llvm.opencl_c.model import (
    POINTER,
    VOID,
    Aggregate,
    Array,
    Global,
    Inexpressible,
    IrScalar,
    IrStruct,
    Local,
    Number,
    Offset,
    Type,
    Undefined,
    Value,
    Vector,
    field_offset,
    size_of,
    zero,
)

_TOKEN = re.compile(
    r'[%@](?:"[^"]*"|[-\w.$]+)|c?"[^"]*"|0x[KMLHR]?[0-9A-Fa-f]+|[-+]?\d+\.\d*(?:[eE][-+]?\d+)?'
    r"|[-+]?\d+(?![\w.])|[!#]?[\w.$]+|!|\.\.\.|\S"
)
_FLOATS = {
    "half": IrScalar("f", 16), "bfloat": IrScalar("b", 16), "float": IrScalar("f", 32), "double": IrScalar("f", 64),
}
_VOIDS = ("void", "label", "metadata", "token")
_FORMATS = {16: ("e", "H"), 32: ("f", "I"), 64: ("d", "Q")}


class Tokens:
    """A position in a list of tokens; vectors are printed in parts of at most `widest` lanes."""

    def __init__(self, text: str, widest: int) -> None:
        self.text = text
        self.widest = widest
        self.items: Sequence[str] = _TOKEN.findall(text)
        self.place = 0

    def peek(self, ahead: int = 0) -> str:
        """A token; empty after the last one."""
        place = self.place + ahead
        return self.items[place] if place < len(self.items) else ""

    def next(self) -> str:
        """Take a token."""
        token = self.peek()
        self.place += 1
        return token

    def take(self, token: str) -> bool:
        """Take `token` if it is the next one."""
        if self.peek() != token:
            return False
        self.place += 1
        return True

    def expect(self, token: str) -> None:
        """Take `token`. Raises Inexpressible if it is not the next one."""
        if not self.take(token):
            raise Inexpressible(f"{self.peek() or 'the end'} in place of {token}: {' '.join(self.text.split())[:90]}")

    def skip_balanced(self) -> None:
        """Take what is between parentheses, with these."""
        depth = 0
        while True:
            token = self.next()
            depth += (token == "(") - (token == ")")
            if depth == 0 or not token:
                return

    # -- types -----------------------------------------------------------------------------------

    def at_type(self) -> bool:
        """Whether a type follows."""
        token = self.peek()
        return bool(token in ("ptr", "[", "{", "<", *_FLOATS, *_VOIDS) or re.fullmatch(r"i\d+", token))

    def type(self) -> Type:
        """Take a type. Raises Inexpressible for one that kernels do not have."""
        token = self.next()
        if token == "ptr":
            if self.take("addrspace"):
                self.skip_balanced()
            return POINTER
        if token in _FLOATS:
            return _FLOATS[token]
        if token in _VOIDS:
            return VOID
        if re.fullmatch(r"i\d+", token):
            return IrScalar("i", int(token[1:]))
        if token == "[":
            count = int(self.next())
            self.expect("x")
            array = Array(count, self.type())
            self.expect("]")
            return array
        if token == "<" and self.peek() != "{":
            return self._vector()
        if token in ("{", "<"):
            return self._struct(packed=token == "<")
        raise Inexpressible(f"the type {token}")

    def _vector(self) -> Vector:
        count = self.next()
        self.expect("x")
        element = self.type()
        self.expect(">")
        if not count.isdigit() or not isinstance(element, IrScalar):
            raise Inexpressible("a vector of unknown length")
        return Vector(int(count), element, self.widest)

    def _struct(self, packed: bool) -> IrStruct:
        if packed:
            self.expect("{")
        fields: list[Type] = []
        while not self.take("}"):
            fields.append(self.type())
            self.take(",")
        if packed:
            self.expect(">")
        return IrStruct(tuple(fields), packed)

    # -- values ----------------------------------------------------------------------------------

    def typed(self) -> Value:
        """Take a type and a value."""
        kind = self.type()
        return self.value(kind)

    def value(self, kind: Type) -> Value:
        """Take a value of `kind`."""
        token = self.next()
        if token[0] == "%":
            return Local(kind, unquoted(token))
        if token[0] == "@":
            return Global(unquoted(token))
        if token in ("undef", "poison"):
            return Undefined(kind)
        if token in ("zeroinitializer", "null", "none"):
            return zero(kind)
        if token in ("true", "false"):
            return Number(IrScalar("i", 1), int(token == "true"))
        if token.startswith('c"') and isinstance(kind, Array):
            return Aggregate(kind, tuple(Number(IrScalar("i", 8), byte) for byte in _bytes_of(token)))
        if token == "splat" and isinstance(kind, Vector):
            self.expect("(")
            element = self.typed()
            self.expect(")")
            return Aggregate(kind, (element,) * kind.count)
        if token in ("[", "{", "<"):
            return self._aggregate(kind, token)
        if token == "getelementptr":
            return self._offset()
        if isinstance(kind, IrScalar) and re.fullmatch(r"[-+]?\d.*", token):
            return Number(kind, _bits(kind, token))
        raise Inexpressible(f"the constant {token}")

    def _aggregate(self, kind: Type, opened: str) -> Value:
        packed = opened == "<" and self.take("{")
        closing = {"[": "]", "{": "}", "<": "}" if packed else ">"}[opened]
        elements: list[Value] = []
        while not self.take(closing):
            elements.append(self.typed())
            self.take(",")
        if packed:
            self.expect(">")
        return Aggregate(kind, tuple(elements))

    def _offset(self) -> Value:
        """Take an address calculated from constants."""
        while self.peek() != "(":
            if self.next() == "inrange":
                self.skip_balanced()
        self.expect("(")
        over = self.type()
        self.expect(",")
        base = self.typed()
        place = base.bytes if isinstance(base, Offset) else 0
        base = base.base if isinstance(base, Offset) else base
        steps: list[Value] = []
        while self.take(","):
            steps.append(self.typed())
        self.expect(")")
        if not isinstance(base, Global):
            raise Inexpressible("an address calculated from a number")
        return Offset(base, place + constant_offset(over, steps))


def unquoted(name: str) -> str:
    """The name of a value without its sigil and quotes."""
    return name[1:].strip('"')


def constant_offset(over: Type, steps: Sequence[Value]) -> int:
    """The bytes that constant `steps` over a type go. Raises Inexpressible for others."""
    total, kind = 0, over
    for number, step in enumerate(steps):
        if not isinstance(step, Number):
            raise Inexpressible("an address calculated from what is no number")
        index = step.bits - (1 << step.type.bits if step.bits >> (step.type.bits - 1) else 0)
        if number == 0:
            total += index * size_of(kind)
        elif isinstance(kind, IrStruct):
            total += field_offset(kind, index)
            kind = kind.fields[index]
        elif isinstance(kind, Array | Vector):
            kind = kind.element
            total += index * size_of(kind)
    return total


def _bits(kind: IrScalar, token: str) -> int:
    """The bits of a number as LLVM prints it: a float's as those of a double, if they are hexadecimal."""
    if kind.kind in ("i", "p"):
        return int(token) & ((1 << kind.bits) - 1)
    if token[:3] in ("0xH", "0xR"):
        return int(token[3:], 16)
    if not token.startswith("0x"):
        number = float(token)
    elif kind.bits == 32:
        wide = int(token, 16)
        if (wide >> 52) & 0x7FF == 0x7FF:
            return (wide >> 63) << 31 | 0xFF << 23 | (wide >> 29) & 0x7FFFFF
        number = struct.unpack("<d", struct.pack("<Q", wide))[0]
    else:
        return int(token, 16)
    if kind.kind == "b":
        return struct.unpack("<I", struct.pack("<f", number))[0] >> 16
    floating, integer = _FORMATS[kind.bits]
    return struct.unpack(f"<{integer}", struct.pack(f"<{floating}", number))[0]


def _bytes_of(token: str) -> bytes:
    """The bytes of a text constant."""
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda code: bytes([int(code[1], 16)]), token[2:-1].encode("latin-1"))

