"""Reads relocatable ELF objects: the sections that occupy memory, symbols and relocations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from motet.errors import ArtifactError
from motet.runtime.drivers.common.elf.structures import (
    ET_REL,
    MACHINES,
    SHN_ABS,
    SHN_COMMON,
    SHN_LORESERVE,
    SHT_NOBITS,
    SHT_REL,
    SHT_RELA,
    ElfError,
    ElfFile,
    ElfSymbol,
)

SHT_X86_64_UNWIND = 0x70000001
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 0x1, 0x2, 0x4, 0x400
CONSTRUCTORS = {14: "SHT_INIT_ARRAY", 15: "SHT_FINI_ARRAY", 16: "SHT_PREINIT_ARRAY"}
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


class Relocation(NamedTuple):
    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """`sections` and `relocations` are keyed by the section's number in the file; symbols may refer to omitted
    sections."""

    machine: str
    sections: dict[int, Section]
    symbols: list[ElfSymbol]
    relocations: dict[int, list[Relocation]] = field(default_factory=dict[int, list[Relocation]])


def read_object(data: bytes | memoryview, where: str) -> Object:
    """Read the object in `data`, named `where` in errors.

    Unwind tables, notes and debug sections are omitted.

    Raises: ArtifactError if it is not a relocatable ELF object of a known machine, or is damaged.
    """
    try:
        return _read(ElfFile(data))
    except ElfError as error:
        raise ArtifactError(f"{where}: {error}; the file is damaged, build it again") from None


def _read(file: ElfFile) -> Object:
    if file.kind != ET_REL:
        raise ElfError(f"ELF file of type {file.kind}; expected 1, a relocatable object")
    if not file.machine:
        known = ", ".join(MACHINES.values())
        raise ElfError(f"ELF machine {file.number} of class {file.bits}; expected one of {known}")
    sections: dict[int, Section] = {}
    for number, header in enumerate(file.sections):
        section = _section(file, number) if header.flags & SHF_ALLOC else None
        if section is not None:
            sections[number] = section
    symbols = file.symbols()
    _check_symbols(symbols, len(file.sections))
    return Object(file.machine, sections, symbols, _relocations(file, sections, len(symbols)))


def _section(file: ElfFile, number: int) -> Section | None:
    header, name = file.sections[number], file.name(number)
    if header.kind == SHT_X86_64_UNWIND or name.startswith((".eh_frame", ".note", ".gcc_except_table", ".ARM.")):
        return None
    if header.flags & SHF_TLS:
        raise ElfError(f"section {name}: thread-local storage, which is not supported")
    if header.kind in CONSTRUCTORS or name.startswith((".ctors", ".dtors")):
        raise ElfError(f"section {name}: constructors, which are not supported")
    if header.flags & SHF_WRITE and header.flags & SHF_EXECINSTR:
        raise ElfError(f"section {name}: both writable and executable")
    alignment = max(header.alignment, 1)
    if alignment & (alignment - 1) or alignment > _MAX_ALIGNMENT:
        raise ElfError(f"section {name}: alignment {alignment:,}; expected a power of two up to {_MAX_ALIGNMENT:,}")
    zero = header.kind == SHT_NOBITS
    if zero and header.size > 1 << 40:
        raise ElfError(f"section {name}: {header.size:,} bytes")
    data = file.content(number, f"section {name}")
    return Section(name, header.flags, header.size, alignment, data, zero)


def _check_symbols(symbols: list[ElfSymbol], sections: int) -> None:
    for symbol in symbols:
        if symbol.section < SHN_LORESERVE:
            if symbol.section >= sections:
                raise ElfError(f"symbol '{symbol.name}' in section {symbol.section}; there are {sections}")
        elif symbol.section not in (SHN_ABS, SHN_COMMON):
            raise ElfError(f"symbol '{symbol.name}' in unsupported section {symbol.section:#x}")


def _relocations(file: ElfFile, sections: dict[int, Section], symbols: int) -> dict[int, list[Relocation]]:
    result: dict[int, list[Relocation]] = {}
    structures = file.structures
    mask = (1 << structures.shift) - 1
    for header in file.sections:
        if header.kind not in (SHT_RELA, SHT_REL) or header.info not in sections:
            continue
        # Without addends in the entries, they are in the code, where the relocations' kinds find them.
        form = structures.relocation if header.kind == SHT_RELA else structures.bare_relocation
        name = sections[header.info].name
        if header.size % form.size or (header.kind == SHT_REL and structures.word == 8):
            raise ElfError(f"relocations of section {name}: expected entries with addends")
        entries = result.setdefault(header.info, [])
        for place, info, *addend in form.iter_unpack(file.part(header.offset, header.size, "a relocation table")):
            symbol = info >> structures.shift
            if symbol >= symbols:
                raise ElfError(f"relocation of section {name} to symbol {symbol}; there are {symbols}")
            entries.append(Relocation(place, info & mask, symbol, addend[0] if addend else 0))
    return result
