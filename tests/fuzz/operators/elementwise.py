"""Operators that work on each element by itself."""

# ruff: noqa: E501 - a table, a function a line

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.fuzz.dtypes import ALL, DTYPES, FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, is_float
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import (
    Array,
    Invalid,
    Tracked,
    add,
    apply,
    broadcast,
    cast,
    choose,
    compare,
    divide,
    exact,
    extremum,
    integer,
    multiply,
    rounded,
    step,
    subtract,
    unknown_of,
)

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer

Numbers = Callable[[Array, dict[str, float]], Array]


@dataclass(frozen=True)
class Smooth:
    """A function of floats. `ulps` is its error, `absolute` that of values at 1 that cancel; `slope` how steep it is
    where it is not monotone; `low` and `high` are where its arguments are drawn; `branch` numbers the intervals between
    its poles."""

    of: Numbers
    ulps: float = 8.0
    absolute: float = 0.0
    slope: float | None = None
    low: float | None = None
    high: float | None = None
    branch: Callable[[Array], Array] | None = None
    attributes: tuple[tuple[str, tuple[float, ...]], ...] = ()


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _softplus(x: Array) -> Array:
    return np.where(x > 0, x + np.log1p(np.exp(-np.abs(x))), np.log1p(np.exp(np.minimum(x, 0))))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


SMOOTH: dict[str, Smooth] = {
    "Exp": Smooth(lambda x, a: np.exp(x)),
    "Log": Smooth(lambda x, a: np.log(x), absolute=2, low=0.01, high=9),
    "Sqrt": Smooth(lambda x, a: np.sqrt(x), low=0, high=9),
    "Sin": Smooth(lambda x, a: np.sin(x), absolute=2, slope=1), "Cos": Smooth(lambda x, a: np.cos(x), absolute=2, slope=1),
    "Tan": Smooth(lambda x, a: np.tan(x), low=-1.4, high=1.4, branch=lambda x: np.floor(x / np.pi + 0.5)),
    "Asin": Smooth(lambda x, a: np.arcsin(x), low=-1, high=1), "Acos": Smooth(lambda x, a: np.arccos(x), absolute=8, low=-1, high=1),
    "Atan": Smooth(lambda x, a: np.arctan(x)), "Sinh": Smooth(lambda x, a: np.sinh(x), ulps=16),
    "Cosh": Smooth(lambda x, a: np.cosh(x), ulps=16, low=0, high=5), "Tanh": Smooth(lambda x, a: np.tanh(x)),
    "Asinh": Smooth(lambda x, a: np.arcsinh(x), absolute=8), "Acosh": Smooth(lambda x, a: np.arccosh(x), absolute=16, low=1.1, high=30),
    "Atanh": Smooth(lambda x, a: np.arctanh(x), absolute=8, low=-0.9, high=0.9),
    "Erf": Smooth(lambda x, a: _erf(x), absolute=4), "Sigmoid": Smooth(lambda x, a: _sigmoid(x), ulps=12),
    "Softplus": Smooth(lambda x, a: _softplus(x), absolute=8),
    "Softsign": Smooth(lambda x, a: x / (1 + np.abs(x)), low=-50, high=50),
    "Elu": Smooth(lambda x, a: np.where(x > 0, x, a["alpha"] * np.expm1(np.minimum(x, 0))), absolute=16, attributes=(("alpha", (1.0, 0.37, 2.5)),)),
    "Celu": Smooth(lambda x, a: np.where(x > 0, x, a["alpha"] * np.expm1(np.minimum(x, 0) / a["alpha"])), absolute=24,
                   attributes=(("alpha", (1.0, 0.37, 2.5)),)),
    "Selu": Smooth(lambda x, a: a["gamma"] * np.where(x > 0, x, a["alpha"] * np.expm1(np.minimum(x, 0))), absolute=24,
                   attributes=(("alpha", (1.6732632, 0.5)), ("gamma", (1.050701, 0.5)))),
    "HardSigmoid": Smooth(lambda x, a: np.clip(a["alpha"] * x + a["beta"], 0, 1), absolute=4,
                          attributes=(("alpha", (0.2, 0.3)), ("beta", (0.5, 0.4)))),
    "LeakyRelu": Smooth(lambda x, a: np.where(x < 0, a["alpha"] * x, x), attributes=(("alpha", (0.01, 0.3, 2.0)),)),
    "Gelu": Smooth(lambda x, a: 0.5 * x * (1 + _erf(x / math.sqrt(2))), absolute=16, slope=1.2, low=-20, high=20),
    "HardSwish": Smooth(lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1), absolute=8, slope=1.6, low=-50, high=50),
    "Mish": Smooth(lambda x, a: x * np.tanh(_softplus(x)), absolute=16, slope=1.2, low=-20, high=20),
    "Reciprocal": Smooth(lambda x, a: 1 / x, low=0.05, high=9),
}  # fmt: skip


