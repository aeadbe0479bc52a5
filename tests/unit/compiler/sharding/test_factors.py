"""What rules say of operations: which dimensions are divided together, and which are needed as a whole."""

from __future__ import annotations

import pytest

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.sharding.rules.listing import rule_of
from motet.compiler.sharding.rules.rule import ShardingRule


def rule(name: str, arguments: str, body: str) -> ShardingRule:
    """The rule of the only operation `name` of a function."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @main({arguments}) {{\n{body}\nreturn\n}}")
        (operation,) = find_operations(module, name)
        found = rule_of(operation)
        assert found is not None
        return found


def test_convolutions_divide_images_filters_and_channels():
    found = rule(
        "linalg.conv_2d_nchw_fchw", "%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %y: tensor<8x6x7x7xf32>",
        "%0 = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>) "
        "outs(%y : tensor<8x6x7x7xf32>) -> tensor<8x6x7x7xf32>",
    )
    (image, channel, *pixels), (filters, depth, *window), _ = found.operands
    assert pixels == window == [None, None] and channel == depth
    assert found.results[0] == (image, filters, None, None)
    assert dict(found.reduced) == {channel: "add"}
    assert [found.extents[each] for each in (image, filters, channel) if each is not None] == [8, 6, 4]


@pytest.mark.parametrize(("name", "body", "operand", "result"), [
    ("tensor.extract_slice", "%0 = tensor.extract_slice %x[0, 1] [4, 3] [1, 2] : tensor<4x6xf32> to tensor<4x3xf32>",
     (0, None), (0, None)),
    ("tensor.extract_slice", "%0 = tensor.extract_slice %x[1, 0] [1, 6] [1, 1] : tensor<4x6xf32> to tensor<6xf32>",
     (None, 1), (1,)),
    ("tensor.pad", "%z = arith.constant 0.0 : f32\n%0 = tensor.pad %x low[0, 1] high[0, 2] {\n^bb0(%i: index, "
     "%j: index):\ntensor.yield %z : f32 } : tensor<4x6xf32> to tensor<4x9xf32>", (0, None), (0, None)),
    ("tensor.concat", "%0 = tensor.concat dim(0) %x, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>",
     (None, 1), (None, 1)),
    ("linalg.softmax", "%0 = linalg.softmax dimension(1) ins(%x : tensor<4x6xf32>) outs(%x : tensor<4x6xf32>) -> "
     "tensor<4x6xf32>", (0, None), (0, None)),
])
def test_dimensions_that_are_taken_as_they_are_are_divided(
    name: str, body: str, operand: tuple[int | None, ...], result: tuple[int | None, ...]
):
    found = rule(name, "%x: tensor<4x6xf32>", body)
    assert found.operands[0] == operand and found.results[0] == result


def test_gathers_divide_indices_and_columns_but_no_rows():
    found = rule("linalg.generic", "%t: tensor<10x6xf32>, %ids: tensor<5xi64>, %e: tensor<5x6xf32>", """
    %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%ids : tensor<5xi64>) outs(%e : tensor<5x6xf32>) {
    ^bb0(%id: i64, %out: f32):
      %row = arith.index_cast %id : i64 to index
      %column = linalg.index 1 : index
      %value = tensor.extract %t[%row, %column] : tensor<10x6xf32>
      linalg.yield %value : f32
    } -> tensor<5x6xf32>""")
    assert found.operands == ((0,), (0, 1)) and found.results == ((0, 1),)
    assert list(found.captured.values()) == [(None, 1)]


def test_loops_of_which_only_one_result_has_the_index_are_whole():
    found = rule("linalg.generic", "%x: tensor<4x8xf32>, %a: tensor<4xf32>, %b: tensor<4x8xf32>", """
    %0:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                            affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<4x8xf32>) outs(%a, %b : tensor<4xf32>, tensor<4x8xf32>) {
    ^bb0(%p: f32, %s: f32, %t: f32):
      %u = arith.addf %s, %p : f32
      %v = arith.mulf %p, %p : f32
      linalg.yield %u, %v : f32, f32
    } -> (tensor<4xf32>, tensor<4x8xf32>)""")
    assert found.operands == ((0, None), (0,), (0, None)) and found.results == ((0,), (0, None))
    assert not found.reduced
