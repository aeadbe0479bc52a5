"""OpenCL C for loads, stores, addresses and allocations."""

from __future__ import annotations

from motet.compiler.codegen.llvm.ir import (
    BOOLEAN,
    BYTE,
    LONG,
    POINTER,
    Inexpressible,
    Instruction,
    IrValue,
    Type,
    address_steps,
    bits_of,
    elements_of,
    field_offset,
    leaves,
    size_of,
)
from motet.compiler.codegen.llvm.opencl_c.expressions import sign_extended
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.spaces import GLOBAL
from motet.compiler.codegen.llvm.opencl_c.types import (
    LanePart,
    component,
    convert,
    packed,
    reinterpret,
    unpacked,
)

_WORDS = {2: "ushort", 4: "uint", 8: "ulong"}  # as wide as the masks of so many lanes


def print_load(printer: Printer, each: Instruction) -> None:
    """A load."""
    [address] = each.operands
    if (bits := _packed_bits(each.type)) is not None:
        held = printer.held(bits, loaded(printer, bits, address, align=each.align))
        printer.assign(each, [unpacked(part, held) for part in printer.split(each.type)])
        return
    texts = [
        loaded(printer, part, address, offset, each.align, "volatile" in each.flags)
        for part, offset in _places(printer, each.type)
    ]
    if each.type == POINTER:
        texts = [f"(global uchar *){text}" for text in texts]
    printer.assign(each, texts)


def print_store(printer: Printer, each: Instruction) -> None:
    """A store."""
    value, address = each.operands
    if (bits := _packed_bits(value.type)) is not None:
        held = [(part, printer.held(part, text)) for part, text in printer.parts(value)]
        printer.line(f"{stored(printer, bits, address, packed(bits, held), align=each.align)};")
        return
    if POINTER in leaves(value.type) and printer.spaces.of(value) != GLOBAL:
        raise Inexpressible("an address of private or constant memory that is stored")
    for (part, offset), text in zip(_places(printer, value.type), printer.value(value), strict=True):
        text = f"(ulong){text}" if part.element == POINTER and not part.lane else text
        printer.line(f"{stored(printer, part, address, text, offset, each.align, 'volatile' in each.flags)};")


