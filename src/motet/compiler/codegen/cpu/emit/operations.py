"""MLIR's scalar operations as LLVM IR, for one point or a vector of points."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit import vector_math
from motet.compiler.codegen.cpu.emit.builder import F16, F32, F64, I1, I16, I64, Builder, Splat, type_suffix
from motet.compiler.codegen.cpu.emit.compute_types import (
    Unsupported,
    carried_type,
    constant,
    from_storage,
    round_bf16,
    round_to_odd,
    to_storage,
    widen,
)
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes, Value, like, same_lanes, scalar_type
from motet.compiler.kernels.kernel import Scalar

Constants = Sequence[float | int | None]


def emit_operation(b: Builder, scalar: Scalar, operands: Sequence[Value], constants: Constants) -> Value:
    """Emit `scalar` on operands of compute types; `constants` holds the values of constant operands.

    Raises `Unsupported` for an operation or dtype without code.
    """
    if scalar.op == "arith.constant":
        return constant(scalar.dtype, 0 if scalar.value is None else scalar.value)
    lanes = max((value.type.count for value in operands if isinstance(value.type, ir.VectorType)), default=1)
    operands = [widen(b, value, lanes) for value in operands]
    dialect, _, name = scalar.op.partition(".")
    if dialect == "math" and (result := _math(b, name, operands, constants)) is not None:
        return _rounded_to(b, scalar, result)
    if name == "divf" and len(constants) == 2 and constants[1] is not None:
        return _rounded_to(b, scalar, vector_math.divide_by_number(b, operands[0], operands[1], float(constants[1])))
    if dialect == "arith" and (emit := ARITHMETIC.get(name)) is not None:
        return _rounded_to(b, scalar, emit(b, *operands))
    if dialect == "arith" and (result := _typed(b, name, scalar, operands)) is not None:
        return result
    raise Unsupported(f"operation {scalar.op} on {scalar.dtype}")


def _rounded_to(b: Builder, scalar: Scalar, result: Value) -> Value:
    if scalar.dtype == "bf16" and scalar.op not in _EXACT:
        return round_bf16(b, result)
    return result


_EXACT = frozenset({
    "arith.select", "arith.negf", "math.absf", "math.copysign", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
    "arith.minnumf", "math.floor", "math.ceil", "math.trunc",
})  # fmt: skip


def _contract(name: str) -> Callable[[Builder, Value, Value], Value]:
    """A floating-point operation that may be contracted with its neighbour (a multiply and an add)."""
    return lambda b, x, y: getattr(b, name)(x, y, flags=("contract",))


def _floating(name: str) -> Callable[..., Value]:
    def emit(b: Builder, *operands: Value) -> Value:
        kind = operands[0].type
        return b.intrinsic(f"llvm.{name}.{type_suffix(kind)}", kind, operands)

    return emit


def _compare_select(predicate: str, signed: bool) -> Callable[[Builder, Value, Value], Value]:
    def emit(b: Builder, x: Value, y: Value) -> Value:
        compare = b.icmp_signed if signed else b.icmp_unsigned
        return b.select(compare(predicate, x, y), x, y)

    return emit


def _bounded(name: str, greater: bool) -> Callable[[Builder, Value, Value], Value]:
    """`maximum` and `minimum`, with cheaper code if one side is a constant, as in relu and clamps."""

    def emit(b: Builder, x: Value, y: Value) -> Value:
        if isinstance(x, ir.Constant):
            x, y = y, x
        limit = _uniform_constant(y)
        if limit is None or limit != limit or (limit == 0 and (_is_negative(limit) == greater)):
            return _floating(name)(b, x, y)
        if limit == 0:  # of two zeros, the limit's sign wins
            return b.select(b.fcmp_ordered(">=" if greater else "<=", y, x), y, x)
        return b.select(b.fcmp_ordered(">" if greater else "<", y, x), y, x)

    return emit


def _uniform_constant(value: Value) -> float | None:
    if not isinstance(value, ir.Constant) or scalar_type(value.type) not in (F32, F64):
        return None
    number: Any = (value.each if isinstance(value, Splat) else value).constant
    return float(number) if isinstance(number, (int, float)) else None


def _is_negative(value: float) -> bool:
    return struct.pack(">d", value)[0] >= 0x80


def _signed_divisor(b: Builder, y: Value) -> tuple[Value, Value]:
    """Whether the divisor is -1, and a divisor that never traps: division by 0, and of the least number by -1, is
    undefined, and lanes that are masked out may hold any value."""
    kind = y.type
    minus_one = b.icmp_signed("==", y, like(kind, -1))
    bad = b.or_(minus_one, b.icmp_signed("==", y, like(kind, 0)))
    return minus_one, b.select(bad, like(kind, 1), y)


def _divsi(b: Builder, x: Value, y: Value) -> Value:
    minus_one, divisor = _signed_divisor(b, y)
    return b.select(minus_one, b.sub(like(x.type, 0), x), b.sdiv(x, divisor))


def _remsi(b: Builder, x: Value, y: Value) -> Value:
    return b.srem(x, _signed_divisor(b, y)[1])


def _unsigned_divisor(b: Builder, y: Value) -> Value:
    return b.select(b.icmp_unsigned("==", y, like(y.type, 0)), like(y.type, 1), y)


def _divui(b: Builder, x: Value, y: Value) -> Value:
    return b.udiv(x, _unsigned_divisor(b, y))


def _remui(b: Builder, x: Value, y: Value) -> Value:
    return b.urem(x, _unsigned_divisor(b, y))


def _ceildivui(b: Builder, x: Value, y: Value) -> Value:
    more = b.icmp_unsigned("!=", _remui(b, x, y), like(x.type, 0))
    return b.add(_divui(b, x, y), b.zext(more, x.type))


def _rounding_division(up: bool) -> Callable[[Builder, Value, Value], Value]:
    def emit(b: Builder, x: Value, y: Value) -> Value:
        quotient, remainder = _divsi(b, x, y), _remsi(b, x, y)
        zero = like(x.type, 0)
        inexact = b.icmp_signed("!=", remainder, zero)
        opposite = b.icmp_signed("<", b.xor(x, y), zero)
        if up:
            return b.add(quotient, b.zext(b.and_(inexact, b.xor(opposite, like(opposite.type, 1))), x.type))
        return b.sub(quotient, b.zext(b.and_(inexact, opposite), x.type))

    return emit


ARITHMETIC: dict[str, Callable[..., Value]] = {
    "addf": _contract("fadd"),
    "subf": _contract("fsub"),
    "mulf": _contract("fmul"),
    "divf": lambda b, x, y: b.fdiv(x, y),
    "remf": vector_math.remainder,
    "negf": lambda b, x: b.fneg(x),
    "maximumf": _bounded("maximum", True),
    "minimumf": _bounded("minimum", False),
    "maxnumf": _floating("maxnum"),
    "minnumf": _floating("minnum"),
    "addi": lambda b, x, y: b.add(x, y),
    "subi": lambda b, x, y: b.sub(x, y),
    "muli": lambda b, x, y: b.mul(x, y),
    "divsi": _divsi,
    "divui": _divui,
    "remsi": _remsi,
    "remui": _remui,
    "ceildivsi": _rounding_division(True),
    "floordivsi": _rounding_division(False),
    "ceildivui": _ceildivui,
    "maxsi": _compare_select(">", True),
    "minsi": _compare_select("<", True),
    "maxui": _compare_select(">", False),
    "minui": _compare_select("<", False),
    "andi": lambda b, x, y: b.and_(x, y),
    "ori": lambda b, x, y: b.or_(x, y),
    "xori": lambda b, x, y: b.xor(x, y),
    "shli": lambda b, x, y: b.shl(x, y),
    "shrsi": lambda b, x, y: b.ashr(x, y),
    "shrui": lambda b, x, y: b.lshr(x, y),
    "select": lambda b, condition, x, y: b.select(condition, x, y),
}


_FCMP = {
    "oeq": ("o", "=="),
    "ogt": ("o", ">"),
    "oge": ("o", ">="),
    "olt": ("o", "<"),
    "ole": ("o", "<="),
    "one": ("o", "!="),
    "ord": ("o", "ord"),
    "ueq": ("u", "=="),
    "ugt": ("u", ">"),
    "uge": ("u", ">="),
    "ult": ("u", "<"),
    "ule": ("u", "<="),
    "une": ("u", "!="),
    "uno": ("u", "uno"),
}
_ICMP = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _compare(b: Builder, name: str, predicate: str, x: Value, y: Value) -> Value | None:
    flags = same_lanes(x.type, I1)
    if name == "cmpf":
        if predicate in ("false", "true"):
            return like(flags, int(predicate == "true"))
        if predicate in _FCMP:
            order, sign = _FCMP[predicate]
            return b.fcmp_ordered(sign, x, y) if order == "o" else b.fcmp_unordered(sign, x, y)
    if name == "cmpi" and predicate.lstrip("su") in _ICMP:
        sign = _ICMP[predicate.lstrip("su")]
        return b.icmp_unsigned(sign, x, y) if predicate[0] == "u" else b.icmp_signed(sign, x, y)
    return None


def _typed(b: Builder, name: str, scalar: Scalar, operands: Sequence[Value]) -> Value | None:
    """Comparisons and conversions: operations that depend on types as well as on operands."""
    x = operands[0]
    if name in ("cmpf", "cmpi"):
        return _compare(b, name, scalar.predicate, x, operands[1])
    target = same_lanes(x.type, carried_type(scalar.dtype))
    if name in ("extf", "truncf"):
        return _convert_float(b, x, target, scalar.dtype)
    if name in ("sitofp", "uitofp"):
        signed = name == "sitofp"
        if scalar.dtype == "bf16":
            return _integer_to_bf16(b, x, signed)
        return b.sitofp(x, target) if signed else b.uitofp(x, target)
    if name in ("fptosi", "fptoui"):
        return b.fptosi(x, target) if name == "fptosi" else b.fptoui(x, target)
    if name in ("extsi", "extui", "trunci", "index_cast", "index_castui"):
        return resize(b, x, target, signed=name in ("extsi", "index_cast"))
    if name == "bitcast":
        return _bitcast(b, x, target, scalar.dtype)
    return None


def resize(b: Builder, x: Value, target: Any, signed: bool) -> Value:
    """An integer extended or truncated to the width of `target`."""
    have, want = scalar_type(x.type).width, scalar_type(target).width
    if have == want:
        return x
    if have > want:
        return b.trunc(x, target)
    return b.sext(x, target) if signed else b.zext(x, target)


_FLOAT_BITS: dict[Any, int] = {F16: 16, F32: 32, F64: 64}


def _integer_to_bf16(b: Builder, x: Value, signed: bool) -> Value:
    """An integer rounded once: by way of a double, in which the bits that it has no room for are one bit."""
    width = scalar_type(x.type).width
    if width == 64:
        some = b.icmp_unsigned("!=", b.and_(x, like(x.type, 0xFFF)), like(x.type, 0))
        rest = b.select(some, like(x.type, 0x800), like(x.type, 0))
        short = b.or_(b.and_(x, like(x.type, ~0xFFF)), rest)
        size = b.add(x, like(x.type, 1 << 52)) if signed else x
        exact = b.icmp_unsigned("<", size, like(x.type, (1 << 53) if signed else (1 << 52)))
        x = b.select(exact, x, short)
    kind = same_lanes(x.type, F32 if width <= 16 else F64)
    number = b.sitofp(x, kind) if signed else b.uitofp(x, kind)
    return round_bf16(b, number if width <= 16 else round_to_odd(b, number))


def _convert_float(b: Builder, x: Value, target: Any, dtype: str) -> Value:
    have, want = _FLOAT_BITS[scalar_type(x.type)], _FLOAT_BITS[scalar_type(target)]
    if have == 64 and dtype == "bf16":
        x = round_to_odd(b, x)
    elif have != want:
        x = b.fptrunc(x, target) if have > want else b.fpext(x, target)
    return round_bf16(b, x) if dtype == "bf16" else x


def _bitcast(b: Builder, x: Value, target: Any, dtype: str) -> Value:
    """A bitcast. If only one of the types is 16 bits wide and the other a float of 32, the latter holds a bf16."""
    if dtype == "bf16":
        if scalar_type(x.type) == F16:
            x = b.bitcast(x, same_lanes(x.type, I16))
        return x if scalar_type(x.type) == F32 else from_storage(b, x, "bf16")
    if scalar_type(x.type) == F32 and dtype in ("i16", "ui16", "f16"):
        x = to_storage(b, x, "bf16")
    if _width(x.type) != _width(target):
        raise Unsupported(f"bitcast to {dtype}")
    return b.bitcast(x, target)


def _width(kind: Any) -> int:
    element = scalar_type(kind)
    return element.width if isinstance(element, ir.IntType) else _FLOAT_BITS[element]


# -- the math dialect ------------------------------------------------------------------------------


def _math(b: Builder, name: str, operands: Sequence[Value], constants: Constants) -> Value | None:
    x = operands[0]
    if isinstance(scalar_type(x.type), ir.IntType):
        return _math_integer(b, name, operands, constants)
    if scalar_type(x.type) == F16:
        wide = [
            b.fpext(value, same_lanes(value.type, F32)) if scalar_type(value.type) == F16 else value
            for value in operands
        ]
        result = _math_floating(b, name, wide, constants)
        return b.fptrunc(result, x.type) if result is not None and scalar_type(result.type) == F32 else result
    return _math_floating(b, name, operands, constants)


def _math_floating(b: Builder, name: str, operands: Sequence[Value], constants: Constants) -> Value | None:
    x = operands[0]
    f = FloatLanes(b, x.type)
    if (unary := vector_math.UNARY.get(name)) is not None:
        return unary(b, x)
    if name == "powf":
        exponent = constants[1]
        simple = None if exponent is None else vector_math.power_constant(b, x, float(exponent))
        return vector_math.power(b, x, operands[1]) if simple is None else simple
    if name == "isnan":
        return b.fcmp_unordered("uno", x, x)
    if name == "isinf":
        return f.compare("==", f.magnitude(x), float("inf"))
    if name in ("isfinite", "isnormal"):
        finite = f.compare("<", f.magnitude(x), float("inf"))
        least = 2.0 ** (-1022 if f.double else -126)
        return finite if name == "isfinite" else b.and_(finite, f.compare(">=", f.magnitude(x), least))
    if name == "fma":
        return b.multiply_add(*operands)
    if name == "copysign":
        return f.with_sign(x, operands[1])
    if name == "atan2":
        return vector_math.atan2(b, x, operands[1])
    if name == "fpowi":
        return _power_integer(b, x, operands[1], constants[1])
    return None


def _math_integer(b: Builder, name: str, operands: Sequence[Value], constants: Constants) -> Value | None:
    x = operands[0]
    suffix = type_suffix(x.type)
    if name == "absi":
        return b.intrinsic(f"llvm.abs.{suffix}", x.type, [x, ir.Constant(I1, 0)])
    if name in ("ctlz", "cttz"):
        return b.intrinsic(f"llvm.{name}.{suffix}", x.type, [x, ir.Constant(I1, 0)])
    if name == "ctpop":
        return b.intrinsic(f"llvm.ctpop.{suffix}", x.type, [x])
    return _power_integer(b, x, operands[1], constants[1]) if name == "ipowi" else None


def _power_integer(b: Builder, x: Value, n: Value, known: float | None) -> Value:
    """`x ** n` by repeated squaring, one step per bit of |n|. A negative `n` gives the reciprocal (for integers: 0,
    unless `x` is 1 or -1, whose powers are their own reciprocals). `known` is the value of `n` if it is constant."""
    floating = not isinstance(scalar_type(x.type), ir.IntType)
    multiply = b.fmul if floating else b.mul
    if known is not None and (floating or known >= 0):
        result = _power_known(multiply, x, abs(int(known)))
        one = like(x.type, 1.0 if floating else 1)
        return one if result is None else b.fdiv(one, result) if known < 0 else result
    zero = like(n.type, 0)
    negative = b.icmp_signed("<", n, zero)
    count = b.select(negative, b.sub(zero, n), n)
    one = like(x.type, 1.0 if floating else 1)

    def square(_: object, carried: list[Value]) -> list[Value]:
        result, base, left = carried
        odd = b.trunc(left, same_lanes(left.type, I1)) if scalar_type(left.type) != I1 else left
        result = b.select(odd, multiply(result, base), result)
        return [result, multiply(base, base), b.lshr(left, like(left.type, 1))]

    result = b.loop(0, _bits(b, count), 1, square, [one, x, count])[0]
    if floating:
        return b.select(negative, b.fdiv(one, result), result)
    unit = b.or_(b.icmp_signed("==", x, one), b.icmp_signed("==", x, like(x.type, -1)))
    return b.select(b.and_(negative, b.not_(unit)), like(x.type, 0), result)


def _power_known(multiply: Callable[[Value, Value], Value], x: Value, n: int) -> Value | None:
    """`x ** n` for `n` > 0; None for 0."""
    result: Value | None = None
    while n:
        if n & 1:
            result = x if result is None else multiply(result, x)
        n >>= 1
        if n:
            x = multiply(x, x)
    return result


def _bits(b: Builder, count: Value) -> Value | int:
    """The number of bits that the largest of `count`, read as unsigned, has."""
    width = scalar_type(count.type).width
    if width == 1:
        return 1
    if isinstance(count.type, ir.VectorType):
        count = b.intrinsic(f"llvm.vector.reduce.or.{type_suffix(count.type)}", count.type.element, [count])
    zeros = b.intrinsic(f"llvm.ctlz.{type_suffix(count.type)}", count.type, [count, ir.Constant(I1, 0)])
    bits = b.sub(ir.Constant(count.type, width), zeros)
    return b.zext(bits, I64) if width < 64 else bits
