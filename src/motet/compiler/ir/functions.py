"""The functions of a module."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def public_functions(module: ir.Module) -> list[ir.Operation]:
    """Those that callers see, in the order of the module. They have no visibility: `public` is dropped when reading."""
    return [
        entry.operation
        for entry in module.body.operations
        if entry.operation.name == "func.func" and "sym_visibility" not in entry.operation.attributes
    ]


def symbol_name(operation: ir.Operation) -> str:
    """The name of a function, or of another operation that has one."""
    return ir.StringAttr(operation.attributes["sym_name"]).value
