"""Writes static executables: segments at their addresses, and absolute symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.runtime.drivers.common.elf.structures import (
    CLASSES,
    ET_EXEC,
    MACHINES,
    MAGIC,
    PT_LOAD,
    SHN_ABS,
    SHT_STRTAB,
    SHT_SYMTAB,
    STB_GLOBAL,
    LoadedSegment,
)

# EABI 5; compressed instructions and doubles in registers. Other machines have none.
_FLAGS = {"thumb": 0x05000000, "riscv32": 5, "riscv64": 5}
_TITLES = b"\0.symtab\0.strtab\0.shstrtab\0"
_ALL = 7  # readable, writable, executable


def write_executable(
    machine: str, entry: int, segments: Sequence[LoadedSegment], symbols: Mapping[str, int], alignment: int
) -> bytes:
    """A file for one of `MACHINES` that starts at `entry`. Segments are as far from multiples of `alignment` in the
    file as in memory."""
    number, bits = next(key for key, name in MACHINES.items() if name == machine)
    structures = CLASSES[bits]
    header, section, word = structures.header, structures.section, structures.word
    content = bytearray(header.size + structures.segment.size * len(segments))
    table = b""
    for segment in segments:
        content += bytes((segment.address - len(content)) % alignment)
        filled, address = len(segment.data), segment.address
        size = max(segment.size, filled)
        table += structures.segment.pack(PT_LOAD, _ALL, len(content), address, address, filled, size, alignment)
        content += segment.data
    names, entries = b"\0", bytes(structures.symbol.size)
    for name, address in symbols.items():
        entries += structures.symbol.pack(len(names), STB_GLOBAL << 4, 0, SHN_ABS, address, 0)
        names += name.encode() + b"\0"
    sections = section.pack(*[0] * 10)
    for title, kind, data, link, info, step, size in (
        (b".symtab", SHT_SYMTAB, entries, 2, 1, word, structures.symbol.size),
        (b".strtab", SHT_STRTAB, names, 0, 0, 1, 0), (b".shstrtab", SHT_STRTAB, _TITLES, 0, 0, 1, 0),
    ):
        content += bytes(-len(content) % word)
        sections += section.pack(_TITLES.index(title), kind, 0, 0, len(content), len(data), link, info, step, size)
        content += data
    content += bytes(-len(content) % word)
    start = header.pack(
        MAGIC + bytes([bits, 1, 1]) + bytes(9), ET_EXEC, number, 1, entry, header.size, len(content),
        _FLAGS.get(machine, 0), header.size, structures.segment.size, len(segments), section.size,
        len(sections) // section.size, len(sections) // section.size - 1,
    )
    content[: len(start) + len(table)] = start + table
    return bytes(content) + sections
