"""Stage bodies as LLVM IR: MLIR's scalar operations on one point or on a vector of points.

What a value is *carried* as, against what stands in memory:

| dtype | in memory | carried |
|---|---|---|
| i1 | i8, 0 or 1 | i1 |
| i8 … i64, ui8 … ui64, index | the same width | the same width |
| f16, f32, f64 | half, float, double | the same |
| bf16 | i16 | float, rounded to bf16 (to nearest, ties to even) after every operation |

A carried value is a scalar or a vector of `lanes`; where an operation meets both, the scalar counts for every
lane. A body value that depends on scalars alone stays a scalar, so that what is uniform over a loop is
computed once, outside (see `evaluate`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu import vector_math
from motet.compiler.codegen.cpu.builder import F16, F32, F64, I1, I8, I16, I32, Builder, type_suffix
from motet.compiler.codegen.cpu.vector_math import Lanes, Value, like, same_lanes, scalar_type
from motet.compiler.codegen.kernel import ITEM_BITS, Scalar, Stage

IndexOf = Callable[[int], Value]


class Unsupported(Exception):
    """A kernel that this generator has no code for; `emit` functions answer it with None."""


FLOATS = ("f16", "bf16", "f32", "f64")
_STORAGE: dict[str, Any] = {"i1": I8, "bf16": I16, "f16": F16, "f32": F32, "f64": F64}
_CARRIED: dict[str, Any] = {"i1": I1, "bf16": F32, "f16": F16, "f32": F32, "f64": F64}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def storage_type(dtype: str) -> Any:
    """The LLVM type of one element of `dtype` in memory."""
    return _STORAGE.get(dtype) or _integer_type(dtype)


def carried_type(dtype: str, lanes: int = 1) -> Any:
    """The LLVM type in which a body computes with `dtype`."""
    kind = _CARRIED.get(dtype) or _integer_type(dtype)
    return ir.VectorType(kind, lanes) if lanes > 1 else kind


def _integer_type(dtype: str) -> Any:
    if dtype.startswith("f") or dtype not in ITEM_BITS:
        raise Unsupported(f"dtype {dtype}")
    return ir.IntType(ITEM_BITS[dtype])


def from_storage(b: Builder, value: Value, dtype: str) -> Value:
    """What was loaded, as it is carried."""
    if dtype == "i1":
        return b.icmp_unsigned("!=", value, like(value.type, 0))
    if dtype == "bf16":
        bits = b.shl(b.zext(value, same_lanes(value.type, I32)), like(same_lanes(value.type, I32), 16))
        return b.bitcast(bits, same_lanes(value.type, F32))
    return value


def to_storage(b: Builder, value: Value, dtype: str) -> Value:
    """A carried value, as it stands in memory. A bf16 value is rounded already: every operation does."""
    if dtype == "i1":
        return b.zext(value, same_lanes(value.type, I8))
    if dtype == "bf16":
        bits: Value = b.bitcast(value, same_lanes(value.type, I32))
        return b.trunc(b.lshr(bits, like(bits.type, 16)), same_lanes(value.type, I16))
    return value


def round_bf16(b: Builder, value: Value) -> Value:
    """A float rounded to the nearest bf16, ties to even; a NaN stays one."""
    bits: Value = b.bitcast(value, same_lanes(value.type, I32))
    kind = bits.type
    odd = b.and_(b.lshr(bits, like(kind, 16)), like(kind, 1))
    rounded = b.add(bits, b.add(odd, like(kind, 0x7FFF)))
    quiet = b.or_(bits, like(kind, 0x400000))
    chosen = b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)
    return b.bitcast(b.and_(chosen, like(kind, -0x10000)), value.type)


def constant(dtype: str, value: float | int, lanes: int = 1) -> ir.Constant:
    """`value` as a carried constant, rounded to `dtype`."""
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
    """`value` in every lane, if it is a scalar."""
    if lanes == 1 or isinstance(value.type, ir.VectorType):
        return value
    if isinstance(value, ir.Constant) and not isinstance(value.constant, str):
        return ir.Constant(ir.VectorType(value.type, lanes), [value.constant] * lanes)
    return b.splat(value, lanes)


def emit_body(
    b: Builder, body: Sequence[Scalar], values: Sequence[Value], lanes: int, index: IndexOf
) -> list[Value]:
    """All values of the body, each in `lanes`: `values` (inputs, then the outputs' running values, carried),
    then one per operation. `index(d)` gives dimension `d` of the points as i64, a scalar or a vector.

    Raises `Unsupported` for an operation or dtype without code.
    """
    results = evaluate(b, body, len(values), dict(enumerate(values)), index)
    return [widen(b, results[i], lanes) for i in range(len(values) + len(body))]


def evaluate(
    b: Builder,
    body: Sequence[Scalar],
    inputs: int,
    known: Mapping[int, Value],
    index: IndexOf | None,
    wanted: Collection[int] | None = None,
) -> dict[int, Value]:
    """`known` and all body values that follow from it: `inputs` counts the body's inputs and running values,
    `known` holds those that are there and whatever was computed before. Without `index`, indices are unknown.
    `wanted` limits the work to those values and what they need.
    """
    values = dict(known)
    needed = range(inputs + len(body)) if wanted is None else dependencies(body, inputs, wanted)
    for position, scalar in enumerate(body, start=inputs):
        if position in values or position not in needed:
            continue
        if scalar.op == "linalg.index":
            if index is not None:
                values[position] = index(int(scalar.value or 0))
            continue
        if all(operand in values for operand in scalar.operands):
            constants = [_constant_of(body, inputs, operand) for operand in scalar.operands]
            values[position] = _operation(b, scalar, [values[i] for i in scalar.operands], constants)
    return values


def dependencies(body: Sequence[Scalar], inputs: int, wanted: Collection[int]) -> set[int]:
    """`wanted` and every body value, inputs included, that they are computed from."""
    needed = set(wanted)
    for position in range(inputs + len(body) - 1, inputs - 1, -1):
        if position in needed:
            needed.update(body[position - inputs].operands)
    return needed


def _constant_of(body: Sequence[Scalar], inputs: int, value: int) -> float | int | None:
    if value < inputs or body[value - inputs].op != "arith.constant":
        return None
    return body[value - inputs].value


# -- operations ------------------------------------------------------------------------------------

Constants = Sequence[float | int | None]


def _operation(b: Builder, scalar: Scalar, operands: Sequence[Value], constants: Constants) -> Value:
    if scalar.op == "arith.constant":
        return constant(scalar.dtype, 0 if scalar.value is None else scalar.value)
    lanes = max((value.type.count for value in operands if isinstance(value.type, ir.VectorType)), default=1)
    operands = [widen(b, value, lanes) for value in operands]
    dialect, _, name = scalar.op.partition(".")
    if dialect == "math" and (result := _math(b, name, scalar, operands, constants)) is not None:
        return _rounded_to(b, scalar, result)
    if dialect == "arith" and (emit := _ARITH.get(name)) is not None:
        return _rounded_to(b, scalar, emit(b, *operands))
    if dialect == "arith" and (result := _typed(b, name, scalar, operands)) is not None:
        return result
    raise Unsupported(f"operation {scalar.op} on {scalar.dtype}")


def _rounded_to(b: Builder, scalar: Scalar, result: Value) -> Value:
    exact = scalar.op in (
        "arith.negf",
        "math.absf",
        "math.copysign",
        "arith.maximumf",
        "arith.minimumf",
        "arith.maxnumf",
        "arith.minnumf",
        "math.floor",
        "math.ceil",
        "math.trunc",
    )
    if scalar.dtype == "bf16" and not exact:
        return round_bf16(b, result)
    return result


def _contract(name: str) -> Callable[[Builder, Value, Value], Value]:
    """A floating operation that may fuse with its neighbour (a multiply and an add)."""
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
    """`maximum` and `minimum`, cheaper where one side is a constant number, as in relu and clamps."""

    def emit(b: Builder, x: Value, y: Value) -> Value:
        if isinstance(x, ir.Constant):
            x, y = y, x
        limit = _uniform_constant(y)
        if limit is None or limit != limit or (limit == 0 and (_is_negative(limit) == greater)):
            return _floating(name)(b, x, y)
        if limit == 0:  # equal zeros: the limit has the sign that wins
            return b.select(b.fcmp_ordered(">=" if greater else "<=", y, x), y, x)
        return b.select(b.fcmp_ordered(">" if greater else "<", y, x), y, x)

    return emit


def _uniform_constant(value: Value) -> float | None:
    if not isinstance(value, ir.Constant) or scalar_type(value.type) not in (F32, F64):
        return None
    constant: Any = value.constant
    first: Any = constant
    if isinstance(value.type, ir.VectorType):
        first = constant[0] if isinstance(constant, list) else None
    number = first.constant if isinstance(first, ir.Constant) else first
    return float(number) if isinstance(number, (int, float)) else None


def _is_negative(value: float) -> bool:
    return struct.pack(">d", value)[0] >= 0x80


def _signed_divisor(b: Builder, y: Value) -> tuple[Value, Value]:
    """Whether the divisor is -1, and a divisor that never traps: dividing by 0 and the least number by -1
    are undefined, and lanes that are masked out may hold anything."""
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


_ARITH: dict[str, Callable[..., Value]] = {
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
    """Comparisons and conversions: operations that need more than their operands."""
    x = operands[0]
    if name in ("cmpf", "cmpi"):
        return _compare(b, name, scalar.predicate, x, operands[1])
    target = same_lanes(x.type, carried_type(scalar.dtype))
    if name in ("extf", "truncf"):
        return _convert_float(b, x, target, scalar.dtype)
    if name in ("sitofp", "uitofp"):
        result = b.sitofp(x, target) if name == "sitofp" else b.uitofp(x, target)
        return round_bf16(b, result) if scalar.dtype == "bf16" else result
    if name in ("fptosi", "fptoui"):
        return b.fptosi(x, target) if name == "fptosi" else b.fptoui(x, target)
    if name in ("extsi", "extui", "trunci", "index_cast", "index_castui"):
        return resize(b, x, target, signed=name in ("extsi", "index_cast"))
    if name == "bitcast":
        return _bitcast(b, x, target, scalar.dtype)
    return None


def resize(b: Builder, x: Value, target: Any, signed: bool) -> Value:
    """An integer brought to the width of `target`."""
    have, want = scalar_type(x.type).width, scalar_type(target).width
    if have == want:
        return x
    if have > want:
        return b.trunc(x, target)
    return b.sext(x, target) if signed else b.zext(x, target)


_FLOAT_BITS: dict[Any, int] = {F16: 16, F32: 32, F64: 64}


def _convert_float(b: Builder, x: Value, target: Any, dtype: str) -> Value:
    have, want = _FLOAT_BITS[scalar_type(x.type)], _FLOAT_BITS[scalar_type(target)]
    if have != want:
        x = b.fptrunc(x, target) if have > want else b.fpext(x, target)
    return round_bf16(b, x) if dtype == "bf16" else x


def _bitcast(b: Builder, x: Value, target: Any, dtype: str) -> Value:
    """A float of 32 bits met by a type of 16 is a bf16."""
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


def _math(
    b: Builder, name: str, scalar: Scalar, operands: Sequence[Value], constants: Constants
) -> Value | None:
    x = operands[0]
    if isinstance(scalar_type(x.type), ir.IntType):
        return _math_integer(b, name, operands)
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
    f = Lanes(b, x.type)
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
        return _power_integer(b, x, operands[1])
    return None


def _math_integer(b: Builder, name: str, operands: Sequence[Value]) -> Value | None:
    x = operands[0]
    suffix = type_suffix(x.type)
    if name == "absi":
        return b.intrinsic(f"llvm.abs.{suffix}", x.type, [x, ir.Constant(I1, 0)])
    if name in ("ctlz", "cttz"):
        return b.intrinsic(f"llvm.{name}.{suffix}", x.type, [x, ir.Constant(I1, 0)])
    if name == "ctpop":
        return b.intrinsic(f"llvm.ctpop.{suffix}", x.type, [x])
    return _power_integer(b, x, operands[1]) if name == "ipowi" else None


def _power_integer(b: Builder, x: Value, n: Value) -> Value:
    """`x ** n` by squaring, one round per bit of |n|; a negative `n` gives the reciprocal (in integers, 0
    unless the power is 1 or -1)."""
    floating = not isinstance(scalar_type(x.type), ir.IntType)
    multiply = b.fmul if floating else b.mul
    zero = like(n.type, 0)
    negative = b.icmp_signed("<", n, zero)
    count = b.select(negative, b.sub(zero, n), n)
    one = like(x.type, 1.0 if floating else 1)

    def square(_: object, carried: list[Value]) -> list[Value]:
        result, base, left = carried
        odd = b.trunc(left, same_lanes(left.type, I1)) if scalar_type(left.type) != I1 else left
        result = b.select(odd, multiply(result, base), result)
        return [result, multiply(base, base), b.lshr(left, like(left.type, 1))]

    result = b.loop(0, scalar_type(n.type).width, 1, square, [one, x, count])[0]
    if floating:
        return b.select(negative, b.fdiv(one, result), result)
    return b.select(negative, _divsi(b, one, result), result)


# -- reductions ------------------------------------------------------------------------------------

_INFINITY = float("inf")
_FLOAT_IDENTITY: dict[str, float] = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -_INFINITY,
    "arith.minimumf": _INFINITY,
    "arith.maxnumf": -_INFINITY,
    "arith.minnumf": _INFINITY,
}


@dataclass(frozen=True)
class Combiner:
    """How a stage's output gathers its reduction: `running = op(running, term)`, with `op` associative and
    commutative up to rounding, and `term`, a body value, not depending on any running value."""

    op: str
    term: int
    dtype: str

    @property
    def accumulator(self) -> str:
        """The dtype in which partial results are kept: sums of narrow floats in f32, as rounding at each
        step would make long ones meaningless."""
        return "f32" if self.dtype in ("f16", "bf16") else self.dtype

    @property
    def identity(self) -> float | int:
        if is_float(self.dtype):
            return _FLOAT_IDENTITY[self.op]
        bits = 1 if self.dtype == "i1" else ITEM_BITS[self.dtype]
        least = -(1 << (bits - 1))
        return {
            "arith.addi": 0,
            "arith.ori": 0,
            "arith.xori": 0,
            "arith.maxui": 0,
            "arith.muli": 1,
            "arith.andi": -1,
            "arith.minui": -1,
            "arith.maxsi": least,
            "arith.minsi": -1 - least,
        }[self.op]

    def combine(self, b: Builder, x: Value, y: Value) -> Value:
        """Two partial results of dtype `accumulator`, scalars or vectors."""
        lanes = max((v.type.count for v in (x, y) if isinstance(v.type, ir.VectorType)), default=1)
        return _ARITH[self.op.partition(".")[2]](b, widen(b, x, lanes), widen(b, y, lanes))

    def widened(self, b: Builder, term: Value) -> Value:
        """A term of the body, as the accumulator's dtype."""
        return b.fpext(term, same_lanes(term.type, F32)) if self.dtype == "f16" else term

    def narrowed(self, b: Builder, total: Value) -> Value:
        """The accumulated result, as the output's dtype is carried."""
        if self.dtype == "f16":
            return b.fptrunc(total, same_lanes(total.type, F16))
        return round_bf16(b, total) if self.dtype == "bf16" else total

    def across(self, b: Builder, vector: Value) -> Value:
        """The lanes of a vector (a power of two of them), combined into one scalar."""
        while isinstance(vector.type, ir.VectorType):
            half = vector.type.count // 2
            if half == 1:
                low, high = (b.extract_element(vector, ir.Constant(I32, lane)) for lane in (0, 1))
                return self.combine(b, low, high)
            undefined = ir.Constant(vector.type, ir.Undefined)
            pick = ir.VectorType(I32, half)
            low = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half))))
            high = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half, 2 * half))))
            vector = self.combine(b, low, high)
        return vector


_INTEGER_COMBINERS = ("addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori")
_COMBINERS = {*_FLOAT_IDENTITY, *(f"arith.{name}" for name in _INTEGER_COMBINERS)}


def combiner(stage: Stage, output: int) -> Combiner | None:
    """How `stage` reduces into `outputs[output]`, or None where its order matters or is not understood."""
    inputs = len(stage.inputs) + len(stage.outputs)
    running = range(len(stage.inputs), inputs)
    position = stage.yields[output] - inputs
    if position < 0:
        return None
    last = stage.body[position]
    own = len(stage.inputs) + output
    users = [scalar for scalar in stage.body if own in scalar.operands]
    if last.op not in _COMBINERS or len(last.operands) != 2 or len(users) != 1 or users[0] is not last:
        return None
    if list(last.operands).count(own) != 1 or list(stage.yields).count(stage.yields[output]) != 1:
        return None
    term = last.operands[0] if last.operands[1] == own else last.operands[1]
    if any(value in running for value in dependencies(stage.body, inputs, [term])):
        return None
    return Combiner(last.op, term, last.dtype)
