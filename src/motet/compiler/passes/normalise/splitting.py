"""Splits axes of a tensor where it is made, and in the element-wise operations that follow.

    %r = … 2x24x18x14                               %r = … 2x24x9x2x7x2
    %e = linalg.generic … relu of %r           →    %e = linalg.generic … relu of %r
                                                    %c = tensor.collapse_shape %e … into 2x24x18x14

The producer of the tensor and these operations can then be one kernel. Axes of dynamic extent are not split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, reassociation_attribute
from motet.compiler.ir.current import recreate
from motet.compiler.ir.sizes import extent_of


@dataclass(frozen=True)
class Split:
    """A tensor with split axes: `groups` are the axes that each original one becomes, `shape` is the new shape."""

    groups: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    @property
    def reassociation(self) -> ir.Attribute:
        return ir.Attribute.parse(str([list(group) for group in self.groups]))

    def take_along(self, operation: ir.Operation, value: ir.Value) -> None:
        """Replaces `operation`'s result by `value`, which is split, and splits the element-wise operations on it that
        follow, as far as possible. Erases `operation`."""
        last = operation
        while (user := self.user(last)) is not None:
            value = self._moved(user, value, ir.InsertionPoint(user))
            last.results[0].replace_all_uses_with(user.operands[len(user.operands) - 1])  # `user` is erased too
            last.erase()
            last = user
        with last.location:
            collapsed = ir.Operation.create(
                "tensor.collapse_shape", results=[last.results[0].type], operands=[value],
                attributes={"reassociation": self.reassociation}, ip=ir.InsertionPoint(last),
            ).result
        last.results[0].replace_all_uses_with(collapsed)
        last.erase()

    def expanded(self, value: ir.Value, at: ir.InsertionPoint) -> ir.Value:
        """`value`, a tensor of the original shape, split; recomputed if it is a broadcast of smaller tensors."""
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is not None and owner.name == "tensor.empty":
            return self._empty(value, at)
        if owner is not None and self.is_element_wise(owner) and not any(self._whole(owner)[:-1]):
            return self._moved(owner, None, at)
        return self._expand(value, range(len(self.groups)), at)

    def _expand(self, value: ir.Value, axes: Sequence[int], at: ir.InsertionPoint) -> ir.Value:
        """`value`, whose axes are some of the tensor's, split."""
        groups: list[list[int]] = []
        shape: list[int] = []
        for axis in axes:
            own = [self.shape[d] for d in self.groups[axis]]
            groups.append(list(range(len(shape), len(shape) + len(own))))
            shape += own
        kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
        return value if len(shape) == len(groups) else ir.Operation.create(
            "tensor.expand_shape", results=[kind], operands=[value, *dynamic_extents(value, at)],
            attributes={
                "reassociation": reassociation_attribute(groups),
                "static_output_shape": ir.DenseI64ArrayAttr.get(shape),
            }, ip=at,
        ).result

    def _empty(self, value: ir.Value, at: ir.InsertionPoint) -> ir.Value:
        """An empty tensor like `value`, split."""
        operands = dynamic_extents(value, at)
        return ir.Operation.create("tensor.empty", results=[self._kind(value)], operands=operands, ip=at).result

    def _kind(self, value: ir.Value) -> ir.RankedTensorType:
        return ir.RankedTensorType.get(self.shape, ir.RankedTensorType(value.type).element_type)

    def _moved(self, user: ir.Operation, value: ir.Value | None, at: ir.InsertionPoint) -> ir.Value:
        """The split result of `user`, an element-wise operation; `value` replaces all operands of the original shape.
        If it is None there are none, and `user` is kept."""
        with user.location:
            own: list[ir.Value] = []
            maps: list[ir.AffineMap] = []
            for operand, each, whole in zip(user.operands, maps_of(user), self._whole(user), strict=True):
                axes = [ir.AffineDimExpr(result).position for result in each.results]
                dims = [ir.AffineExpr.get_dim(d, user.context) for axis in axes for d in self.groups[axis]]
                maps.append(ir.AffineMap.get(len(self.shape), 0, dims, user.context))
                if len(maps) == len(user.operands):
                    operand = self._empty(operand, at)
                elif whole and value is not None:
                    operand = value
                elif axes:
                    operand = self._expand(operand, axes, at)
                own.append(operand)
            parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
            return recreate(user, own, maps, [parallel] * len(self.shape), at)

    def _whole(self, operation: ir.Operation) -> list[bool]:
        """Which operands have the original shape."""
        identity = ir.AffineMap.get_identity(len(self.groups), operation.context)
        return [each == identity for each in maps_of(operation)]

    def is_element_wise(self, operation: ir.Operation) -> bool:
        """Whether an operation has one result, iterates over exactly its points, and does not depend on indices."""
        if operation.name != "linalg.generic" or len(operation.results) != 1:
            return False
        if "reduction" in str(operation.attributes["iterator_types"]) or not self._whole(operation)[-1]:
            return False
        names = {each.operation.name for each in operation.regions[0].blocks[0].operations}
        return not names & {"linalg.index", "tensor.extract"} and all(
            isinstance(result, ir.AffineDimExpr) for each in maps_of(operation) for result in each.results
        )

    def user(self, operation: ir.Operation) -> ir.Operation | None:
        """The only reader of `operation`'s result, if it is element-wise with no other operand of that shape."""
        users = [use.owner.operation for use in operation.results[0].uses]
        if not users or any(user != users[0] for user in users) or not self.is_element_wise(users[0]):
            return None
        operands = list(zip(users[0].operands, self._whole(users[0]), strict=True))[:-1]
        if any(whole != (operand == operation.results[0]) for operand, whole in operands):
            return None
        return users[0] if users[0].block == operation.block else None


def dynamic_extents(value: ir.Value, at: ir.InsertionPoint) -> list[ir.Value]:
    """The extents of `value` that its type does not have, in order."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is not None and owner.name == "tensor.empty":
        return list(owner.operands)
    kind = ir.RankedTensorType(value.type)
    with at:
        return [extent_of(value, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
