"""Reads what Intel's machine code says of its kernels, from the section `.ze_info` of a zebin.

Source of the layout: "ZEBIN", in the documentation of Intel's graphics compiler (an ELF file; `.ze_info` is YAML). Only
the lines that are read here are parsed: each kernel is an entry of the list `kernels`, two spaces deep.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

_SECTION, _SYMBOL = 64, 24  # bytes
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
    sections = _sections(zebin)
    names = next((content for name, content in sections if name == ".strtab"), b"")
    found: list[str] = []
    for section, content in sections:
        for at in range(0, len(content) if section == ".symtab" else 0, _SYMBOL):
            name, _, _, index = struct.unpack_from("<IBBH", content, at)
            if name and not index:
                found.append(names[name : names.index(b"\0", name)].decode(errors="replace"))
    return found


def section(zebin: bytes, name: str) -> bytes:
    """The first section of a name. Raises ValueError if there is none."""
    for own, content in _sections(zebin):
        if own == name:
            return content
    raise ValueError(f"a zebin without {name}")


def _sections(zebin: bytes) -> list[tuple[str, bytes]]:
    """The names and contents of all sections."""
    if zebin[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    try:
        (table,) = struct.unpack_from("<Q", zebin, 40)
        _, count, names = struct.unpack_from("<HHH", zebin, 58)
        headers = [struct.unpack_from("<IIQQQQ", zebin, table + i * _SECTION) for i in range(count)]
        base = headers[names][4]
        return [
            (zebin[base + name : zebin.index(b"\0", base + name)].decode(errors="replace"), zebin[start : start + size])
            for name, _, _, _, start, size in headers
        ]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ValueError(f"a damaged zebin: {error}") from error
