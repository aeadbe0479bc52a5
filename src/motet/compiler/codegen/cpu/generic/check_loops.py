"""Moves loop-invariant assertions out of loops, so that a gather of rows checks each index once.

    scf.for %j = 0 to %m                         %i = load %indices[%r] ; assert %i < %n
      %i = load %indices[%r] ; assert %i < %n →  scf.for %j = 0 to %m
      … load %table[%i, %j]                        %i = load %indices[%r] … load %table[%i, %j]

An assertion about the counter of a loop that starts at 0 becomes one about its last value. An assertion about an index
that changes from iteration to iteration would be an exit of its loop, which LLVM does not vectorise. If the CPU has
gather instructions, the loop computes the largest index (unsigned) instead, loads no element at an index out of bounds,
by the mask that gather instructions have anyway, and the assertion follows the loop:

    scf.for %j = 0 to %m                         %k = scf.for %j = 0 to %m with %largest = 0
      %i = load %indices[%j]                       %i = load %indices[%j]
      assert %i < %n                          →    %v = if %i < %n { load %table[%i] } else { 0 }
      %v = load %table[%i]                         … ; yield max(%largest, %i)
      …                                          assert %k < %n
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.attributes import integer_constant, zero_attribute
from motet.compiler.ir.find import find_operations

_STRAIGHT = ("memref.load", "memref.store", "memref.dim", "arith.", "math.", "affine.apply", "cf.assert", "scf.yield")
_VIEWS = ("memref.cast", "memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast", "memref.subview")
_REAL = (ir.IntegerType, ir.IndexType, ir.FloatType)
_BELOW = (arith.CmpIPredicate.ult.value, arith.CmpIPredicate.slt.value)


def hoist_checks(function: ir.Operation, inputs: int) -> None:
    """Move the assertions of `function` out of loops; its first `inputs` arguments must only be read."""
    read_only = _read_only(function, inputs)
    for assertion in find_operations(function, "cf.assert"):
        while _hoisted(assertion, read_only):
            pass


def hoist_loads(function: ir.Operation, inputs: int) -> None:
    """Move loads of the first `inputs` arguments, which are only read, out of loops whose counters they do not depend
    on. LLVM cannot, since it does not know that no store of the loop writes to them."""
    read_only = _read_only(function, inputs)
    for load in find_operations(function, "memref.load"):
        memory, *places = load.operands
        known = [place for place in places if _is_counter(place) or integer_constant(place) is not None]
        while memory in read_only and len(known) == len(places) and places:
            loop = load.parent
            if loop is None or loop.name != "scf.for" or loop.operation.regions[0].blocks[0].arguments[0] in places:
                break
            load.move_before(loop.operation)


def _is_counter(value: ir.Value) -> bool:
    if not isinstance(value.owner, ir.Block):
        return False
    loop = value.owner.owner
    return loop is not None and loop.name == "scf.for" and ir.BlockArgument(value).arg_number == 0


def check_behind(function: ir.Operation) -> None:
    """Move the index checks of an innermost loop after it, and mask loads out of bounds, if LLVM can then vectorise the
    loop."""
    loops = {loop: None for assertion in find_operations(function, "cf.assert") if (loop := assertion.parent)}
    for loop in loops:
        if loop.name == "scf.for":
            checks = _index_checks(loop.operation)
            if checks is not None:
                _check_behind(loop.operation, checks)


def _read_only(function: ir.Operation, inputs: int) -> set[ir.Value]:
    """The first `inputs` arguments, and views of them."""
    found = set(list(function.regions[0].blocks[0].arguments)[:inputs])
    for entry in function.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name in _VIEWS and operation.operands[0] in found:
            found.add(operation.results[0])
    return found


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
    """Make the assertion in front of a loop hold if the loop has no iterations."""
    lower, upper = list(loop.operands)[:2]
    first, end = integer_constant(lower), integer_constant(upper)
    if first is not None and end is not None and first < end:
        return
    with ir.InsertionPoint(assertion), assertion.location:
        none = arith.CmpIOp(arith.CmpIPredicate.sge, lower, upper).result
        assertion.operands[0] = arith.OrIOp(none, assertion.operands[0]).result


def _of_last_value(assertion: ir.Operation, loop: ir.Operation) -> None:
    """Replace an assertion about the loop's counter by one about its last value, where they are equivalent."""
    holds = assertion.operands[0].owner
    lower, upper, step = list(loop.operands)[:3]
    if isinstance(holds, ir.Block) or holds.name != "arith.cmpi":
        return
    if integer_constant(lower) != 0 or integer_constant(step) != 1:
        return
    counter, bound = holds.operands
    same = counter == loop.regions[0].blocks[0].arguments[0]
    if not same or ir.IntegerAttr(holds.attributes["predicate"]).value not in _BELOW:
        return
    with ir.InsertionPoint(assertion), assertion.location:
        assertion.operands[0] = arith.CmpIOp(arith.CmpIPredicate.sle, upper, bound).result


@dataclass(frozen=True)
class _IndexCheck:
    """An assertion that `index` is below `extent`, with the operations in the loop that compute `extent` from values
    outside, and the loads at `index`."""

    assertion: ir.Operation
    index: ir.Value
    extent: ir.Value
    outer: list[ir.Operation]
    loads: list[ir.Operation]


