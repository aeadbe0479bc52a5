"""The languages that programs are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.fuzz import as_mlir, as_stablehlo
from tests.fuzz.as_onnx import onnx_model
from tests.fuzz.drawing import Says
from tests.fuzz.graph import Graph


@dataclass(frozen=True)
class Language:
    """`write` makes one source of several programs: functions p0, p1, … or, `together`, one function of them all.
    `operators` are those that it can say; None for all of ONNX."""

    format: str
    write: Callable[[Sequence[Graph]], str | bytes]
    together: bool
    operators: frozenset[str] | None = None
    says: Says | None = None  # whether it has an operator in some form


LANGUAGES = {
    "onnx": Language("onnx", onnx_model, True),
    "mlir": Language("mlir", as_mlir.mlir_module, False, as_mlir.OPERATORS, as_mlir.says),
    "stablehlo": Language(
        "stablehlo", as_stablehlo.stablehlo_module, False, as_stablehlo.OPERATORS, as_stablehlo.says
    ),
}
