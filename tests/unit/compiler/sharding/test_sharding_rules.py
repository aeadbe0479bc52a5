"""Operations that are divided by a rule of their own, and collectives of both dialects, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import motet
from motet import builder as mb
from motet.errors import CompileError, OptionError

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(source: Any, *inputs: Array, mesh: str = "", shard: dict[str, str] | None = None) -> Array:
    return motet.load(motet.compile(source, mesh=mesh, shard=shard), threads=1)(*inputs)


# -- rules ---------------------------------------------------------------------------------------


def convolved(x: Array, w: Array) -> Array:
    """A convolution with padding 1, in f64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))


@pytest.mark.parametrize("shard", [
    {"x": "d:0"},
    pytest.param({"w": "d:0"}, marks=pytest.mark.slow),
    pytest.param({"x": "d:1", "w": "d:1"}, marks=pytest.mark.slow),
    pytest.param({"x": "d:2"}, marks=pytest.mark.slow),
])
def test_convolutions_are_divided_by_images_filters_channels_and_rows(shard: dict[str, str]):
    x, w = numbers(2, 4, 6, 5), numbers(6, 4, 3, 3, seed=1)
    with mb.Graph("main") as graph:
        image, weights = graph.input("x", x.shape), graph.input("w", w.shape)
        graph.result(mb.conv2d(image, weights, padding=1), name="y")
    np.testing.assert_allclose(run(graph, x, w, mesh="d=2", shard=shard), convolved(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("table_on", "ids_on"), [
    ("[][e]", "[d]"), pytest.param("[d][]", "[]", marks=pytest.mark.slow),
])
def test_rows_of_a_table_are_read_by_divided_indices(table_on: str, ids_on: str):
    table, ids = numbers(10, 6), np.array([3, 0, 9, 9, 1, 7], np.int64)
    text = f"""module attributes {{motet.mesh = "d=2,e=2"}} {{
  func.func @main(%table: tensor<10x6xf32> {{motet.sharding = "{table_on}"}},
                  %ids: tensor<6xi64> {{motet.sharding = "{ids_on}"}}) -> tensor<6x6xf32> {{
    %e = tensor.empty() : tensor<6x6xf32>
    %y = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}}
        ins(%ids : tensor<6xi64>) outs(%e : tensor<6x6xf32>) {{
    ^bb0(%id: i64, %out: f32):
      %row = arith.index_cast %id : i64 to index
      %column = linalg.index 1 : index
      %value = tensor.extract %table[%row, %column] : tensor<10x6xf32>
      linalg.yield %value : f32
    }} -> tensor<6x6xf32>
    return %y : tensor<6x6xf32>
  }}
}}"""
    np.testing.assert_array_equal(run(text, table, ids), table[ids])


_SLICED = """module attributes {motet.mesh = "d=2"} {
  func.func @main(%x: tensor<4x6xf32> {motet.sharding = "SHARDING"}) -> tensor<4x9xf32> {
    %zero = arith.constant 0.0 : f32
    %part = tensor.extract_slice %x[0, 1] [4, 3] [1, 2] : tensor<4x6xf32> to tensor<4x3xf32>
    %put = tensor.insert_slice %part into %x[0, 2] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
    %wide = tensor.pad %put low[0, 1] high[0, 2] {
    ^bb0(%i: index, %j: index):
      tensor.yield %zero : f32
    } : tensor<4x6xf32> to tensor<4x9xf32>
    return %wide : tensor<4x9xf32>
  }
}"""


@pytest.mark.parametrize("sharding", ["[d][]", pytest.param("[][d]", marks=pytest.mark.slow)])
def test_slices_and_padding_of_divided_tensors(sharding: str):
    x = numbers(4, 6)
    put = x.copy()
    put[:, 2:5] = x[:, 1::2]
    y = run(_SLICED.replace("SHARDING", sharding), x)
    np.testing.assert_array_equal(y, np.pad(put, ((0, 0), (1, 2))))


@pytest.mark.slow
def test_slices_that_drop_dimensions_and_joins_of_divided_tensors():
    text = """module attributes {motet.mesh = "d=4"} {
  func.func @main(%x: tensor<1x4x6xf32> {motet.sharding = "[][d][]"}) -> tensor<4x12xf32> {
    %a = tensor.extract_slice %x[0, 0, 0] [1, 4, 6] [1, 1, 1] : tensor<1x4x6xf32> to tensor<4x6xf32>
    %b = tensor.concat dim(1) %a, %a : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
    return %b : tensor<4x12xf32>
  }
}"""
    x = numbers(1, 4, 6)
    np.testing.assert_array_equal(run(text, x), np.concatenate([x[0], x[0]], 1))


@pytest.mark.parametrize("sharding", ["[d][]", pytest.param("[][d]", marks=pytest.mark.slow)])
def test_softmax_of_divided_rows(sharding: str):
    text = f"""module attributes {{motet.mesh = "d=2"}} {{
  func.func @main(%x: tensor<4x6xf32> {{motet.sharding = "{sharding}"}}) -> tensor<4x6xf32> {{
    %e = tensor.empty() : tensor<4x6xf32>
    %y = linalg.softmax dimension(1) ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }}
}}"""
    x = numbers(4, 6)
    powers = np.exp(x.astype(np.float64))
    y = run(text, x)
    np.testing.assert_allclose(y, powers / powers.sum(1, keepdims=True), rtol=1e-5)


# -- operands ------------------------------------------------------------------------------------


def divided(text: str, *inputs: Array, shard: dict[str, str]) -> tuple[Array, ...]:
    """The results over two devices."""
    found: Any = run(text, *inputs, mesh="d=2", shard=shard)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("shard", ["d:0", "d:1"])
@pytest.mark.parametrize(("operands", "expected"), [
    ("ins(%x, %x : T, T) outs(%y : T)", lambda x, y: x @ x + y),
    ("ins(%x, %y : T, T) outs(%x : T)", lambda x, y: x @ y + x),
])
def test_a_tensor_that_is_several_operands_has_a_part_for_each(
    operands: str, expected: Callable[[Array, Array], Array], shard: str
):
    text = f"""func.func @main(%x: T, %y: T) -> T {{
      %0 = linalg.matmul {operands} -> T
      return %0 : T
    }}""".replace("T", "tensor<8x8xf32>")
    x, y = numbers(8, 8), numbers(8, 8, seed=1)
    wanted = expected(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(divided(text, x, y, shard={"arg0": shard})[0], wanted, rtol=1e-4, atol=1e-4)


def generic(arguments: str, maps: str, kinds: str, operands: str, body: str, results: str) -> str:
    """A function of one nest of loops i, j."""
    loops = ", ".join(f"affine_map<(i, j) -> ({each})>" for each in maps.split(";"))
    count = results.count("tensor")
    returned = ", ".join(f"%r#{number}" for number in range(count)) if count > 1 else "%r"
    return f"""func.func @main({arguments}) -> ({results}) {{
      %r{f":{count}" if count > 1 else ""} = linalg.generic {{indexing_maps = [{loops}], iterator_types = [{kinds}]}}
          {operands} {{
      {body}
      }} -> ({results})
      return {returned} : {results}
    }}"""


def test_a_tensor_that_is_read_as_operand_and_by_computed_indices():
    text = generic(
        "%x: tensor<8x8xf32>, %e: tensor<8x8xf32>", "i, j;i, j", '"parallel", "parallel"',
        "ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>)", """^bb0(%p: f32, %o: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %q = tensor.extract %x[%j, %i] : tensor<8x8xf32>
      %s = arith.addf %p, %q : f32
      linalg.yield %s : f32""", "tensor<8x8xf32>",
    )
    x = numbers(8, 8)
    np.testing.assert_array_equal(divided(text, x, 0 * x, shard={"arg0": "d:0"})[0], x + x.T)


def test_sums_of_divided_loops_begin_once():
    text = generic(
        "%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %a: tensor<4xf32>, %b: tensor<4xf32>", "i, j;i, j;i;i",
        '"parallel", "reduction"',
        "ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%a, %b : tensor<4xf32>, tensor<4xf32>)",
        """^bb0(%p: f32, %q: f32, %s: f32, %t: f32):
      %m = arith.mulf %p, %q : f32
      %u = arith.addf %s, %m : f32
      %v = arith.addf %t, %p : f32
      linalg.yield %u, %v : f32, f32""", "tensor<4xf32>, tensor<4xf32>",
    )
    x, y, a, b = numbers(4, 8), numbers(4, 8, seed=1), numbers(4, seed=2), numbers(4, seed=3)
    found = divided(text, x, y, a, b, shard={"arg0": "d:1"})
    for each, wanted in zip(found, (a + (x * y).sum(1), b + x.sum(1)), strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("operation", "how"), [
    ("addi", np.logical_xor), ("muli", np.logical_and), ("maxsi", np.logical_and), ("minsi", np.logical_or),
    ("maxui", np.logical_or), ("minui", np.logical_and),
])
def test_single_bits_are_reduced_as_arith_does(operation: str, how: np.ufunc):
    text = generic(
        "%x: tensor<16x8xi1>, %a: tensor<16xi1>", "i, j;i", '"parallel", "reduction"',
        "ins(%x : tensor<16x8xi1>) outs(%a : tensor<16xi1>)", f"""^bb0(%p: i1, %s: i1):
      %u = arith.{operation} %s, %p : i1
      linalg.yield %u : i1""", "tensor<16xi1>",
    )
    random = np.random.default_rng(0)
    x, a = random.random((16, 8)) < random.random((16, 1)) ** 0.1, random.random(16) < 0.5
    found = divided(text, x, a, shard={"arg0": "d:1"})[0]
    np.testing.assert_array_equal(found, how(how.reduce(x, 1), a))


def test_tensors_without_elements_are_divided():
    text = """func.func @main(%x: tensor<0x6xf32>) -> tensor<0x6xf32> {
      %y = math.exp %x : tensor<0x6xf32>
      return %y : tensor<0x6xf32>
    }"""
    assert divided(text, np.zeros((0, 6), np.float32), shard={"arg0": "d:0"})[0].shape == (0, 6)
    assert divided(text, np.zeros((0, 6), np.float32), shard={"arg0": "d:1"})[0].shape == (0, 6)


def test_shardings_of_dynamic_extents_are_told():
    text = """func.func @main(%x: tensor<?x6xf32>) -> tensor<?x6xf32> {
      %y = math.exp %x : tensor<?x6xf32>
      return %y : tensor<?x6xf32>
    }"""
    with pytest.raises(OptionError, match=r"arg0 is tensor<\?x6xf32>; expected a tensor with static extents"):
        motet.compile(text, mesh="d=2", shard={"arg0": "d:1"})


# -- collectives ---------------------------------------------------------------------------------


def of_four(body: str, result: str = "4x8") -> str:
    """A StableHLO program of four devices that have a fourth of the input each."""
    return f"""module attributes {{motet.mesh = "device=4"}} {{
  func.func @main(%x: tensor<4x8xf32> {{motet.sharding = "[device][]"}})
      -> (tensor<{result}xf32> {{motet.sharding = "[device][]"}}) {{
    {body}
    return %y : tensor<{result}xf32>
  }}
}}"""


def test_stablehlos_broadcast_sends_the_first_of_each_group():
    x = numbers(16, 8)
    text = of_four('%y = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[2, 0, 3]]> : '
                   "tensor<1x3xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>")
    part = x.reshape(4, 4, 8)
    np.testing.assert_array_equal(run(text, x), np.concatenate([part[2], 0 * part[1], part[2], part[2]]))


def test_shardings_over_other_axes_of_values_of_one_device_are_left_out():
    text = """module {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
    %y = sdy.manual_computation(%x) in_shardings=[<@mesh, [{}, {"a"}]>] out_shardings=[<@mesh, [{}, {}]>]
        manual_axes={"a"} (%p: tensor<4x4xf32>) {
      %s = "stablehlo.all_reduce"(%p) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %t = stablehlo.add %l, %r : tensor<f32>
        %u = sdy.sharding_constraint %t <@mesh, []> : tensor<f32>
        stablehlo.return %u : tensor<f32>
      }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %z = sdy.sharding_constraint %s <@mesh, [{"b"}, {}]> : tensor<4x4xf32>
      sdy.return %z : tensor<4x4xf32>
    } : (tensor<4x8xf32>) -> tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
}"""
    x = numbers(4, 8)
    np.testing.assert_allclose(run(text, x), x[:, :4] + x[:, 4:], rtol=1e-6)


@pytest.mark.slow
def test_replicas_know_their_number():
    x = numbers(16, 8)
    text = of_four("""%id = stablehlo.replica_id : tensor<ui32>
    %n = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
    %y = stablehlo.add %x, %b : tensor<4x8xf32>""")
    np.testing.assert_array_equal(run(text, x), x + np.repeat(np.arange(4, dtype=np.float32), 4)[:, None])


def of_grid(body: str, kind: str = "4x6xf32") -> str:
    """A program of upstream's dialect over four devices, each of which has the whole input."""
    return f"""module {{
  shard.grid @g(shape = 2x2)
  func.func @main(%x: tensor<4x6xf32>) -> tensor<{kind}> {{
    {body}
    return %y : tensor<{kind}>
  }}
}}"""


# Each device has the input and its number along the second axis.
_NUMBERED = """%i:2 = shard.process_multi_index on @g axes = [0, 1] : index, index
    %n = arith.index_cast %i#1 : index to i32
    %f = arith.sitofp %n : i32 to f32
    %one = tensor.splat %f : tensor<4x6xf32>
    %e = tensor.empty() : tensor<4x6xf32>
    %v = linalg.add ins(%x, %one : tensor<4x6xf32>, tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
    """


def test_upstreams_broadcast_sends_the_roots_value():
    x = numbers(4, 6)
    sent = "shard.broadcast %v on @g grid_axes = [1] root = [1] : (tensor<4x6xf32>) -> tensor<4x6xf32>"
    np.testing.assert_array_equal(run(of_grid(f"{_NUMBERED}%y = {sent}"), x), x + 1)


@pytest.mark.slow
def test_upstreams_reductions_and_gathers_move_what_they_say():
    x = numbers(4, 6)
    largest = "shard.all_reduce %v on @g grid_axes = [1] reduction = max : tensor<4x6xf32> -> tensor<4x6xf32>"
    np.testing.assert_array_equal(run(of_grid(f"{_NUMBERED}%y = {largest}"), x), x + 1)
    gathered = "shard.all_gather %v on @g grid_axes = [1] gather_axis = 1 : tensor<4x6xf32> -> tensor<4x12xf32>"
    y = run(of_grid(f"{_NUMBERED}%y = {gathered}", "4x12xf32"), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x + 1], 1))


