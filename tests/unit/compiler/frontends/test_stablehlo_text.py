"""StableHLO text into programs, against StableHLO's own reference interpreter and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prepared import load_source
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo

from motet.compiler.frontends import kinds
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

RNG = np.random.default_rng(11)
T = "tensor<4x6xf32>"
NAMES = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.uint8): "ui8"}


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def kind_of(array: np.ndarray) -> str:
    return f"tensor<{''.join(f'{e}x' for e in array.shape)}{NAMES[array.dtype]}>"


def function(body: str, result: str, *arrays: np.ndarray) -> str:
    arguments = ", ".join(f"%{name}: {kind_of(array)}" for name, array in zip("abcd", arrays, strict=False))
    return f"func.func public @main({arguments}) -> {result} {{\n{body}\n  return %r : {result}\n}}"


def interpreted(source: str, *arrays: np.ndarray) -> np.ndarray:
    """The result by the interpreter that comes with StableHLO's specification."""
    with ir.Context() as context:
        _stablehlo.register_dialect(context)
        _stablehlo.register_interpreter_dialect(context)
        module = ir.Module.parse(source)
        inputs = [ir.DenseElementsAttr.get(a, type=ir.Type.parse(kind_of(a))) for a in arrays]
        (result,) = _stablehlo.eval_module(module, inputs)
        return np.array(result)


def run(source: str, *arrays: np.ndarray) -> np.ndarray:
    (found,) = run_oracle(load_source(source, "model.mlir"), "main", arrays)
    return found


def check(body: str, result: str, *arrays: np.ndarray) -> None:
    source = function(body, result, *arrays)
    assert kinds.kind_of(source, "model.mlir") == "stablehlo"
    np.testing.assert_allclose(run(source, *arrays), interpreted(source, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "operation", ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "atan2"]
)
def test_binary(operation: str):
    check(f"  %r = stablehlo.{operation} %a, %b : {T}", T, np.abs(normal(4, 6)), normal(4, 6))


@pytest.mark.parametrize("operation", [
    "abs", "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log", "log_plus_one",
    "logistic", "negate", "round_nearest_even", "rsqrt", "sine", "sqrt", "tanh",
])  # fmt: skip
def test_unary(operation: str):
    check(f"  %r = stablehlo.{operation} %a : {T}", T, np.abs(normal(4, 6)) + 0.1)


def test_compare_select_and_clamp():
    check(f"""  %p = stablehlo.compare LT, %a, %b : ({T}, {T}) -> tensor<4x6xi1>
      %s = stablehlo.select %p, %a, %b : tensor<4x6xi1>, {T}
      %low = stablehlo.constant dense<-0.5> : tensor<f32>
      %high = stablehlo.constant dense<0.5> : tensor<f32>
      %r = stablehlo.clamp %low, %s, %high : (tensor<f32>, {T}, tensor<f32>) -> {T}""",
          T, normal(4, 6), normal(4, 6))  # fmt: skip


