"""Transpositions at the borders of a function whose images have channels last move nothing."""

from __future__ import annotations

import numpy as np
from tests.unit.compiler.codegen.triton.building import generate, random
from tests.unit.compiler.codegen.triton.texts import tensor

import motet


def channels_last(n: int, c: int, size: int, filters: int) -> str:
    """A convolution of channels before pixels between two transpositions."""
    x, inner = tensor((n, size, size, c), "f32"), tensor((n, c, size, size), "f32")
    k, y = tensor((filters, c, 3, 3), "f32"), tensor((n, filters, size - 2, size - 2), "f32")
    result = tensor((n, size - 2, size - 2, filters), "f32")
    return f"""
func.func @main(%x: {x}, %k: {k}) -> {result} {{
  %e = tensor.empty() : {inner}
  %t = linalg.transpose ins(%x : {x}) outs(%e : {inner}) permutation = [0, 3, 1, 2]
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : {y}
  %f = linalg.fill ins(%zero : f32) outs(%o : {y}) -> {y}
  %r = linalg.conv_2d_nchw_fchw ins(%t, %k : {inner}, {k}) outs(%f : {y}) -> {y}
  %g = tensor.empty() : {result}
  %s = linalg.transpose ins(%r : {y}) outs(%g : {result}) permutation = [0, 2, 3, 1]
  return %s : {result}
}}"""


def test_only_the_convolution_is_run() -> None:
    commands = generate(channels_last(2, 9, 7, 8)).schedule.commands
    assert len(commands) == 1


def test_the_host_reads_the_image_where_it_is() -> None:
    text = channels_last(2, 9, 7, 8)
    x, k = random(2, 7, 7, 9), random(8, 9, 3, 3, seed=1)
    y = np.zeros((2, 5, 5, 8))
    for i in range(3):
        for j in range(3):
            y += np.einsum("nhwc,fc->nhwf", x[:, i : i + 5, j : j + 5].astype("f8"), k[:, :, i, j].astype("f8"))
    artifact = motet.compile(text, devices="host", cache=False)
    np.testing.assert_allclose(motet.load(artifact)(x, k), y, rtol=1e-5, atol=1e-5)
