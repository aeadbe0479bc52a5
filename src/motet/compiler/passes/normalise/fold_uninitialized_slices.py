"""fold-uninitialized-slices: replaces slices and reshapes of uninitialized tensors by uninitialized tensors.

    %0 = tensor.empty() : tensor<2x12x11xf32>
    %1 = tensor.extract_slice %0[0, 0, 1] [2, 12, 8] …    →    %1 = tensor.empty() : tensor<2x12x8xf32>
    %2 = tensor.insert_slice %x into %1 …                      %2 = tensor.insert_slice %x into %1 …

PyTorch programs that write a tensor piece by piece have this form. It then needs no copy, and no schedule reads memory
before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import FunctionPass


@dataclass(frozen=True)
class FoldUninitializedSlices(FunctionPass):
    """Keeps reshapes to dynamic extents."""

    name = "fold-uninitialized-slices"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for block in function.regions[0].blocks:
            for each in list(block.operations):
                if each.operation.name == "tensor.extract_slice":
                    changed |= _slice(each.operation)
                elif each.operation.name in ("tensor.expand_shape", "tensor.collapse_shape"):
                    changed |= _reshape(each.operation)
        return changed


def _reshape(reshape: ir.Operation) -> bool:
    if not _reads_uninitialized(reshape) or not reshape.results[0].type.has_static_shape:
        return False
    _replace(reshape, [])
    return True


def _reads_uninitialized(operation: ir.Operation) -> bool:
    source = operation.operands[0]
    return not isinstance(source.owner, ir.Block) and source.owner.operation.name == "tensor.empty"


def _slice(slice_: ir.Operation) -> bool:
    if not _reads_uninitialized(slice_):
        return False
    _, offsets, sizes, _ = ir.DenseI32ArrayAttr(slice_.attributes["operandSegmentSizes"])
    given = list(slice_.operands)[1 + offsets : 1 + offsets + sizes]
    # Dropped dimensions have extent 1, so that each dynamic extent is one of the result's.
    _replace(slice_, given)
    return True


def _replace(operation: ir.Operation, extents: Sequence[ir.Value]) -> None:
    empty = ir.Operation.create(
        "tensor.empty", results=[operation.results[0].type], operands=extents, loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    operation.results[0].replace_all_uses_with(empty.results[0])
    operation.erase()
