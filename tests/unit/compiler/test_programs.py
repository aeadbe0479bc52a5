"""Whole programs: random graphs against numpy, and the corners of calling conventions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.building import TARGETS, build, kinds, random, run

from motet import builder as mb
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget
from motet.errors import CallError
from motet.runtime import Session, load

UNARY = {
    "relu": (mb.relu, lambda x: np.maximum(x, 0)), "tanh": (mb.tanh, np.tanh),
    "exp": (lambda x: mb.exp(mb.tanh(x)), lambda x: np.exp(np.tanh(x))),
    "sigmoid": (mb.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
}
KINDS = ("unary", "binary", "reduce", "transpose", "matmul", "softmax", "reshape", "bias")
EXTENTS = (1, 2, 3, 5, 8, 17, 33)


def session_of(graph: mb.Graph, target: CpuTarget = X86_64_V3) -> Session:
    program = graph.program()
    with program.module.context, ir.Location.unknown():
        program.module.context.allow_unregistered_dialects = True
        built = pipeline.build(program, [target], 1, lambda what, fraction: None)
    return load(write_artifact(built.manifest, built.members, built.parameters))


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_random_graphs_agree_with_numpy(data: st.DataObject) -> None:
    rows, columns = data.draw(st.sampled_from(EXTENTS)), data.draw(st.sampled_from(EXTENTS))
    arrays: list[np.ndarray] = []
    with mb.Graph("random") as graph:
        values = []
        for index in range(2):
            arrays.append(random(rows, columns, seed=index))
            values.append((graph.input(f"x{index}", (rows, columns), "f32"), arrays[-1].astype(np.float64)))
        for _ in range(data.draw(st.integers(1, 9))):
            values.append(step(data, values))
        wanted = [values[-1], values[data.draw(st.integers(0, len(values) - 1))]]
        for index, (tensor, _) in enumerate(wanted):
            graph.result(tensor, name=f"y{index}")
    results = session_of(graph)(*arrays)
    for result, (_, expected) in zip(results, wanted, strict=True):
        scale = float(np.abs(expected).max(initial=1.0))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * scale)


def step(data: st.DataObject, values: list) -> tuple:
    x, a = data.draw(st.sampled_from(values))
    kind = data.draw(st.sampled_from(KINDS))
    if kind == "unary":
        ours, theirs = UNARY[data.draw(st.sampled_from(sorted(UNARY)))]
        return ours(x), theirs(a)
    if kind == "binary":
        y, b = data.draw(st.sampled_from([v for v in values if v[1].shape == a.shape]))
        return data.draw(st.sampled_from([(x + y, a + b), (x - y, a - b)]))
    if kind == "reduce":
        axis = data.draw(st.integers(0, a.ndim - 1))
        return mb.reduce_sum(x, axes=(axis,), keepdims=True) * 0.1, a.sum(axis, keepdims=True) * 0.1
    if kind == "transpose":
        return mb.transpose(x, (1, 0)), a.T
    if kind == "matmul":
        weights = random(a.shape[1], 7, seed=9) * np.float32(0.3)
        return x @ x.graph.constant(weights), a @ weights.astype(np.float64)
    if kind == "softmax":
        e = np.exp(a - a.max(-1, keepdims=True))
        return mb.softmax(x, axis=-1), e / e.sum(-1, keepdims=True)
    if kind == "reshape":
        return mb.reshape(mb.reshape(x, (a.size,)), (a.shape[1], a.shape[0])), a.reshape(a.shape[1], a.shape[0])
    bias = random(a.shape[1], seed=11)
    return x + x.graph.constant(bias), a + bias


def elementwise(name: str, a: str, b: str, kind: str = "tensor<4x3xf32>") -> str:
    return (
        f"linalg.elementwise kind=#linalg.elementwise_kind<{name}> ins({a}, {b} : {kind}, {kind}) "
        f"outs(%e : {kind}) -> {kind}"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_may_return_its_argument_and_one_value_twice(target: CpuTarget) -> None:
    text = f"""
