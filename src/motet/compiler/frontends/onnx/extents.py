"""Adds the checks and broadcasts of dynamic extents that ONNX specifies and the torch-mlir wheel omits.

Operands that broadcast are expanded (`broadcasts.py`). Parts of Split, indices of gathers and scatters, and the like
are asserted to fit (`fits.py`). Indices along an axis of one element are checked (`single_gathers.py`). Products along
dynamic axes become reductions of `linalg` (`reduced_products.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.compiler.frontends.onnx import broadcasts, fits, reduced_products, single_gathers
from motet.compiler.frontends.onnx.places import Extents, NodeOperands
from motet.compiler.frontends.onnx.tensors import know_operations
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_RULES: dict[str, Callable[[NodeOperands], None]] = (
    broadcasts.RULES | fits.RULES | single_gathers.RULES | reduced_products.SETTLED
)


def settle_extents(module: ir.Module, inputs: Mapping[str, Sequence[str]], extents: Extents) -> None:
    """Rewrites the module, in the dialect `torch` with ONNX operators, in place. `inputs` maps nodes' names to their
    inputs."""
    work = [(op, rule) for op in find_operations(module, "torch.operator") if (rule := _RULES.get(_operator(op)))]
    if not work:
        return
    know_operations(module)
    for op, rule in work:
        with op.context, op.location, ir.InsertionPoint(op):
            if (node := NodeOperands.of(op, inputs, extents)) is not None:
                rule(node)


def _operator(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value.removeprefix("onnx.")
