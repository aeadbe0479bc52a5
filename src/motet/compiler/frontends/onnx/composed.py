"""Rules whose results contain operators that have rules themselves; they must run before those rules."""

from __future__ import annotations

from motet.compiler.frontends.onnx import attention, determinants, fourier, pools, regions, scans, windows
from motet.compiler.frontends.onnx.writing import Rule

RULES: dict[str, Rule] = {
    **attention.RULES, **determinants.RULES, **fourier.RULES, **pools.COMPOSED, **regions.RULES, **scans.RULES,
    **windows.RULES,
}  # fmt: skip
