"""Finds operations by name."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def find_operations(root: ir.Module | ir.Operation, *names: str) -> list[ir.Operation]:
    """The operations in `root` with one of `names`, inner ones first."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in names:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


def all_operations(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """A module or function and all operations in it, outer ones first. Errors may be raised for the operations of the
    list, but not during MLIR's own walk, which would replace them."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
