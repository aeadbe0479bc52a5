"""Programs divided over meshes: their results are those of the whole, computed by numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import motet
from motet import builder as mb
from motet import ranks
from motet.errors import CompileError, OptionError

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(source: Any, *inputs: Array, mesh: str = "", shard: dict[str, str] | None = None) -> Array:
    return motet.load(motet.compile(source, mesh=mesh, shard=shard), threads=1)(*inputs)


# -- collectives ---------------------------------------------------------------------------------

def stablehlo(operation: str, result: str, gathered: str = "[device][]") -> str:
    return f"""module attributes {{motet.mesh = "device=4"}} {{
  func.func @main(%x: tensor<4x8xf32> {{motet.sharding = "[device][]"}})
      -> (tensor<{result}xf32> {{motet.sharding = "{gathered}"}}) {{
    %0 = {operation} : (tensor<4x8xf32>) -> tensor<{result}xf32>
    return %0 : tensor<{result}xf32>
  }}
}}"""


_BODY = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %s = stablehlo.OP %a, %b : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""
_PAIRS = "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>"
_ALL = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"


def reduced(part: Array, how: Callable[..., Array], groups: list[list[int]]) -> Array:
    """What each device has after an all-reduce, by device."""
    found = np.empty_like(part)
    for group in groups:
        found[group] = how(part[group].astype(np.float64), axis=0)
    return found


@pytest.mark.parametrize(("name", "how"), [
    ("add", np.sum), *(pytest.param(*each, marks=pytest.mark.slow) for each in (
        ("maximum", np.max), ("minimum", np.min), ("multiply", np.prod),
    )),
])
def test_all_reduce_is_numpys_reduction_of_each_group(name: str, how: Callable[..., Array]):
    x = numbers(16, 8)
    operation = f'"stablehlo.all_reduce"(%x) <{{{_PAIRS}}}> {_BODY.replace("OP", name)}'
    expected = reduced(x.reshape(4, 4, 8), how, [[0, 2], [1, 3]]).reshape(16, 8)
    np.testing.assert_allclose(run(stablehlo(operation, "4x8"), x), expected, rtol=1e-6)


@pytest.mark.slow
def test_other_collectives_move_what_they_say():
    x = numbers(16, 8)
    part = x.reshape(4, 4, 8)
    gather = f'"stablehlo.all_gather"(%x) <{{all_gather_dim = 1 : i64, {_ALL}}}>'
    y = run(stablehlo(gather, "4x32"), x)
    np.testing.assert_array_equal(y, np.tile(np.concatenate(part, 1), (4, 1)))
    scatter = f'"stablehlo.reduce_scatter"(%x) <{{scatter_dimension = 1 : i64, {_ALL}}}> {_BODY.replace("OP", "add")}'
    y = run(stablehlo(scatter, "4x2"), x)
    total = part.astype(np.float64).sum(0)
    np.testing.assert_allclose(y, np.concatenate(np.split(total, 4, 1)), rtol=1e-5, atol=1e-6)
    to_all = (f'"stablehlo.all_to_all"(%x) <{{split_dimension = 1 : i64, concat_dimension = 0 : i64, '
              f'split_count = 4 : i64, {_ALL}}}>')
    y = run(stablehlo(to_all, "16x2"), x)
    np.testing.assert_array_equal(y, np.concatenate(np.split(x, 4, 1)))
    permute = ('"stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 2]]> : '
               "tensor<2x2xi64>}>")
    y = run(stablehlo(permute, "4x8"), x)
    np.testing.assert_array_equal(y.reshape(4, 4, 8), np.stack([0 * part[0], part[0], part[1], 0 * part[0]]))


@pytest.mark.slow
def test_large_all_reduce_is_the_same_on_every_device():
    text = f"""module attributes {{motet.mesh = "device=3"}} {{
  func.func @main(%x: tensor<7x1001xf32> {{motet.sharding = "[device][]"}})
      -> (tensor<7x1001xf32> {{motet.sharding = "[device][]"}}) {{
    %0 = "stablehlo.all_reduce"(%x) <{{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}}>
      {_BODY.replace("OP", "add")} : (tensor<7x1001xf32>) -> tensor<7x1001xf32>
    return %0 : tensor<7x1001xf32>
  }}
}}"""
    x = numbers(21, 1001)
    y = run(text, x).reshape(3, 7, 1001)
    np.testing.assert_array_equal(y[0], y[1])
    np.testing.assert_array_equal(y[0], y[2])
    np.testing.assert_allclose(y[0], x.reshape(3, 7, 1001).astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_upstreams_shard_dialect_is_read():
    text = """module {
  shard.grid @g(shape = 2x2)
  func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %s = shard.sharding @g split_axes = [[0], []] : !shard.sharding
    %y = shard.shard %x to %s : tensor<4x6xf32>
    %e = tensor.empty() : tensor<4x6xf32>
    %0 = linalg.exp ins(%y : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}"""
    x = numbers(4, 6)
    np.testing.assert_allclose(run(text, x), np.exp(x), rtol=1e-6)
    text = """module {
  shard.grid @g(shape = 2x2)
  func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = shard.all_reduce %x on @g grid_axes = [1] : tensor<4x6xf32> -> tensor<4x6xf32>
    %1 = shard.shift %0 on @g grid_axes = [0] shift_axis = 0 offset = 1 rotate : tensor<4x6xf32> -> tensor<4x6xf32>
    return %1 : tensor<4x6xf32>
  }
}"""
    np.testing.assert_allclose(run(text, x), 2 * x, rtol=1e-6)


# -- shardings -----------------------------------------------------------------------------------


def network() -> tuple[mb.Graph, tuple[Array, ...], Array]:
    """Attention over heads, a hidden layer: with numpy's result in f64."""
    x, q, up, down = (numbers(*shape, seed=sum(shape)) for shape in ((8, 16), (16, 16), (16, 24), (24, 16)))
    with mb.Graph("main") as graph:
        rows = graph.input("x", (8, 16))
        w_q, w_up, w_down = graph.input("q", (16, 16)), graph.input("up", (16, 24)), graph.input("down", (24, 16))
        heads = mb.transpose(mb.reshape(mb.matmul(rows, w_q), [8, 4, 4]), [1, 0, 2])
        scores = mb.softmax(mb.matmul(heads, mb.transpose(heads, [0, 2, 1])))
        mixed = mb.reshape(mb.transpose(mb.matmul(scores, heads), [1, 0, 2]), [8, 16])
        hidden = mb.relu(mb.matmul(mb.add(rows, mixed), w_up))
        graph.result(mb.matmul(hidden, w_down), name="y")
    wide = [value.astype(np.float64) for value in (x, q, up, down)]
    heads = (wide[0] @ wide[1]).reshape(8, 4, 4).transpose(1, 0, 2)
    scores = np.exp(heads @ heads.transpose(0, 2, 1))
    mixed = (scores / scores.sum(-1, keepdims=True) @ heads).transpose(1, 0, 2).reshape(8, 16)
    return graph, (x, q, up, down), np.maximum((wide[0] + mixed) @ wide[2], 0) @ wide[3]


