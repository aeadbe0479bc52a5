"""Rounds floats to bytes as QuantizeLinear does, in fewer instructions than its operations take one by one.

    fptoui(min(max(roundeven(x) + zero, low), high))
        →   trunc(bits of (min(max(x, low - zero), high - zero) + 1.5·2²³)) + zero

The bounds are integers, so that clamping first does not change what is rounded. Adding 1.5·2²³ rounds to the nearest
integer, ties to even, and leaves it in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I32, Builder
from motet.compiler.codegen.cpu.emit.compute_types import constant
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.kernels.kernel import Scalar

_SHIFT = 12582912.0  # 1.5·2²³: the distance of floats around it is 1, and its last eight bits are 0
_MOST = 1 << 20
_CONVERSIONS = ("arith.fptosi", "arith.fptoui")
_GREATEST, _LEAST = ("arith.maximumf", "arith.maxnumf"), ("arith.minimumf", "arith.minnumf")


@dataclass(frozen=True)
class Rounding:
    """Value `source` of a body, rounded and clamped to integers from `low` to `high`, to which `zero` is added."""

    source: int
    low: int
    high: int
    zero: int


def match_rounding(body: Sequence[Scalar], inputs: int, number: int) -> Rounding | None:
    """Value `number` of a body as such a byte; None if it is something else."""
    bounds: dict[str, float] = {}
    last = body[number - inputs]
    if last.op not in _CONVERSIONS or last.dtype not in ("i8", "ui8"):
        return None
    at, op = _operation(body, inputs, last.operands[0])
    while op is not None and op.op in (*_GREATEST, *_LEAST):
        kind = "low" if op.op in _GREATEST else "high"
        at, bound = _with_constant(body, inputs, op)
        if bound is None or kind in bounds:
            return None
        bounds[kind] = bound
        at, op = _operation(body, inputs, at)
    zero = 0.0
    if op is not None and op.op == "arith.addf":
        at, added = _with_constant(body, inputs, op)
        if added is None:
            return None
        zero = added
        at, op = _operation(body, inputs, at)
    if op is None or op.op != "math.roundeven" or op.dtype != "f32" or len(bounds) != 2:
        return None
    numbers = [bounds["low"] - zero, bounds["high"] - zero, zero]
    if any(not float(each).is_integer() or abs(each) > _MOST for each in numbers):
        return None
    if bounds["low"] > bounds["high"] or not all(-128 <= bounds[kind] <= 255 for kind in bounds):
        return None
    low, high, added = (int(each) for each in numbers)
    return Rounding(op.operands[0], low, high, added)


def _operation(body: Sequence[Scalar], inputs: int, number: int) -> tuple[int, Scalar | None]:
    return number, body[number - inputs] if number >= inputs else None


def _with_constant(body: Sequence[Scalar], inputs: int, op: Scalar) -> tuple[int, float | None]:
    """The operand of a commutative operation that is no constant, and the constant; None if there is none."""
    first, second = op.operands
    for value, other in ((first, second), (second, first)):
        _, made = _operation(body, inputs, other)
        if made is not None and made.op == "arith.constant" and isinstance(made.value, int | float):
            return value, float(made.value)
    return first, None


def emit_rounding(b: Builder, what: Rounding, value: Value) -> Value:
    """The byte of the f32 `value`."""
    lanes = value.type.count if isinstance(value.type, ir.VectorType) else 1
    low, high, shift = (constant("f32", float(each), lanes) for each in (what.low, what.high, _SHIFT))
    value = b.select(b.fcmp_ordered(">", value, low), value, low)
    value = b.select(b.fcmp_ordered("<", value, high), value, high)
    bits = b.bitcast(b.fadd(value, shift), _of(I32, lanes))
    byte = b.trunc(bits, _of(I8, lanes))
    return b.add(byte, constant("i8", (what.zero + 128) % 256 - 128, lanes)) if what.zero else byte


def _of(element: ir.Type, lanes: int) -> ir.Type:
    return element if lanes == 1 else ir.VectorType(element, lanes)
