"""Numbers of 32 and 64 bits become bf16 with one rounding, to nearest and ties to even, as in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, run

from motet.compiler.targets.cpu import CpuTarget

TEXT = """
func.func @main(%x: tensor<?x{source}>) -> tensor<?xbf16> {{
  %y = arith.{operation} %x : tensor<?x{source}> to tensor<?xbf16>
  return %y : tensor<?xbf16>
}}
"""


def nearest(value: float | int) -> float:
    """The bf16 nearest to a finite number."""
    exact = abs(Fraction(value))
    exponent = max(math.frexp(float(exact))[1] - 1, -126) if exact else 0
    while Fraction(2) ** exponent > exact and exponent > -126:
        exponent -= 1
    quantum = Fraction(2) ** (exponent - 7)
    size = round(exact / quantum) * quantum  # Python rounds fractions to even
    found = math.inf if size >= Fraction(2) ** 128 else float(size)
    return math.copysign(found, value) if isinstance(value, float) else -found if value < 0 else found


def near_ties(bits: int, signed: bool, count: int) -> list[int]:
    """Integers at ties of bf16 and next to them, of all sizes, and the ends of the type."""
    random, top = np.random.default_rng(bits), bits - signed
    found = [0, 1, (1 << top) - 1, (1 << top) - 2, (1 << (top - 1)) + 1]
    for place in random.integers(9, top, count).tolist():
        tie = (int(random.integers(128, 256)) << (place - 8)) + (1 << (place - 9))
        step = 1 << int(random.integers(0, place - 8))
        found += [value for value in (tie, tie - step, tie + step, tie - 1, tie + 1) if value < 1 << top]
    return [*found, *(-value for value in found), -(1 << top)] if signed else found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_integers_are_rounded_once(target: CpuTarget, bits: int, signed: bool) -> None:
    values = near_ties(bits, signed, 300)
    x = np.array(values, f"{'i' if signed else 'u'}{bits // 8}")
    text = TEXT.format(source=f"i{bits}", operation="sitofp" if signed else "uitofp")
    (found,) = run(text, [x.view(f"i{bits // 8}")], target)
    np.testing.assert_array_equal(found.astype(np.float64), [nearest(value) for value in values])


@pytest.mark.parametrize("target", TARGETS)
def test_doubles_are_rounded_once(target: CpuTarget) -> None:
    random = np.random.default_rng(5)
    ties = (1 + (random.integers(0, 128, 400) + 0.5) / 128) * 2.0 ** random.integers(-140, 128, 400)
    moved = ties * (1 + random.choice([-1, 0, 1], 400) * 2.0 ** random.integers(-52, -8, 400))
    ends = [0.0, -0.0, 3.4e38, 3.39e38, 3.396e38, 1e300, 5e-324, 2.0**-134, 2.0**-133 * 1.5, 2.0**-126]
    x = np.concatenate([ties, moved, ends, -moved])
    (found,) = run(TEXT.format(source="f64", operation="truncf"), [x], target)
    wanted = np.array([nearest(value) for value in x.tolist()])
    np.testing.assert_array_equal(found.view(np.uint16), wanted.astype(ml_dtypes.bfloat16).view(np.uint16))
    (odd,) = run(TEXT.format(source="f64", operation="truncf"), [np.array([np.nan, np.inf, -np.inf])], target)
    assert np.isnan(odd[0]) and odd[1] == np.inf and odd[2] == -np.inf
