"""Selu of every operator set against its definition in float64."""

from __future__ import annotations

import numpy as np
import pytest

import motet

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'motet[onnx]'")


@pytest.mark.parametrize("version", [11, 17, 18, 22])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("factors", [{}, {"alpha": 1.23456789, "gamma": 0.987654321}])
def test_selu(version: int, dtype: type[np.floating], factors: dict[str, float]) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = onnx.helper.make_node("Selu", ["x"], ["y"], **factors)
    infos = [onnx.helper.make_tensor_value_info(name, kind, [41]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    sets = [onnx.helper.make_opsetid("", version)]
    model = onnx.helper.make_model(graph, opset_imports=sets, ir_version=8)
    x = np.linspace(-6, 4, 41).astype(dtype)
    alpha, gamma = np.float32(factors.get("alpha", 1.6732632)), np.float32(factors.get("gamma", 1.050701))
    exact = x.astype(np.float64)
    wanted = np.where(exact > 0, gamma * exact, gamma.astype(np.float64) * alpha * np.expm1(exact))
    found = motet.load(motet.compile(model.SerializeToString(), cache=False))(x)
    limit = {np.float16: 2e-3, np.float32: 1e-6, np.float64: 2e-7}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit / 10)
