"""decompose-softmax: decomposes softmax into maximum, exponentials, sum and quotient, by upstream's decomposition.

    %0 = linalg.softmax dimension(1) ins(%x) …   →   %m = linalg.generic … maximum of each row
                                                     %e = linalg.generic … exp(x - m)
                                                     %s = linalg.generic … sum of each row
                                                     %0 = linalg.generic … e / s
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program
from motet.compiler.passes.base import Pass

_SCRIPT = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %softmax = transform.structured.match ops{["linalg.softmax"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.foreach %softmax : !transform.any_op {
    ^bb0(%one: !transform.any_op):
      %parts = transform.structured.decompose_interface %one : (!transform.any_op) -> !transform.any_op
    }
    transform.yield
  }
}
"""


@dataclass(frozen=True)
class DecomposeSoftmax(Pass):
    """Decomposes every `linalg.softmax`."""

    name = "decompose-softmax"

    def run(self, program: Program) -> bool:
        module = program.module
        if not _has_softmax(module):
            return False
        from motet.compiler.ir._mlir import interpreter

        with module.context, ir.Location.unknown():
            script = ir.Module.parse(_SCRIPT)
            interpreter.apply_named_sequence(module.operation, script.body.operations[0], script.operation)
        return True


def _has_softmax(module: ir.Module) -> bool:
    found: list[bool] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name == "linalg.softmax":
            found.append(True)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return bool(found)
