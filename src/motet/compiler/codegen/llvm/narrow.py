"""Makes LLVM IR whose vectors have the numbers of lanes that OpenCL has, without instructions that it lacks.

    %s = fadd <24 x float> %a, %b    →    %s.part0 = fadd <16 x float> %a.part0, %b.part0
                                          %s.part1 = fadd <8 x float> %a.part1, %b.part1

Runs after LLVM's passes, which would make such vectors anew. Functions must neither take nor
return vectors, and all values must have names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from motet.compiler.codegen.llvm.addresses import write_address
from motet.compiler.codegen.llvm.expand import EXPANSIONS
from motet.compiler.codegen.llvm.lines import (
    CASTS,
    Instruction,
    Kind,
    Typed,
    bodies,
    elements_of,
    has_vectors,
    is_name,
    read_instruction,
)
from motet.compiler.codegen.llvm.pairs import has_pairs, split_pair
from motet.compiler.codegen.llvm.parts import Lane, PartWriter, splat

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
    for inside, line in bodies(text):
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


def _defined(line: str) -> str:
    """A line whose constant vectors have zeros for undefined elements, which LLVM's code for SPIR-V does not expect."""
    mask = line.rindex(", <") if " shufflevector " in line else len(line)
    return _UNDEFINED.sub(_zero, line[:mask]) + line[mask:]


def _zero(match: re.Match[str]) -> str:
    return f"{match[1]} {Kind(match[1]).zero}"


def _narrow(line: str, writer: PartWriter) -> None:
    if has_pairs(line):
        split_pair(writer, line)
        return
    relevant = has_vectors(line) or "@llvm." in line or " = getelementptr " in line or _BIT.search(line) is not None
    instruction = read_instruction(line) if relevant else None
    if instruction is None:
        writer.lines.append(line)
        return
    name = re.match(r"llvm\.[a-z.]*[a-z]", instruction.callee)
    expand = EXPANSIONS.get(_base(name[0])) if name else None
    if expand is not None and expand(writer, instruction):
        return
    if instruction.opcode in _ALWAYS and _ALWAYS[instruction.opcode](writer, instruction):
        return
    if all(writer.is_whole(kind) for kind in instruction.kinds):
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
    assert made.to is not None
    results = writer.part_names(made.result, made.to)
    columns = [
        writer.parts(operand) if operand.kind.lanes else [operand] * len(results) for operand in made.operands
    ]
    for (name, kind), operands in zip(results, zip(*columns, strict=True), strict=True):
        writer.lines.append(f"  {name} = {_spelled(writer, made, kind, operands)}")


def _spelled(writer: PartWriter, made: Instruction, kind: Kind, operands: Sequence[Typed]) -> str:
    words = f"{made.opcode} {made.flags}".rstrip()
    if made.opcode == "call":
        name = re.sub(r"\.v\d+(?=[a-z])", lambda _: f".v{kind.lanes}" if kind.lanes else ".", made.callee)
        writer.declare(name, kind, operands)
        return f"{words} {kind} @{name}({', '.join(map(str, operands))})"
    if made.opcode == "phi":
        blocks = made.rest.split()
        incoming = ", ".join(f"[ {operand.text}, {block} ]" for operand, block in zip(operands, blocks, strict=True))
        return f"{words} {kind} {incoming}"
    if made.opcode == "select":
        return f"{words} {', '.join(map(str, operands))}"
    if made.to is not None and made.opcode in CASTS:
        return f"{words} {operands[0]} to {kind}"
    return f"{words} {operands[0]}" + "".join(f", {operand.text}" for operand in operands[1:])


# -- memory --------------------------------------------------------------------------------------------


def _load(writer: PartWriter, made: Instruction) -> None:
    assert made.to is not None
    kind, align = made.to, _alignment(made)
    if kind.bits == 1:
        raise NotImplementedError("a load of bits")
    offset = 0
    for name, part in writer.part_names(made.result, kind):
        address = at(writer, made.operands[0], offset)
        writer.emit(part, f"load {part}, {address}, align {math.gcd(align, offset) if offset else align}", name)
        offset += max(part.lanes, 1) * kind.bytes


def _store(writer: PartWriter, made: Instruction) -> None:
    value, pointer = made.operands
    align, offset = _alignment(made), 0
    if value.kind.bits == 1:
        raise NotImplementedError("a store of bits")
    for part in writer.parts(value):
        address = at(writer, pointer, offset)
        writer.lines.append(f"  store {part}, {address}, align {math.gcd(align, offset) if offset else align}")
        offset += max(part.kind.lanes, 1) * value.kind.bytes


