"""Element-wise operations moved to a tensor of which one axis is several times as long: phases, one after the other.

    %e = linalg.generic … %r + %bias(f)  2x8x14      →      %b = %bias four times, 32
                                                           %e = linalg.generic … %q + %b(f)  2x32x4
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.current import create, recreate
from motet.compiler.ir.sizes import constant_index, element_at, extent_of, on_indices
from motet.compiler.passes.normalise.splitting import Split


@dataclass(frozen=True)
class Repeating:
    """A tensor of `shape`, of which a call decides `sizes`; its axis `axis` holds the filters of the original several
    times. Its axes `others` do not correspond to those of the original."""

    shape: tuple[int, ...]
    axis: int
    others: frozenset[int]
    sizes: tuple[ir.Value, ...] = ()

    def takes(self, operation: ir.Operation) -> bool:
        """Whether an element-wise operation can move: its operands of other shapes do not vary along `others`."""
        whole = ir.AffineMap.get_identity(len(self.shape), operation.context)
        return not any(
            ir.AffineDimExpr(result).position in self.others
            for each in maps_of(operation)[:-1] if each != whole for result in each.results
        )

    def moved(self, operation: ir.Operation, value: ir.Value | None) -> ir.Value:
        """The result of `operation` on `value`, which replaces its operands of the original shape, at the current
        insertion point."""
        whole = ir.AffineMap.get_identity(len(self.shape), operation.context)
        operands: list[ir.Value] = []
        with operation.location:
            for operand, each in zip(list(operation.operands)[:-1], maps_of(operation), strict=False):
                dims = [ir.AffineDimExpr(result).position for result in each.results]
                if each == whole and value is not None:
                    operand = value
                elif self.axis in dims:
                    operand = _repeated(operand, dims.index(self.axis), self.shape[self.axis])
                operands.append(operand)
            return recreate(operation, [*operands, self._empty(operation.results[0])])

    def begun(self, initial: ir.Value) -> ir.Value:
        """The tensor that `is_initial` says is one, at the current insertion point."""
        owner = initial.owner.operation
        return self._empty(initial) if owner.name == "tensor.empty" else self.moved(owner, None)

    def _empty(self, value: ir.Value) -> ir.Value:
        kind = ir.RankedTensorType.get(self.shape, ir.RankedTensorType(value.type).element_type)
        return create("tensor.empty", kind, list(self.sizes))


def element_wise_users(operation: ir.Operation, repeating: Sequence[Repeating]) -> list[ir.Operation]:
    """The element-wise operations on `operation`'s result, each the only reader of the one before, that can move."""
    shape = tuple(ir.RankedTensorType(operation.results[0].type).shape)
    split = Split(tuple((axis,) for axis in range(len(shape))), shape)
    found: list[ir.Operation] = []
    last = operation
    while (user := split.user(last)) is not None and all(each.takes(user) for each in repeating):
        found.append(user)
        last = user
    return found


def is_initial(value: ir.Value, others: Collection[int]) -> bool:
    """Whether a tensor is empty, or a broadcast of smaller ones that do not vary along the axes `others`."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None or owner.name == "tensor.empty":
        return owner is not None
    shape = tuple(ir.RankedTensorType(value.type).shape)
    split = Split(tuple((axis,) for axis in range(len(shape))), shape)
    return split.is_element_wise(owner) and not any(
        ir.AffineDimExpr(result).position in others for each in maps_of(owner)[:-1] for result in each.results
    )


def _repeated(value: ir.Value, axis: int, extent: int) -> ir.Value:
    """`value` again and again along `axis`, up to `extent`."""
    shape = list(ir.RankedTensorType(value.type).shape)
    filters, shape[axis] = shape[axis], extent
    return value if filters == extent else gathered(value, shape, lambda point: [
        on_indices("arith.remui", index, constant_index(filters)) if a == axis else index
        for a, index in enumerate(point)])


def gathered(
    value: ir.Value, shape: Sequence[int], indices: Callable[[list[ir.Value]], Sequence[ir.Value]]
) -> ir.Value:
    """A tensor of `shape`, of elements of `value` at the indices that `indices` computes from those of each point, at
    the current insertion point. Unknown extents are those of `value`."""
    kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
    sizes = [extent_of(value, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[create("tensor.empty", kind, sizes)],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape)))]),
            "iterator_types": ir.ArrayAttr.get([parallel] * len(shape)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1]),
        },
        regions=1,
    )
    number, index = ir.IntegerType.get_signless(64), ir.IndexType.get()
    with ir.InsertionPoint(ir.Block.create_at_start(made.regions[0], [kind.element_type])):
        dims = [ir.IntegerAttr.get(number, dim) for dim in range(kind.rank)]
        point = [create("linalg.index", index, [], {"dim": dim}) for dim in dims]
        ir.Operation.create("linalg.yield", operands=[element_at(value, indices(point))])
    return made.result
