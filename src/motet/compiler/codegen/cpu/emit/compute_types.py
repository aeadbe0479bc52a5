"""The types in which values are stored and in which they are computed with.

| dtype | in memory | computed with |
|---|---|---|
| i1 | i8, 0 or 1 | i1 |
| i8 … i64, ui8 … ui64, index | the same width | the same width |
| f16, f32, f64 | half, float, double | the same |
| bf16 | i16 | float, rounded to bf16 (to nearest, ties to even) after every operation |

A computed value is a scalar or a vector of `lanes`.
"""

from __future__ import annotations

import struct
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F16, F32, F64, I1, I8, I16, I32, I64, Builder, Splat
from motet.compiler.codegen.cpu.emit.float_lanes import Value, like, same_lanes, scalar_type
from motet.compiler.kernels.kernel import ITEM_BITS


class Unsupported(Exception):
    """This generator has no code for the kernel; `emit` functions then return None."""


FLOATS = ("f16", "bf16", "f32", "f64")
_STORAGE: dict[str, Any] = {"i1": I8, "bf16": I16, "f16": F16, "f32": F32, "f64": F64}
_CARRIED: dict[str, Any] = {"i1": I1, "bf16": F32, "f16": F16, "f32": F32, "f64": F64}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def storage_type(dtype: str) -> Any:
    """The LLVM type of one element of `dtype` in memory."""
    return _STORAGE.get(dtype) or _integer_type(dtype)


def carried_type(dtype: str, lanes: int = 1) -> Any:
    """The LLVM type in which bodies compute with `dtype`."""
    kind = _CARRIED.get(dtype) or _integer_type(dtype)
    return ir.VectorType(kind, lanes) if lanes > 1 else kind


def _integer_type(dtype: str) -> Any:
    if dtype.startswith("f") or dtype not in ITEM_BITS:
        raise Unsupported(f"dtype {dtype}")
    return ir.IntType(ITEM_BITS[dtype])


def from_storage(b: Builder, value: Value, dtype: str) -> Value:
    """Convert a loaded value of `dtype` to the type computed with."""
    if dtype == "i1":
        return b.icmp_unsigned("!=", value, like(value.type, 0))
    if dtype == "bf16":
        bits = b.shl(b.zext(value, same_lanes(value.type, I32)), like(same_lanes(value.type, I32), 16))
        return b.bitcast(bits, same_lanes(value.type, F32))
    return value


def to_storage(b: Builder, value: Value, dtype: str) -> Value:
    """Convert a computed value to its type in memory. A bf16 value needs no rounding: every operation rounds."""
    if dtype == "i1":
        return b.zext(value, same_lanes(value.type, I8))
    if dtype == "bf16":
        bits: Value = b.bitcast(value, same_lanes(value.type, I32))
        return b.trunc(b.lshr(bits, like(bits.type, 16)), same_lanes(value.type, I16))
    return value


def round_bf16(b: Builder, value: Value) -> Value:
    """Round a float to the nearest bf16, ties to even; NaN stays NaN."""
    bits: Value = b.bitcast(value, same_lanes(value.type, I32))
    kind = bits.type
    odd = b.and_(b.lshr(bits, like(kind, 16)), like(kind, 1))
    rounded = b.add(bits, b.add(odd, like(kind, 0x7FFF)))
    quiet = b.or_(bits, like(kind, 0x400000))
    chosen = b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)
    return b.bitcast(b.and_(chosen, like(kind, -0x10000)), value.type)


def round_to_odd(b: Builder, value: Value) -> Value:
    """A double as a float: if it is none, that of the two next to it whose last bit is 1, so that rounding the result
    again is as rounding the double once (Boldo and Melquiond, "When double rounding is odd", 2005)."""
    near = b.fptrunc(value, same_lanes(value.type, F32))
    back = b.fpext(near, value.type)
    bits: Value = b.bitcast(near, same_lanes(value.type, I32))
    words = [b.bitcast(each, same_lanes(value.type, I64)) for each in (back, value)]
    sizes = [b.and_(word, like(word.type, (1 << 63) - 1)) for word in words]
    beyond = b.icmp_unsigned(">", sizes[0], sizes[1])
    even = b.icmp_unsigned("==", b.and_(bits, like(bits.type, 1)), like(bits.type, 0))
    moves = b.and_(b.fcmp_ordered("!=", back, value), even)
    moved = b.add(bits, b.select(beyond, like(bits.type, -1), like(bits.type, 1)))
    return b.bitcast(b.select(moves, moved, bits), near.type)


def constant(dtype: str, value: float | int, lanes: int = 1) -> ir.Constant:
    """`value`, rounded to `dtype`, as a constant of the type computed with."""
    kind = carried_type(dtype, lanes)
    if not is_float(dtype):
        bits = scalar_type(kind).width
        number = int(value) & ((1 << bits) - 1)
        return like(kind, number - (1 << bits) if bits > 1 and number >> (bits - 1) else number)
    return like(kind, _rounded(dtype, float(value)))


def _rounded(dtype: str, value: float) -> float:
    if dtype == "f64" or value != value:
        return value
    try:
        if dtype == "f16":
            return struct.unpack("<e", struct.pack("<e", value))[0]
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    if dtype == "bf16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def widen(b: Builder, value: Value, lanes: int) -> Value:
    """Broadcast `value` to `lanes` if it is a scalar."""
    if lanes == 1 or isinstance(value.type, ir.VectorType):
        return value
    if isinstance(value, ir.Constant) and not isinstance(value.constant, str):
        return Splat(ir.VectorType(value.type, lanes), value.constant)
    return b.splat(value, lanes)
