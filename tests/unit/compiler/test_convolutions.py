"""Convolutions from text to result, against sliding windows in numpy (float64)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, build, kinds, random, run

from motet.compiler.targets.cpu import CpuTarget


@dataclass(frozen=True)
class Case:
    batch: int
    channels: int
    height: int
    width: int
    filters: int
    window: tuple[int, int]
    stride: int = 1
    dilation: int = 1
    low: int = 0
    high: int = 0
    layout: str = "nchw"
    relu: bool = False
    residual: bool = False
    constant: bool = True

    @property
    def size(self) -> tuple[int, int]:
        reach = [(k - 1) * self.dilation + 1 for k in self.window]
        padded = (self.height + self.low + self.high, self.width + self.low + self.high)
        return tuple((p - r) // self.stride + 1 for p, r in zip(padded, reach, strict=True))  # type: ignore[return-value]


CASES = [
    Case(1, 16, 14, 14, 32, (3, 3), low=1, high=1),
    Case(2, 3, 17, 13, 7, (3, 3), stride=2, low=1, high=1, relu=True),
    Case(1, 1, 9, 9, 5, (3, 3), low=1, high=1, residual=True),
    Case(3, 5, 7, 7, 33, (5, 5), low=2, high=2),
    Case(1, 8, 8, 8, 16, (1, 1), stride=2),
    Case(1, 4, 11, 1, 6, (3, 1)),
    Case(1, 6, 10, 12, 70, (3, 3), dilation=2, low=2, high=2, relu=True),
    Case(1, 7, 12, 12, 20, (3, 3), stride=3, low=0, high=1),
    Case(2, 16, 7, 7, 130, (3, 3), low=1, high=1, layout="nhwc", relu=True, residual=True),
    Case(1, 3, 23, 19, 64, (7, 7), stride=2, low=3, high=3, layout="nhwc"),
    Case(1, 5, 6, 31, 17, (2, 3), layout="nhwc"),
    Case(1, 9, 10, 10, 12, (3, 3), low=1, high=1, constant=False),
]


def text_of(case: Case) -> tuple[str, list[np.ndarray], np.ndarray, np.ndarray]:
    """The program, its inputs, filters and bias."""
    c = case
    nchw = c.layout == "nchw"
    image = (c.batch, c.channels, c.height, c.width) if nchw else (c.batch, c.height, c.width, c.channels)
    filters = (c.filters, c.channels, *c.window) if nchw else (*c.window, c.channels, c.filters)
    result = (c.batch, c.filters, *c.size) if nchw else (c.batch, *c.size, c.filters)
    padded = tuple(s + c.low + c.high if i in ((2, 3) if nchw else (1, 2)) else s for i, s in enumerate(image))
    w, b = random(*filters, seed=1), random(c.filters, seed=2)

    def kind(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xf32>"

    def dense(array: np.ndarray) -> str:
        return np.array2string(array, separator=",", threshold=10**9, floatmode="unique").replace("\n", "")

    name = "conv_2d_nchw_fchw" if nchw else "conv_2d_nhwc_hwcf"
    low = ["0", "0", str(c.low), str(c.low)] if nchw else ["0", str(c.low), str(c.low), "0"]
    high = ["0", "0", str(c.high), str(c.high)] if nchw else ["0", str(c.high), str(c.high), "0"]
    dims = "[0, 2, 3]" if nchw else "[0, 1, 2]"
    weights = f"%w = arith.constant dense<{dense(w)}> : {kind(filters)}" if c.constant else ""
    argument = "" if c.constant else f", %w: {kind(filters)}"
    tail, last = "", "%y"
    if c.residual:
        tail += f"""
  %r = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%y, %z : {kind(result)}, {kind(result)})
    outs(%e : {kind(result)}) -> {kind(result)}"""
        last = "%r"
    if c.relu:
        tail += f"""
  %zero = tensor.splat %cst : {kind(result)}
  %a = linalg.elementwise kind=#linalg.elementwise_kind<max_signed> ins({last}, %zero : {kind(result)}, {kind(result)})
    outs(%e : {kind(result)}) -> {kind(result)}"""
        last = "%a"
    text = f"""
