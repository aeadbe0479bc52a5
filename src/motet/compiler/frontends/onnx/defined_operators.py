"""Lowers the operators that `compiler/operators/` defines: their readers, by name.

    %y = torch.operator "onnx.GridSample"(%x, %grid) {torch.onnx.mode = "linear"}   →   %y = linalg.generic …

The wheel converts loops and branches of ONNX only if all operations of their bodies are of the dialect `torch`.
Therefore these operators first get names that the wheel leaves alone, and are replaced after its conversion.
"""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.frontends.onnx import regions, resize
from motet.compiler.frontends.onnx.operator_node import OperatorNode, Reader
from motet.compiler.frontends.onnx.tensors import know_operations, replace
from motet.compiler.frontends.torch.operands import operator_name, operators
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create

_DEFERRED = "torch.motet."
_READERS: Mapping[str, Reader] = {f"onnx.{name}": read for name, read in {**regions.READERS, **resize.READERS}.items()}


def defer_defined(module: ir.Module) -> None:
    """Renames the operators in `module`, in the dialect `torch` with ONNX operators, for `settle_defined`."""
    for op in operators(module, *_READERS):
        op.attributes["name"] = ir.StringAttr.get(_DEFERRED + operator_name(op), op.context)


def settle_defined(module: ir.Module) -> None:
    """Lowers deferred operators in `module`, in the dialect `torch`."""
    found = operators(module, *(_DEFERRED + name for name in _READERS))
    if found:
        know_operations(module)
    for op in found:
        with op.context, op.location, ir.InsertionPoint(op):
            node = OperatorNode(op)
            value = _READERS[operator_name(op).removeprefix(_DEFERRED)](node)
            kind = node.result.builtin
            replace(op, value if value.type == kind else create("tensor.cast", kind, [value]))
