"""The interval of an integer value of a program, as far as it is known when compiling."""

from __future__ import annotations

import re
from typing import cast

from motet.compiler.ir._mlir import ir

Interval = tuple[int | None, int | None]
"""The least and the greatest number; None for unbounded."""

UNKNOWN: Interval = (None, None)
_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci", "arith.index_castui", "arith.extui")
_WIDE = 64
_FALSE, _TRUE = (0, 0), (-1, -1)  # of i1
_CHOICES: dict[Interval, int] = {_TRUE: 1, _FALSE: 2}  # the operand that `arith.select` takes
_SLT, _SLE, _SGT, _SGE = range(2, 6)  # predicates of `arith.cmpi`


class Intervals:
    """The intervals of values of one function, each computed once. Rewriting the function invalidates it."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Interval] = {}

    def of(self, value: ir.Value) -> Interval:
        if value not in self._known:
            self._known[value] = UNKNOWN  # for values that depend on themselves
            self._known[value] = _within_type(self._find(value), value.type)
        return self._known[value]

    def is_inside(self, value: ir.Value, extent: int) -> bool:
        """Whether `0 <= value < extent` is known."""
        low, high = self.of(value)
        return low is not None and high is not None and low >= 0 and high < extent

    def _find(self, value: ir.Value) -> Interval:
        if isinstance(value.owner, ir.Block):
            return self._counter(ir.BlockArgument(value))
        operation = value.owner.operation
        name = operation.name
        if name == "arith.constant":
            attribute = operation.attributes["value"]
            number = ir.IntegerAttr(attribute).value if isinstance(attribute, ir.IntegerAttr) else None
            return number, number
        if name == "tensor.dim":
            return 0, None
        if name == "linalg.index":
            extent = loop_extent(operation)
            return 0, None if extent is None else extent - 1
        if name in _CASTS:
            return _cast(name, self.of(operation.operands[0]), operation.operands[0].type)
        if name == "affine.apply":
            return self._applied(operation)
        if name == "arith.cmpi":
            return self._compared(operation)
        if name == "arith.select":
            chosen = _CHOICES.get(self.of(operation.operands[0]))
            if chosen is not None:
                return self.of(operation.operands[chosen])
            return _union(self.of(operation.operands[1]), self.of(operation.operands[2]))
        if name.startswith("arith.") and len(operation.operands) == 2:
            return _combined(name, self.of(operation.operands[0]), self.of(operation.operands[1]))
        return UNKNOWN

    def _compared(self, operation: ir.Operation) -> Interval:
        """The interval of a signed comparison, whose results are 0 and, as a signed number of one bit, -1."""
        kind = ir.IntegerAttr(operation.attributes["predicate"]).value
        left, right = map(self.of, operation.operands)
        if kind in (_SGT, _SGE):
            left, right, kind = right, left, {_SGT: _SLT, _SGE: _SLE}[kind]
        if kind not in (_SLT, _SLE) or None in (*left, *right):
            return UNKNOWN
        (least, greatest), (low, high) = (cast(tuple[int, int], each) for each in (left, right))
        if greatest < low or (kind == _SLE and greatest == low):
            return _TRUE
        return _FALSE if least > high or (kind == _SLT and least == high) else UNKNOWN

    def _counter(self, argument: ir.BlockArgument) -> Interval:
        """The interval of a loop's counter."""
        loop = argument.owner.owner
        if loop is None or loop.name != "scf.for" or argument.arg_number:
            return UNKNOWN
        high = self.of(loop.operation.operands[1])[1]
        return self.of(loop.operation.operands[0])[0], None if high is None else high - 1

    def _applied(self, operation: ir.Operation) -> Interval:
        map_ = ir.AffineMapAttr(operation.attributes["map"]).value
        operands = list(operation.operands)

        def expression(each: ir.AffineExpr) -> Interval:
            if isinstance(each, ir.AffineConstantExpr):
                return each.value, each.value
            if isinstance(each, ir.AffineDimExpr):
                return self.of(operands[each.position])
            if isinstance(each, ir.AffineSymbolExpr):
                return self.of(operands[map_.n_dims + each.position])
            for kind, name in _AFFINE.items():
                if isinstance(each, kind):
                    pair = ir.AffineBinaryExpr(each)
                    return _combined(name, expression(pair.lhs), expression(pair.rhs))
            return UNKNOWN

        return expression(map_.results[0])


