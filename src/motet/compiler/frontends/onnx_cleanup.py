"""Removes what the lowering from ONNX leaves behind."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir, run_pipeline


def clean_up(module: ir.Module) -> None:
    run_pipeline(module, "canonicalize,cse,symbol-dce")