def _packed_bits(kind: Type) -> LanePart | None:
    """The integer that memory holds for a vector of `i1`."""
    if not kind.lanes or kind.of(1) != BOOLEAN:
        return None
    bits = 8 * -(-kind.lanes // 8)
    if bits not in (8, 16, 32, 64):
        raise Inexpressible(f"a vector of {kind.lanes} i1 in memory")
    return LanePart(Type(f"i{bits}"))


def print_exchange(printer: Printer, each: Instruction) -> None:
    """An atomic exchange of an integer that has an expected value: what was there, and whether it was that."""
    address, expected, value = each.operands
    part = LanePart(expected.type.of(1))
    if part.element.bits not in (32, 64):
        raise Inexpressible(f"{each.opcode} of i{part.element.bits}")
    name = "atom_cmpxchg" if part.element.bits == 64 else "atomic_cmpxchg"
    pointer = printer.pointer(address, part.name, volatile=True)
    old = printer.held(part, f"{name}({pointer}, {printer.scalar(expected)}, {printer.scalar(value)})")
    printer.assign(each, [old, f"({old} == {printer.scalar(expected)})"])


def _places(printer: Printer, kind: Type) -> list[tuple[LanePart, int]]:
    """The parts of a value in memory, with their places in bytes."""
    if not kind.is_struct and not kind.is_array:
        if kind.lanes and kind.bits % 8:
            raise Inexpressible(f"a vector of i{kind.bits} in memory")
        return [(part, part.first * -(-kind.bits // 8)) for part in printer.split(kind)]
    found: list[tuple[LanePart, int]] = []
    for number, inner in enumerate(kind.fields * (kind.count if kind.is_array else 1)):
        start = number * size_of(inner) if kind.is_array else field_offset(kind, number)
        found += [(part, start + offset) for part, offset in _places(printer, inner)]
    return found


def loaded(
    printer: Printer, part: LanePart, address: IrValue, offset: int = 0, align: int = 0, volatile: bool = False
) -> str:
    """The value of `part` at `offset` bytes after an address."""
    stored_part = _in_memory(part)
    text = _plus(printer.scalar(address), offset)
    space = printer.spaces.of(address)
    if align and align < stored_part.container // 8:
        return _assembled(printer, stored_part, space, text)
    if part.width > 1:
        return f"LOAD_{printer.support.memory(stored_part.name)}({_qualified(space, volatile)}, {text})"
    place = printer.place(space, stored_part.name, text, constant_too=True, volatile=volatile)
    return f"(bool)({place} & 1)" if part.boolean else place


def stored(
    printer: Printer, part: LanePart, address: IrValue, text: str, offset: int = 0, align: int = 0,
    volatile: bool = False,
) -> str:
    """The store of `text`, a value of `part`, at `offset` bytes after an address."""
    stored_part = _in_memory(part)
    place = _plus(printer.scalar(address), offset)
    if align and align < stored_part.container // 8:
        parts = stored_part.width * stored_part.container // 8
        kind = f"uchar{parts}" if parts > 1 else "uchar"
        if parts > 16:
            raise Inexpressible(f"a store of {parts} bytes at addresses of any alignment")
        pointer = printer.cast_pointer(printer.spaces.of(address), "uchar", place)
        return f"vstore{parts}({reinterpret(kind, f'({stored_part.name})({text})')}, 0, {pointer})"
    space = printer.spaces.of(address)
    if part.width > 1:
        return f"STORE_{printer.support.memory(stored_part.name)}({_qualified(space, volatile)}, {place}, ({text}))"
    return f"{printer.place(space, stored_part.name, place, volatile=volatile)} = {text}"


def _qualified(space: str, volatile: bool) -> str:
    return f"volatile {space}" if volatile else space


def _in_memory(part: LanePart) -> LanePart:
    """What memory holds for `part`."""
    if part.boolean:
        return LanePart(BYTE)
    if not part.exact:
        raise Inexpressible(f"i{part.element.bits} in memory")
    return part


def _assembled(printer: Printer, part: LanePart, space: str, text: str) -> str:
    count = part.width * part.container // 8
    if count > 16:
        raise Inexpressible(f"a load of {count} bytes at addresses of any alignment")
    pointer = printer.cast_pointer(space, "uchar", text, constant_too=True)
    return reinterpret(part.name, f"vload{count}(0, {pointer})")


def _plus(text: str, offset: int) -> str:
    return f"({text} + {offset})" if offset else text


# -- addresses -----------------------------------------------------------------------------------------


def print_address(printer: Printer, each: Instruction) -> None:
    """An address calculated from another one."""
    base, *steps = each.operands
    fixed, scaled = address_steps(each.over, steps)
    if each.type.lanes:
        printer.assign(each, [_lane_address(printer, part, base, fixed, scaled) for part in printer.split(each.type)])
        return
    terms = [printer.scalar(base)]
    for index, scale in scaled:
        text = sign_extended(LanePart(index.type.of(1)), printer.scalar(index))
        terms.append(f"(long)({text})" + (f" * {scale}L" if scale != 1 else ""))
    if fixed:
        terms.append(f"{fixed}L")
    if len(terms) == 1 and printer.scalar(base) == "0":
        terms = ["0"]
    printer.assign(each, [" + ".join(terms)])


def _lane_address(
    printer: Printer, part: LanePart, base: IrValue, fixed: int, scaled: list[tuple[IrValue, int]]
) -> str:
    """The addresses of a part of a vector of pointers, as integers."""
    terms = [_lanes(printer, part, base, address=True)]
    for index, scale in scaled:
        terms.append(f"{_lanes(printer, part, index)} * {scale}ul")
    if fixed:
        terms.append(f"{fixed & ((1 << 64) - 1)}ul")
    return " + ".join(terms)


def _lanes(printer: Printer, part: LanePart, value: IrValue, address: bool = False) -> str:
    """An operand of a part's address as integers of 64 bits."""
    long = part.of(LONG)
    if value.type.lanes:
        for own, text in printer.parts(value):
            if own.first == part.first:
                if address:
                    return text
                signed = sign_extended(own, text)
                return reinterpret(long.name, convert(long.signed, signed))
    text = printer.scalar(value)
    text = f"(ulong){text}" if address else f"(ulong)(long){sign_extended(LanePart(value.type.of(1)), text)}"
    return f"({long.name})({text})"


def print_allocation(printer: Printer, each: Instruction) -> None:
    """Private memory."""
    count = bits_of(each.operands[0]) if each.operands else 1
    if count is None:
        raise Inexpressible("an allocation of computed size")
    size = max(1, -(-count * size_of(each.over) // 8))
    align = min(max(8, each.align), 128)
    name = printer.temporary("ulong", f"[{size}] __attribute__((aligned({align})))")
    printer.assign(each, [f"(private uchar *){name}"])


# -- masked and scattered accesses ---------------------------------------------------------------------


def print_masked_load(printer: Printer, each: Instruction) -> None:
    """Lanes of consecutive elements, or of `gather`'s addresses, where a mask is set."""
    scattered = each.detail.startswith("llvm.masked.gather")
    address, mask, otherwise = each.operands[0], each.operands[-2], each.operands[-1]
    names = printer.declare(each.value)
    size = each.type.bits // 8
    for number, (part, name) in enumerate(zip(printer.split(each.type), names, strict=True)):
        chosen = printer.value(mask)[number]
        if not scattered and _all_set(mask, part):
            printer.line(f"{name} = {loaded(printer, part, address, part.first * size)};")
            continue
        printer.line(f"{name} = {printer.value(otherwise)[number]};")
        lines = [
            f"{component(name, part, lane)} = {_element(printer, part, address, number, lane)};"
            for lane in range(part.width)
        ]
        whole = f"{name} = {loaded(printer, part, address, part.first * size)};" if not scattered else ""
        _guarded(printer, part, chosen, lines, whole, _all_set(mask, part))


def print_masked_store(printer: Printer, each: Instruction) -> None:
    """Stores of the lanes where a mask is set, to consecutive elements or to `scatter`'s addresses."""
    scattered = each.detail.startswith("llvm.masked.scatter")
    value, address, mask = each.operands[0], each.operands[1], each.operands[-1]
    size = value.type.bits // 8
    for number, (part, text) in enumerate(printer.parts(value)):
        text = printer.held(part, text)
        whole = "" if scattered else f"{stored(printer, part, address, text, part.first * size)};"
        if whole and _all_set(mask, part):
            printer.line(whole)
            continue
        lines = [
            f"{_element(printer, part, address, number, lane)} = {component(text, part, lane)};"
            for lane in range(part.width)
        ]
        _guarded(printer, part, printer.value(mask)[number], lines, whole, _all_set(mask, part))


def _guarded(
    printer: Printer, part: LanePart, mask: str, lines: list[str], whole: str, always: bool
) -> None:
    """Each of `lines` where its lane of `mask` is set; `whole` in their place where all are."""
    mask = printer.held(part.of(Type("i1")), mask)
    if whole and part.width > 1:
        printer.line(f"if ({_every(mask, part.width)}) {{ {whole} }} else {{")
    for lane, text in enumerate(lines):
        printer.line(text if always else f"if ({component(mask, part, lane)}) {text}")
    if whole and part.width > 1:
        printer.line("}")


def _every(mask: str, width: int) -> str:
    """Whether all lanes of a mask are set; PoCL does not inline `all`."""
    if width == 16:
        return f"(as_ulong2({mask}).s0 & as_ulong2({mask}).s1) == (ulong)-1"
    return f"as_{_WORDS[width]}({mask}) == ({_WORDS[width]})-1"


def _all_set(mask: IrValue, part: LanePart) -> bool:
    return not mask.is_local and all(map(bits_of, elements_of(mask)[part.first : part.first + part.width]))


def _element(printer: Printer, part: LanePart, address: IrValue, number: int, lane: int) -> str:
    """An element in memory, of a vector of addresses or after one address."""
    scalar = _in_memory(LanePart(part.element))
    space = printer.spaces.of(address)
    if address.type.lanes:
        own = component(printer.value(address)[number], part, lane)
        return printer.place(space, scalar.name, f"({own})")
    place = (part.first + lane) * scalar.container // 8
    return printer.place(space, scalar.name, _plus(printer.scalar(address), place))


# -- whole ranges --------------------------------------------------------------------------------------


def print_range(printer: Printer, each: Instruction) -> None:
    """`memcpy`, `memmove` and `memset`: byte by byte, which the platform's compiler recognises."""
    target, source, size = each.operands[:3]
    count = printer.scalar(size)
    to = printer.pointer(target, "uchar")
    if "memset" in each.detail:
        printer.line(f"for (ulong i = 0; i < {count}; i++) ({to})[i] = {printer.scalar(source)};")
        return
    out_of = printer.pointer(source, "uchar", constant_too=True)
    forward = f"for (ulong i = 0; i < {count}; i++) ({to})[i] = ({out_of})[i];"
    if "memmove" not in each.detail or printer.spaces.of(source) != printer.spaces.of(target):
        printer.line(forward)
        return
    printer.line(f"if ({printer.scalar(target)} <= {printer.scalar(source)}) {forward}")
    printer.line(f"else for (ulong i = {count}; i-- > 0;) ({to})[i] = ({out_of})[i];")
