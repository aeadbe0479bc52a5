"""Bounds on the elements of a model's values, computed from constants and element types."""

from __future__ import annotations

import math

import numpy as np

from motet.compiler.frontends.onnx.writing import ModelFacts

_KEEPS = ("Cast", "Identity", "Neg", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_DEEPEST = 16  # operators between a value and the constants that bound it


def is_finite(facts: ModelFacts, name: str) -> bool:
    """Whether all elements of a value are known to be finite, such as those of a constant or of dequantised bytes."""
    if (constant := facts.model.constants.get(name)) is not None:
        return bool(np.isfinite(constant).all())
    if name not in facts.types:
        return False
    dtype = facts.dtype(name)
    if dtype.kind not in "fiu":
        return False  # types that numpy lacks, such as bfloat16
    largest = _largest(facts, name, _DEEPEST)
    return largest < (np.finfo(dtype).max if dtype.kind == "f" else math.inf)


def _largest(facts: ModelFacts, name: str, deepest: int) -> float:
    """A bound on the magnitude of the elements of a value before rounding; infinite if none is known."""
    constant = facts.model.constants.get(name)
    if constant is not None:
        magnitudes = np.abs(constant.astype(np.float64))
        return float(magnitudes.max(initial=0)) if np.isfinite(magnitudes).all() else math.inf
    dtype = facts.dtype(name) if name in facts.types else None
    if dtype is not None and dtype.kind in "iu":
        return float(max(np.iinfo(dtype).max, -np.iinfo(dtype).min))
    node = facts.producers.get(name)
    if node is None or not deepest:
        return math.inf
    own = [_largest(facts, each, deepest - 1) for each in node.input if each]
    if node.op_type in _KEEPS:
        return own[0]
    if node.op_type in ("Add", "Sub"):
        return own[0] + own[1]
    if node.op_type == "Mul":
        return own[0] * own[1]
    if node.op_type == "DequantizeLinear":
        return (own[0] + sum(own[2:])) * own[1]
    return math.inf
