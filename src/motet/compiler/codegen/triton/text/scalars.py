"""Stage bodies as Triton expressions: MLIR's scalar operations on tiles.

The types in which values are stored and in which they are computed with:

| dtype | in memory | computed with |
|---|---|---|
| i1 | i8, 0 or 1 | int1 |
| i8 … i64, ui8 … ui64, index | signed integers of the same width | the same |
| f16, bf16, f8E4M3FN, f8E5M2 | the same | float32, rounded to the dtype after every operation that is not exact |
| f32, f64 | the same | the same |

The error function of floats of at most 16 bits is a polynomial that is exact to 17 bits (for bf16 to 15), with half as
many instructions as for f32. Quotients and exponentials in f16 and 8 bits use the GPU's approximations, which are
exact to at least 22 bits: the range of these dtypes ends far from that of the approximations, unlike that of bf16.
Hyperbolic tangents are computed from these, and near 0 by a polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.kernels.kernel import FLOATS, ITEM_BITS, Scalar

POINTERS = {
    "i1": "i8", "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5",
}
_STORAGE = {
    "i1": "tl.int8", "f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64",
    "f8E4M3FN": "tl.float8e4nv", "f8E5M2": "tl.float8e5",
}
SHORT_FLOATS = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
_NARROW = ("f16", "f8E4M3FN", "f8E5M2")  # floats with a much smaller range than f32


def pointer_type(dtype: str) -> str:
    """Triton's name of the element type of a pointer to `dtype`."""
    return POINTERS.get(dtype) or f"i{ITEM_BITS[dtype]}"


def storage_type(dtype: str) -> str:
    return _STORAGE.get(dtype) or f"tl.int{ITEM_BITS[dtype]}"


def carried_type(dtype: str) -> str:
    """The type in which bodies compute with `dtype`."""
    if dtype == "i1":
        return "tl.int1"
    return "tl.float32" if dtype in SHORT_FLOATS else storage_type(dtype)


def from_storage(text: str, dtype: str) -> str:
    """Convert a loaded value of `dtype` to the type computed with."""
    if dtype == "i1":
        return f"({text} != 0)"
    return f"{text}.to(tl.float32)" if dtype in SHORT_FLOATS else text


def to_storage(text: str, dtype: str) -> str:
    """Convert a computed value to its type in memory."""
    return f"{text}.to({storage_type(dtype)})" if dtype == "i1" or dtype in SHORT_FLOATS else text


def number(value: float | int | None, dtype: str) -> str:
    """A Python literal of a value of `dtype`."""
    value = 0 if value is None else value
    if dtype in FLOATS:
        value = float(value)
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if dtype == "i1":
        return str(int(bool(value)))
    bits = ITEM_BITS[dtype]
    low = int(value) & ((1 << bits) - 1)
    return str(low - (1 << bits) if low >> (bits - 1) else low)


def constant(value: float | int | None, dtype: str) -> str:
    """`value` as a scalar of the type computed with."""
    return f"tl.full((), {number(value, dtype)}, {carried_type(dtype)})"


def rounded(text: str, dtype: str) -> str:
    """Round a computed float after an operation that is not exact."""
    return f"({text}).to({storage_type(dtype)}).to(tl.float32)" if dtype in SHORT_FLOATS else text


def expression(scalar: Scalar, x: Sequence[str], dtypes: Sequence[str]) -> str:
    """The operation `scalar` on operands `x` of dtypes `dtypes`, all in compute types.

    Raises `UnsupportedOnGpu` for an operation without code.
    """
    dialect, _, name = scalar.op.partition(".")
    if scalar.op == "arith.constant":
        return constant(scalar.value, scalar.dtype)
    if dialect == "arith":
        if name in _EXACT:
            return _EXACT[name](*x)
        if name == "divf" and scalar.dtype in _NARROW:
            return rounded(f"libdevice.fast_dividef({x[0]}, {x[1]})", scalar.dtype)
        if name in _FLOATING:
            return rounded(_FLOATING[name](*x), scalar.dtype)
        if name in _INTEGER:
            return _integer(name, x, scalar.dtype)
        if (text := _typed(name, scalar, x, dtypes)) is not None:
            return text
    if dialect == "math" and (text := _math(name, x, scalar.dtype, dtypes)) is not None:
        return text
    raise UnsupportedOnGpu(f"operation {scalar.op} on {scalar.dtype}")