def _load_bit(writer: PartWriter, made: Instruction) -> bool:
    """A bit takes a byte of memory."""
    if made.to != Kind("i1"):
        return False
    byte = writer.emit(Kind("i8"), f"load i8, {made.operands[0]}, align 1")
    writer.emit(Kind("i1"), f"icmp ne {byte}, 0", made.result)
    return True


def _store_bit(writer: PartWriter, made: Instruction) -> bool:
    value, pointer = made.operands
    if value.kind != Kind("i1"):
        return False
    byte = writer.emit(Kind("i8"), f"select {value}, i8 1, i8 0")
    writer.lines.append(f"  store {byte}, {pointer}, align 1")
    return True


def _alignment(made: Instruction) -> int:
    match = re.search(r"align (\d+)", made.rest)
    return int(match[1]) if match else 1


def at(writer: PartWriter, pointer: Typed, offset: int) -> Typed:
    """The address `offset` bytes after `pointer`."""
    return writer.emit(pointer.kind, f"getelementptr i8, {pointer}, i64 {offset}") if offset else pointer


def _address(writer: PartWriter, made: Instruction) -> bool:
    assert made.to is not None
    if not made.to.lanes:
        write_address(writer, made, made.result, made.to, made.operands)
        return True
    columns = [
        writer.scalars(operand) if operand.kind.lanes else [operand] * made.to.lanes for operand in made.operands
    ]
    for (name, kind), operands in zip(writer.part_names(made.result, made.to), zip(*columns, strict=True), strict=True):
        write_address(writer, made, name, kind, operands)
    return True


# -- lanes that move -----------------------------------------------------------------------------------


def _shuffle(writer: PartWriter, made: Instruction) -> None:
    assert made.to is not None
    first, second, mask = made.operands
    lanes = writer.lanes_of(first) + writer.lanes_of(second)
    chosen: list[Lane] = [
        None if lane.text in ("poison", "undef") else lanes[int(lane.text)] for lane in elements_of(mask)
    ]
    writer.define(made.result, made.to, chosen)


def _extract(writer: PartWriter, made: Instruction) -> None:
    vector, index = made.operands
    if not is_name(index.text):
        lane = writer.lanes_of(vector)[int(index.text)]
        writer.same(made.result, Typed(vector.kind.of(1), "poison") if lane is None else writer.lane(*lane))
        return
    found: Typed | None = None
    for number, element in enumerate(writer.scalars(vector)):
        if found is None:
            found = element
            continue
        here = writer.emit(Kind("i1"), f"icmp eq {index}, {number}")
        found = writer.emit(element.kind, f"select {here}, {element}, {found}")
    assert found is not None
    writer.same(made.result, found)


def _insert(writer: PartWriter, made: Instruction) -> None:
    vector, element, index = made.operands
    lanes = writer.lanes_of(vector)
    if not is_name(index.text):
        lanes[int(index.text)] = (element, 0)
    else:
        for number, old in enumerate(writer.scalars(vector)):
            here = writer.emit(Kind("i1"), f"icmp eq {index}, {number}")
            lanes[number] = (writer.emit(old.kind, f"select {here}, {element}, {old}"), 0)
    writer.define(made.result, vector.kind, lanes)


def _bitcast(writer: PartWriter, made: Instruction) -> bool:
    """Between vectors and numbers of other widths. Bits of comparisons have no address, and are numbered."""
    assert made.to is not None
    value, kind = made.operands[0], made.to
    if value.kind.bits == 1 and value.kind.lanes:
        writer.same(made.result, _as_kind(writer, _bits_to_number(writer, value), kind))
        return True
    if kind.bits == 1 and kind.lanes:
        number = _as_kind(writer, value, Kind(f"i{kind.lanes}"))
        _number_to_bits(writer, made.result, kind, number)
        return True
    if writer.is_whole(value.kind) and writer.is_whole(kind):
        return False
    _cast_parts(writer, made.result, value, kind)
    return True


