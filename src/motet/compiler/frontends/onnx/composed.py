"""Rules whose results contain operators that have rules themselves; they must run before those rules."""

from __future__ import annotations

from motet.compiler.frontends.onnx import attention as onnx_attention
from motet.compiler.frontends.onnx import determinants as onnx_determinants
from motet.compiler.frontends.onnx import fourier as onnx_fourier
from motet.compiler.frontends.onnx import regions as onnx_regions
from motet.compiler.frontends.onnx import scans as onnx_scans
from motet.compiler.frontends.onnx import windows as onnx_windows
from motet.compiler.frontends.onnx.writing import Rule

RULES: dict[str, Rule] = {
    **onnx_attention.RULES, **onnx_determinants.RULES, **onnx_fourier.RULES, **onnx_regions.RULES, **onnx_scans.RULES,
    **onnx_windows.RULES,
}  # fmt: skip
