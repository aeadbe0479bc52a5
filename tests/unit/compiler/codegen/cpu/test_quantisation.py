"""Bodies that round floats to bytes: which are recognised, and the bytes of all floats around the ends and ties."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.compiler.codegen.cpu.emit.quantisation import Rounding, match_rounding
from motet.compiler.kernels.kernel import Scalar


def _body(low: float, high: float, zero: float, rounding: str = "math.roundeven") -> list[Scalar]:
    """The operations after one input and one accumulator (values 0 and 1)."""
    return [
        Scalar(rounding, (0,), "f32"),
        Scalar("arith.constant", (), "f32", zero),
        Scalar("arith.addf", (2, 3), "f32"),
        Scalar("arith.constant", (), "f32", low),
        Scalar("arith.maximumf", (4, 5), "f32"),
        Scalar("arith.constant", (), "f32", high),
        Scalar("arith.minimumf", (7, 6), "f32"),
        Scalar("arith.fptoui", (8,), "i8"),
    ]


def test_a_clamped_and_shifted_rounding_is_read() -> None:
    assert match_rounding(_body(0, 255, 100), 2, 9) == Rounding(0, -100, 155, 100)


@pytest.mark.parametrize("body", [
    _body(0, 255, 0.5), _body(0.5, 255, 100), _body(0, 255, 100, "math.floor"), _body(0, 256, 100), _body(9, 3, 0),
    _body(-1e30, 1e30, 0),
])  # fmt: skip
def test_other_bodies_are_not(body: list[Scalar]) -> None:
    assert match_rounding(body, 2, 9) is None


TEXT = """
func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xi8> {{
  %e = tensor.empty() : tensor<{n}xi8>
  %y = linalg.generic {{
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      ins(%x : tensor<{n}xf32>) outs(%e : tensor<{n}xi8>) {{
  ^bb0(%a: f32, %o: i8):
    %zero = arith.constant {zero}.0 : f32
    %low = arith.constant {low}.0 : f32
    %high = arith.constant {high}.0 : f32
    %r = math.roundeven %a : f32
    %s = arith.addf %r, %zero : f32
    %t = arith.maximumf %s, %low : f32
    %u = arith.minimumf %t, %high : f32
    %v = arith.{conversion} %u : f32 to i8
    linalg.yield %v : i8
  }} -> tensor<{n}xi8>
  return %y : tensor<{n}xi8>
}}
"""


@pytest.mark.parametrize("level", ["native", "x86-64-v3"])
@pytest.mark.parametrize(("low", "high", "zero"), [(0, 255, 0), (0, 255, 131), (-128, 127, -7), (0, 15, 3)])
def test_bytes_are_those_of_rounding_first(low: int, high: int, zero: int, level: str) -> None:
    ties = np.arange(-600, 600, dtype=np.float32) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(1e9)), np.nextafter(ties, np.float32(-1e9))])
    x = np.concatenate([ties, near, np.float32([1e30, -1e30, np.inf, -np.inf, 4e9, -4e9, 8388609, -0.0, 1e-40])])
    conversion = "fptosi" if low < 0 else "fptoui"
    text = TEXT.format(n=len(x), low=low, high=high, zero=zero, conversion=conversion)
    found = np.asarray(motet.load(motet.compile(text, devices=f"host{{cpu={level}}}"))(x))
    wanted = np.clip(np.rint(x.astype(np.float64)) + zero, low, high).astype(np.int64).astype(np.uint8)
    np.testing.assert_array_equal(found.view(np.uint8), wanted)
