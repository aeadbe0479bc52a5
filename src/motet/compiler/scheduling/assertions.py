"""assertions: converts conditions about extents alone to constraints."""

from __future__ import annotations

from collections.abc import Callable

from motet.artifact.expressions import apply
from motet.artifact.schema import Constraint, Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.shapes import PASSED_ON, Shapes

_EQUAL, _DIFFERENT = 0, 1  # predicates of arith.cmpi
_ORDERED = {2: ("<", False), 3: ("<=", False), 4: ("<", True), 5: ("<=", True), 6: ("<", False), 7: ("<=", False),
            8: ("<", True), 9: ("<=", True)}  # fmt: skip
# Of conditions that are 0 or 1.
_JOINED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "arith.andi": lambda left, right: apply("min", left, right),
    "arith.ori": lambda left, right: apply("max", left, right),
    "arith.xori": lambda left, right: apply("-", apply("max", left, right), apply("min", left, right)),
}


def read_assertion(condition: ir.Value, shapes: Shapes) -> list[Constraint] | None:
    """The constraints equivalent to `condition`, without texts; None if it is not a relation of extents."""
    known = shapes.numbers.get(condition)
    if isinstance(known, int):
        return [] if known else [Constraint(0, 1)]
    if isinstance(condition.owner, ir.Block):
        return None
    operation = condition.owner.operation
    if operation.name == "arith.andi":
        sides = [read_assertion(operand, shapes) for operand in operation.operands]
        both = [assertion for side in sides if side is not None for assertion in side]
        return None if None in sides else both
    if operation.name == "arith.ori":
        found = _read_alternatives(condition, shapes)
    else:
        found = _read_comparison(operation, shapes) if operation.name == "arith.cmpi" else None
    if found is None and (truth := _truth(condition, shapes)) is not None:
        return [Constraint(truth, 1, "true")]
    return found


def _truth(condition: ir.Value, shapes: Shapes) -> Expr | None:
    """1 in calls in which a condition about extents holds, 0 in others; None for other conditions."""
    known = shapes.numbers.get(condition)
    if known is not None or isinstance(condition.owner, ir.Block):
        return known
    operation = condition.owner.operation
    if operation.name in _JOINED:
        left, right = (_truth(operand, shapes) for operand in operation.operands)
        return None if left is None or right is None else _JOINED[operation.name](left, right)
    if operation.name != "arith.cmpi":
        return None
    left, right = (shapes.numbers.get(operand) for operand in operation.operands)
    predicate = ir.IntegerAttr(operation.attributes["predicate"]).value
    if left is None or right is None:
        return None
    if predicate in (_EQUAL, _DIFFERENT):
        differ = apply("min", apply("max", apply("-", left, right), apply("-", right, left)), 1)
        return differ if predicate == _DIFFERENT else apply("-", 1, differ)
    order, swapped = _ORDERED[predicate]
    if swapped:
        left, right = right, left
    above = apply("-", right, left) if order == "<" else apply("+", apply("-", right, left), 1)
    return apply("min", apply("max", above, 0), 1)


def _read_comparison(operation: ir.Operation, shapes: Shapes) -> list[Constraint] | None:
    predicate = ir.IntegerAttr(operation.attributes["predicate"]).value
    left, right = (shapes.numbers.get(operand) for operand in operation.operands)
    if predicate == _EQUAL and right == 0:
        remainder = _remainder(operation.operands[0], shapes)
        if remainder is not None:
            return [Constraint(*remainder, "multiple")]
    if left is None or right is None:
        return None
    if predicate == _EQUAL:
        return [Constraint(left, right)]
    if predicate not in _ORDERED:
        return None
    order, swapped = _ORDERED[predicate]
    if swapped:
        left, right = right, left
    return [Constraint(left if order == "<=" else apply("+", left, 1), right, "at-most")]


def _remainder(value: ir.Value, shapes: Shapes) -> tuple[Expr, Expr] | None:
    """The dividend and divisor, if `value` is a remainder; None otherwise."""
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name in PASSED_ON:
        return _remainder(operation.operands[0], shapes)
    if operation.name not in ("arith.remsi", "arith.remui"):
        return None
    left, right = (shapes.numbers.get(operand) for operand in operation.operands)
    return None if left is None or right is None else (left, right)


def _read_alternatives(condition: ir.Value, shapes: Shapes) -> list[Constraint] | None:
    """The constraint that two extents are equal, or that one of them is 1; None for other conditions."""
    pairs = _equalities(condition, shapes)
    if pairs is None:
        return None
    ones = [left if right == 1 else right for left, right in pairs if 1 in (left, right)]
    others = [pair for pair in pairs if 1 not in pair]
    if len(others) != 1 or not ones or any(one not in others[0] for one in ones):
        return None
    left, right = others[0]
    if left in ones and right in ones:
        return [Constraint(left, right, "broadcast")]
    return [Constraint(left, right, "stretch") if left in ones else Constraint(right, left, "stretch")]


def _equalities(condition: ir.Value, shapes: Shapes) -> list[tuple[Expr, Expr]] | None:
    if isinstance(condition.owner, ir.Block):
        return None
    operation = condition.owner.operation
    if operation.name == "arith.ori":
        sides = [_equalities(operand, shapes) for operand in operation.operands]
        return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]
    if operation.name != "arith.cmpi" or ir.IntegerAttr(operation.attributes["predicate"]).value != _EQUAL:
        return None
    left, right = (shapes.numbers.get(operand) for operand in operation.operands)
    return None if left is None or right is None else [(left, right)]
