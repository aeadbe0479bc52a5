"""Tensors of the dialect `torch`, as operators of ONNX have them, and MLIR's own that take their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir, run_pipeline

DYNAMIC = ir.ShapedType.get_dynamic_size()
_TENSOR = re.compile(r"!torch\.vtensor<\[([\d?,]*)\],(\w+)>")


@dataclass(frozen=True)
class TorchKind:
    """What a tensor of the dialect `torch` is: its extents, and its elements, as `ui16`."""

    extents: tuple[int, ...]
    element: str

    @property
    def unsigned(self) -> bool:
        return self.element.startswith("u") or self.element == "i1"

    @property
    def floating(self) -> bool:
        return "f" in self.element

    @property
    def bits(self) -> int:
        return int(self.element.lstrip("subfi"))

    @property
    def scalar(self) -> ir.Type:
        return ir.Type.parse(self.element.lstrip("su") if not self.floating else self.element)

    @property
    def builtin(self) -> ir.Type:
        return ir.RankedTensorType.get(self.extents, self.scalar)


def kind_of(value: ir.Value) -> TorchKind | None:
    match = _TENSOR.fullmatch(str(value.type))
    if match is None:
        return None
    extents = [DYNAMIC if extent == "?" else int(extent) for extent in match[1].split(",") if extent]
    return TorchKind(tuple(extents), match[2])


def know_operations(module: ir.Module) -> None:
    """Make the operations between the dialects known: they are only after a pass that makes such has been there."""
    run_pipeline(ir.Module.parse("module {}", module.context), "func.func(convert-torch-to-linalg)")


def create(
    name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute] | None = None,
    at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """The result of a new operation, where insertions go or at `at`."""
    return ir.Operation.create(name, results=[kind], operands=operands, attributes=attributes or {}, ip=at).results[0]
