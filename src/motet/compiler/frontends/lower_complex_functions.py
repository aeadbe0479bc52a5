"""lower-complex-functions: rewrites complex functions to arithmetic on their real and imaginary parts.

    %m = complex.abs %z : complex<f32>   →   %x = complex.re %z        %y = complex.im %z
                                             %m = larger · sqrt(1 + (smaller / larger)²)

Upstream's lowerings of these functions are wrong on the imaginary axis, overflow where the result is representable, or
cancel catastrophically. After this pass upstream only lowers creation, parts, addition, subtraction, multiplication,
division, negation and comparison of complex numbers. Infinities and NaN follow C's Annex G.

Sources: W. Kahan, "Branch Cuts for Complex Elementary Functions", 1987; ISO C, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations
from motet.compiler.operators.arithmetic import Floats, Real
from motet.compiler.passes.base import ModulePass

Complex = tuple[Real, Real]


@dataclass(frozen=True)
class LowerComplexFunctions(ModulePass):
    """Rewrites the functions of `complex`, including those in the bodies of other operations."""

    name = "lower-complex-functions"

    def run(self, module: ir.Module) -> None:
        for op in find_operations(module, *_FUNCTIONS, *_REAL_VALUED):
            _lower(op)


def _lower(op: ir.Operation) -> None:
    element = ir.ComplexType(op.operands[0].type).element_type
    wide = ir.F64Type.get() if op.name in _COMPUTED_WIDE or str(element) in ("f16", "bf16") else element
    f = Floats(wide)
    with op.location, ir.InsertionPoint(op):
        operands = [_parts(f, operand) for operand in op.operands]
        if op.name in _REAL_VALUED:
            result = f.narrowed(_REAL_VALUED[op.name](f, operands[0]), element)
        else:
            parts = [f.narrowed(part, element) for part in _FUNCTIONS[op.name](f, *operands)]
            result = create("complex.create", op.results[0].type, parts)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _parts(f: Floats, number: ir.Value) -> Complex:
    if not isinstance(number.type, ir.ComplexType):  # the exponent of powi
        return f.of_integer(number), f.of(0.0)
    element = ir.ComplexType(number.type).element_type
    real, imaginary = (f.wide(create(name, element, [number])) for name in ("complex.re", "complex.im"))
    return real, imaginary


def _magnitude(r: Floats, z: Complex) -> Real:
    """|z| without intermediate overflow: larger · sqrt(1 + (smaller / larger)²)."""
    x, y = abs(z[0]), abs(z[1])
    larger, smaller = r.maximum(x, y), r.minimum(x, y)
    ratio = smaller / larger
    length = r.select(larger == 0.0, larger, larger * r.sqrt(ratio * ratio + 1.0))
    return r.select((x == math.inf) | (y == math.inf), math.inf, length)


def _angle(r: Floats, z: Complex) -> Real:
    return r.atan2(z[1], z[0])


def _exp(r: Floats, z: Complex) -> Complex:
    """Multiplies by two factors, since exp(x) may overflow where exp(x) · cos(y) does not."""
    x, y = z
    half = r.exp(x * 0.5)
    vanishes = x == -math.inf
    real = r.select(vanishes, 0.0, half * r.cos(y) * half)
    real = r.select((x == math.inf) & r.is_not_finite(y), x, real)
    imaginary = r.select((y == 0.0) | vanishes, r.copysign(0.0, y), half * r.sin(y) * half)
    return real, imaginary


def _expm1(r: Floats, z: Complex) -> Complex:
    """exp(x) · cos(y) - 1 = (exp(x) - 1) · cos(y) - 2 · sin(y / 2)²."""
    x, y = z
    real, imaginary = _exp(r, z)
    sine = r.sin(y * 0.5)
    close = r.expm1(x) * r.cos(y) - sine * sine * 2.0
    return r.select(abs(x) < 1.0, close, real - 1.0), imaginary


def _log_of_magnitude(r: Floats, x: Real, y: Real, excess: Real) -> Real:
    """log|x + iy|, where `excess` is |x + iy|² - 1, exact to rounding if it is small."""
    x, y = abs(x), abs(y)
    larger, smaller = r.maximum(x, y), r.minimum(x, y)
    ratio = r.select(larger == 0.0, larger, smaller / larger)
    far = r.log(larger) + r.log1p(ratio * ratio) * 0.5
    length = r.select((larger > 0.5) & (larger < 2.0), r.log1p(excess) * 0.5, far)
    return r.select((x == math.inf) | (y == math.inf), math.inf, length)


def _log(r: Floats, z: Complex) -> Complex:
    x, y = abs(z[0]), abs(z[1])
    larger, smaller = r.maximum(x, y), r.minimum(x, y)
    excess = (larger - 1.0) * (larger + 1.0) + smaller * smaller
    return _log_of_magnitude(r, x, y, excess), _angle(r, z)


def _log1p(r: Floats, z: Complex) -> Complex:
    x, y = z
    moved = x + 1.0
    return _log_of_magnitude(r, moved, y, x * (x + 2.0) + y * y), _angle(r, (moved, y))


def _hyperbolic(r: Floats, y: Real) -> tuple[Real, Real, Real]:
    """cosh(y) and sinh(y), both divided by the third result, a scale that keeps them from overflowing."""
    large = abs(y) > 20.0  # where both are exp(|y|) / 2
    root = r.select(large, r.exp(abs(y) * 0.5), 1.0)
    half = root * 0.5
    cosh = r.select(large, half, r.cosh(y))
    return cosh, r.select(large, r.copysign(half, y), r.sinh(y)), root


def _product(r: Floats, circular: Real, hyperbolic: Real, root: Real) -> Real:
    """The product, which is 0 if a factor is 0 even where the other is infinite or NaN, as on an axis."""
    zero = r.copysign(0.0, circular) * r.copysign(1.0, hyperbolic)
    return r.select((circular == 0.0) | (hyperbolic == 0.0), zero, circular * hyperbolic * root)


def _sin(r: Floats, z: Complex) -> Complex:
    cosh, sinh, root = _hyperbolic(r, z[1])
    return _product(r, r.sin(z[0]), cosh, root), _product(r, r.cos(z[0]), sinh, root)


def _cos(r: Floats, z: Complex) -> Complex:
    cosh, sinh, root = _hyperbolic(r, z[1])
    return _product(r, r.cos(z[0]), cosh, root), -_product(r, r.sin(z[0]), sinh, root)


def _tanh(r: Floats, z: Complex) -> Complex:
    """Kahan's form, with t = tan(y) and s = sinh(x): ((1 + t²) · sqrt(1 + s²) · s + i · t) / (1 + (1 + t²) · s²)."""
    x, y = z
    large = abs(x) > 20.0
    tangent = r.tan(y)
    sine = r.sinh(r.select(large, 0.0, x))
    beta = tangent * tangent + 1.0
    below = beta * (sine * sine) + 1.0
    real = beta * r.sqrt(sine * sine + 1.0) * sine / below
    imaginary = tangent / below
    decay = r.exp(abs(x) * -1.0)
    far = r.sin(y) * r.cos(y) * 4.0 * decay * decay
    far = r.select(abs(x) == math.inf, r.copysign(0.0, y), far)
    imaginary = r.select(y == 0.0, y, r.select(large, far, imaginary))
    limit = r.copysign(1.0, x)
    limit = r.select(abs(x) == math.inf, limit, y * 0.0 + limit)  # NaN where y is infinite
    return r.select(large, limit, real), imaginary


