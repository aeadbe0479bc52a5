"""Tensors that loops and branches carry and write into: the outer tensor that a result has the extents of."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def written_into(value: ir.Value) -> ir.Value:
    """The original tensor that `value` is an update of, possibly through several updates; `value` itself if there is
    none. Both have the same extents."""
    while True:
        before = _before(value)
        if before is None:
            return value
        value = before


def first_write(value: ir.Value) -> tuple[ir.Operation, int] | None:
    """The first operation, and the number of its operand, that writes into the original tensor of `value`; None if
    there is none, or a branch intervenes."""
    found = None
    while (use := _written_operand(value)) is not None:
        found = use
        value = use[0].operands[use[1]]
    return None if _before(value) is not None else found


def _before(value: ir.Value) -> ir.Value | None:
    """The tensor that one operation updated to make `value`."""
    use = _written_operand(value)
    if use is not None:
        return use[0].operands[use[1]]
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "scf.if":
        return None
    branch = value.owner.operation
    number = list(branch.results).index(value)
    origins = [written_into(_last(region.blocks[0]).operands[number]) for region in branch.regions]
    return origins[0] if origins[0] == origins[1] else None


def _written_operand(value: ir.Value) -> tuple[ir.Operation, int] | None:
    """The operation that made `value`, and the number of the operand that it wrote into."""
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    number = list(operation.results).index(value)
    if operation.name in ("tensor.insert", "tensor.insert_slice"):
        return operation, 1
    if operation.name.startswith("linalg."):
        return operation, len(operation.operands) - len(operation.results) + number
    if operation.name == "scf.for":
        body = operation.regions[0].blocks[0]
        return (operation, 3 + number) if _hands_on(body, number, number + 1) else None
    if operation.name == "scf.while":
        test, body = (region.blocks[0] for region in operation.regions)
        origin = written_into(_last(test).operands[1 + number])
        carried = next((i for i, argument in enumerate(test.arguments) if argument == origin), None)
        return (operation, carried) if carried is not None and _hands_on(body, carried, number) else None
    return None


def _hands_on(block: ir.Block, number: int, argument: int) -> bool:
    """Whether operand `number` of the terminator is the block's `argument`, possibly updated."""
    return written_into(_last(block).operands[number]) == block.arguments[argument]


def _last(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation
