"""Finds operations by name, and the values that they use."""

from __future__ import annotations

from collections.abc import Iterable

from motet.compiler.ir._mlir import ir


def find_operations(root: ir.Module | ir.Operation, *names: str) -> list[ir.Operation]:
    """The operations in `root` with one of `names`, inner ones first."""
    found: list[ir.Operation] = []
    advance = ir.WalkResult.ADVANCE

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in names:
            found.append(op.operation)
        return advance

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


def captured_values(operation: ir.Operation) -> Iterable[ir.Value]:
    """The operands of `operation`, and the outer values that its regions use."""
    yield from operation.operands
    inside: set[ir.Value] = set()

    def visit(nested: ir.Operation) -> Iterable[ir.Value]:
        for region in nested.regions:
            for block in region.blocks:
                inside.update(block.arguments)
                for child in block.operations:
                    for operand in child.operation.operands:
                        if operand not in inside:
                            yield operand
                    inside.update(child.operation.results)
                    yield from visit(child.operation)

    yield from visit(operation)