@pytest.mark.parametrize(("mesh", "shard"), [
    ("data=2", {"x": "data:0"}),
    pytest.param("model=4", {"q": "model:1", "up": "model:1", "down": "model:0"}, marks=pytest.mark.slow),
    pytest.param("data=2,model=2", {"x": "data:0", "q": "model:1", "up": "model:1", "down": "model:0"},
                 marks=pytest.mark.slow),
    ("model=2", {"q": "model:0", "up": "model:0"}),
])
def test_shardings_do_not_change_results(mesh: str, shard: dict[str, str]):
    graph, inputs, expected = network()
    np.testing.assert_allclose(run(graph, *inputs, mesh=mesh, shard=shard), expected, rtol=2e-4, atol=2e-4)


def test_a_divided_program_runs_over_ranks():
    graph, inputs, expected = network()
    artifact = motet.compile(graph, mesh="data=2", shard={"x": "data:0"})
    alone = motet.load(artifact, threads=1)(*inputs)
    world = ranks.InProcessWorld(2)

    def one(rank: int) -> Array | None:
        places = {"d0": "rank:0/host", "d1": "rank:1/host"}
        own = world.transport(rank)
        with ranks.load(artifact, devices=places, transport=own, threads=1, results="root") as session:
            assert session.proofs["main"].messages >= 2
            return session(*inputs)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        y, nothing = pool.map(one, range(2))
    assert nothing is None and y is not None
    np.testing.assert_array_equal(y, alone)
    np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-4)


