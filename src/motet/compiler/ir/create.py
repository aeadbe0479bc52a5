"""Creates operations before another one, at its location."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir


def create(
    name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value], at: ir.Operation,
    attributes: dict[str, ir.Attribute] | None = None, regions: int = 0,
) -> ir.Operation:
    """Creates an operation before `at`."""
    return ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes or {}, regions=regions,
        loc=at.location, ip=ir.InsertionPoint(at),
    )


def binary(name: str, left: ir.Value, right: ir.Value, at: ir.Operation) -> ir.Value:
    """The result of a new operation before `at`, of its first operand's type."""
    return create(name, [left.type], [left, right], at).result


def index_constant(number: int, at: ir.Operation) -> ir.Value:
    """`number` as a constant of type index before `at`."""
    index = ir.IndexType.get()
    return create("arith.constant", [index], [], at, {"value": ir.IntegerAttr.get(index, number)}).result
