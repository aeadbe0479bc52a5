"""fold-uninitialized-slices: replaces slices and reshapes of uninitialized tensors by uninitialized tensors.

    %0 = tensor.empty() : tensor<2x12x11xf32>
    %1 = tensor.extract_slice %0[0, 0, 1] [2, 12, 8] …    →    %1 = tensor.empty() : tensor<2x12x8xf32>
    %2 = tensor.insert_slice %x into %1 …                      %2 = tensor.insert_slice %x into %1 …

PyTorch programs that write a tensor piece by piece have this form. It then needs no copy, and no schedule reads memory
before it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import OperationPass


@dataclass(frozen=True)
class FoldUninitializedSlices(OperationPass):
    """Keeps reshapes to dynamic extents."""

    name = "fold-uninitialized-slices"
    takes = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape")

    def rewrite(self, operation: ir.Operation) -> bool:
        source = operation.operands[0]
        if isinstance(source.owner, ir.Block) or source.owner.operation.name != "tensor.empty":
            return False
        extents: list[ir.Value] = []
        if operation.name == "tensor.extract_slice":
            _, offsets, sizes, _ = ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])
            # Dropped dimensions have extent 1, so that each dynamic extent is one of the result's.
            extents = list(operation.operands)[1 + offsets : 1 + offsets + sizes]
        elif not operation.results[0].type.has_static_shape:
            return False
        empty = ir.Operation.create(
            "tensor.empty", results=[operation.results[0].type], operands=extents, loc=operation.location,
            ip=ir.InsertionPoint(operation),
        )
        operation.results[0].replace_all_uses_with(empty.results[0])
        operation.erase()
        return True