func.func @main(%x: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {{
  %e = tensor.empty() : tensor<4x3xf32>
  %y = {elementwise("add", "%x", "%x")}
  return %x, %y, %y : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}}"""
    x = random(4, 3)
    first, second, third = run(text, [x], target)
    assert (first == x).all() and (second == 2 * x).all() and (third == 2 * x).all()


@pytest.mark.parametrize("target", TARGETS)
def test_a_destination_that_is_read_is_written_last(target: CpuTarget) -> None:
    text = """
func.func @main(%a: memref<4x3xf32>, %d: memref<4x3xf32>) {
  %x = bufferization.to_tensor %a restrict : memref<4x3xf32> to tensor<4x3xf32>
  %o = bufferization.to_tensor %d restrict : memref<4x3xf32> to tensor<4x3xf32>
  %e = tensor.empty() : tensor<4x3xf32>
  %s = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%x, %o : tensor<4x3xf32>, tensor<4x3xf32>)
    outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  %t = linalg.transpose ins(%s : tensor<4x3xf32>) outs(%u : tensor<3x4xf32>) permutation = [1, 0]
  %r = linalg.elementwise kind=#linalg.elementwise_kind<mul> ins(%s, %o : tensor<4x3xf32>, tensor<4x3xf32>)
    outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  bufferization.materialize_in_destination %r in restrict writable %d : (tensor<4x3xf32>, memref<4x3xf32>) -> ()
  return
}""".replace("  %t = linalg.transpose ins(%s : tensor<4x3xf32>) outs(%u : tensor<3x4xf32>) permutation = [1, 0]\n", "")
    a, d = random(4, 3), random(4, 3, seed=1)
    expected = (a + d) * d
    (result,) = run(text, [a, d], target)
    assert result is d
    np.testing.assert_allclose(d, expected, rtol=1e-6)


DYNAMIC_SUM = """
func.func @main(%a: tensor<?x10xf32>, %b: tensor<?x10xf32>) -> tensor<?x10xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x10xf32>
  %e = tensor.empty(%m) : tensor<?x10xf32>
  %s = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%a, %b : tensor<?x10xf32>, tensor<?x10xf32>)
    outs(%e : tensor<?x10xf32>) -> tensor<?x10xf32>
  return %s : tensor<?x10xf32>
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_extents_that_meet_in_a_sum_must_be_equal(target: CpuTarget) -> None:
    session = build(DYNAMIC_SUM, target)
    for rows in (3, 0, 1, 40):
        a, b = random(rows, 10), random(rows, 10, seed=1)
        np.testing.assert_array_equal(session(a, b), a + b)
    for rows in ((3, 5), (5, 3), (5, 1), (1, 5)):
        with pytest.raises(CallError, match=f"must be equal: .*axis 0 of arg0 is {rows[0]}"):
            session(random(rows[0], 10), random(rows[1], 10))


CAST_SUM = """
func.func @main(%a: tensor<?x10xf32>, %b: tensor<4x10xf32>) -> tensor<4x10xf32> {
  %known = tensor.cast %a : tensor<?x10xf32> to tensor<4x10xf32>
  %e = tensor.empty() : tensor<4x10xf32>
  %s = linalg.add ins(%known, %b : tensor<4x10xf32>, tensor<4x10xf32>) outs(%e : tensor<4x10xf32>) -> tensor<4x10xf32>
  return %s : tensor<4x10xf32>
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_an_extent_is_what_a_cast_takes_it_for(target: CpuTarget) -> None:
    session = build(CAST_SUM, target)
    a, b = random(4, 10), random(4, 10, seed=1)
    np.testing.assert_array_equal(session(a, b), a + b)
    for rows in (1, 3, 5):
        with pytest.raises(CallError, match=f"asked for: {rows} and 4; axis 0 of arg0 is {rows}"):
            session(random(rows, 10), b)


def test_extents_of_one_name_must_be_equal() -> None:
    with mb.Graph("named") as graph:
        x, y = (graph.input(name, ("batch", 4), "f32") for name in "xy")
        graph.result(mb.reduce_sum(x, axes=(1,)), name="s")
        graph.result(mb.reduce_sum(y, axes=(1,)), name="t")
    session = session_of(graph)
    a, b = random(5, 4), random(5, 4, seed=1)
    first, second = session(a, b)
    np.testing.assert_allclose(first, a.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, b.sum(1), rtol=1e-5, atol=1e-6)
    with pytest.raises(CallError, match="batch"):
        session(a, random(3, 4))


@pytest.mark.parametrize("target", TARGETS)
def test_several_functions_share_one_artifact(target: CpuTarget) -> None:
    body = "%e = tensor.empty() : tensor<4x3xf32>"
    text = f"""
