"""OpenCL C for the instructions that move lanes, and for those that read values as other types."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.llvm.ir import (
    LONG,
    POINTER,
    Inexpressible,
    Instruction,
    IrValue,
    Type,
    bits_of,
    leaf_range,
    leaves,
)
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.types import (
    LanePart,
    component,
    constant,
    packed,
    part_with,
    reinterpret,
    unpacked,
)

_SWIZZLED = (16, 8, 4, 2)


def print_extract(printer: Printer, each: Instruction) -> None:
    """A lane of a vector."""
    vector, index = each.operands
    parts = printer.parts(vector)
    if (place := bits_of(index)) is not None:
        number, lane = part_with([part for part, _ in parts], place)
        text = component(parts[number][1], parts[number][0], lane)
    else:
        text = f"{_spilled(printer, parts)}[{printer.scalar(index)}]"
    if each.type == POINTER:
        text = f"({printer.spaces.of(each.value)} uchar *)({text})"
    printer.assign(each, [f"(bool)({text} != 0)" if each.type.bits == 1 else text])


def print_insert(printer: Printer, each: Instruction) -> None:
    """A vector with another lane."""
    vector, value, index = each.operands
    text = printer.scalar(value)
    if value.type.bits == 1:
        text = f"(char)-({text})"
    elif value.type == POINTER:
        text = f"(ulong){text}"
    parts = printer.parts(vector)
    names = printer.declare(each.value)
    place = bits_of(index)
    if place is None:
        array = _spilled(printer, parts)
        printer.line(f"{array}[{printer.scalar(index)}] = {text};")
        for (part, _), name in zip(parts, names, strict=True):
            lanes = ", ".join(f"{array}[{part.first + lane}]" for lane in range(part.width))
            printer.line(f"{name} = ({part.name})({lanes});")
        return
    number, lane = part_with([part for part, _ in parts], place)
    printer.assign(each, [own for _, own in parts])
    printer.line(f"{component(names[number], parts[number][0], lane)} = {text};")


def _spilled(printer: Printer, parts: Sequence[tuple[LanePart, str]]) -> str:
    """An array of the lanes of a vector."""
    kind = LanePart(parts[0][0].element, 1, True).name
    array = printer.temporary(kind, f"[{parts[-1][0].first + parts[-1][0].width}]")
    for part, text in parts:
        text = printer.held(part, text)
        for lane in range(part.width):
            printer.line(f"{array}[{part.first + lane}] = {component(text, part, lane)};")
    return array


def print_shuffle(printer: Printer, each: Instruction) -> None:
    """Lanes of two vectors."""
    first, second = each.operands
    count = first.type.lanes
    sources = [(part, text) for part, text in printer.parts(first)]
    others = printer.parts(second) if any(lane >= count for lane in each.indices) else []
    places: list[tuple[int, int] | None] = []
    for lane in each.indices:
        if lane < 0:
            places.append(None)
        elif lane < count:
            places.append(part_with([part for part, _ in sources], lane))
        else:
            number, own = part_with([part for part, _ in others], lane - count)
            places.append((number + len(sources), own))
    whole = [*sources, *others]
    printer.assign(each, [_gathered(printer, part, places, whole) for part in printer.split(each.type)])


def _gathered(
    printer: Printer, part: LanePart, places: Sequence[tuple[int, int] | None], sources: Sequence[tuple[LanePart, str]]
) -> str:
    """The lanes of `part` from `places`: a source's number and its lane."""
    own = places[part.first : part.first + part.width]
    known = [place for place in own if place is not None]
    if not known:
        return constant(part, [0] * part.width)
    own = [place or known[0] for place in own]
    if len(set(own)) == 1:
        text = component(_named(sources, own[0][0]), sources[own[0][0]][0], own[0][1])
        return f"({part.name})({text})" if part.width > 1 else text
    texts: list[str] = []
    place = 0
    while place < len(own):
        width = _run(own, place, sources)
        number = own[place][0]
        source, text = sources[number]
        if width == source.width == part.width and [each[1] for each in own] == list(range(width)):
            return text
        lanes = "".join(f"{each[1]:x}" for each in own[place : place + width])
        texts.append(f"{_named(sources, number)}.s{lanes}" if source.width > 1 else text)
        place += width
    return f"({part.name})({', '.join(texts)})" if len(texts) > 1 else texts[0]


def _named(sources: Sequence[tuple[LanePart, str]], number: int) -> str:
    part, text = sources[number]
    return text if part.width == 1 or text.replace("_", "").isalnum() else f"({text})"


