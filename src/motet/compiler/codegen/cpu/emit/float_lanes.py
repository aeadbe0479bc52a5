"""Arithmetic on scalars and vectors of one floating-point type, for writing elementary functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F64, I32, I64, Builder, Splat, type_suffix

Value = Any
"""An `ir.Value`; llvmlite does not declare types for the values of its builders."""


def like(kind: Any, value: float | int) -> ir.Constant:
    """`value` as a constant of `kind`, a scalar or a vector."""
    return (Splat if isinstance(kind, ir.VectorType) else ir.Constant)(kind, value)


def scalar_type(kind: Any) -> Any:
    return kind.element if isinstance(kind, ir.VectorType) else kind


def same_lanes(kind: Any, element: Any) -> Any:
    """`element` in as many lanes as `kind` has."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


class FloatLanes:
    """Arithmetic on one floating-point type: constants are Python numbers; integers have the float's width."""

    def __init__(self, builder: Builder, kind: ir.Type) -> None:
        self.builder = builder
        self.kind = kind
        self.double = scalar_type(kind) == F64
        self.bits = same_lanes(kind, I64 if self.double else I32)
        self.fraction = 52 if self.double else 23
        self.bias = 1023 if self.double else 127

    def number(self, value: Value | float) -> Value:
        return like(self.kind, float(value)) if isinstance(value, (float, int)) else value

    def whole(self, value: Value | int) -> Value:
        return like(self.bits, value) if isinstance(value, int) else value

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self.builder.fadd(self.number(a), self.number(b))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self.builder.fsub(self.number(a), self.number(b))

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self.builder.fmul(self.number(a), self.number(b))

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self.builder.fdiv(self.number(a), self.number(b))

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        return self.builder.multiply_add(self.number(a), self.number(b), self.number(c))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluate a polynomial by Horner's rule; coefficients are in descending powers."""
        result = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        return result

    def at_least(self, x: Value, low: float) -> Value:
        """The maximum of `x` and `low`; NaN if `x` is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", self.number(low), x), self.number(low), x)

    def at_most(self, x: Value, high: float) -> Value:
        return self.builder.select(self.builder.fcmp_ordered("<", self.number(high), x), self.number(high), x)

    def compare(self, predicate: str, a: Value | float, b: Value | float) -> Value:
        return self.builder.fcmp_ordered(predicate, self.number(a), self.number(b))

    def choose(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        return self.builder.select(condition, self.number(a), self.number(b))

    def as_bits(self, x: Value) -> Value:
        return self.builder.bitcast(x, self.bits)

    def as_number(self, bits: Value) -> Value:
        return self.builder.bitcast(bits, self.kind)

    def call(self, name: str, *arguments: Value) -> Value:
        return self.builder.intrinsic(f"llvm.{name}.{type_suffix(self.kind)}", self.kind, arguments)

    def magnitude(self, x: Value) -> Value:
        return self.call("fabs", x)

    def with_sign(self, x: Value | float, sign: Value) -> Value:
        return self.call("copysign", self.number(x), sign)

    def split(self, x: Value, scale: float) -> tuple[Value, Value]:
        """`n`, the integer nearest to `x * scale`, as a float, and as bits shifted to the position of the exponent.

        Adding 1.5 * 2^fraction leaves `n` in the low bits of the sum; shifting drops the rest.
        """
        magic = 1.5 * 2.0**self.fraction
        shifted = self.fma(x, scale, magic)
        exponent = self.builder.shl(self.as_bits(shifted), self.whole(self.fraction))
        return self.sub(shifted, magic), exponent

    @property
    def scales(self) -> bool:
        """Whether `scale` is a single instruction."""
        vector = isinstance(self.kind, ir.VectorType) and self.kind.count == (8 if self.double else 16)
        return vector and self.builder.scales

    def scale(self, x: Value, n: Value, exponent: Value, kept: Value) -> Value:
        """`x * 2^n` if `kept`, else 0; `n` and `exponent` are from `split`. Without the instruction, scale in two
        steps, since 2^n itself may overflow or be subnormal."""
        b = self.builder
        if self.scales:
            kind, lanes = ("pd", 8) if self.double else ("ps", 16)
            mask = b.bitcast(kept, ir.IntType(lanes))
            rest = [ir.Constant(self.kind, None), mask, ir.Constant(I32, 4)]
            return b.intrinsic(f"llvm.x86.avx512.mask.scalef.{kind}.512", self.kind, [x, n, *rest])
        half = b.and_(b.ashr(exponent, self.whole(1)), self.whole(-1 << self.fraction))
        one = self.whole(self.bias << self.fraction)
        rest = b.add(b.sub(exponent, half), one)
        scaled = b.fmul(b.fmul(x, self.as_number(b.add(half, one))), self.as_number(rest))
        return self.choose(kept, scaled, 0.0)
