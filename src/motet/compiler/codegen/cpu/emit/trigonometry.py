"""Sine and cosine in vectors of f32 and f64.

x = n π/2 + r with |r| ≤ π/4, where π/2 is the sum of three numbers and fused multiplications subtract n times each
(Cody and Waite; the first difference is exact). The rest is a polynomial in r (f32: Cephes' sinf; f64: FreeBSD msun's
k_sin.c and k_cos.c, which take r as a sum of two numbers). Vectors with a larger |x| than `_LIMIT` call the C library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I1, Builder
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes, Value
from motet.compiler.codegen.cpu.emit.libm import by_libm

_HALF_PI = {
    False: (1.57079601287841796875, 3.1391647326017846e-7, 5.390302529957765e-15),
    True: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
_LIMIT = {False: 1e5, True: 4e6}
_SIN_F32 = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS_F32 = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SIN_F64 = (
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
)
_SIN_CUBE_F64 = -1.66666666666666324348e-01
_COS_F64 = (
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
)


def sin(b: Builder, x: Value) -> Value:
    return _where_small(b, "sin", x, 0)


def cos(b: Builder, x: Value) -> Value:
    return _where_small(b, "cos", x, 1)


def _where_small(b: Builder, name: str, x: Value, quarters: int) -> Value:
    """The sine of x + `quarters` π/2 where |x| is within the limit; `name` is its name in the C library. A sine and a
    cosine of one number, one after the other, share the reduction and the series."""
    f = FloatLanes(b, x.type)
    known = b.last_angle
    shared = known[2] if known is not None and known[0] is x and known[1] is b.block else _angle(f, x)
    large, *angle = shared
    result = _shifted_sine(f, x, angle, quarters)
    before = b.block
    called, joined = (b.append_basic_block(label) for label in ("called", "joined"))
    b.cbranch(large, called, joined)
    b.position_at_end(called)
    from_library = by_libm(b, name, [x])
    b.branch(joined)
    b.position_at_end(joined)
    phi = b.phi(x.type)
    phi.add_incoming(from_library, called)
    phi.add_incoming(result, before)
    b.last_angle = x, joined, shared
    return phi


def _angle(f: FloatLanes, x: Value) -> tuple[Value, ...]:
    """Whether a lane of x is beyond the limit, n in the low bits of a number, and the sine and the cosine of r."""
    b = f.builder
    large: Value = f.compare(">", f.magnitude(x), _LIMIT[f.double])
    if isinstance(large.type, ir.VectorType):
        large = b.intrinsic(f"llvm.vector.reduce.or.v{large.type.count}i1", I1, [large])
    magic = 1.5 * 2.0**f.fraction
    shifted = f.fma(x, 2 / math.pi, magic)
    n = f.sub(shifted, magic)
    high, middle, low = _HALF_PI[f.double]
    r = f.fma(n, -high, x)
    sine, cosine = _series_f64(f, r, n, middle, low) if f.double else _series_f32(f, r, n, middle, low)
    return large, shifted, sine, cosine


def _shifted_sine(f: FloatLanes, x: Value, angle: Sequence[Value], quarters: int) -> Value:
    b = f.builder
    shifted, sine, cosine = angle
    turns = b.add(f.as_bits(shifted), f.whole(quarters))
    odd = b.icmp_unsigned("!=", b.and_(turns, f.whole(1)), f.whole(0))
    value = b.select(odd, cosine, sine)
    sign = b.shl(b.and_(turns, f.whole(2)), f.whole(62 if f.double else 30))
    flipped = f.as_number(b.xor(f.as_bits(value), sign))
    # The multiplications make +0 of -0.
    return flipped if quarters else f.choose(f.compare("==", x, 0.0), x, flipped)


def _series_f32(f: FloatLanes, r: Value, n: Value, middle: float, low: float) -> tuple[Value, Value]:
    r = f.fma(n, -low, f.fma(n, -middle, r))
    square = f.mul(r, r)
    sine = f.fma(f.mul(square, r), f.polynomial(square, _SIN_F32), r)
    cosine = f.fma(f.mul(square, square), f.polynomial(square, _COS_F32), f.fma(square, -0.5, 1.0))
    return sine, cosine


def _series_f64(f: FloatLanes, first: Value, n: Value, middle: float, low: float) -> tuple[Value, Value]:
    """With r and `tail`, what rounding r dropped."""
    product = f.mul(n, middle)
    r = f.sub(first, product)
    back = f.sub(first, r)  # Knuth's two-sum: the rounding of the difference, then that of the product
    dropped = f.sub(f.sub(first, f.add(r, back)), f.sub(product, back))
    tail = f.sub(f.fma(n, -low, dropped), f.fma(n, middle, f.mul(product, -1.0)))
    square = f.mul(r, r)
    cube = f.mul(square, r)
    rest = f.sub(f.mul(tail, 0.5), f.mul(cube, f.polynomial(square, _SIN_F64)))
    sine = f.sub(r, f.sub(f.sub(f.mul(square, rest), tail), f.mul(cube, _SIN_CUBE_F64)))
    half = f.mul(square, 0.5)
    whole = f.sub(1.0, half)
    rest = f.fma(f.mul(square, square), f.polynomial(square, _COS_F64), f.mul(f.mul(r, tail), -1.0))
    cosine = f.add(whole, f.add(f.sub(f.sub(1.0, whole), half), rest))
    return sine, cosine
