"""Elementary functions on scalars and vectors of f32 and f64, written out in arithmetic.

Every function takes and returns a `Value` of type float, double, or a vector of either. Errors are in units in the last
place (ulp) over the whole range; infinities, NaN, signed zeros and subnormal numbers are handled as in IEEE 754 and C.

| function | f32 | f64 | source |
|---|---|---|---|
| exp, exp2, expm1 | ≤ 2 | ≤ 2 | Cody and Waite's reduction; minimax in f32 (expm1: Cephes' expf), Taylor's in f64 |
| log, log2, log10, log1p | ≤ 3 | ≤ 3 | Cephes' logf; FreeBSD msun's e_log.c |
| tanh | ≤ 5 | ≤ 3 | Eigen's rational approximation in f32; by expm1 in f64 |
| erf | ≤ 6 | ≤ 3 | XLA's rational approximation in f32; Cephes' ndtr in f64 |
| sin, cos | ≤ 2 | ≤ 2 | see `trigonometry.py` |
| sinh, cosh | ≤ 4 | ≤ 4 | by expm1 and exp |
| powf | ≤ 1 | libm | by log and exp in f64 |
| sqrt, rsqrt, floor, ceil, round, roundeven, trunc, absf, copysign, fma | as IEEE | as IEEE | instructions |

The others call the C library (`libm.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F16, F32, F64, Builder
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes, Value, like, same_lanes, scalar_type
from motet.compiler.codegen.cpu.emit.libm import by_libm
from motet.compiler.codegen.cpu.emit.trigonometry import cos, sin

# -- exponentials ----------------------------------------------------------------------------------

_LOG2E = 1.4426950408889634
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
_LN2_F32 = (0.693359375, -2.12194440e-4)  # two parts, so that n times the first is exact
_LN2_F64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_LOG10_2_F32 = (0.30102920532, 7.9034151668e-07)
_LOG10_2_F64 = (3.01029995663611771306e-01, 3.69423907715893078616e-13)
_EXP_F64 = tuple(1.0 / math.factorial(n) for n in range(13, 1, -1))


def _exp_core(f: FloatLanes, r: Value) -> Value:
    """`exp(r) - 1` for |r| ≤ ln 2 / 2."""
    p = f.polynomial(r, _EXP_F64 if f.double else _EXP_F32)
    return f.fma(p, f.mul(r, r), r)


def _exp_whole(f: FloatLanes, r: Value) -> Value:
    """`exp(r)` for |r| ≤ ln 2 / 2."""
    return f.add(_exp_core(f, r), 1.0) if f.double else f.polynomial(r, _EXP_WHOLE_F32)


def _reduce(f: FloatLanes, x: Value) -> tuple[Value, Value, Value]:
    """`r`, `n` and the exponent bits of `n` with `x = n ln 2 + r`."""
    n, exponent = f.split(x, _LOG2E)
    high, low = _LN2_F64 if f.double else _LN2_F32
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
    r, n, exponent = _reduce(f, x)
    return f.scale(_exp_whole(f, r), n, exponent, kept)


def exp2(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    x, kept = _within(f, x, *((-1076.0, 1025.0) if f.double else (-151.0, 129.0)))
    n, exponent = f.split(x, 1.0)
    return f.scale(_exp_whole(f, f.mul(f.sub(x, n), _LN2)), n, exponent, kept)


def expm1(b: Builder, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1), with half of 2^n so that it does not overflow before the result does."""
    f = FloatLanes(b, x.type)
    limited = f.at_most(f.at_least(x, -40.0 if f.double else -20.0), 710.0 if f.double else 89.0)
    r, _, exponent = _reduce(f, limited)
    half = f.as_number(b.add(exponent, f.whole((f.bias - 1) << f.fraction)))
    result = f.fma(_exp_core(f, r), half, f.sub(half, 0.5))
    return f.with_sign(f.add(result, result), x)


# -- logarithms ------------------------------------------------------------------------------------

_LOG_F32 = (  # log(1 + g) = g - g² / 2 + g³ p(g)
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LOG_F64 = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)
_SQRT_HALF_BITS = {False: 0x3F3504F3, True: 0x3FE6A09E667F3BCD}


