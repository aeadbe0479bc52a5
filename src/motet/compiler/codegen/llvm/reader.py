"""Reads the LLVM IR that LLVM prints, which is regular: an instruction is a line, but for `switch`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from motet.compiler.codegen.llvm.ir import (
    BOOLEAN,
    POINTER,
    Block,
    Inexpressible,
    Instruction,
    IrFunction,
    IrValue,
    Module,
    Type,
    address_steps,
    bits_of,
    elements_of,
    part_of,
    split_top,
)

_BINARY_NAMES = "add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem"
_CAST_NAMES = (
    "trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr inttoptr bitcast addrspacecast"
)
_FLAG_NAMES = (
    "nuw nsw exact nnan ninf nsz arcp contract afn reassoc fast disjoint nneg inbounds nusw samesign volatile"
)
BINARY, CASTS = frozenset(_BINARY_NAMES.split()), frozenset(_CAST_NAMES.split())
_FLAGS = frozenset(_FLAG_NAMES.split())
_NAME = r'(?:"[^"]*"|[-\w.$]+)'
_RESULT = re.compile(rf"\s*(?:(%{_NAME}) = )?(?:(?:tail|musttail|notail) )?(\w+) ?(.*)")
_ATTACHED = re.compile(r",? ![\w.]+ !\d+| #\d+$")
_VECTOR = re.compile(r"<(\d+) x ([^<>]+)>")
_ARRAY = re.compile(r"\[(\d+) x ")
_SCALAR = re.compile(r"(ptr(?: addrspace\(\d+\))?|i\d+|half|bfloat|float|double|void|metadata|token)(?![\w.])|\S*")
_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_CALCULATED = "splat|getelementptr|trunc|ptrto|inttoptr|bitcast|addrspacecast|add|sub|xor"  # constants of several words
_ATTRIBUTES = re.compile(rf"(?:(?:align \d+|(?!ptr |{_CALCULATED})[a-z_]+(?:{_NESTED})?) )*")
_CALL = re.compile(rf"(?P<type>.*?)(?: \([^()]*\))? (?P<callee>[@%]{_NAME})\(")
_LABEL = re.compile(rf"({_NAME}):")
_VARIABLE = re.compile(rf"(@{_NAME}) = (?:[a-z_]+ )*?(?:addrspace\(\d+\) )?(global|constant) (.*)")
_DEFINED = re.compile(rf"define .*?@({_NAME})\(")
_CASE = re.compile(rf"(i\d+ -?\w+), label (%{_NAME})")
_ALIGN = re.compile(r"align (\d+)")


def read_module(text: str) -> Module:
    """The functions and variables of `text`. Raises Inexpressible for instructions without a reader."""
    functions: dict[str, IrFunction] = {}
    variables: dict[str, IrValue] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if match := _VARIABLE.match(line):
            if match[2] == "global":
                raise Inexpressible("a variable that is not constant")
            variables[match[1]] = _typed(split_top(match[3])[0])
        elif match := _DEFINED.match(line):
            function = IrFunction(match[1].strip('"'), _list(_enclosed(line, match.end() - 1)))
            _read_body(function, lines)
            functions[function.name] = function
    return Module(functions, variables)


def _read_body(function: IrFunction, lines: Iterator[str]) -> None:
    """Add the blocks of a function, up to its end."""
    blocks = function.blocks
    for line in lines:
        if line.startswith("}"):
            return
        if match := _LABEL.match(line):
            if blocks[-1].instructions or len(blocks) > 1:
                blocks.append(Block())
            blocks[-1].label = f"%{match[1]}"
        elif (line := line.strip()) and not line.startswith((";", "#dbg")):
            while line.startswith("switch") and "]" not in line:
                line += " " + next(lines).strip()
            instruction = read_instruction(line)
            if instruction is None:
                raise Inexpressible(f"the instruction {line.split(' = ')[-1].split()[0]}")
            blocks[-1].instructions.append(instruction)


def read_instruction(line: str) -> Instruction | None:
    """The instruction of a line; None if there is no reader for it."""
    match = _RESULT.match(_ATTACHED.sub("", line))
    if match is None or match[2] not in _READERS:
        return None
    word, _, after = match[3].partition(" ")
    rest, flags = match[3], list[str]()
    while word in _FLAGS:
        flags.append(word)
        rest = after
        word, _, after = rest.partition(" ")
    if word == "atomic":
        return None
    made = Instruction(match[2], tuple(flags), match[1] or "")
    _READERS[match[2]](made, rest)
    return made


def read_type(text: str) -> tuple[Type, str]:
    """The type with which `text` begins, and what follows it. Raises Inexpressible for one that kernels do not have."""
    if match := _VECTOR.match(text):
        return Type(match[2], int(match[1])), text[match.end() :].lstrip()
    if match := _ARRAY.match(text):
        element, rest = read_type(text[match.end() :])
        return Type("[]", 0, (element,), int(match[1])), rest.removeprefix("]").lstrip()
    if text.startswith(("{", "<{")):
        inner = _enclosed(text, text.index("{"))
        element = "<{}>" if text[0] == "<" else "{}"
        fields = tuple(read_type(field)[0] for field in split_top(inner))
        return Type(element, 0, fields), text[len(inner) + len(element) :].lstrip()
    match = _SCALAR.match(text)
    assert match is not None
    if match.lastindex is None:
        raise Inexpressible(f"the type {match[0]}")
    return Type(match[0]), text[match.end() :].lstrip()


def global_address(value: IrValue) -> tuple[str, int]:
    """The variable, and the bytes after its beginning, that a constant address is. Raises Inexpressible for others."""
    if value.text.startswith("@"):
        return value.text, 0
    if not value.text.startswith("getelementptr "):
        raise Inexpressible(f"the constant {value.text.split()[0]}")
    over, base, *indices = split_top(_enclosed(value.text, value.text.index(" (") + 1))
    name, offset = global_address(_typed(base))
    known, scaled = address_steps(read_type(over)[0], [_typed(index) for index in indices])
    if scaled:
        raise Inexpressible("an address calculated from what is no number")
    return name, offset + known


def _typed(text: str) -> IrValue:
    """A type, attributes and a value."""
    kind, rest = read_type(text)
    return IrValue(kind, _without_attributes(rest) if rest[:1].islower() else rest)


def _without_attributes(text: str) -> str:
    return _ATTRIBUTES.sub("", text, count=1)


def _list(text: str) -> list[IrValue]:
    return [_typed(part) for part in split_top(text)]


def _enclosed(text: str, start: int) -> str:
    """What is in the brackets that open at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([{<") - (text[place] in ")]}>")
        if depth == 0:
            return text[start + 1 : place]
    return text[start + 1 :]