def _tan(r: Floats, z: Complex) -> Complex:
    real, imaginary = _tanh(r, (-z[1], z[0]))
    return imaginary, -real


def _sqrt(r: Floats, z: Complex) -> Complex:
    """With t = sqrt((|x| + |z|) / 2): t and y / 2t, or where x is negative |y| / 2t and ±t; scaled by a power of 4."""
    larger = r.maximum(abs(z[0]), abs(z[1]))
    limits = np.finfo(np.float64 if isinstance(r.kind, ir.F64Type) else np.float32)
    down, up = larger > float(limits.max) / 8.0, larger < float(limits.tiny) * 2.0**24
    scale = r.select(down, 2.0**-4, r.select(up, 2.0**48, 1.0))
    back = r.select(down, 2.0**2, r.select(up, 2.0**-24, 1.0))
    x, y = z[0] * scale, z[1] * scale
    root = r.sqrt((abs(x) + _magnitude(r, (x, y))) * 0.5)
    other = r.select(root == 0.0, y, y / (root * 2.0))
    root, other = root * back, other * back
    negative = x < 0.0
    real = r.select(negative, abs(other), root)
    imaginary = r.select(negative, r.copysign(root, y), other)
    endless = abs(y) == math.inf
    return r.select(endless, abs(y), real), r.select(endless, y, imaginary)


