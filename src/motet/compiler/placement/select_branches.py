"""select-branches: computes both sides of branches whose parts run on several devices, and takes the one that holds.

    %r = scf.if %c -> (tensor<4xf32>) {                    %a = linalg.exp … {motet.affinity = "cpu"}
      %a = linalg.exp … {motet.affinity = "cpu"}      →    %b = linalg.abs … {motet.affinity = "gpu"}
      scf.yield %a                                         %r = arith.select %c, %a, %b
    } else {
      %b = linalg.abs … {motet.affinity = "gpu"}
      scf.yield %b }

A branch runs on one device as a whole, unless its parts say that they run on several. Operations on tensors have no
effects, so that both sides may be computed; what a plan would wait for to know which side to run, it does not wait
for. A side that may end the call (`cf.assert`) is refused, as is one that holds a loop of unknown length.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.unroll_placed_loops import spread
from motet.errors import CompileError

IF = "scf.if"
_REFUSED = {
    "cf.assert": "it may end the call though its side is not taken",
    "scf.while": "how often it turns is not known",
}


@dataclass(frozen=True)
class SelectBranches(ModulePass):
    """Raises CompileError for a side that cannot be computed where it is not taken."""

    name = "select-branches"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            for block in function.regions[0].blocks:
                for operation in [entry.operation for entry in block.operations]:
                    if operation.name == IF:
                        _select(operation)


def _select(branch: ir.Operation) -> None:
    """Takes a branch apart, and those inside it first."""
    if spread(branch) is None:
        return
    _check(branch)
    sides: list[list[ir.Value]] = []
    for region in branch.regions:
        operations = [entry.operation for block in region.blocks for entry in block.operations]
        for operation in operations[:-1]:
            operation.move_before(branch)
            if operation.name == IF:
                _select(operation)
        sides.append(list(operations[-1].operands) if operations else [])
    for old, taken, otherwise in zip(branch.results, *sides, strict=True):
        chosen = ir.Operation.create(
            "arith.select", results=[old.type], operands=[branch.operands[0], taken, otherwise],
            loc=branch.location, ip=ir.InsertionPoint(branch),
        ).results[0]
        old.replace_all_uses_with(chosen)
    branch.erase()


def _check(branch: ir.Operation) -> None:
    for operation in all_operations(branch):
        if operation.name in _REFUSED:
            raise CompileError(
                f"{IF}: its parts are placed on several devices, so that both sides are computed; {operation.name} in "
                f"it cannot be: {_REFUSED[operation.name]}; expected all of the branch on one device",
                locate(operation.location),
            )
