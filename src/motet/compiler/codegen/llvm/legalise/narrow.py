"""Makes LLVM IR whose vectors have the numbers of lanes that OpenCL has, without instructions that it lacks.

    %s = fadd <24 x float> %a, %b    →    %s.part0 = fadd <16 x float> %a.part0, %b.part0
                                          %s.part1 = fadd <8 x float> %a.part1, %b.part1

Runs after LLVM's passes, which would make such vectors anew. Functions must neither take nor
return vectors, and all values must have names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from motet.compiler.codegen.llvm.ir import BOOLEAN, BYTE, Instruction, IrValue, Type
from motet.compiler.codegen.llvm.legalise.addresses import write_address
from motet.compiler.codegen.llvm.legalise.expand import EXPANSIONS
from motet.compiler.codegen.llvm.legalise.pairs import has_pairs, split_pair
from motet.compiler.codegen.llvm.legalise.parts import Lane, PartWriter, splat
from motet.compiler.codegen.llvm.reader import CASTS, read_instruction

_VECTOR = re.compile(r"<\d+ x [^<>]+>")
_BIT = re.compile(r"\b(?:load|store) i1\b")
_UNDEFINED = re.compile(r"\b(half|bfloat|float|double|i\d+) (?:poison|undef)(?=[,>])")
LANES = (16, 8, 4, 2)  # of OpenCL; those of three lanes take the memory of four


def narrowed(text: str, lanes: tuple[int, ...] = LANES) -> str:
    """The module `text` with vectors of `lanes` lanes, the largest first. Raises NotImplementedError for an
    instruction that has no form on them."""
    made: list[str] = []
    declared: dict[str, str] = {}
    writer = PartWriter(lanes)
    start = 0
    for inside, line in _bodies(text):
        if inside and not line.startswith("}"):
            _narrow(line, writer)
            continue
        if line.startswith("define "):
            writer = PartWriter(lanes)
            start = len(made) + 1
        elif line.startswith("}"):
            made[start:] = map(_defined, writer.text())
            declared |= writer.declared
        made.append(line)
    there = set(re.findall(r'^declare [^@]*@"?([\w.]+)"?\(', text, re.MULTILINE))
    return "\n".join([*made, *(line for name, line in declared.items() if name not in there), ""])


def _bodies(text: str) -> Iterator[tuple[bool, str]]:
    """The lines of a module, each with whether it is in the body of a function."""
    inside = False
    for line in text.splitlines():
        if line.startswith("}"):
            inside = False
        yield inside, line
        if line.startswith("define "):
            inside = True


def _defined(line: str) -> str:
    """A line whose constant vectors have zeros for undefined elements, which LLVM's code for SPIR-V does not expect."""
    mask = line.rindex(", <") if " shufflevector " in line else len(line)
    return _UNDEFINED.sub(_zero, line[:mask]) + line[mask:]


def _zero(match: re.Match[str]) -> str:
    return f"{match[1]} {Type(match[1]).zero}"


def _narrow(line: str, writer: PartWriter) -> None:
    wide = has_pairs(line)
    relevant = wide or _VECTOR.search(line) or "@llvm." in line or " = getelementptr " in line or _BIT.search(line)
    instruction = read_instruction(line) if relevant else None
    if wide and split_pair(writer, line, instruction):
        return
    if instruction is None:
        writer.lines.append(line)
        return
    name = re.match(r"llvm\.[a-z.]*[a-z]", instruction.detail)
    expand = EXPANSIONS.get(_base(name[0])) if name else None
    if expand is not None and expand(writer, instruction):
        return
    if instruction.opcode in _ALWAYS and _ALWAYS[instruction.opcode](writer, instruction):
        return
    if all(writer.is_whole(value.type) for value in [instruction.value, *instruction.operands]):
        writer.lines.append(line)
        return
    form = _FORMS.get(instruction.opcode, _by_parts)
    form(writer, instruction)


def _base(name: str) -> str:
    """The name of an intrinsic without its types."""
    return re.sub(r"(?:\.(?:v\d*|[ip]\d*|f|bf|nxv))+$", "", name)


# -- instructions on lanes -----------------------------------------------------------------------------


def _by_parts(writer: PartWriter, made: Instruction) -> None:
    """Instructions whose lanes do not depend on each other."""
    results = writer.part_names(made.result, made.type)
    columns = [
        writer.parts(operand) if operand.type.lanes else [operand] * len(results) for operand in made.operands
    ]
    for (name, kind), operands in zip(results, zip(*columns, strict=True), strict=True):
        writer.lines.append(f"  {name} = {_spelled(writer, made, kind, operands)}")


