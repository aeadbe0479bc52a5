"""Operations by their names."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def find_operations(root: ir.Module | ir.Operation, *names: str) -> list[ir.Operation]:
    """Those in `root` with one of `names`, inner ones first."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in names:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found
