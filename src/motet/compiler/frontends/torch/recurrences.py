"""settle-recurrences: in the `torch` dialect, gives loops over sequences their number of iterations and of rows.

    %n = torch.constant.int -1                              %n = torch.aten.size.int %x, 0
    %l = torch.prim.ListConstruct %n, %n, 7                 %b = torch.aten.size.int %x, 1
    %y = torch.aten.zeros %l, …                       →     %l = torch.prim.ListConstruct %n, %b, 7
    torch.prim.Loop %n, %true, init(%y, %h) {               %y = torch.aten.zeros %l, …
      … torch.aten.slice.Tensor %x, 0, %i, …                torch.prim.Loop %n, %true, init(%y, %h) { …

torch-mlir imports GRU and RNN of ONNX in this form, with -1 for dynamic extents of the input's type.
"""

from __future__ import annotations

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
        loop.operands[0] = _size(sequence, 0, loop)
    for start in list(loop.operands)[2:]:
        while not isinstance(start.owner, ir.Block) and start.owner.operation.name in _VIEWS:
            start = start.owner.operation.operands[0]
        if isinstance(start.owner, ir.Block) or start.owner.operation.name not in _FILLS:
            continue
        fill = start.owner.operation
        sizes = list(fill.operands[0].owner.operation.operands)
        if len(sizes) == 3 and any(map(_is_unknown, sizes)):  # the sequence or directions, the batch, a known extent
            known = [_size(sequence, axis, fill) if _is_unknown(size) else size for axis, size in enumerate(sizes)]
            fill.operands[0] = ir.Operation.create(
                "torch.prim.ListConstruct", results=[fill.operands[0].type], operands=known, loc=fill.location,
                ip=ir.InsertionPoint(fill),
            ).result


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
    if isinstance(size.owner, ir.Block) or size.owner.operation.name != "torch.constant.int":
        return False
    return ir.IntegerAttr(size.owner.operation.attributes["value"]).value < 0


def _size(tensor: ir.Value, axis: int, before: ir.Operation) -> ir.Value:
    at, kind = ir.InsertionPoint(before), ir.Type.parse("!torch.int")
    number = ir.Operation.create(
        "torch.constant.int", results=[kind], loc=before.location, ip=at,
        attributes={"value": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)},
    ).result
    return ir.Operation.create(
        "torch.aten.size.int", results=[kind], operands=[tensor, number], loc=before.location, ip=at
    ).result
