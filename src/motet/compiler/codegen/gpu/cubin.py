"""Reads the registers and local memory of kernels from the section `.nv.info` of a cubin.

Source of the layout: the output of `cuobjdump -elf` and `readelf`; NVIDIA does not document it. An attribute is a byte
of format, a byte of kind, and for format 4 two bytes of length followed by the content.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass

from motet.runtime.drivers.common.elf.structures import ElfFile

_REGISTERS, _FRAME = 0x2F, 0x11


@dataclass(frozen=True)
class Resources:
    """The resources of one kernel per thread: registers, and bytes of local memory to which it spills."""

    registers: int = 0
    spills: int = 0


def read_resources(data: bytes, kernel: str) -> Resources:
    """The resources of `kernel`; zeros if the file does not state them. Raises ValueError unless it is an ELF file."""
    file = ElfFile(data)
    symbols = file.symbols()
    found: dict[int, int] = {}
    for number in file.named(".nv.info"):
        for kind, content in _attributes(bytes(file.content(number, ".nv.info"))):
            if kind in (_REGISTERS, _FRAME) and len(content) >= 8:
                index, value = struct.unpack_from("<II", content)
                if index < len(symbols) and symbols[index].name == kernel:
                    found[kind] = value
    return Resources(found.get(_REGISTERS, 0), found.get(_FRAME, 0))


def _attributes(section: bytes) -> Generator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(section):
        length = struct.unpack_from("<H", section, at + 2)[0] if section[at] == 4 else 0
        yield section[at + 1], section[at + 4 : at + 4 + length]
        at += 4 + length
