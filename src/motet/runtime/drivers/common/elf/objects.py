"""Reads relocatable ELF objects of 64 and 32 bits: sections, symbols and relocations, with every offset checked.

Source: System V ABI, chapter 4 (Object Files), and the `elf.h` of Linux for the constants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from motet.errors import ArtifactError

# By ELF's number and class (1: 32 bits, 2: 64 bits).
MACHINES = {
    (62, 2): "x86_64", (183, 2): "aarch64", (243, 2): "riscv64", (40, 1): "thumb", (243, 1): "riscv32",
}

SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 4, 8, 9
SHT_X86_64_UNWIND = 0x70000001
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 0x1, 0x2, 0x4, 0x400
CONSTRUCTORS = {14: "SHT_INIT_ARRAY", 15: "SHT_FINI_ARRAY", 16: "SHT_PREINIT_ARRAY"}
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2



@dataclass(frozen=True)
class _Layout:
    """The structures of one class. `symbol_order` takes name, info, other, section, value and size from a
    symbol; `shift` is where a relocation's symbol begins in its info."""

    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    symbol_order: Callable[[tuple[int, ...]], tuple[int, ...]]
    relocation: struct.Struct
    bare_relocation: struct.Struct  # without an addend
    shift: int


_LAYOUTS = {
    1: _Layout(
        struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<IIIIIIIIII"), struct.Struct("<IIIBBH"),
        itemgetter(0, 3, 4, 5, 1, 2),
        struct.Struct("<IIi"), struct.Struct("<II"), 8,
    ),
    2: _Layout(
        struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"),
        itemgetter(0, 1, 2, 3, 4, 5),
        struct.Struct("<QQq"), struct.Struct("<QQ"), 32,
    ),
}
_MAX_ALIGNMENT = 1 << 16


@dataclass(frozen=True)
class Section:
    """A section that occupies memory. `data` is empty if `zero` (.bss), whose size is `size`."""

    name: str
    flags: int
    size: int
    alignment: int
    data: memoryview
    zero: bool


class ElfSymbol(NamedTuple):
    """`section` is an index in `Object.sections`, or SHN_UNDEF, SHN_ABS, SHN_COMMON (`value` is then its alignment). It
    may refer to an omitted section."""

    name: str
    binding: int
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """`sections` and `relocations` are keyed by the section's number in the file."""

    machine: str
    sections: dict[int, Section]
    symbols: list[ElfSymbol]
    relocations: dict[int, list[Relocation]] = field(default_factory=dict[int, list[Relocation]])


def read_object(data: bytes | memoryview, where: str) -> Object:
    """Read the object in `data`, named `where` in errors.

    Unwind tables, notes and debug sections are omitted.

    Raises: ArtifactError if it is not a relocatable ELF object of a known machine, or is damaged.
    """
    return _ElfReader(memoryview(data).cast("B").toreadonly(), where).read()