@meaning(*SMOOTH)
def _unused(attributes: Attributes, operands: Operands) -> list[Tracked]:
    raise AssertionError("replaced below: each has its own")


def _smooth(kind: Smooth) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        values = {name: float(np.float32(attributes.get(name, options[0]))) for name, options in kind.attributes}
        x = given(operands[0])
        found = apply(x, lambda x: kind.of(x, values), kind.ulps, kind.absolute, kind.slope)
        if kind.branch is not None:
            found = replace(found, unknown=found.unknown | (kind.branch(x.low()) != kind.branch(x.high())))
        return [found]

    return evaluate


for _name, _kind in SMOOTH.items():
    meaning(_name)(_smooth(_kind))


@drawn("elementwise", "smooth")
def _draw_smooth(d: Drawer) -> None:
    op, kind = d.rng.choice(list(SMOOTH.items()))
    bounded = kind.low is not None
    x = d.pick(FLOATS, low=kind.low, high=kind.high) if bounded and d.rng.random() < 0.7 else d.pick(FLOATS)
    if bounded and kind.slope is None and d.known[x].error.any() and op in ("Reciprocal",):
        raise Rejected("zeros of any sign")
    d.node(op, [x], **{name: float(np.float32(d.rng.choice(options))) for name, options in kind.attributes})


# -- with steps ----------------------------------------------------------------------------------

_STEPS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "Floor": (np.floor, ""), "Ceil": (np.ceil, ""), "Round": (np.rint, ""),
    "Sign": (lambda x: np.where(np.isnan(x), x, np.sign(x)), ""),
    "IsNaN": (np.isnan, "bool"), "IsInf": (np.isinf, "bool"),
}  # fmt: skip


@meaning(*_STEPS)
def _replaced(attributes: Attributes, operands: Operands) -> list[Tracked]:
    raise AssertionError("replaced below: each has its own")


def _stepped(function: Callable[[Array], Array], dtype: str) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        x = given(operands[0])
        if not x.is_float:
            return [integer(function(x.value), x.dtype, x.unknown)]
        return [step(x, function, dtype or x.dtype)]

    return evaluate


for _name, (_function, _dtype) in _STEPS.items():
    meaning(_name)(_stepped(_function, _dtype))


@drawn("elementwise", "steps")
def _draw_step(d: Drawer) -> None:
    op = d.rng.choice(list(_STEPS))
    d.node(op, [d.pick(NUMBERS if op == "Sign" else FLOATS)])


# -- exact ones -----------------------------------------------------------------------------------


