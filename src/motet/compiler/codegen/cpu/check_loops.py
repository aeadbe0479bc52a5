"""Takes assertions out of loops whose iterations all assert the same, so that a gather of rows looks at each index once.

    scf.for %j = 0 to %m                         %i = load %indices[%r] ; assert %i < %n
      %i = load %indices[%r] ; assert %i < %n →  scf.for %j = 0 to %m
      … load %table[%i, %j]                        %i = load %indices[%r] … load %table[%i, %j]

What is asserted of the counter of a loop that begins with 0 is asserted of its last value instead.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.find import find_operations

_BELOW = (arith.CmpIPredicate.ult.value, arith.CmpIPredicate.slt.value)


def hoist_checks(function: ir.Operation, inputs: int) -> None:
    """Move the assertions of `function`, whose first `inputs` arguments are only read, out of loops."""
    block = function.regions[0].blocks[0]
    read_only = set(list(block.arguments)[:inputs])
    for assertion in find_operations(function, "cf.assert"):
        while _hoisted(assertion, read_only):
            pass


def _hoisted(assertion: ir.Operation, read_only: set[ir.Value]) -> bool:
    loop = assertion.parent
    if loop is None or loop.name != "scf.for":
        return False
    loop = loop.operation
    _of_last_value(assertion, loop)
    needed = _needed(assertion, loop, read_only)
    if needed is None:
        return False
    for operation in (*needed, assertion):
        operation.move_before(loop)
    return True


def _of_last_value(assertion: ir.Operation, loop: ir.Operation) -> None:
    """Assert of the loop's end what is asserted of its counter, where that is the same."""
    holds = assertion.operands[0].owner
    lower, upper, step = list(loop.operands)[:3]
    if isinstance(holds, ir.Block) or holds.name != "arith.cmpi" or _constant(lower) != 0 or _constant(step) != 1:
        return
    counter, bound = holds.operands
    same = counter == loop.regions[0].blocks[0].arguments[0]
    if not same or ir.IntegerAttr(holds.attributes["predicate"]).value not in _BELOW:
        return
    with ir.InsertionPoint(assertion), assertion.location:
        assertion.operands[0] = arith.CmpIOp(arith.CmpIPredicate.sle, upper, bound).result


def _needed(assertion: ir.Operation, loop: ir.Operation, read_only: set[ir.Value]) -> list[ir.Operation] | None:
    """The operations of the loop's body that an assertion needs, in their order; None where they need the loop."""
    body = loop.regions[0].blocks[0]
    own = set(body.arguments)
    found: set[ir.Operation] = set()
    todo = [assertion.operands[0]]
    while todo:
        value = todo.pop()
        if value in own:
            return None
        operation = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if operation is None or operation.block != body or operation in found:
            continue
        reads = operation.name == "memref.load" and operation.operands[0] in read_only
        if not reads and not operation.name.startswith(("arith.", "memref.dim", "affine.apply")):
            return None
        found.add(operation)
        todo += operation.operands
    return [entry.operation for entry in body.operations if entry.operation in found]


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value
