"""Views of memrefs as slices and reshapes of the memrefs' tensors: how to read and write them."""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.held_memrefs import HeldMemref, attributes_of, cast, tensor_type
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create
from motet.errors import CompileError


def _cast_view(base: HeldMemref, op: ir.Operation) -> HeldMemref:
    kind = tensor_type(op.result.type, op.location, row_major=False)
    return HeldMemref(
        base=base, read=lambda whole, at: cast(whole, kind, at),
        write=lambda whole, part, at: cast(part, whole.type, at),
    )


def _subview(base: HeldMemref, op: ir.Operation) -> HeldMemref:
    kind = tensor_type(op.result.type, op.location, row_major=False)
    places = list(op.operands)[1:]
    named = attributes_of(op)
    segments = list(ir.DenseI32ArrayAttr(named["operandSegmentSizes"]))

    def read(whole: ir.Value, at: ir.Operation) -> ir.Value:
        return create("tensor.extract_slice", [kind], [whole, *places], at, named).result

    def write(whole: ir.Value, part: ir.Value, at: ir.Operation) -> ir.Value:
        sizes = {**named, "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, *segments])}
        return create("tensor.insert_slice", [whole.type], [part, whole, *places], at, sizes).result

    return HeldMemref(base=base, read=read, write=write)


def _reshape_view(base: HeldMemref, op: ir.Operation) -> HeldMemref:
    kind = tensor_type(op.result.type, op.location, row_major=False)
    if not kind.has_static_shape:
        raise CompileError(f"{op.name}: a dynamic reshape of a memref is not supported", locate(op.location))
    groups = {"reassociation": op.attributes["reassociation"]}
    expands = op.name == "memref.expand_shape"

    def reshape(value: ir.Value, to: ir.Type, expand: bool, at: ir.Operation) -> ir.Value:
        if not expand:
            return create("tensor.collapse_shape", [to], [value], at, groups).result
        shape = {"static_output_shape": ir.DenseI64ArrayAttr.get(ir.RankedTensorType(to).shape)}
        return create("tensor.expand_shape", [to], [value], at, {**groups, **shape}).result

    return HeldMemref(
        base=base,
        read=lambda whole, at: reshape(whole, kind, expands, at),
        write=lambda whole, part, at: reshape(part, whole.type, not expands, at),
    )


# Operation that makes a view of its first operand → the function that makes the corresponding HeldMemref.
VIEWS: dict[str, Callable[[HeldMemref, ir.Operation], HeldMemref]] = {
    "memref.cast": _cast_view,
    "memref.memory_space_cast": _cast_view,
    "memref.subview": _subview,
    "memref.expand_shape": _reshape_view,
    "memref.collapse_shape": _reshape_view,
}