def _spelled(writer: PartWriter, made: Instruction, kind: Type, operands: Sequence[IrValue]) -> str:
    words = made.words
    if made.opcode == "call":
        name = re.sub(r"\.v\d+(?=[a-z])", lambda _: f".v{kind.lanes}" if kind.lanes else ".", made.detail)
        writer.declare(name, kind, operands)
        return f"{words} {kind} @{name}({', '.join(map(str, operands))})"
    if made.opcode == "phi":
        incoming = (f"[ {operand.text}, {label} ]" for operand, label in zip(operands, made.labels, strict=True))
        return f"{words} {kind} {', '.join(incoming)}"
    if made.opcode == "select":
        return f"{words} {', '.join(map(str, operands))}"
    if made.opcode in CASTS:
        return f"{words} {operands[0]} to {kind}"
    return f"{words} {operands[0]}" + "".join(f", {operand.text}" for operand in operands[1:])


# -- memory --------------------------------------------------------------------------------------------


def _load(writer: PartWriter, made: Instruction) -> None:
    kind, align = made.type, made.align or 1
    if kind.bits == 1:
        raise NotImplementedError("a load of bits")
    offset = 0
    for name, part in writer.part_names(made.result, kind):
        address = at(writer, made.operands[0], offset)
        writer.emit(part, f"load {part}, {address}, align {math.gcd(align, offset) if offset else align}", name)
        offset += max(part.lanes, 1) * kind.bytes


def _store(writer: PartWriter, made: Instruction) -> None:
    value, pointer = made.operands
    align, offset = made.align or 1, 0
    if value.type.bits == 1:
        raise NotImplementedError("a store of bits")
    for part in writer.parts(value):
        address = at(writer, pointer, offset)
        writer.lines.append(f"  store {part}, {address}, align {math.gcd(align, offset) if offset else align}")
        offset += max(part.type.lanes, 1) * value.type.bytes


def _load_bit(writer: PartWriter, made: Instruction) -> bool:
    """A bit takes a byte of memory."""
    if made.type != BOOLEAN:
        return False
    byte = writer.emit(BYTE, f"load i8, {made.operands[0]}, align 1")
    writer.emit(BOOLEAN, f"icmp ne {byte}, 0", made.result)
    return True


def _store_bit(writer: PartWriter, made: Instruction) -> bool:
    value, pointer = made.operands
    if value.type != BOOLEAN:
        return False
    byte = writer.emit(BYTE, f"select {value}, i8 1, i8 0")
    writer.lines.append(f"  store {byte}, {pointer}, align 1")
    return True


def at(writer: PartWriter, pointer: IrValue, offset: int) -> IrValue:
    """The address `offset` bytes after `pointer`."""
    return writer.emit(pointer.type, f"getelementptr i8, {pointer}, i64 {offset}") if offset else pointer


def _address(writer: PartWriter, made: Instruction) -> bool:
    if not made.type.lanes:
        write_address(writer, made, made.result, made.type, made.operands)
        return True
    columns = [
        writer.scalars(operand) if operand.type.lanes else [operand] * made.type.lanes for operand in made.operands
    ]
    results = writer.part_names(made.result, made.type)
    for (name, kind), operands in zip(results, zip(*columns, strict=True), strict=True):
        write_address(writer, made, name, kind, operands)
    return True


# -- lanes that move -----------------------------------------------------------------------------------


def _shuffle(writer: PartWriter, made: Instruction) -> None:
    first, second = made.operands
    lanes = writer.lanes_of(first) + writer.lanes_of(second)
    writer.define(made.result, made.type, [None if lane < 0 else lanes[lane] for lane in made.indices])


def _extract(writer: PartWriter, made: Instruction) -> None:
    vector, index = made.operands
    if not index.is_local:
        lane = writer.lanes_of(vector)[int(index.text)]
        writer.same(made.result, IrValue(vector.type.of(1), "poison") if lane is None else writer.lane(*lane))
        return
    found: IrValue | None = None
    for number, element in enumerate(writer.scalars(vector)):
        if found is None:
            found = element
            continue
        here = writer.emit(BOOLEAN, f"icmp eq {index}, {number}")
        found = writer.emit(element.type, f"select {here}, {element}, {found}")
    assert found is not None
    writer.same(made.result, found)


def _insert(writer: PartWriter, made: Instruction) -> None:
    vector, element, index = made.operands
    lanes = writer.lanes_of(vector)
    if not index.is_local:
        lanes[int(index.text)] = (element, 0)
    else:
        for number, old in enumerate(writer.scalars(vector)):
            here = writer.emit(BOOLEAN, f"icmp eq {index}, {number}")
            lanes[number] = (writer.emit(old.type, f"select {here}, {element}, {old}"), 0)
    writer.define(made.result, vector.type, lanes)


def _bitcast(writer: PartWriter, made: Instruction) -> bool:
    """Between vectors and numbers of other widths. Bits of comparisons have no address, and are numbered."""
    value, kind = made.operands[0], made.type
    if value.type.bits == 1 and value.type.lanes:
        writer.same(made.result, _as_kind(writer, _bits_to_number(writer, value), kind))
        return True
    if kind.bits == 1 and kind.lanes:
        number = _as_kind(writer, value, Type(f"i{kind.lanes}"))
        _number_to_bits(writer, made.result, kind, number)
        return True
    if writer.is_whole(value.type) and writer.is_whole(kind):
        return False
    _cast_parts(writer, made.result, value, kind)
    return True


