"""Lowers the operators that `compiler/operators/` defines, by their readers, and those on integers (`integers.py`).

    %y = torch.operator "onnx.GridSample"(%x, %grid) {torch.onnx.mode = "linear"}   →   %y = linalg.generic …

The wheel converts loops and branches of ONNX only if all operations of their bodies are of the dialect `torch`.
Therefore these operators first get names that the wheel leaves alone, and are replaced after its conversion.
"""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.frontends.onnx import regions, resize
from motet.compiler.frontends.onnx.integers import integer_reader
from motet.compiler.frontends.onnx.operator_node import OperatorNode, Reader
from motet.compiler.frontends.onnx.tensors import kind_of, know_operations, replace
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations

_DEFERRED = "torch.motet."
_READERS: Mapping[str, Reader] = {f"onnx.{name}": read for name, read in {**regions.READERS, **resize.READERS}.items()}


def _reader(op: ir.Operation, name: str) -> Reader | None:
    return _READERS.get(name) or integer_reader(op, name)


def defer_defined(module: ir.Module) -> None:
    """Renames the operators in `module`, in the dialect `torch` with ONNX operators, for `settle_defined`."""
    for op in find_operations(module, "torch.operator"):
        name = ir.StringAttr(op.attributes["name"]).value
        if _reader(op, name) is not None:
            op.attributes["name"] = ir.StringAttr.get(_DEFERRED + name, op.context)


def settle_defined(module: ir.Module) -> None:
    """Lowers deferred operators in `module`, in the dialect `torch`."""
    named = [(op, ir.StringAttr(op.attributes["name"]).value) for op in find_operations(module, "torch.operator")]
    found = [(op, name.removeprefix(_DEFERRED)) for op, name in named if name.startswith(_DEFERRED)]
    if found:
        know_operations(module)
    for op, name in found:
        with op.context, op.location, ir.InsertionPoint(op):
            read, kind = _reader(op, name), kind_of(op.results[0])
            assert read is not None and kind is not None
            value = read(OperatorNode(op))
            replace(op, value if value.type == kind.builtin else create("tensor.cast", kind.builtin, [value]))
