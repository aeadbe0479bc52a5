"""select-branches: computes both sides of branches whose parts run on several devices, and selects the results.

    %r = scf.if %c -> (tensor<4xf32>) {                    %a = linalg.exp … {motet.affinity = "cpu"}
      %a = linalg.exp … {motet.affinity = "cpu"}      →    %b = linalg.abs … {motet.affinity = "gpu"}
      scf.yield %a                                         %r = arith.select %c, %a, %b
    } else {
      %b = linalg.abs … {motet.affinity = "gpu"}
      scf.yield %b }

A branch runs on one device as a whole, unless its parts have affinities to several. Operations on tensors have no
effects, so both sides may be computed; the plan then does not wait for the condition to know which side to run. A loop
of unknown length makes no iterations on the side that is not taken: its condition is false there, its upper bound the
lower one. A side that may fail (`cf.assert`) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.settle_undefined import is_undefined
from motet.compiler.placement.unroll_placed_loops import FOR, WHILE, is_unrolled, spread
from motet.errors import CompileError

IF = "scf.if"
_ASSERT = "cf.assert"
_WITHIN = (IF, "scf.execute_region", "scf.index_switch")  # execute their contents at most once


@dataclass(frozen=True)
class SelectBranches(ModulePass):
    """Raises CompileError for a side that cannot be computed if it is not taken."""

    name = "select-branches"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            select_placed(function)


def select_placed(function: ir.Operation) -> bool:
    """Converts the branches of one function, in place; returns whether there were any."""
    operations = [entry.operation for block in function.regions[0].blocks for entry in block.operations]
    spread_ones = [each for each in operations if each.name == IF and spread(each) is not None]
    for branch in spread_ones:
        _select(branch)
    return bool(spread_ones)


def _select(branch: ir.Operation) -> None:
    """Converts a branch, after those inside it."""
    if spread(branch) is None:
        return
    _check(branch)
    sides: list[list[ir.Value]] = []
    for taken, region in zip((True, False), branch.regions, strict=True):
        operations = [entry.operation for block in region.blocks for entry in block.operations]
        for operation in operations[:-1]:
            operation.move_before(branch)
            _still_unless(operation, branch, taken)
            if operation.name == IF:
                _select(operation)
        sides.append(list(operations[-1].operands) if operations else [])
    for old, taken, otherwise in zip(branch.results, *sides, strict=True):
        old.replace_all_uses_with(_chosen(branch, taken, otherwise))
    branch.erase()


def _chosen(branch: ir.Operation, taken: ir.Value, otherwise: ir.Value) -> ir.Value:
    """What a branch returns: the value of the side that its condition says, or that of the only side that has one."""
    if is_undefined(taken) or is_undefined(otherwise):
        return otherwise if is_undefined(taken) else taken
    return ir.Operation.create(
        "arith.select", results=[taken.type], operands=[branch.operands[0], taken, otherwise], loc=branch.location,
        ip=ir.InsertionPoint(branch),
    ).results[0]


def _check(branch: ir.Operation) -> None:
    for operation in all_operations(branch):
        if operation.name == _ASSERT:
            raise CompileError(
                f"{IF}: its parts are placed on several devices, so that both sides are computed; {_ASSERT} in it "
                "cannot be: it may end the call though its side is not taken; expected all of the branch on one device",
                locate(operation.location),
            )


def _still_unless(operation: ir.Operation, branch: ir.Operation, taken: bool) -> None:
    """Makes loops of unknown length in an operation of a branch's side run no iterations unless the branch's condition
    is `taken`."""
    if operation.name == WHILE:
        before = operation.regions[0].blocks[0]
        end = before.operations[len(before.operations) - 1].operation
        for entry in list(before.operations)[:-1]:
            _still_unless(entry.operation, branch, taken)
        holds = _holds(branch, taken, end)
        end.operands[0] = _made("arith.andi", [end.operands[0], holds], end)
    elif operation.name == FOR and not is_unrolled(operation):
        holds = _holds(branch, taken, operation)
        operation.operands[1] = _made("arith.select", [holds, operation.operands[1], operation.operands[0]], operation)
    elif operation.name in _WITHIN:
        for region in operation.regions:
            for entry in [entry for block in region.blocks for entry in block.operations]:
                _still_unless(entry.operation, branch, taken)


def _holds(branch: ir.Operation, taken: bool, before: ir.Operation) -> ir.Value:
    """Whether a side of a branch is taken, as a value before an operation."""
    condition = branch.operands[0]
    if taken:
        return condition
    with before.location:
        true = ir.Operation.create(
            "arith.constant", results=[condition.type], attributes={"value": ir.IntegerAttr.get(condition.type, 1)},
            ip=ir.InsertionPoint(before),
        ).results[0]
    return _made("arith.xori", [condition, true], before)


def _made(name: str, operands: list[ir.Value], before: ir.Operation) -> ir.Value:
    return ir.Operation.create(
        name, results=[operands[-1].type], operands=operands, loc=before.location, ip=ir.InsertionPoint(before)
    ).results[0]
