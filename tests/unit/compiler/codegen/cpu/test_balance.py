"""Tasks of equal size."""

from __future__ import annotations

import math

import pytest

from motet.compiler.codegen.cpu.balance import divisors


@pytest.mark.parametrize("extent", [*range(1, 200), 997, 1 << 12, 1 << 31, (1 << 31) - 1, math.factorial(15)])
def test_divisors_are_all_numbers_that_divide(extent: int) -> None:
    found = divisors(extent)
    assert found == sorted({*found, *(extent // each for each in found)})
    assert found[0] == 1 and found[-1] == extent
    assert [each for each in found if each < 1000] == [each for each in range(1, 1000) if extent % each == 0]