_AFFINE = {
    ir.AffineAddExpr: "arith.addi", ir.AffineMulExpr: "arith.muli", ir.AffineFloorDivExpr: "arith.floordivsi",
    ir.AffineModExpr: "arith.remui",
}


def loop_extent(index: ir.Operation) -> int | None:
    """The extent of the loop that a `linalg.index` counts; None if an operand's extent is dynamic."""
    generic = index.parent.operation
    dimension = ir.IntegerAttr(index.attributes["dim"]).value
    for operand, attribute in zip(generic.operands, ir.ArrayAttr(generic.attributes["indexing_maps"]), strict=True):
        for axis, result in enumerate(ir.AffineMapAttr(attribute).value.results):
            whole = isinstance(result, ir.AffineDimExpr) and result.position == dimension
            if whole and not ir.ShapedType(operand.type).is_dynamic_dim(axis):
                return ir.ShapedType(operand.type).get_dim_size(axis)
    return None


def _within_type(found: Interval, kind: ir.Type) -> Interval:
    """`found`, or the range of the type if arithmetic may have wrapped around."""
    match = re.fullmatch(r"i(\d+)", str(kind))
    bits = int(match[1]) if match else _WIDE
    least, greatest = -(1 << bits - 1), (1 << bits - 1) - 1
    low, high = found
    if (low is not None and low < least) or (high is not None and high > greatest):
        low = high = None
    if bits < _WIDE:
        return least if low is None else low, greatest if high is None else high
    return low, high


def _cast(name: str, found: Interval, kind: ir.Type) -> Interval:
    """The interval of a conversion of a value of type `kind` in the interval `found`."""
    low, high = found
    if not name.endswith("ui") or (low is not None and low >= 0):
        return found
    match = re.fullmatch(r"i(\d+)", str(kind))
    if match is None:
        return UNKNOWN
    numbers = 1 << int(match[1])
    return (low + numbers, high + numbers) if low is not None and high is not None and high < 0 else (0, numbers - 1)


def _union(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return low, None if a[1] is None or b[1] is None else max(a[1], b[1])


def _combined(name: str, a: Interval, b: Interval) -> Interval:
    """The interval of an operation's result. Sums of half-open intervals may wrap around, and are unknown."""
    operation = name.removeprefix("arith.")
    if operation in ("minsi", "maxsi"):
        lows, highs = [n for n in (a[0], b[0]) if n is not None], [n for n in (a[1], b[1]) if n is not None]
        if operation == "minsi":
            return min(lows) if len(lows) == 2 else None, min(highs, default=None)
        return max(lows, default=None), max(highs) if len(highs) == 2 else None
    divisor = b[0] if b[0] is not None and b[0] == b[1] and b[0] > 0 else None
    natural = a[0] is not None and a[0] >= 0
    if divisor is not None and operation in ("remui", "remsi") and (natural or operation == "remui"):
        return 0, divisor - 1
    if divisor is not None and operation in ("divsi", "divui", "floordivsi") and natural:
        return (a[0] or 0) // divisor, None if a[1] is None else a[1] // divisor
    if operation == "andi" and natural and a[1] is not None:
        return 0, a[1]
    return _arithmetic(operation, a, b)


def _arithmetic(operation: str, a: Interval, b: Interval) -> Interval:
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None:
        return UNKNOWN
    if operation == "addi":
        return a[0] + b[0], a[1] + b[1]
    if operation == "subi":
        return a[0] - b[1], a[1] - b[0]
    if operation == "muli":
        products = [x * y for x in (a[0], a[1]) for y in (b[0], b[1])]
        return min(products), max(products)
    return UNKNOWN
