"""Mod of floats in ONNX is exact, as C's fmod is, also as a part of a larger kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import motet

KINDS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16,
         ml_dtypes.bfloat16: TensorProto.BFLOAT16}  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.__name__)
def test_remainders_have_no_error(dtype: type) -> None:
    """The second result begins with the remainder's nodes in the group of a reduction."""
    make, kind = helper.make_tensor_value_info, KINDS[dtype]
    graph = helper.make_graph(
        [helper.make_node("Mod", ["x", "y"], ["rest"], fmod=1), helper.make_node("ReduceMax", ["rest"], ["most"])],
        "main",
        [make("x", kind, ["n", "m"]), make("y", kind, [1, 1])], [make("rest", kind, None), make("most", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with motet.load(motet.compile(model)) as session:
        for shape, divisor in [((5, 17), 2.3139384), ((3, 1), 0.001), ((1, 33), -7.0), ((4, 6), np.inf), ((2, 2), 0.0)]:
            x = (np.random.default_rng(3).normal(size=shape) * 100).astype(dtype)
            x.flat[0] = np.inf if divisor == -7.0 else x.flat[0]
            y = np.full((1, 1), divisor, dtype)
            rest, most = session(x, y)
            with np.errstate(invalid="ignore"):
                expected = np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
            np.testing.assert_array_equal(np.asarray(rest).astype(np.float64), expected.astype(np.float64))
            if np.isfinite(expected.astype(np.float64)).all():
                assert most.ravel()[0] == expected.max()
