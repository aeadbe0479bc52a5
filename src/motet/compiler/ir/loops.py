"""Creates loops of `scf` at the current insertion point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import constant_index

Carried = Sequence[ir.Value]


def repeat(
    begin: ir.Value, end: ir.Value, start: Carried, body: Callable[[ir.Value, Carried], Carried]
) -> list[ir.Value]:
    """The values that a loop from `begin` to before `end` carries, which are `start` at first: `body` writes those
    after an iteration, given its index and those before it."""
    kinds = [value.type for value in start]
    made = ir.Operation.create("scf.for", results=kinds, operands=[begin, end, constant_index(1), *start], regions=1)
    block = made.regions[0].blocks.append(ir.IndexType.get(), *kinds, arg_locs=[made.location] * (1 + len(kinds)))
    with ir.InsertionPoint(block):
        index, *carried = block.arguments
        ir.Operation.create("scf.yield", operands=list(body(index, carried)))
    return list(made.results)


def repeat_nested(
    extents: Sequence[ir.Value], start: Carried, body: Callable[[Sequence[ir.Value], Carried], Carried]
) -> list[ir.Value]:
    """As `repeat`, for loops in each other from 0 to before each extent; `body` is given an index of each."""

    def nested(places: Sequence[ir.Value], carried: Carried) -> Carried:
        if len(places) == len(extents):
            return body(places, carried)
        end = extents[len(places)]
        return repeat(constant_index(0), end, carried, lambda index, inner: nested([*places, index], inner))

    return list(nested([], start))


def copy_body(block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """Copies the operations of `block`, with `arguments` for the block's; the values that it returns."""
    copies: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))
    *body, last = [entry.operation for entry in block.operations]
    for operation in body:
        copy = operation.clone()
        for position, operand in enumerate(operation.operands):
            copy.operands[position] = copies.get(operand, operand)
        copies.update(zip(operation.results, copy.results, strict=True))
    return [copies.get(value, value) for value in last.operands]
