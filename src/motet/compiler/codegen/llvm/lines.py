"""Reads and writes the lines of LLVM IR, one instruction each.

Passes that LLVM does not have, and that OpenCL's languages need, work on the text that LLVM prints: it is regular, and
llvmlite can neither create nor change instructions of a parsed module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_VECTOR = re.compile(r"<(\d+) x ([^<>]+)>")
_RESULT = re.compile(r'\s*(%(?:"[^"]*"|[-\w.$]+)) = (.*)')
_FLAGS = frozenset({
    "nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn",
    "reassoc", "inbounds", "nusw",
})
_ATTACHED = re.compile(r",? ![\w.]+ !\d+| #\d+$")
_SIMPLE_TYPE = re.compile(r"(?:ptr(?: addrspace\(\d+\))?|[\w.]+)")
_RETURNED = re.compile(r"(?:<\d+ x [^<>]+>|ptr(?: addrspace\(\d+\))?|[\w.]+)(?= (?:\([^)]*\) )?$)")
_ATTRIBUTES = re.compile(
    r"^(?:(?:noundef|nonnull|immarg|nocapture|readonly|readnone|writeonly|zeroext|signext|noalias|align \d+|"
    r"(?:captures|range|dereferenceable|dereferenceable_or_null)\([^()]*\)) )+"
)
_OPEN, _CLOSE = "([{<", ")]}>"


@dataclass(frozen=True)
class Kind:
    """A type: `lanes` elements; 0 lanes for a type that is not a vector."""

    element: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    def of(self, lanes: int) -> Kind:
        """The type of a part of `lanes` elements; a single one is not a vector."""
        return Kind(self.element, lanes if lanes > 1 else 0)

    @property
    def is_float(self) -> bool:
        return self.element in ("half", "bfloat", "float", "double")

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("ptr")

    @property
    def bits(self) -> int:
        """Of an element."""
        if self.is_pointer:
            return 64
        return {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(self.element) or int(self.element[1:])

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def zero(self) -> str:
        return "0.0" if self.is_float else "null" if self.is_pointer else "false" if self.bits == 1 else "0"

    @property
    def suffix(self) -> str:
        """By which the names of intrinsics tell the type."""
        if self.is_pointer:
            element = "p" + ("".join(re.findall(r"\d+", self.element)) or "0")
        else:
            element = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(self.element, self.element)
        return f"v{self.lanes}{element}" if self.lanes else element


@dataclass(frozen=True)
class Typed:
    """An operand."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


@dataclass
class Instruction:
    """A line of a function. `flags` follow the opcode; the predicate of a comparison is the last of them."""

    result: str
    opcode: str
    flags: str
    operands: list[Typed] = field(default_factory=list[Typed])
    to: Kind | None = None  # of casts; of other instructions, their result's type
    rest: str = ""  # what follows the operands: alignment
    callee: str = ""

    @property
    def kinds(self) -> list[Kind]:
        return [operand.kind for operand in self.operands] + ([self.to] if self.to else [])


def has_vectors(line: str) -> bool:
    return " x " in line and _VECTOR.search(line) is not None


def read_kind(text: str) -> tuple[Kind, str]:
    """The type with which `text` begins, and what follows it."""
    text = text.lstrip()
    if match := _VECTOR.match(text):
        return Kind(match[2], int(match[1])), text[match.end() :].lstrip()
    if text[0] in "{[":
        end = _closing(text)
        return Kind(text[:end]), text[end:].lstrip()
    match = _SIMPLE_TYPE.match(text)
    assert match is not None, text
    return Kind(match[0]), text[match.end() :].lstrip()


