"""`linalg.softmax`, as frameworks write it, is one kernel over rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, build

from motet.compiler.targets.cpu import CpuTarget

TEXT = """
func.func @main(%x: tensor<{type}>) -> tensor<{type}> {{
  %empty = tensor.empty({sizes}) : tensor<{type}>
  %0 = linalg.softmax dimension({axis}) ins(%x : tensor<{type}>) outs(%empty : tensor<{type}>) -> tensor<{type}>
  return %0 : tensor<{type}>
}}
"""


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (3, 128), (2, 3, 31)])
def test_softmax_along_the_last_axis_agrees_with_numpy(shape: tuple[int, ...], target: CpuTarget) -> None:
    kind = "x".join(map(str, shape)) + "xf32"
    session = build(TEXT.format(type=kind, sizes="", axis=len(shape) - 1), target)
    if shape[-1] > 100:  # shorter rows have no vectors of their own
        assert [kernel.kind for kernel in session.variants[0].kernels] == ["rows"]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3
    np.testing.assert_allclose(session(x), softmax(x.astype(np.float64), -1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_along_the_first_axis_agrees_with_numpy(target: CpuTarget) -> None:
    x = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
    session = build(TEXT.format(type="7x5xf32", sizes="", axis=0), target)
    np.testing.assert_allclose(session(x), softmax(x.astype(np.float64), 0), rtol=1e-5, atol=1e-7)
