"""Checks of indices that differ from iteration to iteration, against numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.generic_calls import call, emit

from motet.compiler.codegen.cpu.objects import ObjectUnit, assembly
from motet.compiler.targets.cpu import X86_64_V4

GATHERS = {
    "single numbers": """
    func.func @main(%t: tensor<?xf32>, %i: tensor<?xi64>, %n: tensor<?xi32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %m = tensor.dim %i, %c0 : tensor<?xi64>
      %e = tensor.empty(%m) : tensor<?xf32>
      %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%i, %n : tensor<?xi64>, tensor<?xi32>) outs(%e : tensor<?xf32>) {
      ^bb0(%x: i64, %y: i32, %o: f32):
        %p = arith.index_cast %x : i64 to index
        %v = tensor.extract %t[%p] : tensor<?xf32>
        linalg.yield %v : f32
      } -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }""",
    "two indices": """
    func.func @main(%t: tensor<5x?xf32>, %i: tensor<?xi64>, %n: tensor<?xi32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %m = tensor.dim %i, %c0 : tensor<?xi64>
      %e = tensor.empty(%m) : tensor<?xf32>
      %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%i, %n : tensor<?xi64>, tensor<?xi32>) outs(%e : tensor<?xf32>) {
      ^bb0(%x: i64, %y: i32, %o: f32):
        %p = arith.index_cast %x : i64 to index
        %q = arith.index_cast %y : i32 to index
        %v = tensor.extract %t[%p, %q] : tensor<5x?xf32>
        linalg.yield %v : f32
      } -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }""",
    "a sum": """
    func.func @main(%t: tensor<?xf32>, %i: tensor<?xi64>, %n: tensor<?xi32>) -> tensor<f32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %0 = linalg.generic {indexing_maps = [#id, #id, #none], iterator_types = ["reduction"]}
        ins(%i, %n : tensor<?xi64>, tensor<?xi32>) outs(%zero : tensor<f32>) {
      ^bb0(%x: i64, %y: i32, %o: f32):
        %p = arith.index_cast %x : i64 to index
        %v = tensor.extract %t[%p] : tensor<?xf32>
        %s = arith.addf %o, %v : f32
        linalg.yield %s : f32
      } -> tensor<f32>
      return %0 : tensor<f32>
    }""",
}
MAPS = "#id = affine_map<(i) -> (i)>\n#none = affine_map<(i) -> ()>\n"


def gathered(name: str, table: np.ndarray, i: np.ndarray, n: np.ndarray) -> np.ndarray:
    return table[i, n] if name == "two indices" else table[i] if name == "single numbers" else table[i].sum()


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("count", [0, 1, 67])
def test_indices_of_all_iterations_are_checked(name: str, count: int, gathers: bool) -> None:
    """The first wrong one, or the largest, is in the status, by whichever way a loop is checked; and no call reads at
    it: one of them is far outside the process's memory."""
    rng = np.random.default_rng(count)
    table = np.arange(35, dtype=np.float32).reshape((5, 7) if name == "two indices" else 35)
    i, n = rng.integers(0, len(table), count), rng.integers(0, 7, count).astype(np.int32)
    shape = () if name == "a sum" else (count,)
    (found,), status = call(MAPS + GATHERS[name], [table, i, n], [shape], 3, gathers)
    np.testing.assert_array_equal(found, gathered(name, table, i, n))
    assert status == [0, 0, 0]
    for place in range(0, count, 11):
        for wrong in (len(table), -1, 1 << 40, -(1 << 40)):
            given = i.copy()
            given[place] = wrong
            assert call(MAPS + GATHERS[name], [table, given, n], [shape], 3, gathers)[1] == [1, wrong, len(table)]
    if count and name == "two indices":
        n[-1] = 7
        assert call(MAPS + GATHERS[name], [table, i, n], [shape], 1, gathers)[1][1:] == [7, 7]
    if count:
        none = table[:0] if name != "two indices" else table[:, :0]
        assert call(MAPS + GATHERS[name], [none, i, n], [shape], 1, gathers)[1][0] == 1


@pytest.mark.parametrize("name", ["single numbers", "two indices"])
def test_loops_that_check_indices_are_vectorised(name: str) -> None:
    code = assembly(ObjectUnit("k", emit(MAPS + GATHERS[name]).code.llvm, optimise=True), X86_64_V4)
    assert re.search(r"vgather[qd]ps.*%zmm", code)
