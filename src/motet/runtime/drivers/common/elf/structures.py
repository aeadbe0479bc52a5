"""The structures of ELF files of 64 and 32 bits, little-endian, and what any file has: sections, segments and symbols.

Sources: System V ABI, chapters 4 and 5, and the `elf.h` of Linux for the constants.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

# By ELF's number and class (1: 32 bits, 2: 64 bits).
MACHINES = {
    (62, 2): "x86_64", (183, 2): "aarch64", (243, 2): "riscv64", (40, 1): "thumb", (243, 1): "riscv32",
}

MAGIC = b"\x7fELF"
ET_REL, ET_EXEC = 1, 2
PT_LOAD = 1
SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL = 2, 3, 4, 7, 8, 9
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2


class ElfError(ValueError):
    """A file is not the expected ELF file, or is damaged."""


class SectionHeader(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class ElfSymbol(NamedTuple):
    """`section` is a section's number, or SHN_UNDEF, SHN_ABS, SHN_COMMON (`value` is then its alignment)."""

    name: str
    binding: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class LoadedSegment:
    """Bytes at an address, followed by zeros up to `size` bytes."""

    address: int
    data: bytes
    size: int


class ElfStructure:
    """A structure. `places` are those of its fields in the class's files, in the order of 64-bit files."""

    def __init__(self, form: str, places: tuple[int, ...]) -> None:
        self._form = struct.Struct(form)
        self._read = itemgetter(*places)
        self._write = itemgetter(*map(places.index, range(len(places))))
        self.size = self._form.size

    def pack(self, *fields: int) -> bytes:
        return self._form.pack(*self._write(fields))

    def each(self, table: memoryview) -> Iterator[tuple[int, ...]]:
        """The fields of every structure in `table`, a multiple of `size` bytes."""
        return map(self._read, self._form.iter_unpack(table))


@dataclass(frozen=True)
class ElfClass:
    """The structures of one class. `shift` is where a relocation's symbol begins in its info."""

    header: struct.Struct
    section: struct.Struct
    segment: ElfStructure  # type, flags, offset, address, physical address, bytes in the file and in memory, alignment
    symbol: ElfStructure  # name, info, other, section, value, size
    relocation: struct.Struct
    bare_relocation: struct.Struct  # without an addend
    shift: int
    word: int


CLASSES = {
    1: ElfClass(
        struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"), ElfStructure("<8I", (0, 6, 1, 2, 3, 4, 5, 7)),
        ElfStructure("<IIIBBH", (0, 3, 4, 5, 1, 2)), struct.Struct("<IIi"), struct.Struct("<II"), 8, 4,
    ),
    2: ElfClass(
        struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), ElfStructure("<IIQQQQQQ", tuple(range(8))),
        ElfStructure("<IBBHQQ", tuple(range(6))), struct.Struct("<QQq"), struct.Struct("<QQ"), 32, 8,
    ),
}


class ElfFile:
    """A file with its section headers; every offset is checked. All methods raise ElfError. `number` and `bits` are
    ELF's numbers of the machine and of the class."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data).cast("B").toreadonly()
        if len(self.data) < CLASSES[1].header.size or bytes(self.data[:4]) != MAGIC:
            raise ElfError("not an ELF file")
        self.bits = self.data[4]
        if self.bits not in CLASSES or self.data[5] != 1 or len(self.data) < CLASSES[self.bits].header.size:
            raise ElfError("not a little-endian ELF file of 32 or 64 bits")
        self.structures = CLASSES[self.bits]
        (_, self.kind, self.number, _, self.entry, self._segments_at, at, _, _, self._segment, self._segments,
         size, count, names) = self.structures.header.unpack_from(self.data)  # fmt: skip
        section = self.structures.section
        if size != section.size or not count:
            raise ElfError(f"section table: {count} entries of {size} bytes; expected {section.size} each")
        table = self.part(at, size * count, "the section table")
        self.sections = [SectionHeader._make(fields) for fields in section.iter_unpack(table)]
        if names >= count:
            raise ElfError(f"section names in section {names}; there are {count}")
        self._names = bytes(self.content(names, "the section names"))

    @property
    def machine(self) -> str:
        """The name of the machine; empty if it is none of MACHINES."""
        return MACHINES.get((self.number, self.bits), "")

    def part(self, offset: int, size: int, what: str) -> memoryview:
        """Bytes of the file, called `what` in errors."""
        if offset + size > len(self.data):
            raise ElfError(
                f"{what} lies outside the file: bytes {offset:,} to {offset + size:,}; it has {len(self.data):,}"
            )
        return self.data[offset : offset + size]

    def content(self, number: int, what: str) -> memoryview:
        """The bytes of a section, called `what` in errors; none for .bss."""
        if number >= len(self.sections):
            raise ElfError(f"{what} in section {number}; there are {len(self.sections)}")
        header = self.sections[number]
        if header.kind == SHT_NOBITS:
            return self.data[:0]
        return self.part(header.offset, header.size, what)

    def name(self, number: int) -> str:
        """The name of a section."""
        return _string(self._names, self.sections[number].name, "section", number)

    def named(self, name: str) -> list[int]:
        """The numbers of the sections with a name."""
        return [number for number in range(len(self.sections)) if self.name(number) == name]

    def segments(self) -> list[LoadedSegment]:
        """The segments that are loaded."""
        record = self.structures.segment
        if self._segments and self._segment != record.size:
            raise ElfError(f"segments of {self._segment} bytes; expected {record.size} each")
        table = self.part(self._segments_at, self._segments * record.size, "the segment table")
        return [
            LoadedSegment(address, bytes(self.part(offset, filled, f"the segment at {address:#x}")), size)
            for kind, _, offset, address, _, filled, size, _ in record.each(table) if kind == PT_LOAD
        ]

    def symbols(self) -> list[ElfSymbol]:
        """The symbols of the only symbol table; none if there is no table."""
        tables = [number for number, header in enumerate(self.sections) if header.kind == SHT_SYMTAB]
        if not tables:
            return []
        if len(tables) > 1:
            raise ElfError("more than one symbol table")
        header, record = self.sections[tables[0]], self.structures.symbol
        if header.size % record.size or header.entry != record.size:
            raise ElfError(f"symbol table of {header.size:,} bytes; expected a multiple of {record.size}")
        names = bytes(self.content(header.link, "the symbol names"))
        entries = enumerate(record.each(self.content(tables[0], "the symbol table")))
        return [
            ElfSymbol(_string(names, at, "symbol", number) if at else "", info >> 4, section, value, size)
            for number, (at, info, _, section, value, size) in entries
        ]


def _string(table: bytes, offset: int, kind: str, number: int) -> str:
    """The name of a section or symbol."""
    end = table.find(b"\0", offset)
    if end < 0:
        what = "lies outside its table" if offset >= len(table) else "does not end"
        raise ElfError(f"the name of {kind} {number} {what}")
    try:
        return table[offset:end].decode()
    except UnicodeDecodeError:
        raise ElfError(f"the name of {kind} {number} is not UTF-8") from None
