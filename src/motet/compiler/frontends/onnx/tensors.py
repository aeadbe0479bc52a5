"""Tensors of the dialect `torch`, and the MLIR tensors that replace them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.current import DYNAMIC, create

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

    @property
    def torch(self) -> ir.Type:
        extents = ",".join("?" if extent == DYNAMIC else str(extent) for extent in self.extents)
        return ir.Type.parse(f"!torch.vtensor<[{extents}],{self.element}>")


def kind_of(value: ir.Value) -> TorchKind | None:
    match = _TENSOR.fullmatch(str(value.type))
    if match is None:
        return None
    extents = [DYNAMIC if extent == "?" else int(extent) for extent in match[1].split(",") if extent]
    return TorchKind(tuple(extents), match[2])


def know_operations(module: ir.Module) -> None:
    """Registers the conversions between the dialects, which are known only after a pass that creates them has run."""
    run_pipeline(ir.Module.parse("module {}", module.context), "func.func(convert-torch-to-linalg)")


def builtin(value: ir.Value) -> ir.Value:
    """A tensor of the dialect `torch` as one of MLIR. Raises ValueError if its rank is unknown."""
    kind = kind_of(value)
    if kind is None:
        raise ValueError("expected a tensor of known rank")
    return create("torch_c.to_builtin_tensor", kind.builtin, [value])


def as_torch(tensor: ir.Value, element: str) -> ir.Value:
    """A tensor of MLIR as one of the dialect `torch`, of the element type `element`, as `ui16`."""
    kind = TorchKind(tuple(ir.RankedTensorType(tensor.type).shape), element)
    return create("torch_c.from_builtin_tensor", kind.torch, [tensor])


def replace(operation: ir.Operation, value: ir.Value) -> None:
    """Replaces an operator of the dialect `torch` by a tensor of MLIR."""
    kind = operation.results[0].type
    operation.results[0].replace_all_uses_with(create("torch_c.from_builtin_tensor", kind, [value]))
    operation.erase()


def is_used(result: ir.Value) -> bool:
    return next(iter(result.uses), None) is not None


def replace_all(operation: ir.Operation, values: Sequence[ir.Value | None]) -> None:
    """Replaces an operator of several results; None for those without a use."""
    for result, value in zip(operation.results, values, strict=True):
        if value is not None:
            result.replace_all_uses_with(create("torch_c.from_builtin_tensor", result.type, [value]))
    operation.erase()
