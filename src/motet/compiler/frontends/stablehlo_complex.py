"""Complex constants of StableHLO, written as their real and imaginary parts, and the logistic of complex numbers.

    stablehlo.constant dense<(1.0, 2.0)> : tensor<4xcomplex<f32>>   →   %x = stablehlo.constant dense<1.0>
                                                                        %y = stablehlo.constant dense<2.0>
                                                                        stablehlo.complex %x, %y

The wheel's bindings end with an error where they are asked for a dense attribute of complex elements.
"""

from __future__ import annotations

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.passes.normalise.hoist_constants import printed_elements


def split_complex_constants(module: ir.Module) -> None:
    """Rewrites in place, the constants in bodies of loops and reductions too."""
    for op in find_operations(module, "stablehlo.constant"):
        kind = ir.RankedTensorType(op.results[0].type)
        if isinstance(kind.element_type, ir.ComplexType):
            op.results[0].replace_all_uses_with(_joined(op, kind))
            op.erase()


def _joined(op: ir.Operation, kind: ir.RankedTensorType) -> ir.Value:
    text = op.get_asm(enable_debug_info=False)
    numbers = printed_elements(text[text.index("dense<") :], DTYPES[str(kind.element_type)])
    numbers = np.full(kind.shape, numbers[0]) if numbers.size == 1 else numbers.reshape(kind.shape)
    real = ir.RankedTensorType.get(kind.shape, ir.ComplexType(kind.element_type).element_type)
    at = ir.InsertionPoint(op)
    parts = [
        ir.Operation.create(
            "stablehlo.constant", results=[real], loc=op.location, ip=at,
            attributes={"value": ir.DenseElementsAttr.get(np.ascontiguousarray(part), type=real)},
        ).result
        for part in (np.real(numbers), np.imag(numbers))
    ]  # fmt: skip
    return ir.Operation.create("stablehlo.complex", results=[kind], operands=parts, loc=op.location, ip=at).result