def _run(own: Sequence[tuple[int, int]], place: int, sources: Sequence[tuple[LanePart, str]]) -> int:
    """How many lanes from `place` one swizzle of a source gives."""
    source = own[place][0]
    for width in _SWIZZLED:
        lanes = own[place : place + width]
        if len(lanes) == width and all(number == source for number, _ in lanes) and sources[source][0].width > 1:
            return width
    return 1


# -- other types ---------------------------------------------------------------------------------------


def print_bitcast(printer: Printer, each: Instruction) -> None:
    """The same bits as another type."""
    [value] = each.operands
    source, target = value.type.of(1), each.type.of(1)
    if POINTER in (source, target):
        printer.assign(each, printer.value(value))
    elif source.bits == target.bits and value.type.lanes == each.type.lanes:
        texts = [
            text if part.name == own.name else reinterpret(own.name, text)
            for (part, text), own in zip(printer.parts(value), printer.split(each.type), strict=True)
        ]
        printer.assign(each, texts)
    elif 1 in (source.bits, target.bits):
        _cast_bits(printer, each, value)
    else:
        printer.assign(each, _through_words(printer, printer.parts(value), each.type))


def _cast_bits(printer: Printer, each: Instruction, value: IrValue) -> None:
    """A vector of `i1` as an integer, and back."""
    if value.type.lanes and not each.type.lanes:
        kind = printer.split(each.type)[0]
        held = [(part, printer.held(part, text)) for part, text in printer.parts(value)]
        printer.assign(each, [packed(kind, held)])
        return
    if value.type.lanes or not each.type.lanes:
        raise Inexpressible("bitcast of vectors of i1")
    [(own, text)] = printer.parts(value)
    text = printer.held(own, reinterpret(own.unsigned, text) if own.floating else text)
    printer.assign(each, [unpacked(part, text) for part in printer.split(each.type)])


def _through_words(printer: Printer, sources: Sequence[tuple[LanePart, str]], kind: Type) -> list[str]:
    """The bits of `sources` as parts of `kind`, by way of vectors of as many bits, or of an array."""
    targets = printer.split(kind)
    bits = [part.width * part.element.bits for part in targets]
    if bits == [part.width * part.element.bits for part, _ in sources]:
        return [reinterpret(part.name, text) for part, (_, text) in zip(targets, sources, strict=True)]
    total = sum(bits)
    if total % 8 or any(part.container != part.element.bits for part in (*targets, *(own for own, _ in sources))):
        raise Inexpressible(f"bitcast of {total} bits")
    array = printer.temporary("ulong", f"[{-(-total // 64)}]")
    for part, text in sources:
        place = f"((private uchar *){array} + {_place(part)})"
        if part.width > 1:
            printer.line(f"STORE_{printer.support.memory(part.name)}(private, {place}, ({text}));")
        else:
            printer.line(f"{printer.place('private', part.name, place)} = {text};")
    texts: list[str] = []
    for part in targets:
        place = f"((private uchar *){array} + {_place(part)})"
        if part.width > 1:
            texts.append(f"LOAD_{printer.support.memory(part.name)}(private, {place})")
        else:
            texts.append(printer.place("private", part.name, place))
    return texts


def _place(part: LanePart) -> int:
    return part.first * part.container // 8


def print_pointer_cast(printer: Printer, each: Instruction) -> None:
    """Conversions between addresses and integers."""
    [value] = each.operands
    texts: list[str] = []
    for (part, text), own in zip(printer.parts(value), printer.split(each.type), strict=True):
        if each.opcode == "addrspacecast" or part.lane:
            texts.append(text)
        elif each.opcode == "inttoptr":
            texts.append(f"(global uchar *)(ulong)({text})")
        else:
            texts.append(f"({own.name})(ulong)({text})")
    if each.type.of(1) not in (POINTER, LONG) or value.type.of(1) not in (POINTER, LONG):
        raise Inexpressible(f"{each.opcode} of an integer that is not i64")
    printer.assign(each, texts)


# -- structures ----------------------------------------------------------------------------------------


def print_extract_value(printer: Printer, each: Instruction) -> None:
    """An element of a structure or an array."""
    start, count = _variables(printer, each.operands[0].type, each.indices)
    printer.assign(each, printer.value(each.operands[0])[start : start + count])


def print_insert_value(printer: Printer, each: Instruction) -> None:
    """A structure or an array with another element."""
    whole, value = each.operands
    start, count = _variables(printer, whole.type, each.indices)
    texts = list(printer.value(whole))
    texts[start : start + count] = printer.value(value)
    printer.assign(each, texts)


def _variables(printer: Printer, kind: Type, path: Sequence[int]) -> tuple[int, int]:
    """The first of the variables of an element, and their number."""
    start, count = leaf_range(kind, path)
    counts = [len(printer.split(leaf)) for leaf in leaves(kind)]
    return sum(counts[:start]), sum(counts[start : start + count])