func.func @twice(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {{
  {body}
  %y = {elementwise("add", "%x", "%x")}
  return %y : tensor<4x3xf32>
}}
func.func @square(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {{
  {body}
  %y = {elementwise("mul", "%x", "%x")}
  return %y : tensor<4x3xf32>
}}"""
    session, x = build(text, target), random(4, 3)
    assert (session["twice"](x) == x + x).all() and (session["square"](x) == x * x).all()
    with pytest.raises(CallError, match="twice, square"):
        session["cube"]


@pytest.mark.parametrize("target", TARGETS)
def test_gathers_and_loops_take_the_generic_path_and_are_right(target: CpuTarget) -> None:
    text = """
func.func @main(%table: tensor<7x5xf32>, %rows: tensor<4xi64>) -> tensor<4x5xf32> {
  %e = tensor.empty() : tensor<4x5xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<4xi64>) outs(%e : tensor<4x5xf32>) {
  ^bb0(%row: i64, %out: f32):
    %i = arith.index_cast %row : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%i, %j] : tensor<7x5xf32>
    linalg.yield %v : f32
  } -> tensor<4x5xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %z = scf.for %k = %c0 to %c3 step %c1 iter_args(%acc = %y) -> tensor<4x5xf32> {
    %n = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%acc, %y : tensor<4x5xf32>, tensor<4x5xf32>)
      outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
    scf.yield %n : tensor<4x5xf32>
  }
  return %z : tensor<4x5xf32>
}"""
    table, rows = random(7, 5), np.array([6, 0, 3, 3])
    (result,) = run(text, [table, rows], target)
    np.testing.assert_allclose(result, 4 * table[rows], rtol=1e-6)
    assert "generic" in kinds(text, target)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_is_one_kernel(target: CpuTarget) -> None:
    with mb.Graph("softmax") as graph:
        graph.result(mb.softmax(graph.input("x", (9, 100), "f32"), axis=-1), name="y")
    session = session_of(graph, target)
    assert [kernel.kind for kernel in session.variants[0].kernels] == ["rows"]
    x = random(9, 100)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(session(x), e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_kernels_of_constants_run_when_compiling() -> None:
    text = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %v = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %s = linalg.reduce ins(%v : tensor<2x3xf32>) outs(%f : tensor<3xf32>) dimensions = [0] (%a: f32, %b: f32) {
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  }
  %d = arith.constant dense<[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]> : tensor<3x3xf32>
  %m = linalg.vecmat ins(%s, %d : tensor<3xf32>, tensor<3x3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
  %y = linalg.elementwise kind=#linalg.elementwise_kind<mul> ins(%x, %m : tensor<3xf32>, tensor<3xf32>)
    outs(%e : tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}"""
    session = build(text, X86_64_V3)
    assert len(session.variants[0].kernels) == 1
    np.testing.assert_allclose(session(np.float32([1, 2, 3])), [10, 28, 54])


@pytest.mark.parametrize("target", TARGETS)
def test_constants_without_kernels_are_results_too(target: CpuTarget) -> None:
    text = """
func.func @main() -> (tensor<2x2xf32>, tensor<3xi64>) {
  %a = arith.constant dense<1.5> : tensor<4xf32>
  %b = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  %c = arith.constant dense<[1, 2, 3]> : tensor<3xi64>
  return %b, %c : tensor<2x2xf32>, tensor<3xi64>
}"""
    first, second = run(text, [], target)
    assert (first == 1.5).all() and second.tolist() == [1, 2, 3]


def test_results_of_undefined_contents_are_written() -> None:
    """Uninitialised tensors may be anything, but every call gives all of them."""
    text = """
    func.func @main(%x: tensor<?xf32>) -> (tensor<3x4xi1>, tensor<?xf32>, tensor<2x0xf32>) {
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %0 = tensor.empty() : tensor<3x4xi1>
      %1 = tensor.empty(%n) : tensor<?xf32>
      %2 = tensor.empty() : tensor<2x0xf32>
      return %0, %1, %2 : tensor<3x4xi1>, tensor<?xf32>, tensor<2x0xf32>
    }"""
    session = build(text, X86_64_V3)
    for count in (5, 0):
        assert [result.shape for result in session(random(count))] == [(3, 4), (count,), (2, 0)]
