"""hoist-loop-invariants: moves operations that do not depend on the iteration before the loop.

    scf.for … {                              %w = transpose of %weights
      %w = transpose of %weights      →      scf.for … {
      … product of %h and %w … }               … product of %h and %w … }
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.loop_tensors import LOOPS

_PIPELINE = "func.func(loop-invariant-code-motion),cse"


@dataclass(frozen=True)
class HoistLoopInvariants(Pass):
    name = "hoist-loop-invariants"

    def run(self, program: Program) -> bool:
        found = any(_is_product_loop(loop) for each in public_functions(program.module)
                    for loop in find_operations(each, *LOOPS))
        if found:
            run_pipeline(program.module, _PIPELINE)
        return found


def _is_product_loop(loop: ir.Operation) -> bool:
    """Whether a loop has operations on tensors that may be expensive."""
    return any(
        entry.operation.name == "linalg.generic"
        for region in loop.regions for block in region.blocks for entry in block.operations
    )
