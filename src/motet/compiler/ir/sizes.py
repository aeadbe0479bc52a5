"""Creates sizes as operations at the current insertion point."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def constant_index(number: int) -> ir.Value:
    index = ir.IndexType.get()
    value = {"value": ir.IntegerAttr.get(index, number)}
    return ir.Operation.create("arith.constant", results=[index], attributes=value).result


def extent_of(value: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor along an axis."""
    operands = [value, constant_index(axis)]
    return ir.Operation.create("tensor.dim", results=[ir.IndexType.get()], operands=operands).result


def static_extent(kind: ir.ShapedType, axis: int) -> int | None:
    """How long a type says that its values are in a dimension; None for a dynamic one."""
    return None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)
