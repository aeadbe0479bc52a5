"""Arithmetic of floating-point numbers that are known when compiling, or values of MLIR: a formula is written once.

    def middle(f: FloatArithmetic, x: Number) -> Number:           %0 = arith.addf %x, %half
        return f.floor((x + 0.5) / 2)                         →    %1 = arith.divf %0, %two
                                                                   %2 = math.floor %1
    middle(Arrays(), np.arange(4.0))     middle(Floats(f32), Real(value))

A `Real` is a value of MLIR with the operators of numpy's arrays: they insert operations at the current insertion point,
and numbers of Python become constants of its type.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create

if TYPE_CHECKING:  # of the bindings, which have no types: `1 - x` would be an int if the base were of any type
    class _Value:
        type: ir.Type

        def __init__(self, value: ir.Value) -> None: ...
else:
    _Value = ir.Value

_UNORDERED_EQUAL = 8  # a predicate of arith.cmpf


class Truth(_Value):
    """A value of type i1."""

    @staticmethod
    def of(value: bool) -> Truth:
        bit = ir.IntegerType.get_signless(1)
        return Truth(create("arith.constant", bit, [], {"value": ir.IntegerAttr.get(bit, int(value))}))

    def __and__(self, other: Truth) -> Truth:
        return Truth(create("arith.andi", self.type, [self, other]))

    def __or__(self, other: Truth) -> Truth:
        return Truth(create("arith.ori", self.type, [self, other]))

    def __invert__(self) -> Truth:
        return Truth(create("arith.xori", self.type, [self, Truth.of(True)]))

    def __bool__(self) -> bool:
        raise TypeError("a comparison of values of a call has no result when compiling; expected &, |, ~ or select")


def _operator(name: str) -> Callable[[Real, Real | float], Real]:
    return lambda left, right: Floats(left.type).call(name, left, right)


def _reflected(name: str) -> Callable[[Real, Real | float], Real]:
    return lambda right, left: Floats(right.type).call(name, left, right)


def _comparison(predicate: int) -> Callable[[Real, Real | float], Truth]:
    """The operator of a predicate of arith.cmpf."""
    return lambda left, right: Floats(left.type).compare(predicate, left, right)


class Real(_Value):
    """A value of a floating-point type. Comparisons with NaN are false."""

    __add__, __radd__ = _operator("arith.addf"), _reflected("arith.addf")
    __sub__, __rsub__ = _operator("arith.subf"), _reflected("arith.subf")
    __mul__, __rmul__ = _operator("arith.mulf"), _reflected("arith.mulf")
    __truediv__, __rtruediv__ = _operator("arith.divf"), _reflected("arith.divf")
    __gt__, __ge__ = _comparison(2), _comparison(3)
    __lt__, __le__ = _comparison(4), _comparison(5)

    def __eq__(self, other: Any) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Floats(self.type).compare(1, self, other)

    def __neg__(self) -> Real:
        return Floats(self.type).call("arith.negf", self)

    def __abs__(self) -> Real:
        return Floats(self.type).call("math.absf", self)


Number: TypeAlias = Real | Any  # an array of numpy, if it is no value of MLIR


class FloatArithmetic(ABC):
    """What is no operator, in one floating-point type."""

    @abstractmethod
    def of(self, value: Number) -> Number:
        """A number of Python, an index, or a number that already has this type."""

    @abstractmethod
    def floor(self, value: Number, /) -> Number: ...

    @abstractmethod
    def ceil(self, value: Number, /) -> Number: ...

    @abstractmethod
    def select(self, condition: Truth | Any, a: Number, b: Number) -> Number: ...

    def least(self, a: Number, b: Number) -> Number:
        """The smaller number; `b` if one is NaN."""
        b = self.of(b)
        return self.select(a < b, a, b)

    def most(self, a: Number, b: Number) -> Number:
        """The larger number; `b` if one is NaN."""
        b = self.of(b)
        return self.select(a > b, a, b)

    def clip(self, value: Number, low: Number, high: Number) -> Number:
        return self.least(self.most(value, low), high)

    def round_away(self, value: Number) -> Number:
        """The nearest integer; of two, the one farther from zero."""
        size = abs(value)
        whole = self.floor(size)
        near = whole + self.select(size - whole >= 0.5, 1, 0)
        return self.select(value < 0, 0 - near, near)

    def total(self, values: Sequence[Number]) -> Number:
        return reduce(add, values)

    def polynomial(self, value: Number, factors: Sequence[float]) -> Number:
        """The polynomial with these factors, that of the highest power first."""
        return reduce(lambda found, factor: found * value + factor, factors[1:], self.of(factors[0]))

    def near_cubic(self, distance: Number, a: float) -> Number:
        """The cubic filter of the parameter `a` at distances up to 1."""
        return self.polynomial(distance, (a + 2, -(a + 3), 0, 1))

    def far_cubic(self, distance: Number, a: float) -> Number:
        """The cubic filter of the parameter `a` at distances from 1 to 2."""
        return self.polynomial(distance, (a, -5 * a, 8 * a, -4 * a))


def _function(name: str) -> Callable[[Floats, *tuple[Real | float, ...]], Real]:
    return lambda f, *operands: f.call(name, *operands)


@dataclass(frozen=True)
class Floats(FloatArithmetic):
    """Arithmetic on values of MLIR, at the current insertion point."""

    kind: ir.Type

    floor, ceil, round = _function("math.floor"), _function("math.ceil"), _function("math.roundeven")  # to even of two
    maximum, minimum = _function("arith.maximumf"), _function("arith.minimumf")  # NaN if one is
    copysign, atan2, sqrt = _function("math.copysign"), _function("math.atan2"), _function("math.sqrt")
    exp, expm1, log, log1p = (_function(f"math.{name}") for name in ("exp", "expm1", "log", "log1p"))
    sin, cos, tan, sinh, cosh = (_function(f"math.{name}") for name in ("sin", "cos", "tan", "sinh", "cosh"))

    def of(self, value: Real | ir.Value | float) -> Real:
        if isinstance(value, int | float):
            return Real(create("arith.constant", self.kind, [], {"value": ir.FloatAttr.get(self.kind, value)}))
        return self.of_index(value) if isinstance(value.type, ir.IndexType) else Real(value)

    def call(self, name: str, *operands: Real | float) -> Real:
        """The operation `name`, whose operands and result are of this type."""
        return Real(create(name, self.kind, [self.of(operand) for operand in operands]))

    def compare(self, predicate: int, a: Real | float, b: Real | float) -> Truth:
        """The comparison by a predicate of arith.cmpf."""
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        operands = [self.of(a), self.of(b)]
        return Truth(create("arith.cmpf", ir.IntegerType.get_signless(1), operands, {"predicate": attribute}))

    def is_not_finite(self, value: Real) -> Truth:
        return self.compare(_UNORDERED_EQUAL, abs(value), math.inf)

    def select(self, condition: Truth, a: Real | float, b: Real | float) -> Real:
        return Real(create("arith.select", self.kind, [condition, self.of(a), self.of(b)]))

    def wide(self, value: ir.Value) -> Real:
        """A number of a narrower type, or of this one."""
        return Real(value if value.type == self.kind else create("arith.extf", self.kind, [value]))

    def narrowed(self, value: Real, kind: ir.Type) -> Real:
        return value if kind == self.kind else Real(create("arith.truncf", kind, [value]))

    def converted(self, value: Real, kind: ir.Type) -> Real:
        """A number as one of another type, wider or narrower."""
        return Floats(kind).wide(value) if isinstance(kind, ir.F64Type) else self.narrowed(value, kind)

    def of_integer(self, value: ir.Value, *, unsigned: bool = False) -> Real:
        return Real(create("arith.uitofp" if unsigned else "arith.sitofp", self.kind, [value]))

    def of_index(self, value: ir.Value) -> Real:
        return self.of_integer(create("arith.index_cast", ir.IntegerType.get_signless(64), [value]))

    def index(self, value: Real) -> ir.Value:
        """The integer part of a number below 2³¹ as an index."""
        whole = create("arith.fptosi", ir.IntegerType.get_signless(32), [value])
        return create("arith.index_cast", ir.IndexType.get(), [whole])


@dataclass(frozen=True)
class Arrays(FloatArithmetic):
    """Arithmetic on arrays of numpy, in float32 or float64."""

    dtype: type[np.floating[Any]] = np.float64

    def of(self, value: Any) -> Any:
        return self.dtype(value)

    def floor(self, value: Any, /) -> Any:
        return np.floor(value)

    def ceil(self, value: Any, /) -> Any:
        return np.ceil(value)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, self.of(a), self.of(b))


def floats_for(kind: ir.Type) -> Floats:
    """The type in which numbers of type `kind` are calculated with: f64 for itself and integers, f32 for all others."""
    wide = isinstance(kind, ir.F64Type | ir.IntegerType)
    return Floats(ir.F64Type.get() if wide else ir.F32Type.get())


