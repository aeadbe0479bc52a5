"""Depthwise convolutions and poolings: programs of all forms, interpreted, against upstream's naive lowering."""

from __future__ import annotations

import pytest
from tests.unit.compiler.codegen.triton.building import check, generate, random
from tests.unit.compiler.codegen.triton.texts import tensor


def depthwise(
    image: tuple[int, int, int, int], window: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    last: bool = False, dtype: str = "f32",
) -> str:
    """Images and filters have channels before pixels, or, `last`, behind them."""
    n, c, h, w = image
    rows, columns = ((size + 2 * padding - dilation * (window - 1) - 1) // stride + 1 for size in (h, w))
    order = (lambda a, b, p, q: (a, p, q, b)) if last else (lambda a, b, p, q: (a, b, p, q))
    x, p = tensor(order(n, c, h, w), dtype), tensor(order(n, c, h + 2 * padding, w + 2 * padding), dtype)
    k = tensor((window, window, c) if last else (c, window, window), dtype)
    y = tensor(order(n, c, rows, columns), dtype)
    pads = ", ".join(map(str, order(0, 0, padding, padding)))
    return f"""
func.func @main(%x: {x}, %k: {k}) -> {y} {{
  %zero = arith.constant 0.0 : {dtype}
  %p = tensor.pad %x low[{pads}] high[{pads}] {{
  ^bb0(%i: index, %j: index, %l: index, %m: index):
    tensor.yield %zero : {dtype}
  }} : {x} to {p}
  %e = tensor.empty() : {y}
  %f = linalg.fill ins(%zero : {dtype}) outs(%e : {y}) -> {y}
  %r = linalg.depthwise_conv_2d_{"nhwc_hwc" if last else "nchw_chw"}
      {{strides = dense<{stride}> : tensor<2xi64>, dilations = dense<{dilation}> : tensor<2xi64>}}
      ins(%p, %k : {p}, {k}) outs(%f : {y}) -> {y}
  return %r : {y}
}}"""


CASES = [
    ((2, 5, 9, 13), 3, 1, 1, 1), ((1, 24, 17, 7), 3, 2, 1, 1), ((2, 3, 11, 19), 5, 1, 2, 1),
    ((1, 7, 13, 10), 2, 1, 0, 3), ((1, 4, 12, 9), 7, 1, 3, 1), ((3, 40, 1, 1), 3, 1, 1, 1),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_all_forms_convolve(case: tuple[tuple[int, int, int, int], int, int, int, int], last: bool) -> None:
    image, window, stride, padding, dilation = case
    text = depthwise(image, window, stride, padding, dilation, last)
    n, c, h, w = image
    x = random(n, h, w, c) if last else random(n, c, h, w)
    k = random(window, window, c, seed=1) if last else random(c, window, window, seed=1)
    made = generate(text)
    assert made.kinds == ["depthwise"]
    forms = len(next(iter(made.programs.values())).forms)
    assert forms > 1
    for form in range(0, forms, 2 if window < 7 else 5):
        check(text, [x, k], form=form)
