"""Sessions over a GPU that goes wrong: programs that Motet compiled, kernels of the driver for tests."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.runtime.devices.cuda.fake import FakeApi, Fault

from motet.errors import KernelFault
from motet.runtime import load
from motet.runtime.devices.cuda import driver

pytest.importorskip("torch_mlir")
pytest.importorskip("triton")

from tests.integration.placed import build_placed

TEXT = """
func.func @main(%x: tensor<5x7xf32>, %y: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = arith.mulf %x, %y {motet.affinity = "gpu"} : tensor<5x7xf32>
  %1 = arith.addf %0, %x {motet.affinity = "cpu"} : tensor<5x7xf32>
  return %1 : tensor<5x7xf32>
}
"""


def test_sessions_go_on_with_another_device_after_a_fault(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi()

    def broken(tasks: int, parameters: list[int]) -> None:
        raise Fault(700)

    artifact = build_placed(TEXT, ("cpu=host", "gpu=cuda,@cpu"), ("x86-64-v3", "cuda:ptx80"))
    variant = next(variant for variant in artifact.manifest.variants if variant.family == "cuda")
    fake.kernels |= {kernel.name: broken for kernel in variant.kernels}
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    x, y = np.random.default_rng(4).standard_normal((2, 5, 7), np.float32)
    with load(artifact) as session:
        with pytest.raises(KernelFault):
            session(x, y)
        np.testing.assert_allclose(session(x, y), x * y + x, rtol=1e-6)