def _rsqrt(r: Floats, z: Complex) -> Complex:
    """1 / w = conj(w) / |w|² for the square root w."""
    root = _sqrt(r, z)
    length = _magnitude(r, root)
    ended = (length == math.inf) | (length == 0.0)
    inverse = 1.0 / length
    real = r.select(ended, inverse, root[0] / length / length)
    return real, r.select(ended, r.copysign(0.0, -root[1]), -(root[1] / length / length))


def _pow(r: Floats, z: Complex, w: Complex) -> Complex:
    """exp(w · log z), with the exact cases z⁰ = 1, and 0 for 0 to a power of positive real part."""
    length, angle = _log(r, z)
    real, imaginary = _exp(r, (w[0] * length - w[1] * angle, w[0] * angle + w[1] * length))
    real_axis = (z[1] == 0.0) & (w[1] == 0.0) & (z[0] > 0.0)
    imaginary = r.select(real_axis, 0.0, imaginary)
    vanishes = (z[0] == 0.0) & (z[1] == 0.0) & (w[0] > 0.0)
    one = (w[0] == 0.0) & (w[1] == 0.0)
    real = r.select(one, 1.0, r.select(vanishes, 0.0, real))
    return real, r.select(one | vanishes, 0.0, imaginary)


def _sign(r: Floats, z: Complex) -> Complex:
    """z / |z|, scaled to magnitude 1 first."""
    larger = r.maximum(abs(z[0]), abs(z[1]))
    scale = r.select(larger == math.inf, 1.0, larger)
    x, y = z[0] / scale, z[1] / scale
    length = _magnitude(r, (x, y))
    return r.select(larger == 0.0, z[0], x / length), r.select(larger == 0.0, z[1], y / length)


def _atan2(r: Floats, y: Complex, x: Complex) -> Complex:
    """-i · log((x + i·y) / sqrt(x² + y²)), as StableHLO defines it."""
    larger = r.maximum(r.maximum(abs(x[0]), abs(x[1])), r.maximum(abs(y[0]), abs(y[1])))
    x, y = (x[0] / larger, x[1] / larger), (y[0] / larger, y[1] / larger)
    (a, b), (c, d) = _multiply(x, x), _multiply(y, y)
    quotient = _divide(r, (x[0] - y[1], x[1] + y[0]), _sqrt(r, (a + c, b + d)))
    length, angle = _log(r, quotient)
    return angle, -length


def _multiply(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _divide(r: Floats, a: Complex, b: Complex) -> Complex:
    """By the conjugate, b scaled to magnitude 1 first."""
    length = _magnitude(r, b)
    x, y = b[0] / length, b[1] / length
    real, imaginary = _multiply(a, (x, -y))
    return real / length, imaginary / length


_REAL_VALUED: dict[str, Callable[[Floats, Complex], Real]] = {
    "complex.abs": _magnitude,
    "complex.angle": _angle,
}
_FUNCTIONS: dict[str, Callable[..., Complex]] = {
    "complex.atan2": _atan2,
    "complex.cos": _cos,
    "complex.exp": _exp,
    "complex.expm1": _expm1,
    "complex.log": _log,
    "complex.log1p": _log1p,
    "complex.pow": _pow,
    "complex.powi": _pow,
    "complex.rsqrt": _rsqrt,
    "complex.sign": _sign,
    "complex.sin": _sin,
    "complex.sqrt": _sqrt,
    "complex.tan": _tan,
    "complex.tanh": _tanh,
}
# The error of a logarithm grows with the exponent.
_COMPUTED_WIDE = frozenset({"complex.pow", "complex.powi"})