def by_constant(scalar: Scalar, body: Sequence[Scalar], first: int, x: Sequence[str]) -> str | None:
    """A power or quotient with a constant second operand, as a cheaper operation with the same result: numbers
    themselves, squares and square roots, and products with reciprocals if these are exact or the result is rounded to
    at most 16 bits; other quotients of f32 are rounded correctly. `first` is the number of the body's first
    operation."""
    if scalar.op not in ("math.powf", "math.fpowi", "arith.divf") or scalar.operands[1] < first:
        return None
    constant_ = body[scalar.operands[1] - first]
    if constant_.op != "arith.constant" or not constant_.value:
        return None
    value = float(constant_.value)
    if scalar.op != "arith.divf":
        if value == 0.5:  # of -0 and -inf, 0 and inf, unlike square roots
            root = _math("sqrt", [f"({x[0]} + 0.0)"], scalar.dtype, [scalar.dtype])
            return f'tl.where({x[0]} == float("-inf"), float("inf"), {root})'
        powers = {1.0: x[0], 2.0: rounded(f"{x[0]} * {x[0]}", scalar.dtype)}
        return powers.get(value)
    exact = abs(math.frexp(value)[0]) == 0.5 and 2.0**-60 < abs(value) < 2.0**60
    if exact or (scalar.dtype in ("f16", "bf16") and 1e-30 < abs(value) < 1e30):
        return rounded(f"{x[0]} * {1 / value!r}", scalar.dtype)
    # The mean of equal numbers must be this number: `/` is off by up to two units in f32's last place.
    return f"tl.div_rn({x[0]}, {x[1]})" if scalar.dtype == "f32" else None


def extreme(name: str, x: str, y: str) -> str:
    """`maximumf` and similar: `maximumf` gives NaN if either operand is NaN, `maxnumf` the other operand."""
    function = "tl.maximum" if name.startswith("max") else "tl.minimum"
    nan = "NONE" if "num" in name else "ALL"
    return f"{function}({x}, {y}, propagate_nan=tl.PropagateNan.{nan})"


_EXACT: dict[str, Callable[..., str]] = {
    "negf": lambda x: f"-{x}",
    "maximumf": lambda x, y: extreme("maximumf", x, y),
    "minimumf": lambda x, y: extreme("minimumf", x, y),
    "maxnumf": lambda x, y: extreme("maxnumf", x, y),
    "minnumf": lambda x, y: extreme("minnumf", x, y),
    "select": lambda c, x, y: f"tl.where({c}, {x}, {y})",
}
_FLOATING: dict[str, Callable[..., str]] = {
    "addf": lambda x, y: f"{x} + {y}",
    "subf": lambda x, y: f"{x} - {y}",
    "mulf": lambda x, y: f"{x} * {y}",
    "divf": lambda x, y: f"{x} / {y}",
    "remf": lambda x, y: f"libdevice.fmod({x}, {y})",
}
_INTEGER: dict[str, Callable[..., str]] = {
    "addi": lambda x, y: f"{x} + {y}",
    "subi": lambda x, y: f"{x} - {y}",
    "muli": lambda x, y: f"{x} * {y}",
    "andi": lambda x, y: f"{x} & {y}",
    "ori": lambda x, y: f"{x} | {y}",
    "xori": lambda x, y: f"{x} ^ {y}",
    "shli": lambda x, y: f"{x} << {y}",
    "shrsi": lambda x, y: f"{x} >> {y}",
    "maxsi": lambda x, y: f"tl.maximum({x}, {y})",
    "minsi": lambda x, y: f"tl.minimum({x}, {y})",
    "divsi": lambda x, y: f"{x} // {_divisor(y)}",
    "remsi": lambda x, y: f"{x} % {_divisor(y)}",
    "shrui": lambda x, y: f"{x} >> {y}",
    "maxui": lambda x, y: f"tl.maximum({x}, {y})",
    "minui": lambda x, y: f"tl.minimum({x}, {y})",
    "divui": lambda x, y: f"{x} // {_divisor(y)}",
    "remui": lambda x, y: f"{x} % {_divisor(y)}",
    "ceildivui": lambda x, y: f"({x} // {_divisor(y)}) + ({x} % {_divisor(y)} != 0)",
    "floordivsi": lambda x, y: f"({x} // {_divisor(y)}) - (({x} % {_divisor(y)} != 0) & (({x} ^ {y}) < 0))",
    "ceildivsi": lambda x, y: f"({x} // {_divisor(y)}) + (({x} % {_divisor(y)} != 0) & (({x} ^ {y}) >= 0))",
}
_UNSIGNED = ("shrui", "maxui", "minui", "divui", "remui", "ceildivui")
BOOLEAN = {"addi": "xori", "subi": "xori", "muli": "andi", "maxui": "ori", "minui": "andi", "maxsi": "andi",
            "minsi": "ori"}  # on one bit, which as a signed number is 0 or -1


