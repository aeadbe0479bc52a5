"""slice-nothing: a slice, or another shape, of a tensor that nothing has written is another such tensor.

    %0 = tensor.empty() : tensor<2x12x11xf32>
    %1 = tensor.extract_slice %0[0, 0, 1] [2, 12, 8] …    →    %1 = tensor.empty() : tensor<2x12x8xf32>
    %2 = tensor.insert_slice %x into %1 …                      %2 = tensor.insert_slice %x into %1 …

PyTorch writes tensors piece by piece so. Nothing has to be copied, and no schedule reads memory that is yet to be
written.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir


def slice_nothing(function: ir.Operation) -> None:
    """In place, in a public function."""
    for block in function.regions[0].blocks:
        for each in list(block.operations):
            if each.operation.name == "tensor.extract_slice":
                _slice(each.operation)
            elif each.operation.name in ("tensor.expand_shape", "tensor.collapse_shape"):
                _reshape(each.operation)


def _reshape(reshape: ir.Operation) -> None:
    source = reshape.operands[0]
    if isinstance(source.owner, ir.Block) or source.owner.operation.name != "tensor.empty":
        return
    if reshape.results[0].type.has_static_shape:
        _replace(reshape, [])


def _slice(slice_: ir.Operation) -> None:
    source = slice_.operands[0]
    if isinstance(source.owner, ir.Block) or source.owner.operation.name != "tensor.empty":
        return
    _, offsets, sizes, _ = ir.DenseI32ArrayAttr(slice_.attributes["operandSegmentSizes"])
    given = list(slice_.operands)[1 + offsets : 1 + offsets + sizes]
    # Dimensions that are dropped have the extent 1, so that each extent that is computed is one of the result's.
    _replace(slice_, given)


def _replace(operation: ir.Operation, extents: Sequence[ir.Value]) -> None:
    empty = ir.Operation.create(
        "tensor.empty", results=[operation.results[0].type], operands=extents, loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    operation.results[0].replace_all_uses_with(empty.results[0])
    operation.erase()