def _cast_parts(writer: PartWriter, result: str, value: IrValue, kind: Type) -> None:
    """Bitcast each part to elements of `kind`, and gather these; elements that span parts are made of numbers."""
    size = kind.bits
    lanes: list[Lane] = []
    parts = writer.parts(value)
    if any(max(part.type.lanes, 1) * part.type.bits % size for part in parts):
        narrow = value.type.bits
        numbers = [_as_kind(writer, scalar, Type(f"i{narrow}")) for scalar in writer.scalars(value)]
        per = size // narrow
        for start in range(0, len(numbers), per):
            lanes.append((_as_kind(writer, _joined(writer, numbers[start : start + per], size), kind.of(1)), 0))
    else:
        for part in parts:
            count = max(part.type.lanes, 1) * part.type.bits // size
            if count > 1 and count not in writer.lanes:
                lanes += _separated(writer, part, kind, count)
                continue
            cast = _as_kind(writer, part, kind.of(count))
            lanes += [(cast, lane) for lane in range(count)]
    writer.define(result, kind, lanes)


def _joined(writer: PartWriter, numbers: Sequence[IrValue], bits: int) -> IrValue:
    """A number of `bits` bits, made of numbers, the lowest first."""
    wide = Type(f"i{bits}")
    total: IrValue | None = None
    for place, number in enumerate(numbers):
        part = writer.emit(wide, f"zext {number} to {wide}")
        if place:
            part = writer.emit(wide, f"shl {part}, {place * number.type.bits}")
        total = part if total is None else writer.emit(wide, f"or {total}, {part.text}")
    assert total is not None
    return total


def _separated(writer: PartWriter, part: IrValue, kind: Type, count: int) -> list[Lane]:
    """The elements of `kind` that the elements of a part contain."""
    per = part.type.bits // kind.bits
    narrow = Type(f"i{kind.bits}")
    lanes: list[Lane] = []
    for scalar in writer.scalars(part):
        number = _as_kind(writer, scalar, Type(f"i{part.type.bits}"))
        for place in range(per):
            shifted = writer.emit(number.type, f"lshr {number}, {place * kind.bits}") if place else number
            small = writer.emit(narrow, f"trunc {shifted} to {narrow}")
            lanes.append((_as_kind(writer, small, kind.of(1)), 0))
    return lanes


def _bits_to_number(writer: PartWriter, value: IrValue) -> IrValue:
    wide = Type(f"i{max(8, 1 << (value.type.lanes - 1).bit_length())}")
    total: IrValue | None = None
    for place, bit in enumerate(writer.scalars(value)):
        part = writer.emit(wide, f"select {bit}, {wide} {1 << place}, {wide} 0")
        total = part if total is None else writer.emit(wide, f"or {total}, {part.text}")
    assert total is not None
    if wide.bits != value.type.lanes:
        return writer.emit(Type(f"i{value.type.lanes}"), f"trunc {total} to i{value.type.lanes}")
    return total


def _number_to_bits(writer: PartWriter, result: str, kind: Type, number: IrValue) -> None:
    lanes: list[Lane] = []
    for place in range(kind.lanes):
        bit = writer.emit(number.type, f"and {number}, {1 << place}")
        lanes.append((writer.emit(BOOLEAN, f"icmp ne {bit}, 0"), 0))
    writer.define(result, kind, lanes)


def _bits_to_floats(writer: PartWriter, made: Instruction) -> bool:
    """LLVM's code for SPIR-V takes the zeros and ones for scalars."""
    if made.operands[0].type.bits != 1:
        return False
    value = "1.0" if made.opcode == "uitofp" else "-1.0"
    for (name, kind), bits in zip(
        writer.part_names(made.result, made.type), writer.parts(made.operands[0]), strict=True
    ):
        writer.emit(kind, f"select {bits}, {splat(kind, value)}, {splat(kind, kind.zero)}", name)
    return True


def _as_kind(writer: PartWriter, value: IrValue, kind: Type) -> IrValue:
    return value if value.type == kind else writer.emit(kind, f"bitcast {value} to {kind}")


_FORMS: dict[str, Callable[[PartWriter, Instruction], None]] = {
    "load": _load, "store": _store, "shufflevector": _shuffle, "extractelement": _extract,
    "insertelement": _insert,
}
_ALWAYS: dict[str, Callable[[PartWriter, Instruction], bool]] = {
    "load": _load_bit, "store": _store_bit, "bitcast": _bitcast, "getelementptr": _address,
    "uitofp": _bits_to_floats, "sitofp": _bits_to_floats,
}
