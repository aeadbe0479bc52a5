"""Translates the LLVM IR text that upstream MLIR prints (LLVM 24) to the text that llvmlite reads (LLVM 22).

The two differ in the spelling of floating-point constants. LLVM 24 writes the bits of the type (`f0x3F8CCCCD`), the
shortest decimal that identifies the value in the *type* (`half 1.099610e+00`), or a name (`-inf`, `+qnan`, `+nan(0x1)`,
`+snan(0x1)`). LLVM 22 reads decimals as `double` only, and all other constants as the bits of a `double` (`0x…`), a
`half` (`0xH…`) or a `bfloat` (`0xR…`). This module rewrites every floating-point constant to such bits, exactly.
Attributes unknown to LLVM 22 only allow optimisations, and are dropped.
"""

from __future__ import annotations

import re
import struct

_TYPES = {"half": (5, 10), "bfloat": (8, 7), "float": (8, 23), "double": (11, 52)}  # bits of exponent and fraction

_NUMBER = (
    r"(?P<sign>[+-]?)(?:f0x(?P<bits>[0-9A-Fa-f]+)|(?P<decimal>\d+\.\d*(?:[eE][+-]?\d+)?))"
    r"|(?P<name_sign>[+-])(?P<name>inf|qnan|(?P<nan>s?nan)\(0x(?P<payload>[0-9A-Fa-f]+)\))"
)
_SUSPECT = re.compile(r"(?<=[\s(\[<])[+-]?(?:f0x|\d+\.|inf|qnan|s?nan\()")
_TOKEN = re.compile(
    r'"[^"]*"|;[^\n]*'
    r"|(?<![\w.$%@!#-])(?P<type>half|bfloat|float|double)\b"
    rf"|(?<![\w.$%@!#+-])(?:{_NUMBER})(?![\w.])"
)
_UNKNOWN_ATTRIBUTE = re.compile(
    r"(?<=[{ ])(?:noipa|nooutline|flatten|nodivergencesource|denormal_fpenv\([^)]*\))(?= )"
)


def to_llvmlite(text: str) -> str:
    """The LLVM IR `text`, as the MLIR bindings print it, in the spelling that llvmlite parses.

    Text that llvmlite can read already keeps its meaning.
    """
    return "".join(map(_line, text.splitlines(keepends=True)))


def _line(line: str) -> str:
    if line.startswith("attributes #"):
        line = _UNKNOWN_ATTRIBUTE.sub("", line)
    if _SUSPECT.search(line) is None:
        return line
    current = ""  # a constant has the last type named before it

    def replace(match: re.Match[str]) -> str:
        nonlocal current
        if kind := match["type"]:
            current = kind
        elif current and (match["bits"] or match["decimal"] or match["name"]):
            return _spell(current, _constant_bits(current, match))
        return match[0]

    return _TOKEN.sub(replace, line)


def _constant_bits(kind: str, match: re.Match[str]) -> int:
    """The bits of the constant of type `kind` matched by `match`."""
    exponent, fraction = _TYPES[kind]
    if match["decimal"]:
        return _round(kind, float(match["sign"] + match["decimal"]))
    negative = "-" in (match["sign"], match["name_sign"])
    sign = 1 << (exponent + fraction) if negative else 0
    if match["bits"]:
        return sign ^ int(match["bits"], 16)
    bits = sign | ((1 << exponent) - 1) << fraction
    if match["nan"]:
        bits |= int(match["payload"], 16)
    if match["name"] == "qnan" or match["nan"] == "nan":
        bits |= 1 << (fraction - 1)
    return bits


def _round(kind: str, number: float) -> int:
    """The bits of `number` in type `kind`. A shortest decimal identifies a value of the type, so that the `double`
    nearest to it is never halfway between two values of a narrower type, and rounding twice is exact."""
    if kind == "double":
        return _bits("d", "Q", number)
    if kind == "half":
        return _bits("e", "H", number)
    single = _bits("f", "I", number)
    return single if kind == "float" else (single + 0x7FFF + ((single >> 16) & 1)) >> 16


def _bits(floating: str, integer: str, number: float) -> int:
    return struct.unpack(f"<{integer}", struct.pack(f"<{floating}", number))[0]


def _spell(kind: str, bits: int) -> str:
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    if kind == "float":
        bits = _widen(bits)
    return f"0x{bits:016X}"


def _widen(bits: int) -> int:
    """The bits of the `double` equal to the `float` of `bits`; a NaN keeps its payload and stays signalling."""
    if (bits >> 23) & 0xFF == 0xFF:
        return (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    return _bits("d", "Q", struct.unpack("<f", struct.pack("<I", bits))[0])
