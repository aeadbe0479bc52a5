"""drop-casts: removes casts that make operands of concatenations with static extents dynamic.

    %a = tensor.cast %x : tensor<1x4xf32> to tensor<?x4xf32>
    %c = tensor.concat dim(0) %a, %b …                         →    %c = tensor.concat dim(0) %x, %b …
        : (tensor<?x4xf32>, …) -> tensor<3x4xf32>                       : (tensor<1x4xf32>, …) -> tensor<3x4xf32>

PyTorch's `roll` has this form.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import OperationPass


@dataclass(frozen=True)
class DropCasts(OperationPass):
    """Keeps casts that have other readers."""

    name = "drop-casts"
    takes = ("tensor.concat",)

    def rewrite(self, operation: ir.Operation) -> bool:
        if not operation.results[0].type.has_static_shape:
            return False
        changed = False
        for position, operand in enumerate(operation.operands):
            source = _without_cast(operand)
            if source != operand:
                operation.operands[position] = source
                changed = True
        return changed


def _without_cast(value: ir.Value) -> ir.Value:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "tensor.cast":
        return value
    source = value.owner.operation.operands[0]
    kind = ir.RankedTensorType(source.type) if isinstance(source.type, ir.RankedTensorType) else None
    return source if kind is not None and kind.has_static_shape else value
