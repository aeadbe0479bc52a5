"""A node of ONNX in the dialect `torch`, as operators of `compiler/operators/` are read from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import TorchKind, builtin, kind_of
from motet.compiler.frontends.torch.operands import is_none
from motet.compiler.ir._mlir import ir


@dataclass(frozen=True)
class OperatorNode:
    op: ir.Operation

    def text(self, name: str, default: str = "") -> str:
        value = self._attribute(name)
        return default if value is None else ir.StringAttr(value).value

    def number(self, name: str, default: float) -> float:
        value = self._attribute(name)
        if value is None:
            return default
        return ir.IntegerAttr(value).value if isinstance(value, ir.IntegerAttr) else ir.FloatAttr(value).value

    def integer(self, name: str, default: int) -> int:
        return int(self.number(name, default))

    def integers(self, name: str, default: Sequence[int]) -> list[int]:
        value = self._attribute(name)
        return list(default) if value is None else [ir.IntegerAttr(each).value for each in ir.ArrayAttr(value)]

    def _attribute(self, name: str) -> ir.Attribute | None:
        return self.op.attributes.get(f"torch.onnx.{name}", None)

    def has(self, place: int) -> bool:
        return len(self.op.operands) > place and not is_none(self.op.operands[place])

    def tensor(self, place: int) -> ir.Value:
        return builtin(self.op.operands[place])

    def kind(self, place: int) -> TorchKind:
        return _known(self.op.operands[place])

    @property
    def result(self) -> TorchKind:
        return _known(self.op.results[0])


def _known(value: ir.Value) -> TorchKind:
    kind = kind_of(value)
    if kind is None:
        raise ValueError("expected a tensor of known rank")
    return kind


Reader = Callable[[OperatorNode], ir.Value]  # writes the result of a node at the current insertion point