# -- instructions --------------------------------------------------------------------------------------


def _binary(made: Instruction, rest: str) -> None:
    first, second = split_top(rest)
    value = _typed(first)
    made.operands, made.type = [value, IrValue(value.type, second)], value.type


def _compare(made: Instruction, rest: str) -> None:
    made.detail, _, rest = rest.partition(" ")
    _binary(made, rest)
    made.type = Type("i1", made.type.lanes)


def _alike(made: Instruction, rest: str) -> None:
    """Typed operands, the first of which, after a condition, has the result's type."""
    made.operands = _list(rest)
    made.type = made.operands[1 if made.opcode == "select" else 0].type


def _cast(made: Instruction, rest: str) -> None:
    value, _, to = rest.rpartition(" to ")
    made.operands, made.type = [_typed(value)], read_type(to)[0]


def _phi(made: Instruction, rest: str) -> None:
    made.type, rest = read_type(rest)
    for part in split_top(rest):
        value, label = split_top(part[1:-1])
        made.operands.append(IrValue(made.type, value))
        made.labels.append(label)


def _load(made: Instruction, rest: str) -> None:
    kind, pointer, *others = split_top(rest)
    made.type, made.operands, made.align = read_type(kind)[0], [_typed(pointer)], _alignment(others)


def _store(made: Instruction, rest: str) -> None:
    value, pointer, *others = split_top(rest)
    made.operands, made.align = [_typed(value), _typed(pointer)], _alignment(others)


