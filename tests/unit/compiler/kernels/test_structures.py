"""Loop nests are read once in a compile, and not mixed up."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.kernels.roles import Role, role_of, structure_of, structures_kept


def total(source: str, size: str, read: str) -> str:
    return f"""
  linalg.generic {{
    indexing_maps = [affine_map<(i, j) -> ({read})>, affine_map<(i, j) -> (i)>],
    iterator_types = ["parallel", "reduction"]
  }} ins(%{source} : tensor<{size}x{size}xf32>) outs(%{source}r : tensor<{size}xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  }} -> tensor<{size}xf32>"""


def test_only_nests_of_equal_attributes_and_types_are_read_once():
    nests = [("a", "4", "i, j"), ("a", "4", "i, j"), ("a", "4", "j, i"), ("b", "5", "i, j"), ("c", "?", "i, j")]
    arguments = ", ".join(f"%{n}: tensor<{s}x{s}xf32>, %{n}r: tensor<{s}xf32>" for n, s in
                          {"a": "4", "b": "5", "c": "?"}.items())
    body = "".join(total(source, size, read) for source, size, read in nests)
    with ir.Context():
        module = ir.Module.parse(f"func.func @main({arguments}) {{{body}\n  return\n}}")
        found = find_operations(module, "linalg.generic")
        alone = [structure_of(operation) for operation in found]
        with structures_kept():
            kept = [structure_of(operation) for operation in found]
            assert [role_of(operation) for operation in found] == [Role.REDUCTION] * 5
        assert kept == alone
        assert kept[0] is kept[1]
        assert len({id(structure) for structure in kept}) == 4
        assert structure_of(found[0]) is not kept[0]