def _cast_parts(writer: PartWriter, result: str, value: Typed, kind: Kind) -> None:
    """Bitcast each part to elements of `kind`, and gather these; elements that span parts are made of numbers."""
    size = kind.bits
    lanes: list[Lane] = []
    parts = writer.parts(value)
    if any(max(part.kind.lanes, 1) * part.kind.bits % size for part in parts):
        narrow = value.kind.bits
        numbers = [_as_kind(writer, scalar, Kind(f"i{narrow}")) for scalar in writer.scalars(value)]
        per = size // narrow
        for start in range(0, len(numbers), per):
            lanes.append((_as_kind(writer, _joined(writer, numbers[start : start + per], size), kind.of(1)), 0))
    else:
        for part in parts:
            count = max(part.kind.lanes, 1) * part.kind.bits // size
            if count > 1 and count not in writer.lanes:
                lanes += _separated(writer, part, kind, count)
                continue
            cast = _as_kind(writer, part, kind.of(count))
            lanes += [(cast, lane) for lane in range(count)]
    writer.define(result, kind, lanes)


def _joined(writer: PartWriter, numbers: Sequence[Typed], bits: int) -> Typed:
    """A number of `bits` bits, made of numbers, the lowest first."""
    wide = Kind(f"i{bits}")
    total: Typed | None = None
    for place, number in enumerate(numbers):
        part = writer.emit(wide, f"zext {number} to {wide}")
        if place:
            part = writer.emit(wide, f"shl {part}, {place * number.kind.bits}")
        total = part if total is None else writer.emit(wide, f"or {total}, {part.text}")
    assert total is not None
    return total


def _separated(writer: PartWriter, part: Typed, kind: Kind, count: int) -> list[Lane]:
    """The elements of `kind` that the elements of a part contain."""
    per = part.kind.bits // kind.bits
    narrow = Kind(f"i{kind.bits}")
    lanes: list[Lane] = []
    for scalar in writer.scalars(part):
        number = _as_kind(writer, scalar, Kind(f"i{part.kind.bits}"))
        for place in range(per):
            shifted = writer.emit(number.kind, f"lshr {number}, {place * kind.bits}") if place else number
            small = writer.emit(narrow, f"trunc {shifted} to {narrow}")
            lanes.append((_as_kind(writer, small, kind.of(1)), 0))
    return lanes


def _bits_to_number(writer: PartWriter, value: Typed) -> Typed:
    wide = Kind(f"i{max(8, 1 << (value.kind.lanes - 1).bit_length())}")
    total: Typed | None = None
    for place, bit in enumerate(writer.scalars(value)):
        part = writer.emit(wide, f"select {bit}, {wide} {1 << place}, {wide} 0")
        total = part if total is None else writer.emit(wide, f"or {total}, {part.text}")
    assert total is not None
    if wide.bits != value.kind.lanes:
        return writer.emit(Kind(f"i{value.kind.lanes}"), f"trunc {total} to i{value.kind.lanes}")
    return total


def _number_to_bits(writer: PartWriter, result: str, kind: Kind, number: Typed) -> None:
    lanes: list[Lane] = []
    for place in range(kind.lanes):
        bit = writer.emit(number.kind, f"and {number}, {1 << place}")
        lanes.append((writer.emit(Kind("i1"), f"icmp ne {bit}, 0"), 0))
    writer.define(result, kind, lanes)


def _bits_to_floats(writer: PartWriter, made: Instruction) -> bool:
    """LLVM's code for SPIR-V takes the zeros and ones for scalars."""
    assert made.to is not None
    if made.operands[0].kind.bits != 1:
        return False
    value = "1.0" if made.opcode == "uitofp" else "-1.0"
    for (name, kind), bits in zip(
        writer.part_names(made.result, made.to), writer.parts(made.operands[0]), strict=True
    ):
        writer.emit(kind, f"select {bits}, {splat(kind, value)}, {splat(kind, kind.zero)}", name)
    return True


def _as_kind(writer: PartWriter, value: Typed, kind: Kind) -> Typed:
    return value if value.kind == kind else writer.emit(kind, f"bitcast {value} to {kind}")


_FORMS: dict[str, Callable[[PartWriter, Instruction], None]] = {
    "load": _load, "store": _store, "shufflevector": _shuffle, "extractelement": _extract,
    "insertelement": _insert,
}
_ALWAYS: dict[str, Callable[[PartWriter, Instruction], bool]] = {
    "load": _load_bit, "store": _store_bit, "bitcast": _bitcast, "getelementptr": _address,
    "uitofp": _bits_to_floats, "sitofp": _bits_to_floats,
}
