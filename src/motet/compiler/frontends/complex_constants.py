"""Writes constant tensors of complex numbers as their real and imaginary parts.

    arith.constant dense<(1.0, 2.0)> : tensor<4xcomplex<f32>>   →   linalg.generic of complex.create, of two constants

The bindings of the torch-mlir wheel fail when they are asked for a dense attribute of complex elements.
"""

from __future__ import annotations

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.nests import loops
from motet.compiler.passes.normalise.hoist_constants import printed_elements


def split_complex_constants(module: ir.Module) -> None:
    """Rewrites the module in place."""
    for op in find_operations(module, "arith.constant"):
        kind = op.results[0].type
        if isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.ComplexType):
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_joined(op, kind))
            op.erase()


def constant_parts(op: ir.Operation) -> list[ir.Value]:
    """The real and the imaginary parts of a constant, each by an operation of the same name before it."""
    kind = ir.RankedTensorType(op.results[0].type)
    text = op.get_asm(enable_debug_info=False)
    numbers = printed_elements(text[text.index("dense<") :], DTYPES[str(kind.element_type)])
    numbers = np.full(kind.shape, numbers[0]) if numbers.size == 1 else numbers.reshape(kind.shape)
    real = ir.RankedTensorType.get(kind.shape, ir.ComplexType(kind.element_type).element_type)
    return [
        ir.Operation.create(
            op.name, results=[real], loc=op.location, ip=ir.InsertionPoint(op),
            attributes={"value": ir.DenseElementsAttr.get(np.ascontiguousarray(part), type=real)},
        ).result
        for part in (np.real(numbers), np.imag(numbers))
    ]  # fmt: skip


def _joined(op: ir.Operation, kind: ir.RankedTensorType) -> ir.Value:
    parts = constant_parts(op)
    room = ir.Operation.create("tensor.empty", results=[kind]).result
    whole = ir.AffineMap.get_identity(kind.rank)
    return loops(parts, room, [whole] * 3, lambda block: create(
        "complex.create", kind.element_type, list(block.arguments)[:2]))
