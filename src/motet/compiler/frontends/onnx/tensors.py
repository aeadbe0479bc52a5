"""Tensors of the dialect `torch`, and the MLIR tensors that replace them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir, run_pipeline

DYNAMIC = ir.ShapedType.get_dynamic_size()
_TENSOR = re.compile(r"!torch\.vtensor<\[([\d?,]*)\],(\w+)>")


@dataclass(frozen=True)
class TorchKind:
    """The type of a tensor of the dialect `torch`: its extents, and its element type, as `ui16`."""

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
    """Registers the conversions between the dialects, which are known only after a pass that creates them has run."""
    run_pipeline(ir.Module.parse("module {}", module.context), "func.func(convert-torch-to-linalg)")


def create(
    name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute] | None = None,
    at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """The result of a new operation, at `at` or the current insertion point."""
    return ir.Operation.create(name, results=[kind], operands=operands, attributes=attributes or {}, ip=at).results[0]
