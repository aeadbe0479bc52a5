"""Elementary functions on scalars and vectors of f32 and f64, written out in arithmetic.

Every function takes and returns a `Value` of type float, double, or a vector of either. Errors are in units in the last
place (ulp) over the whole range; infinities, NaN, signed zeros and subnormal numbers are handled as in IEEE 754 and C.

| function | f32 | f64 | source |
|---|---|---|---|
| exp, exp2, expm1 | ≤ 2 | ≤ 2 | Cody and Waite's reduction; minimax in f32 (expm1: Cephes' expf), Taylor's in f64 |
| log, log2, log10, log1p | ≤ 3 | ≤ 3 | FreeBSD msun's e_logf.c and e_log.c |
| tanh | ≤ 5 | ≤ 3 | Eigen's rational approximation in f32; by expm1 in f64 |
| erf | ≤ 6 | libm | XLA's rational approximation in f32 |
| sinh, cosh | ≤ 4 | ≤ 4 | by expm1 and exp |
| powf | ≤ 1 | libm | by log and exp in f64 |
| sqrt, rsqrt, floor, ceil, round, roundeven, trunc, absf, copysign, fma | as IEEE | as IEEE | instructions |

The others call the C library once per lane, in f32 by the names that end in `f`; the loader resolves those symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F16, F32, F64, I32, Builder
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes, Value, like, same_lanes, scalar_type

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

_LOG_F32 = (0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693)
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
    b = f.builder
    small = f.compare("<", x, 2.0 ** (-1022 if f.double else -126))
    shift = 54.0 if f.double else 25.0
    bits = f.as_bits(f.choose(small, f.mul(x, 2.0**shift), x))
    moved = b.sub(bits, f.whole(_SQRT_HALF_BITS[f.double]))
    k = b.sitofp(b.ashr(moved, f.whole(f.fraction)), f.kind)
    k = f.sub(k, f.choose(small, shift, 0.0))
    fraction = b.and_(moved, f.whole((1 << f.fraction) - 1))
    g = f.sub(f.as_number(b.add(fraction, f.whole(_SQRT_HALF_BITS[f.double]))), 1.0)
    s = f.div(g, f.add(g, 2.0))
    z = f.mul(s, s)
    series = f.mul(z, f.polynomial(z, _LOG_F64 if f.double else _LOG_F32))
    half_square = f.mul(f.mul(g, 0.5), g)
    return k, f.sub(g, f.sub(half_square, f.mul(s, f.add(half_square, series))))


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
    """log(u) + (x - (u - 1)) / u with u = 1 + x rounded."""
    f = FloatLanes(b, x.type)
    u = f.add(x, 1.0)
    y = log(b, u)
    corrected = f.add(y, f.div(f.sub(x, f.sub(u, 1.0)), u))
    regular = b.and_(f.compare(">", u, 0.0), f.compare("<", x, math.inf))
    y = f.choose(regular, corrected, y)
    return f.choose(f.compare("==", u, 1.0), x, y)


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
        return _by_libm(b, "erf", [x])
    limit = 3.7439211627767994
    limited = f.at_most(f.at_least(x, -limit), limit)
    square = f.mul(limited, limited)
    y = f.div(f.mul(limited, f.polynomial(square, _ERF_P)), f.polynomial(square, _ERF_Q))
    return f.choose(f.compare(">", f.magnitude(x), 3.92), f.with_sign(1.0, x), y)


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


def power(b: Builder, x: Value, y: Value) -> Value:
    """`x ** y` with the special cases of C's `pow`."""
    f = FloatLanes(b, x.type)
    if f.double:
        return _by_libm(b, "pow", [x, y])
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


def _by_libm(b: Builder, name: str, arguments: Sequence[Value]) -> Value:
    kind = arguments[0].type
    symbol = name if scalar_type(kind) == F64 else f"{name}f"
    if not isinstance(kind, ir.VectorType):
        return b.intrinsic(symbol, kind, arguments)
    result: Value = ir.Constant(kind, ir.Undefined)
    for lane in range(kind.count):
        at = ir.Constant(I32, lane)
        scalars = [b.extract_element(argument, at) for argument in arguments]
        result = b.insert_element(result, b.intrinsic(symbol, kind.element, scalars), at)
    return result


def _libm_unary(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: _by_libm(b, name, [x])


def _intrinsic_unary(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: FloatLanes(b, x.type).call(name, x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    return _by_libm(b, "atan2", [y, x])


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """C's `fmod`; for f16 by f32, which represents every f16 exactly and the exact result as well."""
    if scalar_type(x.type) == F16:
        wide = same_lanes(x.type, F32)
        return b.fptrunc(_by_libm(b, "fmod", [b.fpext(x, wide), b.fpext(y, wide)]), x.type)
    return _by_libm(b, "fmod", [x, y])


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
    "sinh": sinh,
    "cosh": cosh,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    **{
        name: _libm_unary(name)
        for name in ("sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt", "erfc")
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
