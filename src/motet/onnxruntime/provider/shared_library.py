"""Writes the shared library by which onnxruntime finds the provider.

onnxruntime loads a library and calls its `CreateEpFactories` and `ReleaseEpFactory`. Those of this library jump to the
addresses in `motet_entries`, which the process that registers it sets to functions of Python; while they are 0, the
library offers nothing and does no harm. `motet_nothing` returns 0: it stands in for functions of Python that have
ended. The file is an ELF object with the machine code below, so no compiler or linker is needed.
"""

from __future__ import annotations

import platform
import struct
import sys
from dataclasses import dataclass

from motet.errors import DeviceError
from motet.runtime.drivers.common.elf.structures import CLASSES, MAGIC, PT_LOAD

_FORMS = CLASSES[2]
_PAGE = 0x1000
_CODE, _DATA = _PAGE, 2 * _PAGE  # addresses, and offsets in the file


@dataclass(frozen=True)
class LibraryMachine:
    """A processor's number in ELF files, and the assembly and code of the library's functions.

    `{distance}` in the assembly is the distance from the instruction to the entry that it reads.
    """

    elf: int
    create: bytes
    release: bytes
    nothing: bytes


def _x86_64() -> LibraryMachine:
    def load(at: int, entry: int) -> bytes:  # mov rax, [rip + entry]
        return b"\x48\x8b\x05" + struct.pack("<i", entry - (at + 7))

    create = load(_CODE, _DATA) + (
        b"\x48\x85\xc0"  # test rax, rax
        b"\x74\x02"  # je +2
        b"\xff\xe0"  # jmp rax
        b"\x49\xc7\x01\x00\x00\x00\x00"  # mov qword [r9], 0: the number of factories
        b"\xc3"  # ret: rax is 0, which means success
    )
    release = load(_CODE + 64, _DATA + 8) + b"\x48\x85\xc0\x74\x02\xff\xe0\xc3"
    return LibraryMachine(62, create, release, b"\x31\xc0\xc3")


def _aarch64() -> LibraryMachine:
    def load(at: int, entry: int) -> bytes:  # ldr x16, entry
        return struct.pack("<I", 0x58000000 | ((entry - at) // 4 & 0x7FFFF) << 5 | 16)

    jump = struct.pack("<2I", 0xB4000050, 0xD61F0200)  # cbz x16, +8; br x16
    nothing = struct.pack("<2I", 0xD2800000, 0xD65F03C0)  # mov x0, #0; ret
    create = load(_CODE, _DATA) + jump + struct.pack("<I", 0xF90000BF) + nothing  # str xzr, [x5]
    return LibraryMachine(183, create, load(_CODE + 64, _DATA + 8) + jump + nothing, nothing)


MACHINES = {"x86_64": _x86_64, "aarch64": _aarch64}


def library_bytes(machine: str = "", system: str = "") -> bytes:
    """The library for a kind of processor, by default this machine's. Raises DeviceError for one that it has no code
    for."""
    machine, system = machine or platform.machine(), system or sys.platform
    if system != "linux" or machine not in MACHINES:
        raise DeviceError(f"onnxruntime's provider: no library for {machine} with {system}; there are those for Linux "
                          f"on {', '.join(MACHINES)}; motet.onnxruntime.InferenceSession needs none")  # fmt: skip
    made = MACHINES[machine]()
    code = made.create.ljust(64, b"\0") + made.release.ljust(64, b"\0") + made.nothing
    return _elf(made.elf, code, {
        "CreateEpFactories": _CODE, "ReleaseEpFactory": _CODE + 64, "motet_nothing": _CODE + 128,
        "motet_entries": _DATA,
    })


def _elf(machine: int, code: bytes, symbols: dict[str, int]) -> bytes:
    """An ELF shared object: headers and tables for the loader, code, and data with the dynamic section."""
    names, offsets = b"\0", list[int]()
    for name in symbols:
        offsets.append(len(names))
        names += name.encode() + b"\0"
    table = bytes(_FORMS.symbol.size) + b"".join(
        # global; a function, or an object of two entries; in section 1, which need not exist
        _FORMS.symbol.pack(offset, 0x12 if at < _DATA else 0x11, 0, 1, at, 16 if at >= _DATA else 64)
        for offset, at in zip(offsets, symbols.values(), strict=True)
    )
    count = len(symbols) + 1
    chain = [0, *range(2, count), 0]  # one bucket, which holds all symbols
    hashes = struct.pack(f"<{3 + count}I", 1, count, 1, *chain)
    at_hashes = 64 + 3 * 56
    at_table = -(-(at_hashes + len(hashes)) // 8) * 8
    at_names = at_table + len(table)
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in (
        (4, at_hashes), (5, at_names), (6, at_table), (10, len(names)), (11, 24), (0, 0),
    ))  # fmt: skip
    data = bytes(16) + dynamic
    header = _FORMS.header.pack(MAGIC + b"\2\1\1", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    segments = b"".join(_FORMS.segment.pack(*segment) for segment in (
        (PT_LOAD, 5, 0, 0, 0, _CODE + len(code), _CODE + len(code), _PAGE),
        (PT_LOAD, 6, _DATA, _DATA, _DATA, len(data), len(data), _PAGE),
        (2, 6, _DATA + 16, _DATA + 16, _DATA + 16, len(dynamic), len(dynamic), 8),
    ))  # fmt: skip
    first = (header + segments + hashes).ljust(at_table, b"\0") + table + names
    return first.ljust(_CODE, b"\0") + code.ljust(_PAGE, b"\0") + data
