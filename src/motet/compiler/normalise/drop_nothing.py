"""drop-nothing: work whose results have no elements is none.

    %y = linalg.matmul ins(%a, %b : tensor<0x8xf32>, …) …    →    %y = tensor.empty() : tensor<0x16xf32>
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def drop_nothing(function: ir.Operation) -> None:
    """In place, in a public function."""
    for entry in list(function.regions[0].blocks[0].operations):
        operation = entry.operation
        if operation.name == "tensor.empty" or not len(operation.results):
            continue
        if all(_is_nothing(result.type) for result in operation.results):
            for result in operation.results:
                empty = ir.Operation.create(
                    "tensor.empty", results=[result.type], loc=operation.location, ip=ir.InsertionPoint(operation)
                )
                result.replace_all_uses_with(empty.result)
            operation.erase()


def _is_nothing(kind: ir.Type) -> bool:
    if not isinstance(kind, ir.RankedTensorType):
        return False
    ranked = ir.RankedTensorType(kind)
    return ranked.has_static_shape and 0 in ranked.shape
