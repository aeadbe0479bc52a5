"""The functions of a module."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def public_functions(module: ir.Module) -> list[ir.Operation]:
    """The functions that callers see, in order; they have no visibility, since frontends drop `public`."""
    return [
        entry.operation
        for entry in module.body.operations
        if entry.operation.name == "func.func" and "sym_visibility" not in entry.operation.attributes
    ]


def symbol_name(operation: ir.Operation) -> str:
    """The name of a function or another named operation."""
    return ir.StringAttr(operation.attributes["sym_name"]).value
