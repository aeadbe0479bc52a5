"""The functions of a module that placement looks at."""

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


def function_name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value
