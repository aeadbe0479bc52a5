"""Cleans up the module after the lowering from ONNX."""

from __future__ import annotations

from motet.compiler.frontends.onnx.stretches import read_in_place, settle_stretches
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.functions import public_functions

_REFUSES_ZERO = "unimplemented: tensor with zero element"


def clean_up(module: ir.Module) -> None:
    """Simplifies the module and removes its assertions that divisors are not zero: 1/0 must be an infinity."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        if operation.name == "cf.assert" and ir.StringAttr(operation.attributes["msg"]).value == _REFUSES_ZERO:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        operation.erase()
    for function in public_functions(module):
        settle_stretches(function)
    run_pipeline(module, "canonicalize,cse")
    for function in public_functions(module):
        read_in_place(function)
    run_pipeline(module, "canonicalize,cse,symbol-dce")