@pytest.mark.slow
def test_upstreams_all_to_all_and_reduce_scatter_move_what_they_say():
    x = numbers(4, 6)
    exchanged = ("shard.all_to_all %x on @g grid_axes = [1] split_axis = 1 concat_axis = 0 : "
                 "tensor<4x6xf32> -> tensor<8x3xf32>")
    back = ("shard.all_gather %z on @g grid_axes = [1] gather_axis = 1 : tensor<8x3xf32> -> tensor<8x6xf32>")
    y = run(of_grid(f"%z = {exchanged}\n    %y = {back}", "8x6xf32"), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x]))
    scattered = ("shard.reduce_scatter %x on @g grid_axes = [0] scatter_dim = 0 : "
                 "tensor<4x6xf32> -> tensor<2x6xf32>")
    back = "shard.all_gather %z on @g grid_axes = [0] gather_axis = 0 : tensor<2x6xf32> -> tensor<4x6xf32>"
    np.testing.assert_allclose(run(of_grid(f"%z = {scattered}\n    %y = {back}"), x), 2 * x, rtol=1e-6)


@pytest.mark.parametrize("operation", [
    "shard.gather %x on @g grid_axes = [0] gather_axis = 1 root = [0] : (tensor<4x6xf32>) -> tensor<4x12xf32>",
    "shard.scatter %x on @g grid_axes = [0] scatter_dim = 1 root = [0] : (tensor<4x6xf32>) -> tensor<4x3xf32>",
])
def test_gathers_and_scatters_of_one_device_are_refused(operation: str):
    kind = operation.rpartition("tensor<")[2][:-1]
    with pytest.raises(CompileError, match=r"shard\.(gather|scatter): not supported; expected one of shard.all_reduce"):
        motet.compile(of_grid(f"%y = {operation}", kind))


def test_collectives_in_loops_are_refused():
    text = of_four("""%zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %end = arith.constant 5 : index
    %y = scf.for %i = %zero to %end step %one iter_args(%z = %x) -> (tensor<4x8xf32>) {
      %s = "stablehlo.collective_permute"(%z) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}>
        : (tensor<4x8xf32>) -> tensor<4x8xf32>
      scf.yield %s : tensor<4x8xf32>
    }""")
    with pytest.raises(CompileError, match=r"motet.permute: a collective inside scf.for is not supported; expected it"):
        motet.compile(text)


def test_gathers_need_all_devices():
    text = of_four('%y = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : '
                   "tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>", "8x8")
    with pytest.raises(CompileError, match=r"motet.all_gather: devices 2, 3 are in no group; expected each in one"):
        motet.compile(text)
