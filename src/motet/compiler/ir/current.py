"""Creates operations at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir

DYNAMIC = ir.ShapedType.get_dynamic_size()


def create(
    name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute] | None = None,
    at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """The result of a new operation, at `at` or the current insertion point."""
    return ir.Operation.create(name, results=[kind], operands=operands, attributes=attributes or {}, ip=at).results[0]


def constant(kind: ir.Type, number: float) -> ir.Value:
    """A number of an integer, index or float type."""
    floats = isinstance(kind, ir.FloatType)
    value = ir.FloatAttr.get(kind, number) if floats else ir.IntegerAttr.get(kind, int(number))
    return create("arith.constant", kind, [], {"value": value})