def _log_core(f: FloatLanes, x: Value) -> tuple[Value, Value]:
    """`k` and `log(m)` with `x = 2^k m`, `m` in [√½, √2), for positive finite `x`."""
    small = f.compare("<", x, 2.0 ** (-1022 if f.double else -126))
    shift = 54.0 if f.double else 25.0
    moved, g = _halved(f, f.choose(small, f.mul(x, 2.0**shift), x))
    k = f.builder.sitofp(f.builder.ashr(moved, f.whole(f.fraction)), f.kind)
    return f.sub(k, f.choose(small, shift, 0.0)), _log_near_one(f, g)


def _halved(f: FloatLanes, x: Value) -> tuple[Value, Value]:
    """Bits whose exponent is `k`, and `g`, with `x = 2^k (1 + g)` and `1 + g` in [√½, √2), for normal `x`."""
    b = f.builder
    moved = b.sub(f.as_bits(x), f.whole(_SQRT_HALF_BITS[f.double]))
    fraction = b.and_(moved, f.whole((1 << f.fraction) - 1))
    return moved, f.sub(f.as_number(b.add(fraction, f.whole(_SQRT_HALF_BITS[f.double]))), 1.0)


def _log_near_one(f: FloatLanes, g: Value) -> Value:
    """log(1 + g) for `1 + g` in [√½, √2)."""
    if not f.double:
        square = f.mul(g, g)
        return f.add(g, f.fma(square, -0.5, f.mul(f.mul(square, g), f.polynomial(g, _LOG_F32))))
    s = f.div(g, f.add(g, 2.0))
    z = f.mul(s, s)
    half_square = f.mul(f.mul(g, 0.5), g)
    return f.sub(g, f.sub(half_square, f.mul(s, f.fma(z, f.polynomial(z, _LOG_F64), half_square))))


def _log_edges(f: FloatLanes, x: Value, y: Value) -> Value:
    y = f.choose(f.compare("==", x, math.inf), math.inf, y)
    y = f.choose(f.compare("==", x, 0.0), -math.inf, y)
    return f.choose(f.compare(">=", x, 0.0), y, math.nan)


def _log_base(b: Builder, x: Value, factor: float, k_high: float, k_low: float) -> Value:
    f = FloatLanes(b, x.type)
    k, m = _log_core(f, x)
    y = f.fma(k, k_high, f.fma(m, factor, f.mul(k, k_low)))
    return _log_edges(f, x, y)


def log(b: Builder, x: Value) -> Value:
    high, low = _LN2_F64 if scalar_type(x.type) == F64 else _LN2_F32
    return _log_base(b, x, 1.0, high, low)


def log2(b: Builder, x: Value) -> Value:
    return _log_base(b, x, _LOG2E, 1.0, 0.0)


def log10(b: Builder, x: Value) -> Value:
    high, low = _LOG10_2_F64 if scalar_type(x.type) == F64 else _LOG10_2_F32
    return _log_base(b, x, 1 / math.log(10), high, low)


def log1p(b: Builder, x: Value) -> Value:
    """k ln 2 + log(1 + g) with 1 + x = 2^k (1 + g). What rounding 1 + x drops is added to g. From 2^60 on it is 0, where
    2^-k would be subnormal."""
    f = FloatLanes(b, x.type)
    u = f.add(x, 1.0)
    moved, g = _halved(f, u)
    exponent = b.ashr(moved, f.whole(f.fraction))
    bounded = b.select(b.icmp_signed("<", exponent, f.whole(60)), exponent, f.whole(60))
    unit = f.as_number(b.shl(b.sub(f.whole(f.bias), bounded), f.whole(f.fraction)))
    k = b.sitofp(exponent, f.kind)
    high, low = _LN2_F64 if f.double else _LN2_F32
    g = f.fma(f.sub(x, f.sub(u, 1.0)), unit, g)
    y = f.fma(k, high, f.fma(k, low, _log_near_one(f, g)))
    y = f.choose(f.compare("==", u, 1.0), x, y)
    y = f.choose(f.compare("<", x, math.inf), y, x)
    return f.choose(f.compare(">", x, -1.0), y, f.choose(f.compare("==", x, -1.0), -math.inf, math.nan))


# -- hyperbolic functions and the error function ---------------------------------------------------

_TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_P = (
    0.00022905065861350646,
    0.0034082910107109506,
    0.050955695062380861,
    0.18520832239976145,
    1.128379143519084,
)
_ERF_Q = (
    -1.1791602954361697e-7,
    0.000023547966471313185,
    0.0010179625278914885,
    0.014070470171167667,
    0.11098505178285362,
    0.49746925110067538,
    1.0,
)

_ERF_NEAR_P = (  # erf(x) = x p(x²) / q(x²) for |x| ≤ 1
    9.60497373987051638749,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_ERF_NEAR_Q = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_ERF_FAR_P = (  # erfc(x) = exp(-x²) p(x) / q(x) for 1 ≤ x ≤ 8
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_ERF_FAR_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)


def tanh(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    if f.double:
        twice = f.at_most(f.mul(f.magnitude(x), 2.0), 60.0)
        t = expm1(b, twice)
        return f.with_sign(f.div(t, f.add(t, 2.0)), x)
    limit = 7.90531110763549805
    limited = f.at_most(f.at_least(x, -limit), limit)
    square = f.mul(limited, limited)
    y = f.div(f.mul(limited, f.polynomial(square, _TANH_P)), f.polynomial(square, _TANH_Q))
    size = f.magnitude(x)
    y = f.choose(f.compare("<", size, 4e-4), x, y)
    return f.choose(f.compare(">", size, 9.01), f.with_sign(1.0, x), y)


def erf(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    if f.double:
        return _erf_f64(f, x)
    limit = 3.7439211627767994
    limited = f.at_most(f.at_least(x, -limit), limit)
    square = f.mul(limited, limited)
    y = f.div(f.mul(limited, f.polynomial(square, _ERF_P)), f.polynomial(square, _ERF_Q))
    return f.choose(f.compare(">", f.magnitude(x), 3.92), f.with_sign(1.0, x), y)


def _erf_f64(f: FloatLanes, x: Value) -> Value:
    """x p(x²) / q(x²) up to 1, then 1 - exp(-x²) p(x) / q(x). One division serves both."""
    b = f.builder
    size = f.at_most(f.magnitude(x), 6.0)  # erf of any larger number is 1
    square = f.mul(size, size)
    r, _, exponent = _reduce(f, b.fneg(square))
    power = f.as_number(b.add(f.as_bits(_exp_whole(f, r)), exponent))  # at least exp(-36), which is normal
    near = f.compare("<", size, 1.0)
    above = f.choose(
        near, f.mul(size, f.polynomial(square, _ERF_NEAR_P)), f.mul(power, f.polynomial(size, _ERF_FAR_P))
    )
    below = f.choose(near, f.polynomial(square, _ERF_NEAR_Q), f.polynomial(size, _ERF_FAR_Q))
    y = f.div(above, below)
    return f.with_sign(f.choose(near, y, f.sub(1.0, y)), x)


def sinh(b: Builder, x: Value) -> Value:
    """(t + t / (t + 1)) / 2 with t = e^|x| - 1; near the overflow of e^|x|, e^(|x|/2) squared over two."""
    f = FloatLanes(b, x.type)
    size = f.magnitude(x)
    t = expm1(b, size)
    y = f.mul(f.add(t, f.div(t, f.add(t, 1.0))), 0.5)
    root = exp(b, f.mul(size, 0.5))
    y = f.choose(f.compare(">", size, 709.0 if f.double else 88.0), f.mul(f.mul(root, 0.5), root), y)
    return f.with_sign(y, x)


def cosh(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    size = f.magnitude(x)
    e = exp(b, size)
    y = f.fma(e, 0.5, f.div(0.5, e))
    root = exp(b, f.mul(size, 0.5))
    return f.choose(f.compare(">", size, 709.0 if f.double else 88.0), f.mul(f.mul(root, 0.5), root), y)


# -- powers and roots ------------------------------------------------------------------------------


def sqrt(b: Builder, x: Value) -> Value:
    return FloatLanes(b, x.type).call("sqrt", x)


def rsqrt(b: Builder, x: Value) -> Value:
    f = FloatLanes(b, x.type)
    return f.div(1.0, f.call("sqrt", x))


def divide_by_number(b: Builder, x: Value, divisor: Value, number: float) -> Value:
    """`x / number`. In vectors of f32 and f64: the product with the reciprocal, corrected by its remainder, which is the
    rounded quotient (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
    Quotients whose remainder is 0
    or not finite need no correction; if it is subnormal, the error is at most 1 ulp."""
    if not isinstance(x.type, ir.VectorType) or scalar_type(x.type) == F16 or not 1e-30 < abs(number) < 1e30:
        return b.fdiv(x, divisor)
    if math.frexp(number)[0] in (0.5, -0.5):
        return b.fdiv(x, divisor)  # LLVM multiplies by the power of two
    f = FloatLanes(b, x.type)
    kind = np.float64 if f.double else np.float32
    reciprocal = f.number(float(kind(1) / kind(number)))
    quotient = f.mul(x, reciprocal)
    rest = f.fma(quotient, b.fneg(divisor), x)
    infinite = (2 * f.bias + 1) << f.fraction
    finite = b.icmp_unsigned("<", b.sub(f.as_bits(f.magnitude(rest)), f.whole(1)), f.whole(infinite - 1))
    return b.select(finite, f.fma(rest, reciprocal, quotient), quotient)


def power(b: Builder, x: Value, y: Value) -> Value:
    """`x ** y` with the special cases of C's `pow`."""
    f = FloatLanes(b, x.type)
    if f.double:
        return by_libm(b, "pow", [x, y])
    wide = FloatLanes(b, same_lanes(x.type, F64))
    base = b.fpext(f.magnitude(x), wide.kind)
    product = wide.mul(b.fpext(y, wide.kind), log(b, base))
    result = b.fptrunc(exp(b, product), f.kind)
    whole: Value = f.compare("==", f.call("trunc", y), y)
    half = f.mul(y, 0.5)
    odd = b.and_(whole, b.fcmp_ordered("!=", f.call("trunc", half), half))
    negative = b.icmp_signed("<", f.as_bits(x), f.whole(0))
    result = f.choose(b.and_(negative, odd), b.fneg(result), result)
    finite_negative = b.and_(f.compare("<", x, 0.0), f.compare(">", x, -math.inf))
    infinite = f.compare("==", f.magnitude(y), math.inf)
    defined: Value = b.or_(whole, infinite)
    invalid = b.select(finite_negative, b.xor(defined, like(defined.type, 1)), like(defined.type, 0))
    result = f.choose(invalid, math.nan, result)
    one: Value = b.or_(f.compare("==", x, 1.0), f.compare("==", y, 0.0))
    one = b.or_(one, b.and_(f.compare("==", x, -1.0), infinite))
    return f.choose(one, 1.0, result)


def power_constant(b: Builder, x: Value, y: float) -> Value | None:
    """`x ** y` for an exponent that needs no logarithm; None for other exponents."""
    f = FloatLanes(b, x.type)
    if y == 0.5:
        root = f.magnitude(f.call("sqrt", x))
        return f.choose(f.compare("==", x, -math.inf), math.inf, root)
    if not 1 <= abs(y) <= 4 or y != int(y):
        return None
    result = x if abs(y) == 1 else f.mul(x, x)
    if abs(y) == 3:
        result = f.mul(result, x)
    elif abs(y) == 4:
        result = f.mul(result, result)
    return result if y > 0 else f.div(1.0, result)


# -- the C library ---------------------------------------------------------------------------------


def _libm_unary(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: by_libm(b, name, [x])


def _intrinsic_unary(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: FloatLanes(b, x.type).call(name, x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    return by_libm(b, "atan2", [y, x])


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """C's `fmod`; for f16 by f32, which represents every f16 exactly and the exact result as well."""
    if scalar_type(x.type) == F16:
        wide = same_lanes(x.type, F32)
        return b.fptrunc(by_libm(b, "fmod", [b.fpext(x, wide), b.fpext(y, wide)]), x.type)
    return by_libm(b, "fmod", [x, y])


UNARY: dict[str, Callable[[Builder, Value], Value]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "sinh": sinh,
    "cosh": cosh,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    **{
        name: _libm_unary(name)
        for name in ("tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt", "erfc")
    },
    **{
        name: _intrinsic_unary(llvm)
        for name, llvm in (
            ("absf", "fabs"),
            ("floor", "floor"),
            ("ceil", "ceil"),
            ("round", "round"),
            ("roundeven", "roundeven"),
            ("trunc", "trunc"),
        )
    },
}
"""The functions of one operand by their names in MLIR's `math` dialect; f32 and f64."""
