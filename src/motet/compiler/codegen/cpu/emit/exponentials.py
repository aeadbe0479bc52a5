"""Exponentials of scalars and vectors of f32 and f64; `vector_math.py` has their errors and sources."""

from __future__ import annotations

import math

from motet.compiler.codegen.cpu.emit.builder import Builder
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes, Value

LOG2E = 1.4426950408889634
_LN2 = math.log(2)
_EXP_F32 = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP_WHOLE_F32 = (  # 1 + r + r² p(r), p by Lawson's reweighted least squares: relative error 3.1e-9
    1.3814539989732667e-3,
    8.368745116358853e-3,
    4.166839078735146e-2,
    1.6666520396198953e-1,
    4.99999934321106e-1,
    1.0,
    1.0,
)
LN2_F32 = (0.693359375, -2.12194440e-4)  # two parts, so that n times the first is exact
LN2_F64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_EXP_F64 = tuple(1.0 / math.factorial(n) for n in range(13, 1, -1))


def exp_core(f: FloatLanes, r: Value) -> Value:
    """`exp(r) - 1` for |r| ≤ ln 2 / 2."""
    p = f.polynomial(r, _EXP_F64 if f.double else _EXP_F32)
    return f.fma(p, f.mul(r, r), r)


def exp_whole(f: FloatLanes, r: Value) -> Value:
    """`exp(r)` for |r| ≤ ln 2 / 2."""
    return f.add(exp_core(f, r), 1.0) if f.double else f.polynomial(r, _EXP_WHOLE_F32)


def reduce(f: FloatLanes, x: Value) -> tuple[Value, Value, Value]:
    """`r`, `n` and the exponent bits of `n` with `x = n ln 2 + r`."""
    n, exponent = f.split(x, LOG2E)
    high, low = LN2_F64 if f.double else LN2_F32
    return f.fma(n, -low, f.fma(n, -high, x)), n, exponent


def _within(f: FloatLanes, x: Value, low: float, high: float) -> tuple[Value, Value]:
    """`x` limited to exponents with a finite power, and whether the power is not 0. Powers that are 0 are not computed:
    arithmetic with a subnormal result is a hundred times slower, and masks make whole rows of such powers."""
    kept = f.builder.fcmp_unordered(">=", x, f.number(low))
    x = f.at_most(x, high)
    return (x if f.scales else f.choose(kept, x, 0.0)), kept


def exp(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    x, kept = _within(f, x, *((-746.0, 710.0) if f.double else (-104.0, 89.0)))
    r, n, exponent = reduce(f, x)
    return f.scale(exp_whole(f, r), n, exponent, kept)


def exp2(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    x, kept = _within(f, x, *((-1076.0, 1025.0) if f.double else (-151.0, 129.0)))
    n, exponent = f.split(x, 1.0)
    return f.scale(exp_whole(f, f.mul(f.sub(x, n), _LN2)), n, exponent, kept)


def expm1(b: Builder, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1), with half of 2^n so that it does not overflow before the result does."""
    f = FloatLanes(b, x.type)
    limited = f.at_most(f.at_least(x, -40.0 if f.double else -20.0), 710.0 if f.double else 89.0)
    r, _, exponent = reduce(f, limited)
    half = f.as_number(b.add(exponent, f.whole((f.bias - 1) << f.fraction)))
    result = f.fma(exp_core(f, r), half, f.sub(half, 0.5))
    return f.with_sign(f.add(result, result), x)
