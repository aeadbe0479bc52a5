"""Erases operations of functions."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir


def erase_unused(function: ir.Operation) -> None:
    """Erases operations without effects whose results are not used."""
    for entry in reversed(list(function.regions[0].blocks[0].operations)):
        operation = entry.operation
        pure = operation.name.startswith(("arith.", "tensor.", "linalg.", "math.", "affine."))
        if pure and not any(True for result in operation.results for _ in result.uses):
            operation.erase()
