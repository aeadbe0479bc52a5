"""fold-empty-tensors: removes operations on empty tensors; loops without iterations return their initial values.

    %y = linalg.matmul ins(%a, %b : tensor<0x8xf32>, …) …    →    %y = tensor.empty() : tensor<0x16xf32>
    %y = linalg.matmul ins(%a, %b : tensor<4x0xf32>, tensor<0x16xf32>) outs(%c : tensor<4x16xf32>)    →    %c
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import OperationPass

_PADDING = ("linalg.pack", "linalg.unpack")  # may write elements that they do not read


@dataclass(frozen=True)
class FoldEmptyTensors(OperationPass):
    """Considers static extents only."""

    name = "fold-empty-tensors"

    def rewrite(self, operation: ir.Operation) -> bool:
        if operation.name == "tensor.empty" or not len(operation.results):
            return False
        if all(_has_no_elements(result.type) for result in operation.results):
            for result in operation.results:
                empty = ir.Operation.create(
                    "tensor.empty", results=[result.type], loc=operation.location, ip=ir.InsertionPoint(operation)
                )
                result.replace_all_uses_with(empty.result)
        elif _has_no_iterations(operation):
            for result, written in zip(operation.results, _written(operation), strict=True):
                result.replace_all_uses_with(written)
        else:
            return False
        operation.erase()
        return True


def _has_no_iterations(operation: ir.Operation) -> bool:
    """Whether a linalg operation reads an empty tensor: one of its loops then has no iterations."""
    written = _written(operation)
    if not operation.name.startswith("linalg.") or operation.name in _PADDING:
        return False
    read = list(operation.operands)[: len(operation.operands) - len(written)]
    return any(_has_no_elements(operand.type) for operand in read)


def _written(operation: ir.Operation) -> list[ir.Value]:
    """The initial values of the results: the last operands, one for each result."""
    return list(operation.operands)[len(operation.operands) - len(operation.results) :]


def _has_no_elements(kind: ir.Type) -> bool:
    if not isinstance(kind, ir.RankedTensorType):
        return False
    ranked = ir.RankedTensorType(kind)
    return ranked.has_static_shape and 0 in ranked.shape
