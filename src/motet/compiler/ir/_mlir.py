"""The one import of the MLIR wheel: everything else takes MLIR from here, so that the wheel can be exchanged."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, func, linalg, llvm, math, memref, scf, tensor
from torch_mlir.dialects.transform import interpreter
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

__all__ = [
    "PassManager", "arith", "execution_engine", "func", "interpreter", "ir", "linalg", "llvm", "math", "memref",
    "onnx_importer", "register_stablehlo", "register_torch_dialect", "run_pipeline", "scf", "tensor",
]


def run_pipeline(module: ir.Module, pipeline: str) -> None:
    """Run a textual pass pipeline (without `builtin.module(...)`) on `module`, in place.

    Raises `ir.MLIRError` with the diagnostics when a pass fails.
    """
    PassManager.parse(f"builtin.module({pipeline})", context=module.context).run(module.operation)


def execution_engine(module: ir.Module) -> Any:
    """The wheel's own compiler, on a module in the LLVM dialect; for this machine, optimising."""
    return ExecutionEngine(module, opt_level=3)


def onnx_importer() -> Any:
    """The wheel's ONNX importer; needs the package `onnx`."""
    from torch_mlir.extras import onnx_importer

    return onnx_importer


def register_torch_dialect(context: ir.Context) -> None:
    """Make `context` know the `torch` dialect, which imported models pass through."""
    from torch_mlir.dialects import torch

    torch.register_dialect(context)


def register_stablehlo(context: ir.Context) -> None:
    """Make `context` know the `stablehlo` and `chlo` dialects, and the process their passes."""
    # The torch library, imported for its passes alone: one of them brings `chlo` along, which has no binding.
    from torch_mlir._mlir_libs import _stablehlo, _torchMlir  # noqa: F401  # pyright: ignore

    _stablehlo.register_stablehlo_passes()
    _stablehlo.register_dialect(context)
    run_pipeline(ir.Module.parse("", context=context), "func.func(convert-torch-to-stablehlo)")
