"""The tensors that memrefs hold, during the conversion of functions on memrefs to functions on tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create
from motet.errors import CompileError


def is_memref(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.MemRefType, ir.UnrankedMemRefType))


def tensor_type(kind: ir.Type, location: ir.Location, row_major: bool) -> ir.RankedTensorType:
    """The type of a memref's tensor. Raises CompileError for an unranked memref and, with `row_major`, for any other
    layout."""
    if not isinstance(kind, ir.MemRefType):
        raise CompileError(
            f"{kind}: unranked memrefs are not supported; expected a ranked one", locate(location)
        )
    if row_major and not is_row_major(kind):
        raise CompileError(
            f"{kind}: this memref layout is not supported; expected row-major without an offset, "
            "or of an argument strided<[…], offset: …>",
            locate(location),
        )
    return ir.RankedTensorType.get(kind.shape, kind.element_type)


def is_row_major(kind: ir.MemRefType) -> bool:
    if kind.affine_map == ir.AffineMap.get_identity(kind.rank):
        return True
    try:
        strides, offset = kind.get_strides_and_offset()
    except RuntimeError:  # not a strided layout
        return False
    expected = 1
    for axis in reversed(range(kind.rank)):
        if strides[axis] != expected:
            return False
        if axis and kind.is_dynamic_dim(axis):
            return False
        expected *= kind.shape[axis]
    return offset == 0


def is_strided(kind: ir.Type) -> bool:
    """Whether the layout has strides and an offset, static or dynamic, and is not row-major without an offset."""
    if not isinstance(kind, ir.MemRefType) or is_row_major(kind):
        return False
    try:
        kind.get_strides_and_offset()
    except RuntimeError:
        return False
    return True


@dataclass
class HeldMemref:
    """A memref: its current tensor, or, for a view of another memref, how to read and write that one."""

    tensor: ir.Value | None = None
    argument: int | None = None
    written: bool = False
    base: HeldMemref | None = None
    read: Callable[[ir.Value, ir.Operation], ir.Value] | None = None
    write: Callable[[ir.Value, ir.Value, ir.Operation], ir.Value] | None = None

    def load(self, at: ir.Operation) -> ir.Value:
        if self.base is not None and self.read is not None:
            return self.read(self.base.load(at), at)
        if self.tensor is None:
            raise CompileError("a memref is read before it exists", locate(at.location))
        return self.tensor

    def store(self, tensor: ir.Value, at: ir.Operation) -> None:
        if self.base is not None and self.write is not None:
            self.base.store(self.write(self.base.load(at), tensor, at), at)
            return
        if self.tensor is not None:
            tensor = cast(tensor, self.tensor.type, at)
        self.tensor, self.written = tensor, True


def cast(value: ir.Value, kind: ir.Type, at: ir.Operation) -> ir.Value:
    """`value` as `kind`, a tensor type with more or fewer known extents."""
    return value if value.type == kind else create("tensor.cast", [kind], [value], at).result


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def output_count(op: ir.Operation) -> int:
    """The number of trailing operands of a linalg operation that it writes."""
    if "operandSegmentSizes" in op.attributes:
        return list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[-1]
    return len(op.operands) // 2 if op.name == "linalg.reduce" else 1


def written_memrefs(op: ir.Operation) -> list[ir.Value]:
    """The memrefs among the operands of `op` that it writes."""
    if op.name in ("memref.store", "memref.atomic_rmw", "memref.copy", "bufferization.materialize_in_destination"):
        return [op.operands[1]]
    if op.name.startswith("linalg.") and len(op.operands):
        return [value for value in list(op.operands)[-output_count(op) :] if is_memref(value.type)]
    return []