def layers() -> tuple[mb.Graph, Array, Array]:
    """Two products with parameters: an input and numpy's result."""
    x, up, down = numbers(8, 64), numbers(64, 128, seed=1), numbers(128, 64, seed=2)
    with mb.Graph("main") as graph:
        hidden = mb.relu(mb.matmul(graph.input("x", (8, 64)), graph.constant(up, name="layers.0.up")))
        graph.result(mb.matmul(hidden, graph.constant(down, name="layers.0.down")), name="y")
    return graph, x, np.maximum(x.astype(np.float64) @ up, 0) @ down


@pytest.mark.parametrize(("mesh", "shard", "size"), [
    ("model=4", {"layers.*.up": "model:1", "layers.*.down": "model:0"}, 4),
    ("model=2", {"layers.0.up": "model:1"}, 2),
    ("data=2,model=2", {"x": "data:0", "layers.0.down": "model:0"}, 2),
])
def test_devices_store_their_parts_of_parameters(mesh: str, shard: dict[str, str], size: int):
    graph, x, expected = layers()
    artifact = motet.compile(graph, mesh=mesh, shard=shard)
    np.testing.assert_allclose(motet.load(artifact, threads=1)(x), expected, rtol=1e-4, atol=1e-3)
    stored = {math.prod(each.shape) for each in artifact.manifest.parameters}  # bytes, as kernels read them
    assert stored == {4 * 64 * 128 // size}
    moved = [step for step in artifact.manifest.plans["main"].steps if step.op == "transfer"]
    assert len(moved) < 3 * len(artifact.manifest.devices)  # activations and sums alone


def onnx_layer() -> bytes:
    """A layer whose node becomes several operations."""
    weight, bias = (helper.make_tensor(name, TensorProto.FLOAT, shape, numbers(*shape).ravel().tolist())
                    for name, shape in (("w", (32, 64)), ("b", (32,))))
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer", transB=1)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", (8, 64)), ("y", (8, 32))))
    graph = helper.make_graph([node], "main", [x], [y], [weight, bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def test_a_node_of_a_model_is_divided_as_its_result():
    x = numbers(8, 64, seed=3)
    expected = x.astype(np.float64) @ numbers(32, 64).T + numbers(32)
    np.testing.assert_allclose(
        run(onnx_layer(), x, mesh="m=2", shard={"layer": "m:1"}), expected, rtol=1e-4, atol=1e-4
    )
    with pytest.raises(OptionError, match=r"no argument or operation has such a name; the nearest are w/transposed"):
        motet.compile(onnx_layer(), mesh="m=2", shard={"w": "m:0"})


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mesh", "shard", "message"), [
    ("data=3", {"x": "data:0"}, r"x: dimension 0 has 8 elements, which the 3 devices along data of"),
    ("data=2", {"x": "model:0"}, r"axis model is not of the mesh data=2; available: data"),
    ("data=2", {"z": "data:0"}, r"--shard z=data:0: no argument or operation has such a name"),
    ("data=2", {"x": "data:2"}, r"dimension 2 of x, which has 2; expected -2 to 1"),
    ("data", {}, r"mesh 'data': expected AXIS=DEVICES"),
    ("data=2", {"x": "0"}, r"--shard x=0: expected NAME=AXIS:DIMENSION"),
    ("", {"x": "data:0"}, r"--shard x=data:0: there is no mesh; add --mesh"),
    ("data=2", {"x": "data:0", "up": "data:1"}, r"linalg\.\w+: shardings conflict: "),
])
def test_mistakes_name_what_is_wrong(mesh: str, shard: dict[str, str], message: str):
    with pytest.raises((CompileError, OptionError), match=message):
        motet.compile(network()[0], mesh=mesh, shard=shard)


def test_collectives_name_devices_that_are_there():
    operation = ('"stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 7]]> : '
                 "tensor<1x2xi64>}>")
    with pytest.raises(CompileError, match="permute: device 7 is not there; expected numbers from 0 to 3"):
        motet.compile(stablehlo(operation, "4x8"))


def test_artifacts_of_other_meshes_and_shardings_are_not_reused():
    with mb.Graph("main") as graph:
        graph.result(mb.relu(graph.input("x", (8, 16))), name="y")
    found = [
        len(motet.compile(graph, mesh=mesh, shard={"x": where}).manifest.devices)
        for mesh, where in (("a=2", "a:0"), ("a=4", "a:0"), ("a=2", "a:0"))
    ]
    assert found == [2, 4, 2]
