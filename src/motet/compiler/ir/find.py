"""Operations of a module by their names."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def find_operations(module: ir.Module, *names: str) -> list[ir.Operation]:
    """Those with one of `names`, inner ones first."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in names:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found
