"""The table of suites, with their requirements."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from types import ModuleType

INSTALL = "make frameworks"


@dataclass(frozen=True)
class Suite:
    """`module` has the functions that `results.py` describes; `packages` are what it imports; a case takes at most
    `limit` seconds."""

    name: str
    title: str
    module: str
    packages: tuple[str, ...]
    limit: float = 120.0

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)

    def missing(self) -> list[str]:
        """The packages that this interpreter lacks."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]


SUITES = {
    suite.name: suite
    for suite in (
        Suite("onnx-node", "ONNX node cases", "conformance.onnx_cases", ("onnx",)),
        Suite("onnx-simple", "ONNX simple models", "conformance.onnx_cases", ("onnx",)),
        Suite("onnx-pytorch-operator", "ONNX PyTorch operators", "conformance.onnx_cases", ("onnx",)),
        Suite("onnx-pytorch-converted", "ONNX PyTorch modules", "conformance.onnx_cases", ("onnx",)),
        Suite(
            "pytorch", "PyTorch architectures", "conformance.pytorch_suite", ("torch", "transformers", "timm"), 600.0
        ),
        Suite("stablehlo-interpret", "StableHLO interpreter tests", "conformance.stablehlo_suite", ()),
        Suite("stablehlo-testdata", "StableHLO test data", "conformance.stablehlo_suite", ()),
        Suite(
            "openvino", "OpenVINO's conversions", "conformance.openvino_suite",
            ("torch", "transformers", "timm", "torchvision", "openvino"), 600.0,
        ),
        Suite("jax", "JAX functions", "conformance.jax_functions", ("jax",)),
    )
}
