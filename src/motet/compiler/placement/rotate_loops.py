"""rotate-loops: moves the operations before a loop's exit from its condition into its body and after the loop.

    %r = scf.while (%v = %x) : … {                          %u = scf.while (%v = %x) : … {
      %p = …                                                  %p = …
      %a:2 = scf.if %p { … yield %b, %one }         →         scf.condition(%p) %v
             else { … yield %c, %zero }                     } do { … yield %b }
      scf.condition(trunc %a#1) %a#0                        … %c of %u …
    } do { scf.yield %a }

Upstream's `lift-cf-to-scf` converts loops of branches between blocks to the first form. Both sides of a branch over
several devices are computed (select-branches), so that such a loop would compute one iteration too many. The values
that it passes from the condition to the body are undefined where the loop ends: no step of a plan can compute them.
Programs for one device are left to upstream's canonicalization, which does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.ir.find import all_operations, captured_values
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import is_replicable
from motet.compiler.placement.unroll_placed_loops import WHILE

IF = "scf.if"
_SAME_TRUTH = ("arith.trunci", "arith.extui", "arith.extsi", "arith.index_cast", "arith.index_castui")


@dataclass(frozen=True)
class RotateLoops(ModulePass):
    name = "rotate-loops"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            rotate_placed(function)


def rotate_placed(function: ir.Operation) -> None:
    """Rotates the loops of one function, in place, inner ones first."""
    for operation in reversed([each for each in all_operations(function) if each.name == WHILE]):
        _rotate(operation)


def _rotate(loop: ir.Operation) -> None:
    before, after = (region.blocks[0] for region in loop.regions)
    *operations, end = (entry.operation for entry in before.operations)
    found = _decides(end.operands[0])
    if found is None:
        return
    branch, staying = found
    position = operations.index(branch)
    first, last = operations[:position], operations[position + 1 :]
    again, passed = _needed(before.arguments, first, [branch, *last, end])
    kept = [number for number, argument in enumerate(before.arguments) if any(True for _ in argument.uses)]
    carried = [before.arguments[number] for number in kept]
    rotated = ir.Operation.create(
        WHILE, results=[value.type for value in passed], operands=[loop.operands[number] for number in kept],
        regions=2, loc=loop.location, attributes={each: loop.attributes[each] for each in loop.attributes},
        ip=ir.InsertionPoint(loop),
    )
    condition, body = (
        region.blocks.append(*(each.type for each in values), arg_locs=[loop.location] * len(values))
        for region, values in zip(rotated.regions, (carried, passed), strict=True)
    )
    known = dict(zip(carried, condition.arguments, strict=True))
    _clone(first, known, ir.InsertionPoint(condition))
    holds = known.get(branch.operands[0], branch.operands[0])
    with ir.InsertionPoint(condition), loop.location:
        if not staying:
            true = ir.Operation.create(
                "arith.constant", results=[holds.type], attributes={"value": ir.IntegerAttr.get(holds.type, 1)}
            ).results[0]
            holds = ir.Operation.create("arith.xori", results=[holds.type], operands=[holds, true]).results[0]
        ir.Operation.create("scf.condition", operands=[holds, *(known[value] for value in passed)])
    # The side that continues and the operations of the old body form the new body; the side that exits follows the
    # loop.
    known = dict(zip(passed, body.arguments, strict=True))
    _clone(again, known, ir.InsertionPoint(body))
    given = _side(branch, staying, [*last, end], known, ir.InsertionPoint(body))
    known = dict(zip(after.arguments, given[1:], strict=True))
    *rest, handed_on = (entry.operation for entry in after.operations)
    _clone(rest, known, ir.InsertionPoint(body))
    with ir.InsertionPoint(body), loop.location:
        yielded = [handed_on.operands[number] for number in kept]
        ir.Operation.create("scf.yield", operands=[known.get(value, value) for value in yielded])
    known = dict(zip(passed, rotated.results, strict=True))
    _clone(again, known, ir.InsertionPoint(loop))
    left = _side(branch, not staying, [*last, end], known, ir.InsertionPoint(loop))
    for old, new in zip(loop.results, left[1:], strict=True):
        old.replace_all_uses_with(new)
    loop.erase()


def _needed(
    arguments: ir.BlockArgumentList, first: list[ir.Operation], readers: list[ir.Operation]
) -> tuple[list[ir.Operation], list[ir.Value]]:
    """What `readers` read of the block that begins with `first`: operations that may be recomputed, and values."""
    places = {result: number for number, operation in enumerate(first) for result in operation.results}
    again: set[int] = set()
    passed: dict[ir.Value, None] = {}
    waiting = [value for each in readers for value in captured_values(each)]
    while waiting:
        value = waiting.pop()
        if value in places and is_replicable(first[places[value]]):
            if places[value] not in again:
                again.add(places[value])
                waiting += captured_values(first[places[value]])
        elif value in places or value in list(arguments):
            passed[value] = None
    return [first[number] for number in sorted(again)], list(passed)


def _decides(condition: ir.Value) -> tuple[ir.Operation, bool] | None:
    """The branch whose sides return constants that decide whether the loop continues, and the side that continues."""
    value = condition
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in _SAME_TRUTH:
        value = value.owner.operation.operands[0]
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != IF:
        return None
    branch = value.owner.operation
    if branch.parent is None or condition.owner.operation.parent != branch.parent:
        return None
    number = list(branch.results).index(value)
    said: list[bool] = []
    for region in branch.regions:
        operations = [entry.operation for entry in region.blocks[0].operations]
        source = operations[-1].operands[number]
        if isinstance(source.owner, ir.Block) or source.owner.operation.name != "arith.constant":
            return None
        known = constant_number(source.owner.operation)
        if known not in (0, 1):
            return None
        said.append(bool(known))
    return (branch, said[0]) if said[0] != said[1] else None


def _side(
    branch: ir.Operation, taken: bool, behind: list[ir.Operation], known: dict[ir.Value, ir.Value],
    point: ir.InsertionPoint,
) -> list[ir.Value]:
    """Copies one side of a branch and the operations after it; returns the operands of the last one."""
    *operations, end = (entry.operation for entry in branch.regions[0 if taken else 1].blocks[0].operations)
    _clone(operations, known, point)
    known.update((result, known.get(value, value)) for result, value in zip(branch.results, end.operands, strict=True))
    _clone(behind[:-1], known, point)
    return [known.get(value, value) for value in behind[-1].operands]


def _clone(operations: list[ir.Operation], known: dict[ir.Value, ir.Value], point: ir.InsertionPoint) -> None:
    for operation in operations:
        copy = operation.clone(point)
        remap(copy, known)
        known.update(zip(operation.results, copy.results, strict=True))
