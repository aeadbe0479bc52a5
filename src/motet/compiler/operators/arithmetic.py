"""Arithmetic of floating-point numbers that are known when compiling, or values of MLIR: a formula is written once.

    def middle(f: FloatArithmetic[V], x: V) -> V:
        return f.div(f.add(x, f.of(0.5)), f.of(2))

    middle(Arrays(), np.arange(4.0))     middle(Floats(f32), value)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create

EQUAL, GREATER, AT_LEAST, LESS, AT_MOST, UNORDERED = 1, 2, 3, 4, 5, 14  # predicates of arith.cmpf

V = TypeVar("V")  # numbers, and conditions on them


class FloatArithmetic(ABC, Generic[V]):
    """Arithmetic in one floating-point type."""

    @abstractmethod
    def of(self, value: float) -> V: ...

    @abstractmethod
    def add(self, a: V, b: V) -> V: ...

    @abstractmethod
    def sub(self, a: V, b: V) -> V: ...

    @abstractmethod
    def mul(self, a: V, b: V) -> V: ...

    @abstractmethod
    def div(self, a: V, b: V) -> V: ...

    @abstractmethod
    def floor(self, value: V) -> V: ...

    @abstractmethod
    def ceil(self, value: V) -> V: ...

    @abstractmethod
    def magnitude(self, value: V) -> V: ...

    @abstractmethod
    def compare(self, predicate: int, a: V, b: V) -> V: ...

    @abstractmethod
    def select(self, condition: V, a: V, b: V) -> V: ...

    def least(self, a: V, b: V) -> V:
        """The smaller number; `b` if one is NaN."""
        return self.select(self.compare(LESS, a, b), a, b)

    def most(self, a: V, b: V) -> V:
        """The larger number; `b` if one is NaN."""
        return self.select(self.compare(GREATER, a, b), a, b)

    def clip(self, value: V, low: V, high: V) -> V:
        return self.least(self.most(value, low), high)

    def round_away(self, value: V) -> V:
        """The nearest integer; of two, the one farther from zero."""
        size = self.magnitude(value)
        whole = self.floor(size)
        more = self.compare(AT_LEAST, self.sub(size, whole), self.of(0.5))
        near = self.add(whole, self.select(more, self.of(1), self.of(0)))
        return self.select(self.compare(LESS, value, self.of(0)), self.sub(self.of(0), near), near)

    def total(self, values: Sequence[V]) -> V:
        found = values[0]
        for value in values[1:]:
            found = self.add(found, value)
        return found

    def polynomial(self, value: V, factors: Sequence[float]) -> V:
        """The polynomial with these factors, that of the highest power first."""
        found = self.of(factors[0])
        for factor in factors[1:]:
            found = self.add(self.mul(found, value), self.of(factor))
        return found

    def near_cubic(self, distance: V, a: float) -> V:
        """The cubic filter of the parameter `a` at distances up to 1."""
        return self.polynomial(distance, (a + 2, -(a + 3), 0, 1))

    def far_cubic(self, distance: V, a: float) -> V:
        """The cubic filter of the parameter `a` at distances from 1 to 2."""
        return self.polynomial(distance, (a, -5 * a, 8 * a, -4 * a))

    def cubic(self, part: V, rest: V, a: float) -> list[V]:
        """The weights of the two elements before and the two after a place, `part` after the second one, `rest` before
        the third, by the cubic filter of the parameter `a`."""
        one = self.of(1)
        return [
            self.far_cubic(self.add(part, one), a), self.near_cubic(part, a), self.near_cubic(rest, a),
            self.far_cubic(self.add(rest, one), a),
        ]


@dataclass(frozen=True)
class Floats(FloatArithmetic[ir.Value]):
    """Arithmetic on values of MLIR, at the current insertion point."""

    kind: ir.Type

    def of(self, value: float) -> ir.Value:
        return create("arith.constant", self.kind, [], {"value": ir.FloatAttr.get(self.kind, value)})

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.addf", self.kind, [a, b])

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.subf", self.kind, [a, b])

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.mulf", self.kind, [a, b])

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.divf", self.kind, [a, b])

    def floor(self, value: ir.Value) -> ir.Value:
        return create("math.floor", self.kind, [value])

    def ceil(self, value: ir.Value) -> ir.Value:
        return create("math.ceil", self.kind, [value])

    def round(self, value: ir.Value) -> ir.Value:
        """The nearest integer; the even one of two."""
        return create("math.roundeven", self.kind, [value])

    def magnitude(self, value: ir.Value) -> ir.Value:
        return create("math.absf", self.kind, [value])

    def compare(self, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        return create("arith.cmpf", ir.IntegerType.get_signless(1), [a, b], {"predicate": attribute})

    def select(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.select", self.kind, [condition, a, b])

    def wide(self, value: ir.Value) -> ir.Value:
        """A number of a narrower type, or of this one."""
        return value if value.type == self.kind else create("arith.extf", self.kind, [value])

    def narrowed(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if kind == self.kind else create("arith.truncf", kind, [value])

    def converted(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        """A number as one of another type, wider or narrower."""
        return Floats(kind).wide(value) if isinstance(kind, ir.F64Type) else self.narrowed(value, kind)

    def of_index(self, value: ir.Value) -> ir.Value:
        word = ir.IntegerType.get_signless(64)
        return create("arith.sitofp", self.kind, [create("arith.index_cast", word, [value])])

    def index(self, value: ir.Value) -> ir.Value:
        """The integer part of a number below 2³¹ as an index."""
        whole = create("arith.fptosi", ir.IntegerType.get_signless(32), [value])
        return create("arith.index_cast", ir.IndexType.get(), [whole])


@dataclass(frozen=True)
class Arrays(FloatArithmetic[Any]):
    """Arithmetic on arrays of numpy, in float32 or float64."""

    dtype: type[np.floating[Any]] = np.float64

    def of(self, value: float) -> Any:
        return self.dtype(value)

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def div(self, a: Any, b: Any) -> Any:
        return a / b

    def floor(self, value: Any) -> Any:
        return np.floor(value)

    def ceil(self, value: Any) -> Any:
        return np.ceil(value)

    def magnitude(self, value: Any) -> Any:
        return np.abs(value)

    def compare(self, predicate: int, a: Any, b: Any) -> Any:
        return {EQUAL: a == b, GREATER: a > b, AT_LEAST: a >= b, LESS: a < b, AT_MOST: a <= b}[predicate]

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)


def both(a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.andi", a.type, [a, b])


def floats_for(kind: ir.Type) -> Floats:
    """The type in which numbers of type `kind` are calculated with: f64 for itself and integers, f32 for all others."""
    wide = isinstance(kind, ir.F64Type | ir.IntegerType)
    return Floats(ir.F64Type.get() if wide else ir.F32Type.get())
