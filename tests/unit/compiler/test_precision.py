"""`--option precision=bf16`: operands of f32 products are rounded to 16 bits, sums stay in f32."""

from __future__ import annotations

import logging

import ml_dtypes
import numpy as np
import pytest

import motet
from motet.errors import OptionError

PRODUCT = """
func.func @main(%x: tensor<33x70xf32>, %w: tensor<70x45xf32>) -> tensor<33x45xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<33x45xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<33x45xf32>) -> tensor<33x45xf32>
  %r = linalg.matmul ins(%x, %w : tensor<33x70xf32>, tensor<70x45xf32>)
    outs(%f : tensor<33x45xf32>) -> tensor<33x45xf32>
  return %r : tensor<33x45xf32>
}
"""


def operands() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((33, 70), (70, 45)))
    return x, w


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
def test_operands_are_rounded_and_sums_are_not(precision: str, dtype: type, cpu: str) -> None:
    x, w = operands()
    exact = x.astype(dtype).astype(np.float64) @ w.astype(dtype).astype(np.float64)
    device = f"host{{cpu={cpu}}}" if cpu else None
    session = motet.load(motet.compile(PRODUCT, devices=device, options={"precision": precision}))
    bound = abs(x.astype(np.float64)) @ abs(w.astype(np.float64)) * 72 * 2.0**-24
    assert (abs(session.main(x, w) - exact) <= bound).all()
    assert not (abs(x.astype(np.float64) @ w.astype(np.float64) - exact) <= bound).all()


def test_an_unknown_precision_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"option precision=fp8: unknown; available: f32, bf16, f16"):
        motet.compile(PRODUCT, options={"precision": "fp8"})


def test_gpus_take_their_precision_in_the_device_expression() -> None:
    with pytest.raises(OptionError, match=r"for processors of the host only, not for cuda; .*cuda\{precision=tf32\}"):
        motet.compile(PRODUCT, devices="cuda", options={"precision": "bf16"})


def test_strict_refuses_levels_without_instructions() -> None:
    with pytest.raises(OptionError, match=r"x86-64-v3: no instructions for it, and strict=true; .*x86-64-v4-amx"):
        motet.compile(PRODUCT, devices="host{cpu=x86-64-v3}", options={"precision": "bf16", "strict": "true"})
    with pytest.raises(OptionError, match=r"option precision=f16: .* compile without strict"):
        motet.compile(PRODUCT, options={"precision": "f16", "strict": "true"})
    levels = "host{cpu=x86-64-v4-amx+x86-64-v4-bf16}"
    assert motet.compile(PRODUCT, devices=levels, options={"precision": "bf16", "strict": "true"})


def test_emulation_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        motet.compile(PRODUCT, devices="host{cpu=x86-64-v3}", options={"precision": "bf16"})
    (record,) = caplog.records
    assert "x86-64-v3: no instructions for it; numbers are rounded to bf16 and multiplied in f32" in record.getMessage()