def _alignment(parts: list[str]) -> int:
    match = _ALIGN.match(parts[0]) if parts else None
    return int(match[1]) if match else 0


def _exchange(made: Instruction, rest: str) -> None:
    address, expected, value = split_top(rest.removeprefix("weak ").removeprefix("volatile "))[:3]
    made.operands = [_typed(address), _typed(expected), _typed(" ".join(value.split()[:2]))]
    made.type = Type("{}", 0, (made.operands[1].type, BOOLEAN))


def _extract(made: Instruction, rest: str) -> None:
    made.operands = _list(rest)
    made.type = made.operands[0].type.of(1)


def _shuffle(made: Instruction, rest: str) -> None:
    *made.operands, mask = _list(rest)
    made.indices = [-1 if (lane := bits_of(element)) is None else lane for element in elements_of(mask)]
    made.type = Type(made.operands[0].type.element, mask.type.lanes)


def _address(made: Instruction, rest: str) -> None:
    source, *others = split_top(rest)
    made.over, made.operands = read_type(source)[0], [_typed(part) for part in others]
    lanes = max(operand.type.lanes for operand in made.operands)
    made.type = Type(made.operands[0].type.element, lanes)


def _allocate(made: Instruction, rest: str) -> None:
    kind, *others = split_top(rest)
    made.over, made.type = read_type(kind)[0], POINTER
    if others and others[0].startswith("i"):
        made.operands = [_typed(others.pop(0))]
    made.align = _alignment(others)


def _call(made: Instruction, rest: str) -> None:
    match = _CALL.match(rest)
    if match is None or match["callee"].startswith("%"):
        raise Inexpressible("a call of a computed function")
    made.type = read_type(_without_attributes(match["type"]))[0]
    made.detail = match["callee"][1:].strip('"')
    made.operands = _list(_enclosed(rest, match.end() - 1))


def _branch(made: Instruction, rest: str) -> None:
    for part in split_top(rest):
        if part.startswith("label "):
            made.labels.append(part.removeprefix("label "))
        else:
            made.operands.append(_typed(part))


def _switch(made: Instruction, rest: str) -> None:
    head, _, cases = rest.partition("[")
    _branch(made, head)
    for value, label in _CASE.findall(cases):
        made.operands.append(_typed(value))
        made.labels.append(label)


def _return(made: Instruction, rest: str) -> None:
    made.operands = _list(rest) if rest != "void" else []


def _part(made: Instruction, rest: str) -> None:
    value, *path = split_top(rest)
    made.operands = [_typed(value)]
    if made.opcode == "insertvalue":
        made.operands.append(_typed(path.pop(0)))
    made.type, made.indices = made.operands[0].type, list(map(int, path))
    if made.opcode == "extractvalue":
        for number in made.indices:
            made.type = part_of(made.type, number)


def _bare(made: Instruction, rest: str) -> None:
    """Nothing that is read."""


_READERS: dict[str, Callable[[Instruction, str], None]] = {
    **dict.fromkeys(BINARY, _binary), **dict.fromkeys(CASTS, _cast), "icmp": _compare, "fcmp": _compare,
    "fneg": _alike, "freeze": _alike, "select": _alike, "insertelement": _alike, "extractelement": _extract,
    "shufflevector": _shuffle, "phi": _phi, "load": _load, "store": _store, "cmpxchg": _exchange,
    "getelementptr": _address, "alloca": _allocate, "call": _call, "br": _branch, "switch": _switch, "ret": _return,
    "extractvalue": _part, "insertvalue": _part, "fence": _bare, "unreachable": _bare,
}
