"""recompute-places: marks tensors of places, and padding, which kernels of GPUs compute where they read them.

    %j = linalg.generic … { linalg.index 0 }              %j = linalg.generic {motet.places} … { linalg.index 0 }
    %k = linalg.generic ins(%same, %j) { select }    →    %k = linalg.generic ins(%same, %j) { select }
    linalg.generic ins(%k) { minsi }                      linalg.generic ins(%k) { minsi }

The place of a maximum is then found by one launch, and so is what moves or combines elements of a padded tensor, whose
padding is a condition of a read. Processors read the numbers from memory, which takes less time.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.compose import costs_nothing
from motet.compiler.kernels.roles import Role, role_of
from motet.compiler.passes.base import OperationPass
from motet.compiler.passes.fuse.marks import MARK, PLACES
from motet.compiler.passes.fuse.partial_sorts import numbers_places


@dataclass(frozen=True)
class RecomputePlaces(OperationPass):
    """Considers integers of known extents that follow from indices by a few operations; padding of known width, if all
    that read it, or slices of it, do so point by point."""

    name = "recompute-places"

    def rewrite(self, operation: ir.Operation) -> bool:
        if PLACES in operation.attributes or not (_makes_places(operation) or _is_padding_of_points(operation)):
            return False
        operation.attributes[PLACES] = ir.UnitAttr.get()
        return True


def _makes_places(operation: ir.Operation) -> bool:
    if operation.name != "linalg.generic" or len(operation.results) != 1 or not numbers_places(operation):
        return False
    if MARK in operation.attributes or role_of(operation) is not Role.ELEMENTWISE:
        return False
    *body, _ = [entry.operation.name for entry in operation.regions[0].blocks[0].operations]
    return ir.RankedTensorType(operation.results[0].type).has_static_shape and costs_nothing(body)


def _is_padding_of_points(operation: ir.Operation) -> bool:
    if operation.name != "tensor.pad" or role_of(operation) is not Role.VIEW:
        return False
    users = [use.owner.operation for use in operation.results[0].uses]
    slices = [user for user in users if user.name == "tensor.extract_slice"]
    users += [use.owner.operation for part in slices for use in part.results[0].uses]
    return all(
        user in slices or (user.name == "linalg.generic" and role_of(user) in (Role.ELEMENTWISE, Role.VIEW))
        for user in users
    )
