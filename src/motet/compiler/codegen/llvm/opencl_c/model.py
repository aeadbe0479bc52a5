"""LLVM IR as data: types, values, instructions, blocks, functions, modules. `reader.py` makes it from text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Inexpressible(Exception):
    """IR that OpenCL C cannot express, or that the printer does not know."""


@dataclass(frozen=True)
class IrScalar:
    """An integer (`i`), a float (`f`), a bfloat (`b`) or a pointer (`p`) of `bits` bits."""

    kind: str
    bits: int


@dataclass(frozen=True)
class Vector:
    """A vector of a fixed number of lanes, in C of parts of at most `widest` lanes."""

    count: int
    element: IrScalar
    widest: int


@dataclass(frozen=True)
class Array:
    """An array."""

    count: int
    element: Type


@dataclass(frozen=True)
class IrStruct:
    """A structure; a `packed` one has no padding."""

    fields: tuple[Type, ...]
    packed: bool = False


@dataclass(frozen=True)
class Void:
    """No value: also the type of labels and metadata."""


Type = IrScalar | Vector | Array | IrStruct | Void

VOID = Void()
POINTER = IrScalar("p", 64)
BOOLEAN, BYTE, LONG = IrScalar("i", 1), IrScalar("i", 8), IrScalar("i", 64)


@dataclass(frozen=True)
class Local:
    """The result of an instruction, or a parameter."""

    type: Type
    name: str


@dataclass(frozen=True)
class Global:
    """The address of a variable or a function."""

    name: str
    type: Type = POINTER


@dataclass(frozen=True)
class Number:
    """The bits of an integer, a float or a pointer."""

    type: IrScalar
    bits: int


@dataclass(frozen=True)
class Aggregate:
    """A constant of several elements."""

    type: Type
    elements: tuple[Value, ...]


@dataclass(frozen=True)
class Undefined:
    """`undef` and `poison`."""

    type: Type


@dataclass(frozen=True)
class Offset:
    """A constant address: bytes after a variable."""

    base: Global
    bytes: int
    type: Type = POINTER


Value = Local | Global | Number | Aggregate | Undefined | Offset


@dataclass(frozen=True)
class IrInstruction:
    """An instruction. `detail` is its predicate, its callee, or what an address is calculated over; `labels` are the
    blocks that it names, of which those of `phi` belong to its operands."""

    opcode: str
    type: Type
    name: str = ""
    operands: tuple[Value, ...] = ()
    detail: str = ""
    over: Type = VOID  # the type that `getelementptr` and `alloca` name
    labels: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()  # of `extractvalue` and `insertvalue`, lanes of `shufflevector`
    flags: frozenset[str] = frozenset()
    align: int = 0

    @property
    def spelled(self) -> str:
        """What errors call it."""
        return f"{self.opcode} {self.detail}" if self.detail else self.opcode


@dataclass
class Block:
    """A basic block."""

    label: str
    instructions: list[IrInstruction] = field(default_factory=list[IrInstruction])


@dataclass
class IrFunction:
    """A function that has a body."""

    name: str
    parameters: list[Local]
    result: Type
    blocks: list[Block] = field(default_factory=list[Block])


@dataclass
class Module:
    """Functions and constant variables by name."""

    functions: Mapping[str, IrFunction]
    variables: Mapping[str, Value]


def zero(kind: Type) -> Value:
    """The zero of a type."""
    if isinstance(kind, IrScalar):
        return Number(kind, 0)
    if isinstance(kind, IrStruct):
        return Aggregate(kind, tuple(zero(each) for each in kind.fields))
    if isinstance(kind, Void):
        raise Inexpressible("a zero of no type")
    return Aggregate(kind, (zero(kind.element),) * kind.count)


def size_of(kind: Type) -> int:
    """The bytes between two elements of an array of `kind`."""
    size, align = _layout(kind)
    return -(-size // align) * align


def field_offset(kind: IrStruct, number: int) -> int:
    """The bytes before a field."""
    place = 0
    for each in kind.fields[:number]:
        place = _aligned(kind, each, place) + _layout(each)[0]
    return _aligned(kind, kind.fields[number], place)


def leaves(kind: Type) -> list[IrScalar | Vector]:
    """The scalars and vectors in a type, in order."""
    if isinstance(kind, IrScalar | Vector):
        return [kind]
    if isinstance(kind, IrStruct):
        return [leaf for each in kind.fields for leaf in leaves(each)]
    return [] if isinstance(kind, Void) else leaves(kind.element) * kind.count


def leaf_range(kind: Type, path: Sequence[int]) -> tuple[int, int]:
    """The first of the leaves of the element of `kind` at `path`, and their number."""
    start = 0
    for number in path:
        if isinstance(kind, IrStruct):
            start += sum(len(leaves(each)) for each in kind.fields[:number])
            kind = kind.fields[number]
        elif isinstance(kind, Array):
            start += len(leaves(kind.element)) * number
            kind = kind.element
    return start, len(leaves(kind))


def _layout(kind: Type) -> tuple[int, int]:
    """The size and alignment in bytes."""
    if isinstance(kind, IrScalar):
        size = 1 << max(0, (kind.bits - 1).bit_length() - 3)
        return -(-kind.bits // 8), size
    if isinstance(kind, Vector):
        size = -(-kind.count * kind.element.bits // 8)
        return size, 1 << max(0, (size - 1).bit_length())
    if isinstance(kind, Array):
        return kind.count * size_of(kind.element), _layout(kind.element)[1]
    if isinstance(kind, Void):
        raise Inexpressible("the size of no type")
    place = 0
    for each in kind.fields:
        place = _aligned(kind, each, place) + _layout(each)[0]
    align = 1 if kind.packed else max((_layout(each)[1] for each in kind.fields), default=1)
    return -(-place // align) * align, align


def _aligned(kind: IrStruct, each: Type, place: int) -> int:
    align = 1 if kind.packed else _layout(each)[1]
    return -(-place // align) * align
