"""The functions of a module that placement looks at, and the exchange of values in copies of what is in them."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def public_functions(module: ir.Module) -> list[ir.Operation]:
    """Functions with a body that callers see, in the order of the module."""
    return [
        entry.operation
        for entry in module.body.operations
        if entry.operation.name == "func.func"
        and "sym_visibility" not in entry.operation.attributes
        and len(entry.operation.regions[0].blocks)
    ]


def all_operations(module: ir.Module | ir.Operation) -> list[ir.Operation]:
    """A module or function and all that is in it, operations before those inside them. Errors may be raised at what
    is found here, not while MLIR walks: it makes errors of its own of them."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def function_name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value
