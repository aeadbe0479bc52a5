"""Numbers of at most 16 bits whose count is no multiple of a vector: the last tile of points has code of its own."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random
from tests.unit.compiler.codegen.triton.texts import nest, tensor

from motet.artifact.dtypes import DTYPES

APART = re.compile(r"// (512|1024):")
DYNAMIC = """
#same = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<?x?xf16>) -> tensor<?x?xf16> {
  %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf16>) outs(%x : tensor<?x?xf16>) {
  ^bb0(%in: f16, %out: f16):
    %z = arith.addf %in, %in : f16
    linalg.yield %z : f16
  } -> tensor<?x?xf16>
  return %y : tensor<?x?xf16>
}"""


def source(counts: tuple[int, ...], dtype: str) -> str:
    return nest([(tensor(counts, dtype), "i, j")], [(tensor(counts, dtype), "i, j", "")], "pp",
                [f"%z = arith.addf %x0, %x0 : {dtype}"], ["%z"])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(("shape", "apart"), [
    ((1, 1), False), ((7, 13), False), ((1, 1023), True), ((3, 683), True), ((1, 2047), True), ((1, 2049), True),
    ((1, 2048), False), ((25, 121), True), ((5, 8 * 121), False),
])
def test_numbers_of_all_tiles_are_right(shape: tuple[int, int], apart: bool, dtype: str) -> None:
    made = generate(source(shape, dtype))
    (program,) = made.programs.values()
    assert bool(APART.search(program.forms[0].source)) == apart
    x = random(*shape).astype(DTYPES[dtype])
    np.testing.assert_array_equal(interpret(made, [x])[0], x + x)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (31, 33), (2, 1024), (7, 439)])
def test_tiles_of_dynamic_extents_are_apart(shape: tuple[int, int]) -> None:
    made = generate(DYNAMIC)
    (program,) = made.programs.values()
    assert APART.search(program.forms[0].source)
    x = random(*shape).astype("float16")
    np.testing.assert_array_equal(interpret(made, [x])[0], x + x)
