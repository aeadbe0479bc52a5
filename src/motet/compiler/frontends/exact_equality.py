"""Writes equality of floating-point numbers as negated inequality, in the dialect `torch`.

    %1 = torch.aten.eq.Tensor %a, %b      →  %0 = torch.aten.ne.Tensor %a, %b
                                             %1 = torch.aten.logical_not %0

The torch-mlir wheel folds the equality of a tensor with itself to true, which is wrong for NaN. Two tensors may become
one during its pipelines, so every equality is rewritten. It folds no other comparison of a tensor with itself.
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations


def exact_equality(module: ir.Module) -> None:
    """Rewrites `module` in place, before the wheel's pipelines; for programs of PyTorch and of ONNX."""
    for op in find_operations(module, "torch.aten.eq.Tensor", "torch.operator"):
        if op.name == "torch.operator" and ir.StringAttr(op.attributes["name"]).value != "onnx.Equal":
            continue
        kinds = [kind_of(value) for value in op.operands]
        if not any(kind is not None and kind.floating for kind in kinds):
            continue
        result, at = op.results[0], ir.InsertionPoint(op)
        with op.context, op.location:
            different = create("torch.aten.ne.Tensor", result.type, list(op.operands), at=at)
            result.replace_all_uses_with(create("torch.aten.logical_not", result.type, [different], at=at))
        op.erase()
