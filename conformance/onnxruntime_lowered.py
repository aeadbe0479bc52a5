"""ONNX Runtime on the ONNX cases, with versions lowered to the latest that it supports."""

from __future__ import annotations

from conformance import onnx_cases
from conformance.onnx_cases import cases
from conformance.onnxruntime_peer import run

__all__ = ["cases", "check"]


def check(suite: str, case: str) -> str:
    """Runs a case; see `onnxruntime_peer.check`."""
    return run(onnx_cases.load(suite, case), lowered=True)
