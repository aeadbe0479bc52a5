"""Extents that are equal in every call of a kernel have one symbol."""

from __future__ import annotations

from motet.compiler.build.equal_extents import equal_extents
from motet.compiler.build.partitioning import Kernels
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.kernels.reader.extents import read_composed

SOURCE = """
func.func @main(%x: tensor<?x?xf32>, %z: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = call @keep(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = call @like(%0, %x) : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %2 = call @like(%1, SECOND) : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %1, %2 : tensor<?x?xf32>, tensor<?x?xf32>
}
func.func private @keep(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%x : tensor<?x?xf32>) outs(%x : tensor<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %1 = math.exp %in : f32
    linalg.yield %1 : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
func.func private @like(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %h = tensor.dim %b, %c0 : tensor<?x?xf32>
  %w = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%h, %w) : tensor<?x?xf32>
  %0 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""


def groups(second: str) -> dict[str, list[list[tuple[int, int, bool]]]]:
    with ir.Context():
        module = ir.Module.parse(SOURCE.replace("SECOND", second))
        main, *kernels = (entry.operation for entry in module.body.operations)
        found = equal_extents([main], Kernels({symbol_name(kernel): kernel for kernel in kernels}).shapes_of)
        symbols = read_composed(kernels[1], found["like"]).symbols
        assert len(symbols) == 2 or second == "%z", symbols
        return {name: [[(p.number, p.axis, p.is_result) for p in group] for group in each]
                for name, each in found.items()}


def test_extents_that_all_calls_have_in_common():
    found = groups("%x")
    assert found["keep"] == [[(0, 0, False), (0, 0, True)], [(0, 1, False), (0, 1, True)]]
    assert found["like"] == [
        [(0, axis, False), (1, axis, False), (0, axis, True)] for axis in range(2)
    ]


def test_extents_that_differ_in_one_call_are_separate():
    assert found_pairs(groups("%z")["like"]) == {((1, 0), (0, 0)), ((1, 1), (0, 1))}


def found_pairs(found: list[list[tuple[int, int, bool]]]) -> set[tuple[tuple[int, int], ...]]:
    return {tuple((number, axis) for number, axis, _ in group) for group in found}