@meaning("Neg")
def _neg(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    return [Tracked(x.dtype, -x.value, x.error, x.unknown)]


@meaning("Abs")
def _abs(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    return [Tracked(x.dtype, np.abs(x.value), x.error, x.unknown)]


@meaning("Identity")
def _identity(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [given(operands[0])]


@meaning("Relu")
def _relu(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    return [extremum(x, exact(np.zeros((), DTYPES[x.dtype]), x.dtype), True)]


@meaning("Not", "BitwiseNot")
def _not(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    return [integer(~x.value, x.dtype, x.unknown)]


@drawn("elementwise", "exact")
def _draw_exact(d: Drawer) -> None:
    op = d.rng.choice(("Neg", "Abs", "Identity", "Relu", "Not", "BitwiseNot"))
    kinds = {"Not": ("bool",), "BitwiseNot": INTEGERS, "Neg": (*FLOATS, *SIGNED)}.get(op, NUMBERS)
    x = d.pick(kinds)
    d.node(op, [x])


# -- of two ----------------------------------------------------------------------------------------


@meaning("Add")
def _add(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [add(given(operands[0]), given(operands[1]))]


@meaning("Sub")
def _subtract(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [subtract(given(operands[0]), given(operands[1]))]


@meaning("Mul")
def _multiply(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [multiply(given(operands[0]), given(operands[1]))]


@meaning("Div")
def _divide(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = broadcast(given(operands[0]), given(operands[1]))
    if a.is_float:
        return [divide(a, b)]
    undefined = (b.value == 0) | unknown_of(a, b)
    if np.iinfo(a.value.dtype).min < 0:
        undefined = undefined | ((b.value == -1) & (a.value == np.iinfo(a.value.dtype).min))
    safe = np.where(undefined, 1, b.value)
    quotient = np.floor_divide(a.value, safe)
    remainder = a.value - quotient * safe
    towards_zero = quotient + ((remainder != 0) & (quotient < 0))
    return [integer(towards_zero, a.dtype, undefined)]


@meaning("Mod")
def _mod(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = broadcast(given(operands[0]), given(operands[1]))
    fmod = attributes.get("fmod", 0)
    if a.is_float:
        value = np.fmod(a.value, b.value)
        unknown = unknown_of(a, b) | (a.error > 0) | (b.error > 0) | (np.abs(a.value) > 1e6 * np.abs(b.value))
        return [rounded(a.dtype, value, 0.0, unknown)]
    undefined = (b.value == 0) | unknown_of(a, b)
    if np.iinfo(a.value.dtype).min < 0:
        undefined = undefined | ((b.value == -1) & (a.value == np.iinfo(a.value.dtype).min))
    safe = np.where(undefined, 1, b.value)
    return [integer(np.fmod(a.value, safe) if fmod else np.mod(a.value, safe), a.dtype, undefined)]


@meaning("Pow")
def _power(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = broadcast(given(operands[0]), given(operands[1]))
    value = np.power(a.value, b.value)
    slope = np.abs(b.value * value / a.value) * a.error + np.abs(value * np.log(np.abs(a.value))) * b.error
    safe = (a.value > 4 * a.error) & (b.error < 0.01 * (1 + np.abs(b.value)))
    safe = safe & np.isfinite(a.value) & np.isfinite(b.value)
    reach = 16 + 4 * np.abs(b.value * np.log(np.where(a.value > 0, a.value, 1.0)))
    error = 4 * np.where(safe, slope, 0) + reach * 2.0**-24 * np.abs(value) * (a.dtype != "f64")
    return [rounded(a.dtype, value, error, unknown_of(a, b) | ~safe, 16)]


@meaning("Min", "Max")
def _extrema(attributes: Attributes, operands: Operands) -> list[Tracked]:
    raise AssertionError("replaced below")


def _of_many(largest: bool) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        found = given(operands[0])
        for other in operands[1:]:
            found = extremum(found, given(other), largest)
        return [found]

    return evaluate


meaning("Max")(_of_many(True))
meaning("Min")(_of_many(False))


@meaning("Sum")
def _sum(attributes: Attributes, operands: Operands) -> list[Tracked]:
    found = given(operands[0])
    for other in operands[1:]:
        found = add(found, given(other))
    return [found]


@meaning("Mean")
def _mean(attributes: Attributes, operands: Operands) -> list[Tracked]:
    [found] = _sum(attributes, operands)
    return [divide(found, exact(np.array(float(len(operands))), found.dtype))]


def _logic(function: Callable[..., Any]) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        a, b = broadcast(given(operands[0]), given(operands[1]))
        return [integer(function(a.value, b.value), a.dtype, unknown_of(a, b))]

    return evaluate


def _relation(function: Callable[..., Any]) -> Callable[[Attributes, Operands], list[Tracked]]:
    return lambda attributes, operands: [compare(given(operands[0]), given(operands[1]), function)]


_LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
_BITS = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
_RELATIONS = {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
for _name, _function in (_LOGIC | _BITS).items():
    meaning(_name)(_logic(_function))
for _name, _function in _RELATIONS.items():
    meaning(_name)(_relation(_function))


@meaning("BitShift")
def _shift(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = broadcast(given(operands[0]), given(operands[1]))
    bits = a.value.dtype.itemsize * 8
    undefined = unknown_of(a, b) | (b.value >= bits)
    by = np.where(undefined, 0, b.value).astype(a.value.dtype)
    shift = np.left_shift if attributes["direction"] == "LEFT" else np.right_shift
    return [integer(shift(a.value, by), a.dtype, undefined)]


@meaning("PRelu")
def _prelu(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, slope = given(operands[0]), given(operands[1])
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise Invalid("the slope is larger")
    below = compare(x, exact(np.zeros((), DTYPES[x.dtype]), x.dtype), np.less)
    return [choose(below, multiply(x, slope), x)]


@meaning("Where")
def _where(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [choose(given(operands[0]), given(operands[1]), given(operands[2]))]


@meaning("Clip")
def _clip(attributes: Attributes, operands: Operands) -> list[Tracked]:
    found = given(operands[0])
    for bound, largest in zip(operands[1:3], (True, False), strict=False):
        if bound is not None:
            found = extremum(found, bound, largest)
    return [found]


@meaning("Cast")
def _cast(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [cast(given(operands[0]), attributes["to"])]


def partner(d: Drawer, x: str, low: float | None = None, high: float | None = None) -> str:
    """A value of the same type whose shape can be broadcast with that of `x`."""
    dtype, shape = d.dtype(x), d.shape(x)

    def fits(name: str) -> bool:
        try:
            return np.prod(np.broadcast_shapes(d.shape(name), shape)) <= 4000
        except ValueError:
            return False

    found = [name for name in d.values() if d.dtype(name) == dtype and fits(name)]
    if found and low is None and d.rng.random() < 0.5:
        return d.rng.choice(found)
    other = [1 if e != 1 and d.rng.random() < 0.25 else e for e in shape[d.rng.choice((0, 0, 0, 1, 2)) :]]
    if len(shape) < 4 and d.rng.random() < 0.1:
        other = [d.rng.choice((1, 2, 3)), *other]
    return d.fresh(dtype, other, low, high)


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Sum", "Mean")


@drawn("elementwise", "arithmetic")
def _draw_arithmetic(d: Drawer) -> None:
    op = d.rng.choice(_ARITHMETIC)
    x = d.pick(FLOATS if op in ("Sum", "Mean") else NUMBERS)
    floating = is_float(d.dtype(x))
    y = partner(d, x, 1, 5) if op in ("Div", "Mod") and d.rng.random() < 0.7 else partner(d, x)
    many = [partner(d, x)] if op in ("Min", "Max", "Sum", "Mean") and d.rng.random() < 0.3 else []
    attributes = {"fmod": 1 if floating else d.rng.choice((0, 1))} if op == "Mod" else {}
    pair = [x, y] if d.rng.random() < 0.7 or op in ("Div", "Mod") else [y, x]
    d.node(op, [*pair, *many], **attributes)


@drawn("elementwise", "arithmetic again")
def _draw_arithmetic_again(d: Drawer) -> None:
    _draw_arithmetic(d)


@drawn("elementwise", "relations")
def _draw_relation(d: Drawer) -> None:
    op = d.rng.choice((*_RELATIONS, *_LOGIC, *_BITS))
    kinds = ("bool",) if op in _LOGIC else INTEGERS if op in _BITS else ALL if op == "Equal" else NUMBERS
    x = d.pick(kinds)
    y = partner(d, x)
    d.node(op, [x, y])


@drawn("elementwise", "powers and shifts")
def _draw_power(d: Drawer) -> None:
    if d.rng.random() < 0.4:
        x = d.pick(UNSIGNED)
        d.node("BitShift", [x, partner(d, x, 0, 7)], direction=d.rng.choice(("LEFT", "RIGHT")))
        return
    x = d.pick(FLOATS, low=0.2, high=5)
    d.node("Pow", [x, partner(d, x)])


@drawn("elementwise", "choices")
def _draw_choice(d: Drawer) -> None:
    kind = d.rng.choice(("Where", "Where", "Clip", "PRelu"))
    if kind == "PRelu":
        x = d.pick(FLOATS, (1, 4))
        d.node("PRelu", [x, d.fresh(d.dtype(x), [e if d.rng.random() < 0.6 else 1 for e in d.shape(x)[-2:]])])
        return
    x = d.pick(ALL if kind == "Where" else NUMBERS)
    if kind == "Where":
        y = partner(d, x)
        shape = d.shape(x)[d.rng.choice((0, 0, 1)) :]
        found = [n for n in d.values() if d.dtype(n) == "bool" and d.shape(n) == shape]
        d.node("Where", [d.rng.choice(found) if found else d.fresh("bool", shape), x, y])
        return
    low, high = (d.fresh(d.dtype(x), (), *r, constant=0.7) for r in ((-2, 0), (1, 4)))
    left_out = d.rng.choice(("", "", "low", "high"))
    d.node("Clip", [x, "" if left_out == "low" else low] + ([] if left_out == "high" else [high]))


@drawn("cast", "Cast")
def _draw_cast(d: Drawer) -> None:
    x = d.pick(ALL)
    to = d.rng.choice([dtype for dtype in ALL if dtype != d.dtype(x)])
    d.node("Cast", [x], to=to)
