"""Reads what Intel's machine code says of its kernels, from the section `.ze_info` of a zebin.

Source of the layout: "ZEBIN", in the documentation of Intel's graphics compiler (an ELF file; `.ze_info` is YAML). Only
the lines that are read here are parsed: each kernel is an entry of the list `kernels`, two spaces deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from motet.runtime.drivers.common.elf.structures import SHN_UNDEF, ElfFile

_NAME = re.compile(r"^  - name:\s*(\S+)$", re.MULTILINE)
_FIELD = re.compile(r"^      (grf_count|simd_size|spill_size|has_dpas):\s*(\S+)$", re.MULTILINE)
_SCRATCH = re.compile(r"- type:\s*scratch\n(?:        .*\n)*?        size:\s*(\d+)")


@dataclass(frozen=True)
class KernelFacts:
    """What a zebin states of a kernel: registers of a sub-group, its work-items, bytes of scratch memory, bytes spilled
    (None: not stated), and whether it uses the matrix engine."""

    registers: int
    sub_group: int
    scratch: int
    spilled: int | None
    matrix_engine: bool


def read_kernel(zebin: bytes, kernel: str) -> KernelFacts:
    """The facts of `kernel`. Raises ValueError if `zebin` is damaged, or has no such kernel."""
    text = section(zebin, ".ze_info").decode(errors="replace")
    names = list(_NAME.finditer(text))
    for number, match in enumerate(names):
        if match[1].strip("'\"") == kernel:
            end = names[number + 1].start() if number + 1 < len(names) else len(text)
            own = text[match.end() : end]
            found = dict(_FIELD.findall(own))
            scratch = sum(int(size) for size in _SCRATCH.findall(own))
            spilled = int(found["spill_size"]) if "spill_size" in found else None
            return KernelFacts(
                int(found.get("grf_count", 0)), int(found.get("simd_size", 0)), scratch, spilled,
                found.get("has_dpas") == "true",
            )
    raise ValueError(f"a zebin without the kernel {kernel}")


def missing_functions(zebin: bytes) -> list[str]:
    """The functions that a zebin calls and does not contain, as the compiler leaves built-in functions that it does not
    know. No driver can load it. Raises ValueError for a damaged one."""
    return [symbol.name for symbol in ElfFile(zebin).symbols() if symbol.name and symbol.section == SHN_UNDEF]


def section(zebin: bytes, name: str) -> bytes:
    """The first section of a name. Raises ValueError if there is none."""
    file = ElfFile(zebin)
    for number in file.named(name):
        return bytes(file.content(number, name))
    raise ValueError(f"a zebin without {name}")