def split_top(text: str) -> list[str]:
    """The parts of `text` between commas that are not in brackets or quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def elements_of(value: Typed) -> list[Typed]:
    """The elements of a constant vector."""
    scalar, text = value.kind.of(1), value.text
    if text in ("poison", "undef"):
        return [Typed(scalar, text)] * value.kind.lanes
    if text == "zeroinitializer":
        return [Typed(scalar, scalar.zero)] * value.kind.lanes
    if text.startswith("splat"):
        return [_typed(text[text.index("(") + 1 : -1])] * value.kind.lanes
    return [_typed(part) for part in split_top(text[1:-1])]


def is_name(text: str) -> bool:
    return text.startswith("%")


def part_name(name: str, number: int) -> str:
    """The name of a part of the value `name`."""
    return f'{name[:-1]}.part{number}"' if name.endswith('"') else f"{name}.part{number}"


def read_instruction(line: str) -> Instruction | None:
    """The instruction of a line; None if no pass has to know it."""
    match = _RESULT.match(line)
    result, text = (match[1], match[2]) if match else ("", line.strip())
    text = _ATTACHED.sub("", text)
    word, _, rest = text.partition(" ")
    flags: list[str] = []
    while word in ("tail", "musttail", "notail"):
        word, _, rest = rest.partition(" ")
    first, _, after = rest.partition(" ")
    while first in _FLAGS or (word == "getelementptr" and first.startswith("inrange")):
        flags.append(first)
        rest = after
        first, _, after = rest.partition(" ")
    if word in ("icmp", "fcmp"):
        flags.append(first)
        rest = after
    made = Instruction(result, word, " ".join(flags))
    reader = _READERS.get(word)
    return reader(made, rest) if reader else None


def _operands(made: Instruction, rest: str) -> Instruction:
    """`TYPE a, TYPE b`, where a type that is missing is the one before."""
    kind: Kind | None = None
    for part in split_top(rest):
        if kind is not None and (is_name(part) or not _begins_with_type(part)):
            made.operands.append(Typed(kind, part))
        else:
            kind, text = read_kind(part)
            made.operands.append(Typed(kind, text))
    return made


def _begins_with_type(part: str) -> bool:
    """Whether a part is a type and a value; a vector constant begins with `<` as well."""
    if match := _VECTOR.match(part):
        return bool(part[match.end() :].strip())
    return re.match(r"(?:ptr|i\d+|half|bfloat|float|double)\b", part) is not None


def _binary(made: Instruction, rest: str) -> Instruction:
    first, second = split_top(rest)
    kind, text = read_kind(first)
    made.operands = [Typed(kind, text), Typed(kind, second)]
    made.to = Kind("i1", kind.lanes) if made.opcode in ("icmp", "fcmp") else kind
    return made


def _unary(made: Instruction, rest: str) -> Instruction:
    made.operands = [_typed(rest)]
    made.to = made.operands[0].kind
    return made


def _cast(made: Instruction, rest: str) -> Instruction:
    value, _, to = rest.rpartition(" to ")
    made.operands = [_typed(value)]
    made.to = read_kind(to)[0]
    return made


def _select(made: Instruction, rest: str) -> Instruction:
    made = _operands(made, rest)
    made.to = made.operands[1].kind
    return made


def _phi(made: Instruction, rest: str) -> Instruction:
    made.to, rest = read_kind(rest)
    for part in split_top(rest):
        value, block = split_top(part[1:-1])
        made.operands.append(Typed(made.to, value))
        made.rest += f" {block}"
    return made


def _load(made: Instruction, rest: str) -> Instruction:
    if rest.startswith(("volatile ", "atomic ")):
        made.flags, _, rest = rest.partition(" ")
    kind, pointer, *others = split_top(rest)
    made.to = read_kind(kind)[0]
    made.operands, made.rest = [_typed(pointer)], ", ".join(others)
    return made


def _store(made: Instruction, rest: str) -> Instruction:
    if rest.startswith(("volatile ", "atomic ")):
        made.flags, _, rest = rest.partition(" ")
    value, pointer, *others = split_top(rest)
    made.operands, made.rest = [_typed(value), _typed(pointer)], ", ".join(others)
    return made


def _element(made: Instruction, rest: str) -> Instruction:
    made = _operands(made, rest)
    made.to = made.operands[0].kind.of(1) if made.opcode == "extractelement" else made.operands[0].kind
    if made.opcode == "shufflevector":
        made.to = Kind(made.operands[0].kind.element, made.operands[2].kind.lanes)
    return made


def _address(made: Instruction, rest: str) -> Instruction:
    source, *others = split_top(rest)
    made.operands = [_typed(part) for part in others]
    lanes = max(operand.kind.lanes for operand in made.operands)
    made.to, made.rest = Kind(made.operands[0].kind.element, lanes), source
    return made


def _call(made: Instruction, rest: str) -> Instruction | None:
    match = re.match(r'(.*?)@("[^"]*"|[-\w.$]+)\((.*)\)', rest)
    if match is None:
        return None
    result = _RETURNED.search(match[1])
    if result is None:
        return None
    made.to = read_kind(result[0])[0]
    made.callee = match[2]
    for part in split_top(match[3]):
        kind, text = read_kind(part)
        made.operands.append(Typed(kind, _ATTRIBUTES.sub("", text)))
    return made


def _typed(text: str) -> Typed:
    return Typed(*read_kind(text))


def _closing(text: str) -> int:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0:
            return place + 1
    return len(text)


_BINARY = (
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor", "fadd", "fsub",
    "fmul", "fdiv", "frem", "icmp", "fcmp",
)
CASTS = frozenset({
    "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint", "inttoptr",
    "bitcast", "addrspacecast",
})

_READERS = {
    **dict.fromkeys(_BINARY, _binary), **dict.fromkeys(CASTS, _cast), "fneg": _unary, "freeze": _unary,
    "select": _select, "phi": _phi, "load": _load, "store": _store, "extractelement": _element,
    "insertelement": _element, "shufflevector": _element, "getelementptr": _address, "call": _call, "ret": _unary,
}


def bodies(text: str) -> Iterator[tuple[bool, str]]:
    """The lines of a module, each with whether it is in the body of a function."""
    inside = False
    for line in text.splitlines():
        if line.startswith("}"):
            inside = False
        yield inside, line
        if line.startswith("define "):
            inside = True

