"""Rewrites the scalar bodies of stages by identities that save arithmetic and keep accuracy.

    tanh(log1p(exp(x)))                  →  n / (n + d), by u = exp(-|x|), which does not overflow:
                                            x > 0: n = 1 + 2u, d = 2u²      x ≤ 0: n = u² + 2u, d = 2
    extf(x) : f32 to f64 > 20.0 : f64    →  x > 20.0 : f32

The first is Mish's factor: tanh(log(1 + e)) = ((1 + e)² - 1) / ((1 + e)² + 1), without the cancellation that the
subtraction has for small `e`. The forms of `log1p(exp(x))` that exporters write are recognised: `log(1 + exp(x))`,
`max(x, 0) + log1p(exp(-|x|))`, and a selection of `x` itself above a threshold that is large enough for tanh to be 1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.kernels.kernel import Kernel, Scalar, Stage, dependencies

_SATURATED = {"f32": 9.1, "f64": 19.1}  # tanh of any larger number is 1


def simplified(kernel: Kernel) -> Kernel:
    """`kernel` with the bodies of its stages rewritten."""
    return replace(kernel, stages=tuple(_simplified(stage, kernel) for stage in kernel.stages))


def _simplified(stage: Stage, kernel: Kernel) -> Stage:
    body = _Body([kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)], [], [])
    for scalar in stage.body:
        body.take(scalar)
    if not body.changed:
        return stage
    yields = tuple(body.where(y) for y in stage.yields)
    return _without_unused(replace(stage, body=tuple(body.scalars), yields=yields), body.first)


def _without_unused(stage: Stage, first: int) -> Stage:
    needed = dependencies(stage.body, first, stage.yields)
    kept = [position for position in range(len(stage.body)) if first + position in needed or stage.body[position].check]
    number = {first + old: first + new for new, old in enumerate(kept)}
    body = tuple(
        replace(stage.body[old], operands=tuple(number.get(o, o) for o in stage.body[old].operands)) for old in kept
    )
    return replace(stage, body=body, yields=tuple(number.get(y, y) for y in stage.yields))


@dataclass
class _Body:
    """A body while it is rewritten. `dtypes` are those of the inputs and accumulators, `moved[k]` the value that the old
    body's operation `k` became."""

    dtypes: Sequence[str]
    scalars: list[Scalar]
    moved: list[int]
    changed: bool = False

    @property
    def first(self) -> int:
        """The number of the body's first operation."""
        return len(self.dtypes)

    def dtype(self, value: int) -> str:
        return self.dtypes[value] if value < self.first else self.scalars[value - self.first].dtype

    def where(self, value: int) -> int:
        return value if value < self.first else self.moved[value - self.first]

    def take(self, scalar: Scalar) -> None:
        """Add an operation of the old body, or what replaces it."""
        scalar = replace(scalar, operands=tuple(self.where(o) for o in scalar.operands))
        found = self.mish_factor(scalar) if scalar.op == "math.tanh" else None
        if scalar.op == "arith.cmpf":
            found = self.narrow_comparison(scalar)
        self.changed |= found is not None
        self.moved.append(self.add(scalar) if found is None else found)

    def add(self, scalar: Scalar) -> int:
        self.scalars.append(scalar)
        return self.first + len(self.scalars) - 1

    def of(self, value: int, op: str) -> Scalar | None:
        """The operation that computes `value`, if it is an `op`."""
        scalar = self.scalars[value - self.first] if value >= self.first else None
        return scalar if scalar is not None and scalar.op == op else None

    def operand(self, value: int, op: str) -> int | None:
        """The operand of `value`, if it is computed by the unary `op`."""
        scalar = self.of(value, op)
        return None if scalar is None else scalar.operands[0]

    def number(self, value: int) -> float | None:
        """`value` as a constant; widening conversions of constants are constants."""
        while (inner := self.operand(value, "arith.extf")) is not None:
            value = inner
        scalar = self.of(value, "arith.constant")
        return None if scalar is None or scalar.value is None else float(scalar.value)

    def beside(self, value: int, op: str, constant: float) -> int | None:
        """The other operand of the commutative `op`, if one of them is `constant`."""
        scalar = self.of(value, op)
        if scalar is None:
            return None
        for one, other in (scalar.operands, scalar.operands[::-1]):
            if self.number(one) == constant:
                return other
        return None

    # -- comparisons -------------------------------------------------------------------------------

    def narrow_comparison(self, scalar: Scalar) -> int | None:
        """A comparison of an f32 that is widened to f64 with a constant, in f32."""
        for place, value in enumerate(scalar.operands):
            narrow, limit = self.operand(value, "arith.extf"), self.number(scalar.operands[1 - place])
            if narrow is None or limit is None or self.dtype(narrow) != "f32" or not _is_single(limit):
                continue
            constant = self.add(Scalar("arith.constant", (), "f32", limit))
            return self.add(replace(scalar, operands=(narrow, constant) if place == 0 else (constant, narrow)))
        return None

    # -- Mish --------------------------------------------------------------------------------------

    def mish_factor(self, tanh: Scalar) -> int | None:
        """tanh(softplus(x)) by one exponential and one division; None if `tanh` is of something else."""
        if tanh.dtype not in _SATURATED:
            return None
        x = self.softplus(tanh.operands[0], _SATURATED[tanh.dtype])
        if x is None:
            return None

        def add(op: str, *operands: int, dtype: str = tanh.dtype, predicate: str = "") -> int:
            return self.add(Scalar(op, operands, dtype, None, predicate))

        def number(value: float) -> int:
            return self.add(Scalar("arith.constant", (), tanh.dtype, value))

        zero, one, two = number(0.0), number(1.0), number(2.0)
        u = add("math.exp", add("arith.negf", add("math.absf", x)))
        twice, square = add("arith.addf", u, u), add("arith.mulf", u, u)
        positive = add("arith.cmpf", x, zero, dtype="i1", predicate="ogt")
        head = add("arith.addf", twice, add("arith.select", positive, one, square))
        rest = add("arith.select", positive, add("arith.addf", square, square), two)
        return add("arith.divf", head, add("arith.addf", head, rest))

    def softplus(self, value: int, saturated: float) -> int | None:
        """`x`, if `value` is log(1 + exp(x)) in one of its forms; above `saturated` it may be `x`."""
        chosen = self.of(value, "arith.select")
        if chosen is not None:
            condition, above, below = chosen.operands
            test = self.of(condition, "arith.cmpf")
            if test is None or test.predicate not in ("ogt", "oge", "ugt", "uge") or test.operands[0] != above:
                return None
            limit = self.number(test.operands[1])
            plain = self.softplus(below, saturated)
            return above if limit is not None and limit >= saturated and plain == above else None
        return self.plain_softplus(value)

    def plain_softplus(self, value: int) -> int | None:
        total = self.of(value, "arith.addf")
        if total is not None:
            for one, other in (total.operands, total.operands[::-1]):
                x, exponent = self.beside(one, "arith.maximumf", 0.0), self.exponent_of(other)
                size = None if exponent is None else self.operand(exponent, "arith.negf")
                if x is not None and size is not None and self.operand(size, "math.absf") == x:
                    return x
            return None
        return self.exponent_of(value)

    def exponent_of(self, value: int) -> int | None:
        """`y`, if `value` is log(1 + exp(y))."""
        power = self.operand(value, "math.log1p")
        if power is None and (total := self.operand(value, "math.log")) is not None:
            power = self.beside(total, "arith.addf", 1.0)
        return None if power is None else self.operand(power, "math.exp")


def _is_single(value: float) -> bool:
    """Whether `value` is an f32."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False
