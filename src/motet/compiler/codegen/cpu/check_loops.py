"""Moves assertions out of loops in which they are invariant, so that a gather of rows checks each index once.

    scf.for %j = 0 to %m                         %i = load %indices[%r] ; assert %i < %n
      %i = load %indices[%r] ; assert %i < %n →  scf.for %j = 0 to %m
      … load %table[%i, %j]                        %i = load %indices[%r] … load %table[%i, %j]

An assertion about the counter of a loop that begins with 0 becomes one about its last value. An index that differs from
iteration to iteration and is the whole place of a load is checked by a loop in front, which finds the largest index,
unsigned: neither loop then has an exit, and LLVM vectorises both. LLVM does not vectorise loads at other computed
places, which therefore keep their check.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.find import find_operations

_BELOW = (arith.CmpIPredicate.ult.value, arith.CmpIPredicate.slt.value)


def hoist_checks(function: ir.Operation, inputs: int) -> None:
    """Move the assertions of `function`, whose first `inputs` arguments are only read, out of loops."""
    read_only = _read_only(function, inputs)
    for assertion in find_operations(function, "cf.assert"):
        while _hoisted(assertion, read_only):
            pass


def hoist_loads(function: ir.Operation, inputs: int) -> None:
    """Move loads of the first `inputs` arguments, which are only read, out of loops whose counters are not in their
    places: LLVM cannot, since it does not know that no store of the loop writes there."""
    read_only = _read_only(function, inputs)
    for load in find_operations(function, "memref.load"):
        memory, *places = load.operands
        counters = [place for place in places if _is_counter(place)]
        while memory in read_only and len(counters) == len(places) and places:
            loop = load.parent
            if loop is None or loop.name != "scf.for" or loop.operation.regions[0].blocks[0].arguments[0] in places:
                break
            load.move_before(loop.operation)


def _is_counter(value: ir.Value) -> bool:
    if not isinstance(value.owner, ir.Block):
        return False
    loop = value.owner.owner
    return loop is not None and loop.name == "scf.for" and ir.BlockArgument(value).arg_number == 0


def check_in_front(function: ir.Operation, inputs: int) -> None:
    """Check the indices of all iterations of a loop in front of it, where that needs nothing that the loop makes."""
    read_only = _read_only(function, inputs)
    for assertion in find_operations(function, "cf.assert"):
        loop = assertion.parent
        if loop is not None and loop.name == "scf.for":
            _check_in_front(assertion, loop.operation, read_only)


def _read_only(function: ir.Operation, inputs: int) -> set[ir.Value]:
    return set(list(function.regions[0].blocks[0].arguments)[:inputs])


def _hoisted(assertion: ir.Operation, read_only: set[ir.Value]) -> bool:
    loop = assertion.parent
    if loop is None or loop.name != "scf.for":
        return False
    loop = loop.operation
    _of_last_value(assertion, loop)
    needed = _needed(assertion.operands[0], loop, read_only, set(loop.regions[0].blocks[0].arguments))
    if needed is None:
        return False
    for operation in (*needed, assertion):
        operation.move_before(loop)
    _unless_without_iterations(assertion, loop)
    return True


def _unless_without_iterations(assertion: ir.Operation, loop: ir.Operation) -> None:
    """Assert nothing in front of a loop that has no iterations."""
    lower, upper = list(loop.operands)[:2]
    first, end = _constant(lower), _constant(upper)
    if first is not None and end is not None and first < end:
        return
    with ir.InsertionPoint(assertion), assertion.location:
        none = arith.CmpIOp(arith.CmpIPredicate.sge, lower, upper).result
        assertion.operands[0] = arith.OrIOp(none, assertion.operands[0]).result


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


def _check_in_front(assertion: ir.Operation, loop: ir.Operation, read_only: set[ir.Value]) -> None:
    holds = assertion.operands[0].owner
    body = loop.regions[0].blocks[0]
    if isinstance(holds, ir.Block) or holds.name != "arith.cmpi":
        return
    index, extent = holds.operands
    below = ir.IntegerAttr(holds.attributes["predicate"]).value == arith.CmpIPredicate.ult.value
    carried = set(list(body.arguments)[1:])
    needed = _needed(index, loop, read_only, carried)
    outer = _needed(extent, loop, read_only, set(body.arguments))
    if not below or not _is_place(index) or needed is None or outer is None:
        return
    for operation in outer:
        operation.move_before(loop)
    with ir.InsertionPoint(loop), assertion.location:
        largest = _largest(index, loop, [operation for operation in needed if operation not in outer])
        # Without iterations there is no index, and the 0 that stands for the largest is inside of anything.
        one = arith.ConstantOp(ir.IndexType.get(), 1).result
        some = arith.CmpIOp(arith.CmpIPredicate.slt, loop.operands[0], loop.operands[1]).result
        bound = arith.SelectOp(some, extent, one).result
        inside = arith.CmpIOp(arith.CmpIPredicate.ult, largest, bound).result
        ir.Operation.create("cf.assert", operands=[inside], attributes={"msg": assertion.attributes["msg"]})
    assertion.erase()


def _is_place(index: ir.Value) -> bool:
    """Whether an index is all that memory is read at."""
    users = [use.owner.operation for use in index.uses]
    return any(user.name == "memref.load" and list(user.operands)[1:] == [index] for user in users)


def _largest(index: ir.Value, loop: ir.Operation, needed: list[ir.Operation]) -> ir.Value:
    """The largest `index` of all iterations of `loop`, which `needed` calculates from its counter; 0 without any."""
    kind = ir.IndexType.get()
    zero = arith.ConstantOp(kind, 0).result
    front = ir.Operation.create("scf.for", results=[kind], operands=[*list(loop.operands)[:3], zero], regions=1)
    block = front.regions[0].blocks.append(kind, kind, arg_locs=[loop.location] * 2)
    counter, so_far = block.arguments
    values: dict[ir.Value, ir.Value] = {loop.regions[0].blocks[0].arguments[0]: counter}
    with ir.InsertionPoint(block):
        for operation in needed:
            twin = operation.clone()
            for number, operand in enumerate(twin.operands):
                twin.operands[number] = values.get(operand, operand)
            values.update(zip(operation.results, twin.results, strict=True))
        larger = arith.MaxUIOp(so_far, values.get(index, index)).result
        ir.Operation.create("scf.yield", operands=[larger])
    return front.results[0]


def _needed(
    wanted: ir.Value, loop: ir.Operation, read_only: set[ir.Value], forbidden: set[ir.Value]
) -> list[ir.Operation] | None:
    """The operations of the loop's body that a value needs, in their order; None where it needs what is `forbidden`, or
    what the loop makes."""
    body = loop.regions[0].blocks[0]
    found: set[ir.Operation] = set()
    todo = [wanted]
    while todo:
        value = todo.pop()
        if value in forbidden:
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
