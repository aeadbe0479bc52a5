"""Functions in C that the printed programs call, one for each type that a program needs.

In a template, F is the floating-point type, I and U are integers as wide, and W is the number of lanes, empty for one.

PoCL does not inline most functions of OpenCL C, which take many times as long as their instruction then, and aborts
where some of them have vectors of 16 lanes. Clang, of which nearly all platforms are made, has extensions in their
place.
"""

from __future__ import annotations

import re

from motet.compiler.codegen.llvm.opencl_c.types import sized

_MEMORY = """
#ifdef __clang__
typedef VECTOR motet_VECTOR __attribute__((aligned(sizeof(ELEMENT))));
#define LOAD_VECTOR(space, place) (*(const space motet_VECTOR *)(place))
#define STORE_VECTOR(space, place, value) (*(space motet_VECTOR *)(place) = (value))
#else
#define LOAD_VECTOR(space, place) vloadWIDTH(0, (const space ELEMENT *)(place))
#define STORE_VECTOR(space, place, value) vstoreWIDTH(value, 0, (space ELEMENT *)(place))
#endif"""
_INTEGERS = {"float": "int", "double": "long"}

# Conversions of 16-bit floats: `codegen/cpu/emit/half_precision.py` describes them.
_TEMPLATES = {
    "from_half": """
static floatW NAME(ushortW x) {
  uintW bits = convert_uintW(x), size = bits & 0x7fffu, shifted = size << 13;
  uintW special = shifted | ((size > 0x7c00u) ? (uintW)(0x7fc00000u) : (uintW)(0x7f800000u));
  uintW small = as_uintW(convert_floatW(size) * 0x1p-24f);
  uintW finite = (size < 0x400u) ? small : shifted + 0x38000000u;
  return as_floatW(((size >= 0x7c00u) ? special : finite) | (bits & 0x8000u) << 16);
}""",
    "to_half": """
static ushortW NAME(floatW x) {
  uintW bits = as_uintW(x), size = bits & 0x7fffffffu;
  uintW normal = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;
  uintW small = as_uintW(as_floatW(size) + 0.5f) - 0x3f000000u;
  uintW special = (size > 0x7f800000u) ? (uintW)(0x7e00u) : (uintW)(0x7c00u);
  uintW finite = (size < 0x38800000u) ? small : normal;
  return convert_ushortW(((size >= 0x47800000u) ? special : finite) | ((bits >> 16) & 0x8000u));
}""",
    "from_bfloat": """
static floatW NAME(ushortW x) { return as_floatW(convert_uintW(x) << 16); }""",
    "to_bfloat": """
static ushortW NAME(floatW x) {
  uintW bits = as_uintW(x), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return convert_ushortW(((bits & 0x7fffffffu) > 0x7f800000u) ? (bits >> 16) | 0x40u : rounded);
}""",
    # The float next to a double whose last bit is 1 if it is not equal: what is rounded again is rounded once.
    "to_odd": """
static floatW NAME(doubleW x) {
  floatW near = convert_floatW(x);
  doubleW back = convert_doubleW(near);
  uintW bits = as_uintW(near), below = (convert_intW(as_ulongW(back) << 1 > as_ulongW(x) << 1)) ? bits - 1u : bits;
  return as_floatW((convert_intW(back != x)) ? below | 1u : bits);
}""",
    # A contracted product and sum has one rounding where the processor has an instruction for it.
    "fma": """
#if defined(__clang__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
static F NAME(F a, F b, F c) {
#pragma OPENCL FP_CONTRACT ON
  return a * b + c;
}
#else
static F NAME(F a, F b, F c) { return fma(a, b, c); }
#endif""",
    "maximum": """
static F NAME(F a, F b) {
  F larger = (a == b) ? as_F(as_I(a) & as_I(b)) : (a > b) ? a : b;
  return ((a != a) | (b != b)) ? a + b : larger;
}""",
    "minimum": """
static F NAME(F a, F b) {
  F smaller = (a == b) ? as_F(as_I(a) | as_I(b)) : (a < b) ? a : b;
  return ((a != a) | (b != b)) ? a + b : smaller;
}""",
    "maxnum": """
static F NAME(F a, F b) { return ((a > b) | (b != b)) ? a : b; }""",
    "minnum": """
static F NAME(F a, F b) { return ((a < b) | (b != b)) ? a : b; }""",
    "maximumnum": """
static F NAME(F a, F b) {
  F larger = (a == b) ? as_F(as_I(a) & as_I(b)) : ((a > b) | (b != b)) ? a : b;
  return larger;
}""",
    "minimumnum": """
static F NAME(F a, F b) {
  F smaller = (a == b) ? as_F(as_I(a) | as_I(b)) : ((a < b) | (b != b)) ? a : b;
  return smaller;
}""",
    "reverse": """
static U NAME(U x) {
  U result = 0;
  for (int i = 0; i < BITS; i++) result = (U)(result << 1) | ((U)(x >> i) & 1);
  return result;
}""",
}


class Support:
    """The functions that a program needs."""

    def __init__(self) -> None:
        self._functions: dict[str, str] = {}

    def of_lanes(self, name: str, width: int) -> str:
        """The name of a function on `width` lanes."""
        own = f"motet_{name}{sized('', width)}"
        text = _TEMPLATES[name].replace("NAME", own)
        own_cast = r"CONVERT(\1W, " if width > 1 else r"(\1)("
        text = re.sub(r"convert_([a-z]+)W\(", own_cast, text)
        self._functions[own] = re.sub(r"(?<=[a-z])W\b", sized("", width), text)
        return own

    def memory(self, kind: str) -> str:
        """The end of the names of macros that load and store `kind`, a vector, at the alignment of its elements."""
        element, width = kind.rstrip("0123456789"), kind.lstrip("abcdefghijklmnopqrstuvwxyz")
        self._functions[f"memory_{kind}"] = _MEMORY.replace("VECTOR", kind).replace("ELEMENT", element).replace(
            "WIDTH", width
        )
        return kind

    def of_floats(self, name: str, kind: str) -> str:
        """The name of a function on the type `kind`, such as `float8`."""
        base = kind.rstrip("0123456789")
        integers = _INTEGERS[base] + kind[len(base) :]
        text = _TEMPLATES[name].replace("NAME", f"motet_{name}_{kind}")
        for letter, own in (("F", kind), ("I", integers)):
            text = re.sub(rf"\b(as_)?{letter}\b", lambda use, own=own: (use[1] or "") + own, text)
        self._functions[f"motet_{name}_{kind}"] = text
        return f"motet_{name}_{kind}"

    def of_integers(self, name: str, kind: str, bits: int) -> str:
        """The name of a function on unsigned integers of the scalar type `kind`."""
        own = f"motet_{name}_{kind}"
        self._functions[own] = re.sub(r"\bU\b", kind, _TEMPLATES[name].replace("NAME", own)).replace("BITS", str(bits))
        return own

    @property
    def text(self) -> str:
        """The definitions, each once in a text of several programs."""
        return "\n".join(
            f"#ifndef HAS_{name}\n#define HAS_{name}\n{text.strip()}\n#endif" for name, text in self._functions.items()
        )
