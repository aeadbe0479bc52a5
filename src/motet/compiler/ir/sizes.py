"""Creates sizes and indices, and reads elements at these, as operations at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant


def constant_index(number: int) -> ir.Value:
    index = ir.IndexType.get()
    value = {"value": ir.IntegerAttr.get(index, number)}
    return ir.Operation.create("arith.constant", results=[index], attributes=value).result


def extent_of(value: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor along an axis."""
    operands = [value, constant_index(axis)]
    return ir.Operation.create("tensor.dim", results=[ir.IndexType.get()], operands=operands).result


def is_extent(size: ir.Value, tensor: ir.Value, axis: int) -> bool:
    """Whether `size` is written as the extent of `tensor` along `axis`."""
    if isinstance(size.owner, ir.Block) or size.owner.operation.name != "tensor.dim":
        return False
    source, number = size.owner.operation.operands
    return source == tensor and integer_constant(number) == axis


def on_indices(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    """The result of an operation of arith on two indices."""
    return ir.Operation.create(name, results=[left.type], operands=[left, right]).result


def as_index(value: ir.Value) -> ir.Value:
    """An integer as an index."""
    if isinstance(value.type, ir.IndexType):
        return value
    return ir.Operation.create("arith.index_cast", results=[ir.IndexType.get()], operands=[value]).result


def element_at(tensor: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
    """The element of a tensor at indices."""
    kind = ir.RankedTensorType(tensor.type).element_type
    return ir.Operation.create("tensor.extract", results=[kind], operands=[tensor, *at]).result


def static_extent(kind: ir.ShapedType, axis: int) -> int | None:
    """How long a type says that its values are in a dimension; None for a dynamic one."""
    return None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)
