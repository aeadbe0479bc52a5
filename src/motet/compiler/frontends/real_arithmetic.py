"""Scalar operations of `arith` and `math`, written as Python expressions.

    r = RealArithmetic(op, kind)            %0 = arith.mulf %x, %x
    y = r.sqrt(x * x + 1.0)            →    %1 = arith.addf %0, %cst
                                            %2 = math.sqrt %1
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir

_PREDICATES = {"==": 1, ">": 2, "<": 4}  # ordered: false for NaN
_UNORDERED_EQUAL = 8
_LARGEST = {"f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
_SMALLEST = {"f32": 2.0**-126, "f64": 2.0**-1022}


@dataclass(frozen=True, eq=False)
class Truth:
    """A value of type i1."""

    arithmetic: RealArithmetic
    value: ir.Value

    def __and__(self, other: Truth) -> Truth:
        return self._with("arith.andi", other)

    def __or__(self, other: Truth) -> Truth:
        return self._with("arith.ori", other)

    def _with(self, name: str, other: Truth) -> Truth:
        value = self.arithmetic.create(name, self.value.type, [self.value, other.value])
        return Truth(self.arithmetic, value)


@dataclass(frozen=True, eq=False)
class Real:
    """A floating-point value; the other operand of an operator may be a Python number."""

    arithmetic: RealArithmetic
    value: ir.Value

    def __add__(self, other: Real | float) -> Real:
        return self._with("arith.addf", other)

    def __sub__(self, other: Real | float) -> Real:
        return self._with("arith.subf", other)

    def __mul__(self, other: Real | float) -> Real:
        return self._with("arith.mulf", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self._with("arith.divf", other)

    def __neg__(self) -> Real:
        return self.arithmetic.call("arith.negf", self)

    def __abs__(self) -> Real:
        return self.arithmetic.call("math.absf", self)

    def __eq__(self, other: object) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert isinstance(other, (Real, float))
        return self.arithmetic.compare(_PREDICATES["=="], self, other)

    def __gt__(self, other: Real | float) -> Truth:
        return self.arithmetic.compare(_PREDICATES[">"], self, other)

    def __lt__(self, other: Real | float) -> Truth:
        return self.arithmetic.compare(_PREDICATES["<"], self, other)

    def _with(self, name: str, other: Real | float) -> Real:
        return self.arithmetic.call(name, self, self.arithmetic.real(other))


class RealArithmetic:
    """Inserts operations on values of floating-point type `kind` before `op`."""

    def __init__(self, op: ir.Operation, kind: ir.Type) -> None:
        self.kind = kind
        self.largest, self.smallest = _LARGEST[str(kind)], _SMALLEST[str(kind)]
        self._location, self._at = op.location, ir.InsertionPoint(op)

    def create(
        self, name: str, kind: ir.Type, operands: list[ir.Value], attributes: dict[str, ir.Attribute] | None = None
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[kind], operands=operands, attributes=attributes or {}, loc=self._location, ip=self._at
        ).result

    def call(self, name: str, *operands: Real) -> Real:
        return Real(self, self.create(name, self.kind, [operand.value for operand in operands]))

    def constant(self, number: float) -> Real:
        value = ir.FloatAttr.get(self.kind, number)
        return Real(self, self.create("arith.constant", self.kind, [], {"value": value}))

    def real(self, number: Real | float) -> Real:
        return number if isinstance(number, Real) else self.constant(number)

    def compare(self, predicate: int, left: Real, right: Real | float) -> Truth:
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        operands = [left.value, self.real(right).value]
        truth = ir.IntegerType.get_signless(1)
        return Truth(self, self.create("arith.cmpf", truth, operands, {"predicate": attribute}))

    def is_not_finite(self, x: Real) -> Truth:
        return self.compare(_UNORDERED_EQUAL, abs(x), float("inf"))

    def select(self, condition: Truth, x: Real, y: Real) -> Real:
        return Real(self, self.create("arith.select", self.kind, [condition.value, x.value, y.value]))

    def maximum(self, x: Real, y: Real) -> Real:
        return self.call("arith.maximumf", x, y)

    def minimum(self, x: Real, y: Real) -> Real:
        return self.call("arith.minimumf", x, y)

    def copysign(self, x: Real, sign: Real) -> Real:
        return self.call("math.copysign", x, sign)

    def atan2(self, y: Real, x: Real) -> Real:
        return self.call("math.atan2", y, x)

    def sqrt(self, x: Real) -> Real:
        return self.call("math.sqrt", x)

    def exp(self, x: Real) -> Real:
        return self.call("math.exp", x)

    def expm1(self, x: Real) -> Real:
        return self.call("math.expm1", x)

    def log(self, x: Real) -> Real:
        return self.call("math.log", x)

    def log1p(self, x: Real) -> Real:
        return self.call("math.log1p", x)

    def sin(self, x: Real) -> Real:
        return self.call("math.sin", x)

    def cos(self, x: Real) -> Real:
        return self.call("math.cos", x)

    def tan(self, x: Real) -> Real:
        return self.call("math.tan", x)

    def sinh(self, x: Real) -> Real:
        return self.call("math.sinh", x)

    def cosh(self, x: Real) -> Real:
        return self.call("math.cosh", x)

    # -- complex parts ---------------------------------------------------------------------------

    def part(self, name: str, number: ir.Value) -> Real:
        """`complex.re` or `complex.im` of a complex number, as wide as `kind`."""
        element = ir.ComplexType(number.type).element_type
        value = self.create(name, element, [number])
        if element == self.kind:
            return Real(self, value)
        return Real(self, self.create("arith.extf", self.kind, [value]))

    def from_integer(self, integer: ir.Value) -> Real:
        return Real(self, self.create("arith.sitofp", self.kind, [integer]))

    def narrowed(self, x: Real, kind: ir.Type) -> Real:
        return x if kind == self.kind else Real(self, self.create("arith.truncf", kind, [x.value]))

    def make(self, kind: ir.Type, real: Real, imaginary: Real) -> ir.Value:
        return self.create("complex.create", kind, [real.value, imaginary.value])
