"""Scans whose iterations depend on their slices alone, of dynamic extents, against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import motet

DISTANCES = """<ir_version: 10, opset_import: ["": 22]>
g (float[n,8] x, float[m,8] c) => (float[n,8] kept, float[m,n] squares, float[m,n,1] far) {
    kept, squares, far = Scan (x, c) <num_scan_inputs: int = 1, body = each (float[?,8] state, float[8] slice)
        => (float[?,8] next, float[?] square, float[?,?] most) {
        next = Identity(state)
        d = Sub(state, slice)
        axes = Constant <value_ints=[-1]> ()
        square = ReduceSumSquare <keepdims=0> (d, axes)
        away = Abs(d)
        top = ReduceMax <keepdims=1> (slice, axes)
        most_in = ReduceMax <keepdims=1> (away, axes)
        most = Mul(most_in, top) }>
}"""
SUMS = """<ir_version: 10, opset_import: ["": 22]>
g (float[3] x, float[5,3] c) => (float[3] last, float[5,3] all) {
    last, all = Scan (x, c) <num_scan_inputs: int = 1, body = each (float[3] state, float[3] slice)
        => (float[3] next, float[3] sum) { next = Add(state, slice) sum = Identity(next) }>
}"""


def test_iterations_that_do_not_depend_on_each_other() -> None:
    session = motet.load(motet.compile(onnx.parser.parse_model(DISTANCES)))
    rng = np.random.default_rng(5)
    for n, m in ((37, 5), (1, 5), (6, 1)):
        x, c = (rng.normal(size=(extent, 8)).astype(np.float32) for extent in (n, m))
        kept, squares, far = session(x, c)
        d = x[None].astype(np.float64) - c[:, None]
        np.testing.assert_array_equal(kept, x)
        np.testing.assert_allclose(squares, (d * d).sum(2), rtol=1e-5)
        np.testing.assert_allclose(far, abs(d).max(2, keepdims=True) * c.max(1)[:, None, None], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_iterations_that_do(seed: int) -> None:
    session = motet.load(motet.compile(onnx.parser.parse_model(SUMS)))
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=3).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    last, every = session(x, c)
    sums = x + np.cumsum(c.astype(np.float64), 0)
    np.testing.assert_allclose(every, sums, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, sums[-1], rtol=1e-5, atol=1e-6)