def _divisor(y: str) -> str:
    """A divisor that never traps: lanes that are masked out may hold any value."""
    return f"tl.where({y} == 0, 1, {y})"


def unsigned(text: str, dtype: str) -> str:
    return f"{text}.to(tl.uint{ITEM_BITS[dtype]}, bitcast=True)"


def _integer(name: str, x: Sequence[str], dtype: str) -> str:
    if dtype == "i1":
        name = BOOLEAN.get(name, name)
        if name not in ("andi", "ori", "xori"):
            raise UnsupportedOnGpu(f"operation arith.{name} on i1")
        return _INTEGER[name](*x)
    if name in _UNSIGNED:
        return f"({_INTEGER[name](*(unsigned(operand, dtype) for operand in x))}).to({carried_type(dtype)})"
    narrow = ITEM_BITS[dtype] < 32  # Triton does not widen narrow integers; an operand of mixed width has 32 bits
    return f"({_INTEGER[name](*x)}).to({carried_type(dtype)})" if narrow or "div" in name else _INTEGER[name](*x)


# -- comparisons and conversions -------------------------------------------------------------------

_ORDERED = {"oeq": "==", "ogt": ">", "oge": ">=", "olt": "<", "ole": "<=", "une": "!="}
_NEGATED = {"ugt": "<=", "uge": "<", "ult": ">=", "ule": ">"}
_ICMP = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _compare_floats(predicate: str, x: str, y: str) -> str:
    if predicate in _ORDERED:
        return f"({x} {_ORDERED[predicate]} {y})"
    if predicate in _NEGATED:
        return f"(({x} {_NEGATED[predicate]} {y}) == 0)"
    ordered, differ = f"(({x} == {x}) & ({y} == {y}))", f"(({x} < {y}) | ({x} > {y}))"
    texts = {"one": differ, "ueq": f"({differ} == 0)", "ord": ordered, "uno": f"({ordered} == 0)"}
    if predicate in texts:
        return texts[predicate]
    return f"(({x} == {x}) {'|' if predicate == 'true' else '&'} ({x} {'!=' if predicate == 'true' else '<'} {x}))"


def _compare_integers(predicate: str, x: str, y: str, dtype: str) -> str:
    if predicate[0] == "u" and dtype != "i1":
        x, y = unsigned(x, dtype), unsigned(y, dtype)
    elif dtype == "i1" and predicate not in ("eq", "ne"):
        x, y = f"{x}.to(tl.int8)", f"{y}.to(tl.int8)"
        if predicate[0] == "s":
            x, y = y, x
    return f"({x} {_ICMP[predicate.lstrip('su')]} {y})"