func.func @main(%x: {kind(image)}, %z: {kind(result)}{argument}) -> {kind(result)} {{
  %cst = arith.constant 0.0 : f32
  {weights}
  %b = arith.constant dense<{dense(b)}> : {kind((c.filters,))}
  %p = tensor.pad %x low[{", ".join(low)}] high[{", ".join(high)}] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %cst : f32
  }} : {kind(image)} to {kind(padded)}
  %e = tensor.empty() : {kind(result)}
  %init = linalg.broadcast ins(%b : {kind((c.filters,))}) outs(%e : {kind(result)}) dimensions = {dims}
  %y = linalg.{name} {{strides = dense<{c.stride}> : vector<2xi64>, dilations = dense<{c.dilation}> : vector<2xi64>}}
    ins(%p, %w : {kind(padded)}, {kind(filters)}) outs(%init : {kind(result)}) -> {kind(result)}{tail}
  return {last} : {kind(result)}
}}"""
    inputs = [random(*image, seed=3), random(*result, seed=4), *([] if c.constant else [w])]
    return text, inputs, w, b


def reference(case: Case, inputs: list[np.ndarray], w: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, z = (a.astype(np.float64) for a in inputs[:2])
    if case.layout == "nhwc":
        x, z, w = x.transpose(0, 3, 1, 2), z.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    x = np.pad(x, [(0, 0), (0, 0), (case.low, case.high), (case.low, case.high)])
    reach = tuple((k - 1) * case.dilation + 1 for k in case.window)
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    windows = windows[:, :, :: case.stride, :: case.stride, :: case.dilation, :: case.dilation]
    y = np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64)) + b[:, None, None]
    y = y + z if case.residual else y
    y = np.maximum(y, 0) if case.relu else y
    return y.transpose(0, 2, 3, 1) if case.layout == "nhwc" else y


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_agree_with_sliding_windows(case: Case, target: CpuTarget) -> None:
    text, inputs, w, b = text_of(case)
    expected = reference(case, inputs, w, b)
    (result,) = run(text, inputs, target)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("target", TARGETS)
def test_padding_bias_and_activation_become_one_kernel(target: CpuTarget) -> None:
    text, *_ = text_of(CASES[1])
    assert kinds(text, target) == ["convolution"]


@pytest.mark.parametrize("target", TARGETS)
def test_nan_and_infinity_reach_exactly_the_windows_that_see_them(target: CpuTarget) -> None:
    case = Case(1, 3, 12, 12, 18, (3, 3), low=1, high=1)
    text, inputs, w, b = text_of(case)
    inputs[0][0, 1, 5, 6] = np.nan
    inputs[0][0, 2, 0, 0] = np.inf
    expected = reference(case, inputs, w, b)
    (result,) = run(text, inputs, target)
    assert (np.isnan(result) == np.isnan(expected)).all()
    finite = np.isfinite(expected)
    np.testing.assert_allclose(result[finite], expected[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_sibling_convolutions_and_their_sum_are_one_kernel(target: CpuTarget) -> None:
    w1, w2 = random(6, 1, 3, 3, seed=5), random(6, 1, 3, 3, seed=6)
    dense = [np.array2string(w, separator=",", threshold=10**9, floatmode="unique").replace("\n", "") for w in (w1, w2)]
    text = f"""
func.func @main(%x: tensor<4x1x9x10xf32>) -> tensor<4x6x7x8xf32> {{
  %cst = arith.constant 0.0 : f32
  %u = arith.constant dense<{dense[0]}> : tensor<6x1x3x3xf32>
  %v = arith.constant dense<{dense[1]}> : tensor<6x1x3x3xf32>
  %e = tensor.empty() : tensor<4x6x7x8xf32>
  %f = linalg.fill ins(%cst : f32) outs(%e : tensor<4x6x7x8xf32>) -> tensor<4x6x7x8xf32>
  %a = linalg.conv_2d_nchw_fchw ins(%x, %u : tensor<4x1x9x10xf32>, tensor<6x1x3x3xf32>)
    outs(%f : tensor<4x6x7x8xf32>) -> tensor<4x6x7x8xf32>
  %b = linalg.conv_2d_nchw_fchw ins(%x, %v : tensor<4x1x9x10xf32>, tensor<6x1x3x3xf32>)
    outs(%f : tensor<4x6x7x8xf32>) -> tensor<4x6x7x8xf32>
  %s = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%a, %b : tensor<4x6x7x8xf32>, tensor<4x6x7x8xf32>)
    outs(%e : tensor<4x6x7x8xf32>) -> tensor<4x6x7x8xf32>
  return %s : tensor<4x6x7x8xf32>
}}"""
    x = random(4, 1, 9, 10)
    session = build(text, target)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,fcij->nfhw", windows, w1.astype(np.float64) + w2)
    np.testing.assert_allclose(session(x), expected, rtol=2e-5, atol=2e-5)
    assert [kernel.kind for kernel in session.variants[0].kernels] == ["convolution"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "misaligned"])
def test_large_results_are_right_wherever_they_lie(shift: int, target: CpuTarget) -> None:
    case = Case(700, 1, 28, 28, 16, (3, 3), low=1, high=1, relu=True)
    text, inputs, w, b = text_of(case)
    memory = np.full(700 * 16 * 784 + 32, np.nan, np.float32)
    start = (-memory.ctypes.data % 64) // 4 + shift
    out = memory[start : start + 700 * 16 * 784].reshape(700, 16, 28, 28)
    build(text, target)(*inputs, out=out)
    np.testing.assert_allclose(out, reference(case, inputs, w, b), rtol=2e-5, atol=2e-4)
    assert np.isnan(memory[:start]).all() and np.isnan(memory[start + out.size :]).all()