def test_unsigned_integers_divide_as_unsigned():
    a, b = np.array([200, 255, 7], np.uint8), np.array([3, 2, 9], np.uint8)
    found = run(
        function("  %r = stablehlo.divide %a, %b : tensor<3xui8>", "tensor<3xui8>", a, b),
        *(array.view(np.int8) for array in (a, b)),
    )
    np.testing.assert_array_equal(found.view(np.uint8), a // b)


def test_dot_general_with_batch_and_other_axes():
    check("""  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<2x3x5xf32>, tensor<2x7x5xf32>) -> tensor<2x3x7xf32>""", "tensor<2x3x7xf32>",
          normal(2, 3, 5), normal(2, 7, 5))  # fmt: skip
    check("""  %r = stablehlo.dot_general %a, %b, contracting_dims = [0, 1] x [1, 0]
      : (tensor<2x3x5xf32>, tensor<3x2x7xf32>) -> tensor<5x7xf32>""", "tensor<5x7xf32>",
          normal(2, 3, 5), normal(3, 2, 7))  # fmt: skip


@pytest.mark.parametrize(("dims", "x", "w", "groups", "result"), [
    ("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", (2, 9, 8, 3), (3, 3, 3, 4), 1, "tensor<2x5x8x4xf32>"),
    ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", (2, 3, 9, 8), (4, 3, 3, 3), 1, "tensor<2x4x5x8xf32>"),
    ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", (2, 4, 9, 8), (6, 2, 3, 3), 2, "tensor<2x6x5x8xf32>"),
    ("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", (2, 9, 8, 4), (3, 3, 1, 4), 4, "tensor<2x5x8x4xf32>"),
])  # fmt: skip
def test_convolution(dims: str, x: tuple[int, ...], w: tuple[int, ...], groups: int, result: str):
    a, b = normal(*x), normal(*w)
    check(f"""  %r = stablehlo.convolution(%a, %b) dim_numbers = {dims},
      window = {{stride = [2, 1], pad = [[1, 1], [1, 1]]}}
      {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
      : ({kind_of(a)}, {kind_of(b)}) -> {result}""", result, a, b)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "start"), [("add", "0.0"), ("maximum", "0xFF800000"), ("multiply", "1.0")]
)
def test_reduce(operation: str, start: str):
    check(f"""  %c = stablehlo.constant dense<{start}> : tensor<f32>
      %r = stablehlo.reduce(%a init: %c) applies stablehlo.{operation} across dimensions = [0, 2]
        : (tensor<3x4x5xf32>, tensor<f32>) -> tensor<4xf32>""", "tensor<4xf32>", normal(3, 4, 5))  # fmt: skip


def test_reduce_window():
    check("""  %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %r = "stablehlo.reduce_window"(%a, %c) <{
        padding = dense<[[0, 0], [1, 0], [0, 1], [0, 0]]> : tensor<4x2xi64>,
        window_dimensions = array<i64: 1, 3, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %m = stablehlo.maximum %x, %y : tensor<f32>
          stablehlo.return %m : tensor<f32>
        }) : (tensor<1x8x7x3xf32>, tensor<f32>) -> tensor<1x4x4x3xf32>""",
          "tensor<1x4x4x3xf32>", normal(1, 8, 7, 3))  # fmt: skip


def test_movement():
    check(f"""  %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<6xf32>) -> {T}
      %1 = stablehlo.concatenate %0, %b, %0, dim = 0 : ({T}, {T}, {T}) -> tensor<12x6xf32>
      %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<12x6xf32>) -> tensor<6x12xf32>
      %3 = stablehlo.reverse %2, dims = [1] : tensor<6x12xf32>
      %4 = stablehlo.slice %3 [1:6:2, 0:12:3] : (tensor<6x12xf32>) -> tensor<3x4xf32>
      %5 = stablehlo.reshape %4 : (tensor<3x4xf32>) -> tensor<2x6xf32>
      %c = stablehlo.constant dense<1.5> : tensor<f32>
      %r = stablehlo.pad %5, %c, low = [1, 0], high = [0, 2], interior = [0, 1]
        : (tensor<2x6xf32>, tensor<f32>) -> tensor<3x13xf32>""",
          "tensor<3x13xf32>", normal(6), normal(4, 6))  # fmt: skip


def test_gather_and_dynamic_slices():
    rows = np.array([[7], [0], [3]], np.int32)
    check("""  %r = "stablehlo.gather"(%a, %b) <{
        dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
          start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}>
        : (tensor<8x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>""",
          "tensor<3x4xf32>", normal(8, 4), rows)  # fmt: skip
    check("""  %p = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3]
        : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %r = stablehlo.dynamic_update_slice %a, %p, %c, %b
        : (tensor<8x4xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>""",
          "tensor<8x4xf32>", normal(8, 4), np.array(7, np.int32), np.array(0, np.int32))  # fmt: skip


