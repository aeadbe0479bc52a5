"""Rules for operators that are written with operators which have rules themselves, and so come before those."""

from __future__ import annotations

from motet.compiler.frontends import (
    onnx_attention,
    onnx_determinants,
    onnx_fourier,
    onnx_regions,
    onnx_scans,
    onnx_windows,
)
from motet.compiler.frontends.onnx_writing import Rule

RULES: dict[str, Rule] = {
    **onnx_attention.RULES, **onnx_determinants.RULES, **onnx_fourier.RULES, **onnx_regions.RULES, **onnx_scans.RULES,
    **onnx_windows.RULES,
}  # fmt: skip