class _ElfReader:
    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where
        self.layout = _LAYOUTS[2]

    def fail(self, what: str) -> ArtifactError:
        return ArtifactError(f"{self.where}: {what}; the file is damaged, build it again")

    def slice(self, offset: int, size: int, what: str) -> memoryview:
        if offset + size > len(self.data):
            raise self.fail(
                f"{what} lies outside the object: bytes {offset:,} to {offset + size:,}; "
                f"it has {len(self.data):,}"
            )
        return self.data[offset : offset + size]

    def read(self) -> Object:
        machine, headers, names = self.read_header()
        sections: dict[int, Section] = {}
        symbols: list[ElfSymbol] | None = None
        for number, header in enumerate(headers):
            kind, flags = header[1], header[2]
            if kind == SHT_SYMTAB:
                if symbols is not None:
                    raise self.fail("more than one symbol table")
                symbols = self.read_symbols(header, headers)
            elif flags & SHF_ALLOC:
                section = self.read_section(number, header, names)
                if section is not None:
                    sections[number] = section
        symbols = symbols or []
        self.check_symbols(symbols, len(headers))
        return Object(machine, sections, symbols, self.read_relocations(headers, sections, len(symbols)))

    def read_header(self) -> tuple[str, list[tuple[int, ...]], bytes]:
        if len(self.data) < self.layout.header.size or bytes(self.data[:4]) != b"\x7fELF":
            raise self.fail("not an ELF object")
        if self.data[4] not in _LAYOUTS or self.data[5] != 1:
            raise self.fail("not a little-endian ELF object of 32 or 64 bits")
        self.layout = _LAYOUTS[self.data[4]]
        fields = self.layout.header.unpack_from(self.data)
        kind, number = fields[1], (fields[2], self.data[4])
        if kind != 1:
            raise self.fail(f"ELF file of type {kind}; expected 1, a relocatable object")
        if number not in MACHINES:
            known = ", ".join(MACHINES.values())
            raise self.fail(f"ELF machine {number[0]} of class {number[1]}; expected one of {known}")
        offset, size, count, names = fields[6], fields[11], fields[12], fields[13]
        if size != self.layout.section.size or not count:
            raise self.fail(
                f"section table: {count} entries of {size} bytes; expected {self.layout.section.size} each"
            )
        headers = list(self.layout.section.iter_unpack(self.slice(offset, size * count, "the section table")))
        if names >= count:
            raise self.fail(f"section names in section {names}; there are {count}")
        name_table = self.slice(headers[names][4], headers[names][5], "the section names")
        return MACHINES[number], headers, bytes(name_table)

    def read_section(self, number: int, header: tuple[int, ...], names: bytes) -> Section | None:
        name_at, kind, flags, _, offset, size, _, _, alignment, _ = header
        name = self.string(names, name_at, f"the name of section {number}")
        if kind == SHT_X86_64_UNWIND or name.startswith((".eh_frame", ".note", ".gcc_except_table", ".ARM.")):
            return None
        if flags & SHF_TLS:
            raise self.fail(f"section {name}: thread-local storage, which is not supported")
        if kind in CONSTRUCTORS or name.startswith((".ctors", ".dtors")):
            raise self.fail(f"section {name}: constructors, which are not supported")
        if flags & SHF_WRITE and flags & SHF_EXECINSTR:
            raise self.fail(f"section {name}: both writable and executable")
        alignment = max(alignment, 1)
        if alignment & (alignment - 1) or alignment > _MAX_ALIGNMENT:
            raise self.fail(
                f"section {name}: alignment {alignment:,}; expected a power of two up to {_MAX_ALIGNMENT:,}"
            )
        zero = kind == SHT_NOBITS
        if zero and size > 1 << 40:
            raise self.fail(f"section {name}: {size:,} bytes")
        data = self.data[:0] if zero else self.slice(offset, size, f"section {name}")
        return Section(name, flags, size, alignment, data, zero)

    def read_symbols(self, header: tuple[int, ...], headers: list[tuple[int, ...]]) -> list[ElfSymbol]:
        offset, size, link = header[4], header[5], header[6]
        entry = self.layout.symbol
        if size % entry.size or header[9] != entry.size:
            raise self.fail(f"symbol table of {size:,} bytes; expected a multiple of {entry.size}")
        if link >= len(headers):
            raise self.fail(f"symbol names in section {link}; there are {len(headers)}")
        names = bytes(self.slice(headers[link][4], headers[link][5], "the symbol names"))
        symbols: list[ElfSymbol] = []
        table = self.slice(offset, size, "the symbol table")
        for fields in entry.iter_unpack(table):
            name_at, info, _, section, value, length = self.layout.symbol_order(fields)
            name = self.string(names, name_at, f"the name of symbol {len(symbols)}") if name_at else ""
            symbols.append(ElfSymbol(name, info >> 4, section, value, length))
        return symbols

    def check_symbols(self, symbols: list[ElfSymbol], sections: int) -> None:
        for symbol in symbols:
            if symbol.section < SHN_LORESERVE:
                if symbol.section >= sections:
                    raise self.fail(
                        f"symbol '{symbol.name}' in section {symbol.section}; there are {sections}"
                    )
            elif symbol.section not in (SHN_ABS, SHN_COMMON):
                raise self.fail(f"symbol '{symbol.name}' in unsupported section {symbol.section:#x}")

    def read_relocations(
        self, headers: list[tuple[int, ...]], sections: dict[int, Section], symbols: int
    ) -> dict[int, list[Relocation]]:
        result: dict[int, list[Relocation]] = {}
        for header in headers:
            kind, offset, size, target = header[1], header[4], header[5], header[7]
            if kind not in (SHT_RELA, SHT_REL) or target not in sections:
                continue
            # Without addends in the entries, they are in the code, where the patch functions find them.
            layout = self.layout.relocation if kind == SHT_RELA else self.layout.bare_relocation
            if size % layout.size or (kind == SHT_REL and self.layout is _LAYOUTS[2]):
                name = sections[target].name
                raise self.fail(f"relocations of section {name}: expected entries with addends")
            entries = result.setdefault(target, [])
            table = self.slice(offset, size, "a relocation table")
            for place, info, *addend in layout.iter_unpack(table):
                symbol, code = info >> self.layout.shift, info & (1 << self.layout.shift) - 1
                if symbol >= symbols:
                    raise self.fail(f"relocation of section {sections[target].name} to symbol {symbol}; "
                                    f"there are {symbols}")
                entries.append(Relocation(place, code, symbol, addend[0] if addend else 0))
        return result

    def string(self, table: bytes, offset: int, what: str) -> str:
        if offset >= len(table):
            raise self.fail(f"{what} lies outside its table")
        end = table.find(b"\0", offset)
        if end < 0:
            raise self.fail(f"{what} does not end")
        try:
            return table[offset:end].decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None
