"""Reads the registers and local memory of kernels from the section `.nv.info` of a cubin.

Source of the layout: the output of `cuobjdump -elf` and `readelf`; NVIDIA does not document it. An attribute is a byte
of format, a byte of kind, and for format 4 two bytes of length followed by the content.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass

_REGISTERS, _FRAME = 0x2F, 0x11
_SECTION, _SYMBOL = 64, 24


@dataclass(frozen=True)
class Resources:
    """The resources of one kernel per thread: registers, and bytes of local memory to which it spills."""

    registers: int = 0
    spills: int = 0


def read_resources(data: bytes, kernel: str) -> Resources:
    """The resources of `kernel`; zeros if the file does not state them. Raises ValueError unless it is a 64-bit ELF
    file."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    sections = _sections(data)
    symbols = _symbols(data, sections)
    found: dict[int, int] = {}
    for name, start, size, _ in sections:
        if name == ".nv.info":
            for kind, content in _attributes(data[start : start + size]):
                if kind in (_REGISTERS, _FRAME) and len(content) >= 8:
                    index, value = struct.unpack_from("<II", content)
                    if index < len(symbols) and symbols[index] == kernel:
                        found[kind] = value
    return Resources(found.get(_REGISTERS, 0), found.get(_FRAME, 0))


def _sections(data: bytes) -> list[tuple[str, int, int, int]]:
    """The name, start, size and link of every section."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    _, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQII", data, table + i * _SECTION) for i in range(count)]
    base = raw[names][4]
    return [(_string(data, base + entry[0]), entry[4], entry[5], entry[6]) for entry in raw]


def _symbols(data: bytes, sections: list[tuple[str, int, int, int]]) -> list[str]:
    for name, start, size, link in sections:
        if name == ".symtab":
            base = sections[link][1]
            offsets = [struct.unpack_from("<I", data, start + at)[0] for at in range(0, size, _SYMBOL)]
            return [_string(data, base + offset) for offset in offsets]
    return []


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")


def _attributes(section: bytes) -> Generator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(section):
        length = struct.unpack_from("<H", section, at + 2)[0] if section[at] == 4 else 0
        yield section[at + 1], section[at + 4 : at + 4 + length]
        at += 4 + length
