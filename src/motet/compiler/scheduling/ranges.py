"""ranges: the range of an index, as expressions over the inputs' dynamic extents.

Follows index arithmetic back to extents, constants, positions of loops and induction variables. An index that depends
on data has no range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from motet.artifact.expressions import apply, at_most
from motet.artifact.schema import Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.shapes import PASSED_ON, Shapes

_EQUAL, _LESS, _NOT_LESS = 0, 2, 5  # predicates of arith.cmpi


@dataclass(frozen=True)
class Range:
    """Integers from `least` to `most`; empty if `most` is less, as for a loop without iterations.

    `exact` means that both ends occur in every call with a non-empty range, so that a call whose ends do not fit is
    invalid. `counters` are the loops that the number depends on: if two numbers share one, as i and n - i do, not all
    pairs of values occur, and results computed from both are not exact.
    """

    least: Expr
    most: Expr
    exact: bool = True
    counters: frozenset[object] = frozenset()

    @property
    def is_natural(self) -> bool:
        """Whether all numbers in it are non-negative."""
        return at_most(0, self.least)


@dataclass(frozen=True)
class Ranges:
    """The ranges of index values in a function, each found once; `positions` are those of the enclosing loops, by
    `linalg.index`."""

    shapes: Shapes
    positions: tuple[Expr, ...] = ()
    found: dict[ir.Value, Range | None] = field(default_factory=dict[ir.Value, "Range | None"])

    def of(self, value: ir.Value) -> Range | None:
        if value not in self.found:
            self.found[value] = self._find(value)
        return self.found[value]

    def _find(self, value: ir.Value) -> Range | None:
        known = self.shapes.numbers.get(value)
        if known is not None:
            return Range(known, known)
        if isinstance(value.owner, ir.Block):
            return self._of_induction(value)
        operation = value.owner.operation
        if operation.name in PASSED_ON:
            return self.of(operation.operands[0])
        if operation.name == "linalg.index":
            loop = ir.IntegerAttr(operation.attributes["dim"]).value
            return position_in(loop, self.positions[loop]) if loop < len(self.positions) else None
        if operation.name == "arith.select":
            return self._of_select(operation)
        if operation.name == "affine.apply":
            return self._of_map(operation)
        rule = _RULES.get(operation.name)
        sides = [self.of(operand) for operand in operation.operands] if rule is not None else []
        known_sides = [side for side in sides if side is not None]
        return rule(*known_sides) if rule is not None and len(known_sides) == 2 == len(sides) else None

    def _of_induction(self, value: ir.Value) -> Range | None:
        block = value.owner
        loop = block.owner.operation if isinstance(block, ir.Block) else None
        if loop is None or loop.name != "scf.for" or block.arguments[0] != value:
            return None
        begin, end, step = (self.of(operand) for operand in list(loop.operands)[:3])
        if begin is None or end is None or step is None or not at_most(1, step.least):
            return None
        most = apply("-", end.most, 1)
        if begin.least == begin.most and step.least == step.most != 1:
            whole = apply("//", apply("-", most, begin.least), step.least)
            most = apply("+", begin.least, apply("*", whole, step.least))
        fixed = not (begin.counters or end.counters or step.counters)
        return Range(begin.least, most, fixed, begin.counters | end.counters | {value})

    def turns(self, loop: ir.Operation) -> Expr:
        """0 if an `scf.for` certainly has no iterations, else 1."""
        begin, end = (self.of(operand) for operand in list(loop.operands)[:2])
        if begin is None or end is None:
            return 1
        return at_least_one(apply("-", end.most, begin.least))

    def _of_select(self, select: ir.Operation) -> Range | None:
        condition, *sides = select.operands
        first, second = (self.of(side) for side in sides)
        decided = self._decided(condition)
        if decided is not None:
            return first if decided else second
        if first is None or second is None:
            return None
        one = self._extent_that_is_one(condition)
        if one is not None and first == Range(0, 0):
            # The position along an extent that may be 1, in which case it is 0.
            stretched = at_least_one(apply("-", one, 1))
            least, most = apply("min", second.least, 0), apply("*", second.most, stretched)
            return Range(least, most, second.exact, second.counters)
        return _either(first, second)

    def _decided(self, condition: ir.Value) -> bool | None:
        """Whether a comparison holds for all values of its operands; None if it depends on them."""
        known = self.shapes.numbers.get(condition)
        if isinstance(known, int):
            return bool(known)
        compare = _comparison(condition)
        if compare is None:
            return None
        predicate, left, right = compare
        sides = self.of(left), self.of(right)
        if predicate not in (_LESS, _NOT_LESS) or sides[0] is None or sides[1] is None:
            return None
        if at_most(sides[1].most, sides[0].least):
            return predicate == _NOT_LESS
        return predicate == _LESS if at_most(apply("+", sides[0].most, 1), sides[1].least) else None

    def _extent_that_is_one(self, condition: ir.Value) -> Expr | None:
        """The extent that `condition` compares with 1; None for other conditions."""
        compare = _comparison(condition)
        if compare is None or compare[0] != _EQUAL:
            return None
        sides = [self.shapes.numbers.get(side) for side in compare[1:]]
        if 1 not in sides:
            return None
        return sides[1 - sides.index(1)]

    def _of_map(self, operation: ir.Operation) -> Range | None:
        map_ = ir.AffineMapAttr(operation.attributes["map"]).value
        operands = [self.of(operand) for operand in operation.operands]
        known = [operand for operand in operands if operand is not None]
        if len(known) != len(operands):
            return None
        return of_expression(map_.results[0], known[: map_.n_dims], known[map_.n_dims :])


def at_least_one(count: Expr) -> Expr:
    """0 if `count` is 0 or negative, else 1."""
    if at_most(1, count):
        return 1
    return apply("max", apply("min", count, 1), 0)


def of_expression(
    expression: ir.AffineExpr, dims: list[Range], symbols: list[Range] | None = None
) -> Range | None:
    """The range of an affine expression of numbers with ranges."""
    if isinstance(expression, ir.AffineConstantExpr):
        value = ir.AffineConstantExpr(expression).value
        return Range(value, value)
    if isinstance(expression, ir.AffineDimExpr):
        return dims[ir.AffineDimExpr(expression).position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return (symbols or [])[ir.AffineSymbolExpr(expression).position]
    for kind, rule in _AFFINE.items():
        if isinstance(expression, kind):
            pair = ir.AffineBinaryExpr(expression)
            left, right = (of_expression(side, dims, symbols) for side in (pair.lhs, pair.rhs))
            return None if left is None or right is None else rule(left, right)
    return None


def _comparison(value: ir.Value) -> tuple[int, ir.Value, ir.Value] | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.cmpi":
        return None
    compare = value.owner.operation
    return ir.IntegerAttr(compare.attributes["predicate"]).value, compare.operands[0], compare.operands[1]


def position_in(loop: int, extent: Expr) -> Range:
    """The range of the counter of loop `loop` of an operation."""
    return Range(0, apply("-", extent, 1), True, frozenset({loop}))


def _of_both(least: Expr, most: Expr, a: Range, b: Range, exact: bool = True) -> Range:
    apart = a.counters.isdisjoint(b.counters)
    return Range(least, most, exact and a.exact and b.exact and apart, a.counters | b.counters)


def _either(a: Range, b: Range) -> Range:
    return _of_both(apply("min", a.least, b.least), apply("max", a.most, b.most), a, b, exact=False)


def _add(a: Range, b: Range) -> Range:
    return _of_both(apply("+", a.least, b.least), apply("+", a.most, b.most), a, b)


def _subtract(a: Range, b: Range) -> Range:
    return _of_both(apply("-", a.least, b.most), apply("-", a.most, b.least), a, b)


def _multiply(a: Range, b: Range) -> Range | None:
    if isinstance(a.least, int) and a.least == a.most:
        a, b = b, a
    if isinstance(b.least, int) and b.least == b.most:
        ends = [apply("*", end, b.least) for end in (a.least, a.most)]
        low, high = ends if b.least >= 0 else ends[::-1]
        return _of_both(low, high, a, b)
    if a.is_natural and b.is_natural:
        return _of_both(apply("*", a.least, b.least), apply("*", a.most, b.most), a, b)
    return None


def _divide(a: Range, b: Range) -> Range | None:
    if not a.is_natural or not b.is_natural:
        return None
    return _of_both(0, apply("//", a.most, apply("max", b.least, 1)), a, b)


def _divide_up(a: Range, b: Range) -> Range | None:
    if not a.is_natural or not b.is_natural:
        return None
    return _of_both(0, apply("ceildiv", a.most, apply("max", b.least, 1)), a, b)


def _remainder(a: Range, b: Range) -> Range | None:
    if not a.is_natural or not b.is_natural:
        return None
    return _of_both(0, apply("min", a.most, apply("-", b.most, 1)), a, b, exact=len(a.counters) < 2)


def _least(a: Range, b: Range) -> Range:
    return _of_both(apply("min", a.least, b.least), apply("min", a.most, b.most), a, b)


def _greatest(a: Range, b: Range) -> Range:
    return _of_both(apply("max", a.least, b.least), apply("max", a.most, b.most), a, b)


_Rule = Callable[[Range, Range], "Range | None"]
_RULES: Mapping[str, _Rule] = {
    "arith.addi": _add, "arith.subi": _subtract, "arith.muli": _multiply,
    "arith.divsi": _divide, "arith.divui": _divide, "arith.floordivsi": _divide,
    "arith.ceildivsi": _divide_up, "arith.ceildivui": _divide_up,
    "arith.remsi": _remainder, "arith.remui": _remainder,
    "arith.minsi": _least, "arith.maxsi": _greatest,
}  # fmt: skip
_AFFINE: Mapping[type[ir.AffineExpr], _Rule] = {
    ir.AffineAddExpr: _add, ir.AffineMulExpr: _multiply, ir.AffineFloorDivExpr: _divide,
    ir.AffineCeilDivExpr: _divide_up, ir.AffineModExpr: _remainder,
}  # fmt: skip
