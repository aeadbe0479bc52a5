"""settle-recurrences: in the `torch` dialect, gives loops over sequences their number of iterations and of rows.

    %n = torch.constant.int -1                              %n = torch.aten.size.int %x, 0
    %l = torch.prim.ListConstruct %n, %n, 7                 %b = torch.aten.size.int %x, 1
    %y = torch.aten.zeros %l, …                       →     %l = torch.prim.ListConstruct %n, %b, 7
    torch.prim.Loop %n, %true, init(%y, %h) {               %y = torch.aten.zeros %l, …
      … torch.aten.slice.Tensor %x, 0, %i, …                torch.prim.Loop %n, %true, init(%y, %h) { …

torch-mlir imports GRU and RNN of ONNX in this form, with -1 for dynamic extents of the input's type.
"""

from __future__ import annotations

from motet.compiler.frontends.torch.operands import known_integer, new_extent, new_list
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_VIEWS = ("torch.aten.slice.Tensor", "torch.aten.select.int", "torch.aten.squeeze.dim", "torch.aten.unsqueeze")
_FILLS = ("torch.aten.zeros", "torch.aten.full")


def settle_recurrences(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        for loop in find_operations(module, "torch.prim.Loop"):
            if (sequence := _sequence(loop)) is not None:
                _settle(loop, sequence)


def _settle(loop: ir.Operation, sequence: ir.Value) -> None:
    if _is_unknown(loop.operands[0]):
        with loop.location, ir.InsertionPoint(loop):
            loop.operands[0] = new_extent(sequence, 0)
    for start in list(loop.operands)[2:]:
        while not isinstance(start.owner, ir.Block) and start.owner.operation.name in _VIEWS:
            start = start.owner.operation.operands[0]
        if isinstance(start.owner, ir.Block) or start.owner.operation.name not in _FILLS:
            continue
        fill = start.owner.operation
        sizes = list(fill.operands[0].owner.operation.operands)
        if len(sizes) == 3 and any(map(_is_unknown, sizes)):  # the sequence or directions, the batch, a known extent
            with fill.location, ir.InsertionPoint(fill):
                fill.operands[0] = new_list([
                    new_extent(sequence, axis) if _is_unknown(size) else size for axis, size in enumerate(sizes)])


def _sequence(loop: ir.Operation) -> ir.Value | None:
    """The tensor that each iteration takes a slice of."""
    body = loop.regions[0].blocks[0]
    for entry in body.operations:
        operation = entry.operation
        if operation.name in ("torch.aten.slice.Tensor", "torch.aten.select.int"):
            source = operation.operands[0]
            outside = source.owner if isinstance(source.owner, ir.Block) else source.owner.operation.block
            return source if outside != body else None
    return None


def _is_unknown(size: ir.Value) -> bool:
    return (known_integer(size) or 0) < 0