def _index_checks(loop: ir.Operation) -> list[_IndexCheck] | None:
    """All checks of a loop; None if it has another assertion, or one that a store depends on."""
    operations = [entry.operation for entry in loop.regions[0].blocks[0].operations]
    if any(len(operation.regions) or not operation.name.startswith(_STRAIGHT) for operation in operations):
        return None
    checks = [_index_check(operation, loop) for operation in operations if operation.name == "cf.assert"]
    found = [check for check in checks if check is not None]
    return found if len(found) == len(checks) else None


def _index_check(assertion: ir.Operation, loop: ir.Operation) -> _IndexCheck | None:
    holds = assertion.operands[0].owner
    if isinstance(holds, ir.Block) or holds.name != "arith.cmpi":
        return None
    index, extent = holds.operands
    body = loop.regions[0].blocks[0]
    outer = _needed(extent, loop, set(), set(body.arguments))
    below = ir.IntegerAttr(holds.attributes["predicate"]).value == arith.CmpIPredicate.ult.value
    users = [use.owner.operation for use in index.uses]
    operations = [entry.operation for entry in body.operations]
    following = operations[operations.index(assertion) + 1 :]
    loads = [operation for operation in following if operation.name == "memref.load" and operation in users]
    safe = all(isinstance(load.results[0].type, _REAL) for load in loads)
    if not below or outer is None or not loads or not safe or any(user.name == "memref.store" for user in users):
        return None
    return _IndexCheck(assertion, index, extent, outer, loads)


def _check_behind(loop: ir.Operation, checks: Sequence[_IndexCheck]) -> None:
    for check in checks:
        for operation in check.outer:
            operation.move_before(loop)
    masks: dict[ir.Operation, ir.Value] = {}
    for check in checks:
        inside = check.assertion.operands[0]
        for load in check.loads:
            with ir.InsertionPoint(load), load.location:
                masks[load] = arith.AndIOp(masks[load], inside).result if load in masks else inside
    for load, inside in masks.items():
        _load_inside(load, inside)
    largest = _with_largest(loop, [check.index for check in checks])
    for check, index in zip(checks, largest, strict=True):
        _assert_behind(check, index)


def _load_inside(load: ir.Operation, inside: ir.Value) -> None:
    """Make `load` yield zero if its index is not `inside`."""
    kind = load.results[0].type
    with ir.InsertionPoint(load), load.location:
        branch = ir.Operation.create("scf.if", results=[kind], operands=[inside], regions=2)
        loading, other = (region.blocks.append() for region in branch.regions)
        load.results[0].replace_all_uses_with(branch.results[0])
        with ir.InsertionPoint(other):
            ir.Operation.create("scf.yield", operands=[arith.ConstantOp(kind, zero_attribute(kind)).result])
        loading.append(load)
        with ir.InsertionPoint(loading):
            ir.Operation.create("scf.yield", operands=[load.results[0]])


def _with_largest(loop: ir.Operation, indices: Sequence[ir.Value]) -> list[ir.Value]:
    """Replace a loop by one that also computes the largest of each of its `indices`; 0 without iterations."""
    old = loop.regions[0].blocks[0]
    kinds = [value.type for value in loop.results] + [index.type for index in indices]
    with ir.InsertionPoint(loop), loop.location:
        zeros = [arith.ConstantOp(index.type, 0).result for index in indices]
        made = ir.Operation.create("scf.for", results=kinds, operands=[*loop.operands, *zeros], regions=1)
        arguments = [loop.operands[0].type, *kinds]
        block = made.regions[0].blocks.append(*arguments, arg_locs=[loop.location] * len(arguments))
        renamed: dict[ir.Value, ir.Value] = dict(zip(old.arguments, block.arguments, strict=False))
        for was, now in renamed.items():
            was.replace_all_uses_with(now)
        indices = [renamed.get(index, index) for index in indices]  # one may be the counter
        operations = [entry.operation for entry in old.operations]
        for operation in operations[:-1]:
            block.append(operation)
        with ir.InsertionPoint(block):
            so_far = list(block.arguments)[-len(indices) :]
            larger = [arith.MaxUIOp(*pair).result for pair in zip(so_far, indices, strict=True)]
            ir.Operation.create("scf.yield", operands=[*operations[-1].operands, *larger])
    results = list(made.results)
    for was, now in zip(loop.results, results, strict=False):
        was.replace_all_uses_with(now)
    loop.erase()
    return results[-len(indices) :]


def _assert_behind(check: _IndexCheck, largest: ir.Value) -> None:
    loop = largest.owner.operation
    lower, upper = list(loop.operands)[:2]
    following = [entry.operation for entry in loop.block.operations]
    with ir.InsertionPoint(following[following.index(loop) + 1]), check.assertion.location:
        # Without iterations, the 0 that is returned as the largest index must pass the check.
        one = arith.ConstantOp(ir.IndexType.get(), 1).result
        some = arith.CmpIOp(arith.CmpIPredicate.slt, lower, upper).result
        bound = arith.SelectOp(some, check.extent, one).result
        inside = arith.CmpIOp(arith.CmpIPredicate.ult, largest, bound).result
        ir.Operation.create("cf.assert", operands=[inside], attributes={"msg": check.assertion.attributes["msg"]})
    check.assertion.erase()


def _needed(
    wanted: ir.Value, loop: ir.Operation, read_only: set[ir.Value], forbidden: set[ir.Value]
) -> list[ir.Operation] | None:
    """The operations of the loop's body that a value depends on, in order; None if it depends on a `forbidden` value or
    on a value that the loop carries."""
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