def _typed(name: str, scalar: Scalar, x: Sequence[str], dtypes: Sequence[str]) -> str | None:
    """Operations that depend on types as well as on operands."""
    source, target = dtypes[0], carried_type(scalar.dtype)
    if name == "cmpf":
        return _compare_floats(scalar.predicate, x[0], x[1])
    if name == "cmpi":
        return _compare_integers(scalar.predicate, x[0], x[1], source)
    if name in ("extf", "truncf"):
        return rounded(f"{x[0]}.to({target})" if target != carried_type(source) else x[0], scalar.dtype)
    if name in ("sitofp", "uitofp"):
        return rounded(_from_integer(name, x[0], source, target), scalar.dtype)
    if name == "fptosi":
        return f"{x[0]}.to({target})"
    if name == "fptoui":
        return f"{x[0]}.to(tl.uint{ITEM_BITS[scalar.dtype]}).to({target}, bitcast=True)"
    if name in ("extsi", "extui", "trunci", "index_cast", "index_castui"):
        return resize(x[0], source, scalar.dtype, signed=name in ("extsi", "index_cast"))
    return _bitcast(x[0], source, scalar.dtype) if name == "bitcast" else None


def _from_integer(name: str, x: str, source: str, target: str) -> str:
    if source == "i1":
        return f"-({x}.to({target}))" if name == "sitofp" else f"{x}.to({target})"
    return f"{unsigned(x, source)}.to({target})" if name == "uitofp" else f"{x}.to({target})"


def resize(x: str, source: str, dtype: str, signed: bool) -> str:
    """An integer extended or truncated to the width of `dtype`."""
    target = carried_type(dtype)
    if dtype == "i1":
        return x if source == "i1" else f"(({x} & 1) != 0)"
    if source == "i1":
        return f"-({x}.to({target}))" if signed else f"{x}.to({target})"
    if ITEM_BITS[source] == ITEM_BITS[dtype]:
        return x
    widened = x if signed or ITEM_BITS[source] > ITEM_BITS[dtype] else unsigned(x, source)
    return f"{widened}.to({target})"


def _bitcast(x: str, source: str, dtype: str) -> str:
    if ITEM_BITS[source] != ITEM_BITS[dtype] or "i1" in (source, dtype):
        raise UnsupportedOnGpu(f"bitcast of {source} to {dtype}")
    stored = to_storage(x, source)
    return from_storage(f"{stored}.to({storage_type(dtype)}, bitcast=True)", dtype)


# -- the math dialect ------------------------------------------------------------------------------

# erf(x) / x by x² for |x| up to an end, beyond which erf is rounded to 1; relative error below 2^-17 where that is to
# f16 or 8 bits, below 2^-15.4 where it is to bf16, which is at most 0.506 units in the last place.
# Minimax fits by Lawson's algorithm ("Contributions to the theory of linear least maximum approximation", 1961).
_ERF = (2.7, (
    1.1283724308013916, -0.37598985433578491, 0.11235635727643967, -0.026184661313891411, 0.0047199889086186886,
    -0.00063385500106960535, 5.875620627193712e-05, -3.2958923793557915e-06, 8.3183357514826639e-08,
))
_ERF_BF16 = (2.2, (
    1.1283533573150635, -0.37564384937286377, 0.11127343773841858, -0.02486937679350376, 0.0039363885298371315,
    -0.00038543681148439646, 1.712189805402886e-05,
))

_OWN = ("exp", "exp2", "log", "log2", "sin", "cos", "erf")
_LIBRARY = {
    "tanh": "tanh", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "log1p": "log1p", "expm1": "expm1", "log10": "log10",
    "powf": "pow", "atan2": "atan2", "erfc": "erfc",
}
# Functions that flush subnormal f32 numbers to 0, or worse: these are scaled by a power of two before and after.
_SCALED = {"sqrt": ("tl.sqrt", 24, -12), "rsqrt": ("tl.rsqrt", 24, 12), "cbrt": ("libdevice.cbrt", 24, -8)}
_ROUNDINGS = {  # the GPU's floor and ceil of subnormal numbers are 0
    "floor": "tl.where(({0} < 0) & ({0} > -1), -1.0, tl.floor({0}))",
    "ceil": "tl.where(({0} > 0) & ({0} < 1), 1.0, tl.ceil({0}))",
    "absf": "tl.abs({0})", "trunc": "libdevice.trunc({0})",
    "round": "libdevice.round({0})", "roundeven": "libdevice.rint({0})", "copysign": "libdevice.copysign({0}, {1})",
}
_INFINITY = 'float("inf")'

