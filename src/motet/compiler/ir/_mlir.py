"""The one import of the MLIR wheel: everything else takes MLIR from here, so that the wheel can be exchanged."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith, func, linalg, llvm, math, memref, scf, tensor
from torch_mlir.dialects.transform import interpreter
from torch_mlir.passmanager import PassManager

__all__ = [
    "PassManager", "arith", "func", "interpreter", "ir", "linalg", "llvm", "math", "memref", "run_pipeline",
    "scf", "tensor",
]


def run_pipeline(module: ir.Module, pipeline: str) -> None:
    """Run a textual pass pipeline (without `builtin.module(...)`) on `module`, in place.

    Raises `ir.MLIRError` with the diagnostics when a pass fails.
    """
    PassManager.parse(f"builtin.module({pipeline})", context=module.context).run(module.operation)
