"""Element-wise operations moved to a tensor of which one axis is several times as long: phases, one after the other.

    %e = linalg.generic … %r + %bias(f)  2x8x14      →      %b = %bias four times, 32
                                                           %e = linalg.generic … %q + %b(f)  2x32x4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.nests import loops
from motet.compiler.passes.normalise.splitting import Split


@dataclass(frozen=True)
class Repeating:
    """A tensor of `shape`, whose axis `axis` holds `shape[axis] // own` times the filters of the original, which are
    `own`. Its axes `others` do not correspond to those of the original."""

    shape: tuple[int, ...]
    axis: int
    own: int
    others: frozenset[int]

    def takes(self, operation: ir.Operation) -> bool:
        """Whether an element-wise operation can move: its operands of other shapes do not vary along `others`."""
        whole = ir.AffineMap.get_identity(len(self.shape), operation.context)
        return not any(
            ir.AffineDimExpr(result).position in self.others
            for each in maps_of(operation)[:-1] if each != whole for result in each.results
        )

    def moved(self, operation: ir.Operation, value: ir.Value | None, at: ir.InsertionPoint) -> ir.Value:
        """The result of `operation` on `value`, which replaces its operands of the original shape."""
        whole = ir.AffineMap.get_identity(len(self.shape), operation.context)
        maps = maps_of(operation)
        operands: list[ir.Value] = []
        with operation.location:
            for operand, each in zip(list(operation.operands)[:-1], maps, strict=False):
                dims = [ir.AffineDimExpr(result).position for result in each.results]
                if each == whole and value is not None:
                    operands.append(value)
                elif self.axis in dims:
                    operands.append(repeated(operand, dims.index(self.axis), self.shape[self.axis], at))
                else:
                    operands.append(operand)
            kind = ir.RankedTensorType.get(self.shape, ir.RankedTensorType(operation.results[0].type).element_type)
            operands.append(ir.Operation.create("tensor.empty", results=[kind], ip=at).result)
            made = ir.Operation.create(
                "linalg.generic", results=[kind], operands=operands,
                attributes={
                    name: operation.attributes[name]
                    for name in ("indexing_maps", "iterator_types", "operandSegmentSizes")
                },
                regions=1, ip=at,
            )
            copy = operation.clone(at).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.erase()
        return made.results[0]


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


def is_initial(value: ir.Value) -> bool:
    """Whether a tensor is empty, or a broadcast of smaller ones."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None or owner.name == "tensor.empty":
        return owner is not None
    shape = tuple(ir.RankedTensorType(value.type).shape)
    split = Split(tuple((axis,) for axis in range(len(shape))), shape)
    whole = ir.AffineMap.get_identity(len(shape), owner.context)
    return split.is_element_wise(owner) and whole not in maps_of(owner)[:-1]


def repeated(value: ir.Value, axis: int, extent: int, at: ir.InsertionPoint) -> ir.Value:
    """`value` again and again along `axis`, up to `extent`."""
    kind = ir.RankedTensorType(value.type)
    own = kind.shape[axis]
    if own == extent:
        return value
    shape = [extent if a == axis else size for a, size in enumerate(kind.shape)]

    def at_place(body: IndexBody) -> list[ir.Value]:
        places = [body.point(a) for a in range(len(shape))]
        places[axis] = body.binary("arith.remui", places[axis], body.number(own))
        return places

    return gathered(value, shape, at_place, at)


class IndexBody:
    """Writes index arithmetic into the body of a nest."""

    def __init__(self, at: ir.InsertionPoint) -> None:
        self.at = at

    def number(self, value: int) -> ir.Value:
        index = ir.IndexType.get()
        return ir.Operation.create(
            "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, value)}, ip=self.at,
        ).result

    def binary(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return ir.Operation.create(name, results=[ir.IndexType.get()], operands=[a, b], ip=self.at).result

    def point(self, dim: int) -> ir.Value:
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
        return ir.Operation.create(
            "linalg.index", results=[ir.IndexType.get()], attributes={"dim": attribute}, ip=self.at
        ).result


def gathered(
    value: ir.Value, shape: Sequence[int], places: Callable[[IndexBody], list[ir.Value]], at: ir.InsertionPoint
) -> ir.Value:
    """A tensor of `shape`, of elements of `value` at the indices that `places` computes for each point."""
    kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
    empty = ir.Operation.create("tensor.empty", results=[kind], ip=at).result

    def element(block: ir.Block) -> ir.Value:
        operands = [value, *places(IndexBody(ir.InsertionPoint(block)))]
        return ir.Operation.create("tensor.extract", results=[kind.element_type], operands=operands).result

    with at:
        return loops([], empty, [ir.AffineMap.get_identity(len(shape))], element)