_TANH = (1.0, -1 / 3, 2 / 15, -17 / 315)  # tanh(x) / x as a polynomial in x²


def _short_erf(x: str, dtype: str) -> str:
    """erf for a result that is rounded to `dtype` of at most 16 bits; NaN gives NaN, and -0 gives -0."""
    end, coefficients = _ERF_BF16 if dtype == "bf16" else _ERF
    inside = extreme("minimumf", extreme("maximumf", x, str(-end)), str(end))
    power = f"({inside} * {inside})"
    return f"{inside} * {_horner(power, coefficients)}"


def _short_tanh(x: str) -> str:
    """tanh for a result rounded to at most 16 bits: 1 - 2 / (1 + e^2x), and its series where that loses bits."""
    power = f"libdevice.fast_expf({x} + {x})"
    far = f"1.0 - libdevice.fast_dividef(tl.full((), 2.0, tl.float32), 1.0 + {power})"
    return f"tl.where(tl.abs({x}) < 0.25, {x} * {_horner(f'({x} * {x})', _TANH)}, {far})"


def _scaled(name: str, x: str, dtype: str) -> str:
    function, up, after = _SCALED[name]
    if dtype not in ("f32", "bf16"):
        return f"{function}({x})"
    least = f"(tl.abs({x}) < {2.0**-126!r})"
    return f"{function}({x} * tl.where({least}, {2.0**up}, 1.0)) * tl.where({least}, {2.0**after}, 1.0)"


def _horner(x: str, coefficients: Sequence[float]) -> str:
    """A polynomial by its coefficients, lowest power first."""
    first, *rest = coefficients
    return f"({first!r} + {x} * {_horner(x, rest)})" if rest else repr(first)


def _math(name: str, x: Sequence[str], dtype: str, dtypes: Sequence[str]) -> str | None:
    if name == "erf" and dtype in SHORT_FLOATS:
        return rounded(_short_erf(x[0], dtype), dtype)
    if name == "tanh" and dtype in SHORT_FLOATS:
        return rounded(_short_tanh(x[0]), dtype)
    if name == "exp" and dtype in _NARROW:
        return rounded(f"libdevice.fast_expf({x[0]})", dtype)
    if name in _SCALED:
        return rounded(_scaled(name, x[0], dtype), dtype)
    if name in _OWN:
        return rounded(f"tl.{name}({x[0]})", dtype)
    if name in _LIBRARY:
        return rounded(f"libdevice.{_LIBRARY[name]}({', '.join(x)})", dtype)
    if name in _ROUNDINGS:
        return _ROUNDINGS[name].format(*x)
    if name == "fma":
        return rounded(f"tl.fma({x[0]}, {x[1]}, {x[2]})", dtype)
    if name == "absi":
        return f"tl.abs({x[0]})"
    if name == "isnan":
        return f"({x[0]} != {x[0]})"
    if name == "isinf":
        return f"(tl.abs({x[0]}) == {_INFINITY})"
    if name == "isfinite":
        return f"(tl.abs({x[0]}) < {_INFINITY})"
    if name == "fpowi" and dtype != "f64":
        return rounded(f"libdevice.pow({x[0]}, {x[1]}.to(tl.float32))", dtype)
    if name == "fpowi":
        return f"libdevice.pow({x[0]}, {x[1]}.to(tl.float64))"
    if name in ("ctlz", "ctpop") and ITEM_BITS[dtypes[0]] in (32, 64) and dtypes[0] != "i1":
        return f"libdevice.{'clz' if name == 'ctlz' else 'popc'}({x[0]}).to({carried_type(dtype)})"
    return None
