"""Cleans up the module after the lowering from ONNX."""

from __future__ import annotations

from motet.compiler.frontends.onnx.appended import give_room
from motet.compiler.frontends.onnx.expanded_operands import read_in_place, settle_stretches
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import public_functions

_REFUSES_ZERO = "unimplemented: tensor with zero element"


def clean_up(module: ir.Module) -> None:
    """Simplifies the module and removes its assertions that divisors are not zero: 1/0 must be an infinity."""
    for operation in find_operations(module, "cf.assert"):
        if ir.StringAttr(operation.attributes["msg"]).value == _REFUSES_ZERO:
            operation.erase()
    _settle_batches(module)
    with module.context, ir.Location.unknown():
        give_room(module)
    for function in public_functions(module):
        settle_stretches(function)
    run_pipeline(module, "canonicalize,cse")
    for function in public_functions(module):
        read_in_place(function)
    run_pipeline(module, "canonicalize,cse,symbol-dce", verify_each=False)


def _settle_batches(module: ir.Module) -> None:
    """Makes the extent to which products broadcast a batch axis of 1 that of the other operand, which may be 0: the
    lowering writes the larger of both."""
    for operation in find_operations(module, "arith.maxui"):
        if isinstance(operation.results[0].type, ir.IndexType) and integer_constant(operation.operands[1]) == 1:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()
