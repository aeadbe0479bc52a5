"""Sessions over a GPU that goes wrong: programs that Motet compiled, kernels of the driver for tests."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, Fault, array
from tests.unit.runtime.drivers.cuda.test_cuda_calls import Tensor

from motet.errors import KernelFault
from motet.runtime import load
from motet.runtime.drivers.cuda import driver

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


def test_programs_on_host_and_gpu_take_tensors_of_the_gpu(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi()

    def product(tasks: int, parameters: list[int]) -> None:
        x, y, z = (array(address, 35, np.float32) for address in parameters[:3])
        z[:] = x * y

    artifact = build_placed(TEXT, ("cpu=host", "gpu=cuda,@cpu"), ("x86-64-v3", "cuda:ptx80"))
    variant = next(variant for variant in artifact.manifest.variants if variant.family == "cuda")
    fake.kernels |= {kernel.name: product for kernel in variant.kernels}
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    with load(artifact) as session:
        stream = fake.stream_create()
        for seed in range(3):
            values = np.random.default_rng(seed).standard_normal((2, 5, 7), np.float32)
            x, y = (Tensor(np.zeros((5, 7), np.float32)) for _ in range(2))
            fake.foreign += [(tensor.array.ctypes.data, tensor.array.nbytes, 0) for tensor in (x, y)]
            release = fake.hold(stream)
            for tensor, value in zip((x, y), values, strict=True):
                fake.upload(tensor.array.ctypes.data, value.ctypes.data, value.nbytes, stream)
            threading.Timer(0.02, release).start()
            result = session(x, y, stream=stream)  # on the host, as the program says, when the stream has come so far
            np.testing.assert_allclose(result, values[0] * values[1] + values[0], rtol=1e-6)
            np.testing.assert_allclose(session(values[0], y), values[0] * values[1] + values[0], rtol=1e-6)
        fake.stream_destroy(stream)