def test_control_flow():
    check(f"""  %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %q:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, {T}
        cond {{
          %p = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %j = stablehlo.add %i, %one : tensor<i32>
          %y = stablehlo.add %x, %a : {T}
          stablehlo.return %j, %y : tensor<i32>, {T}
        }}
      %r = stablehlo.negate %q#1 : {T}""", T, normal(4, 6), np.array(3, np.int32))  # fmt: skip


@pytest.mark.parametrize("choice", [-1, 0, 1, 2, 5])
def test_case_takes_its_last_branch_out_of_range(choice: int):
    check(f"""  %r = "stablehlo.case"(%b) ({{ stablehlo.return %a : {T} }}, {{
        %n = stablehlo.negate %a : {T}
        stablehlo.return %n : {T}
      }}, {{
        %n = stablehlo.add %a, %a : {T}
        stablehlo.return %n : {T}
      }}) : (tensor<i32>) -> {T}""", T, normal(4, 6), np.array(choice, np.int32))  # fmt: skip


def test_if():
    source = """  %z = stablehlo.constant dense<1> : tensor<i32>
      %p = stablehlo.compare LT, %b, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %r = "stablehlo.if"(%p) ({ stablehlo.return %a : tensor<4x6xf32> }, {
        %n = stablehlo.negate %a : tensor<4x6xf32>
        stablehlo.return %n : tensor<4x6xf32> }) : (tensor<i1>) -> tensor<4x6xf32>"""
    for choice in (0, 1):
        check(source, T, normal(4, 6), np.array(choice, np.int32))


def test_composites_barriers_and_chlo():
    source = f"""func.func public @main(%a: {T} {{mhlo.sharding = "{{replicated}}"}})
        -> ({T} {{jax.result_info = ""}}) {{
      %0 = stablehlo.composite "my.double" %a {{decomposition = @double}} : ({T}) -> {T}
      %1 = stablehlo.optimization_barrier %0 : {T}
      %2 = chlo.erf %1 : {T} -> {T}
      %r = chlo.square %2 : {T} -> {T}
      return %r : {T}
    }}
    func.func private @double(%a: {T}) -> {T} {{
      %0 = stablehlo.add %a, %a : {T}
      return %0 : {T}
    }}"""
    from math import erf

    a = normal(4, 6)
    np.testing.assert_allclose(run(source, a), np.vectorize(erf)(2 * a) ** 2, rtol=1e-5, atol=1e-6)
    assert "math.erf" in str(load_source(source, "model.mlir").module)


def test_dynamic_extents():
    source = """func.func public @main(%a: tensor<?x4xf32>, %b: tensor<4xf32>) -> tensor<?x4xf32> {
      %0 = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
      %2 = stablehlo.constant dense<4> : tensor<1xi32>
      %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %4 = stablehlo.dynamic_broadcast_in_dim %b, %3, dims = [1]
        : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
      %5 = stablehlo.add %a, %4 : tensor<?x4xf32>
      return %5 : tensor<?x4xf32> }"""
    for rows in (1, 5):
        a, b = normal(rows, 4), normal(4)
        np.testing.assert_allclose(run(source, a, b), a + b)


def test_an_operation_without_lowering_is_named_at_its_place():
    source = function("""  %r = "stablehlo.sort"(%a) <{dimension = 0 : i64}> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        %p = stablehlo.compare LT, %s, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }) : (tensor<8xf32>) -> tensor<8xf32>""", "tensor<8xf32>", normal(8))  # fmt: skip
    with pytest.raises(CompileError, match=r"model.mlir:2:8: stablehlo.sort: .* same function") as caught:
        load_source(source, "model.mlir")
    assert "\n" not in str(caught.value)


def test_a_comment_or_string_does_not_make_a_text_stablehlo():
    text = "// from stablehlo.add\nfunc.func @f(%a: tensor<4xf32>) { return }"
    assert kinds.kind_of(text, "model.mlir") == "mlir"
