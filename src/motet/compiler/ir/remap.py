"""Replaces the operands of operations."""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.ir._mlir import ir


def remap(operation: ir.Operation, mapping: Mapping[ir.Value, ir.Value]) -> None:
    """Replaces the operands of an operation and of all operations inside it."""
    for index, operand in enumerate(operation.operands):
        if operand in mapping:
            operation.operands[index] = mapping[operand]
    for region in operation.regions:
        for block in region.blocks:
            for child in block.operations:
                remap(child.operation, mapping)
