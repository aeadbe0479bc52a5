"""Loops over tensors with products in their bodies, against numpy in f64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet

pytestmark = pytest.mark.usefixtures("all_levels")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RANDOM = np.random.default_rng(11)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def layer(op: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """All states, and the last ones, of one direction: ONNX's equations, with the reset gate before the product."""
    size = r.shape[1]
    h = c = np.zeros((x.shape[1], size))
    bx, bh = b[: len(w)], b[len(w) :]
    states: list[np.ndarray] = []
    for each in x:
        p, q = each @ w.T + bx, h @ r.T + bh
        if op == "RNN":
            h = np.tanh(p + q)
        elif op == "GRU":
            z, s = (sigmoid(p[:, i * size : (i + 1) * size] + q[:, i * size : (i + 1) * size]) for i in range(2))
            n = np.tanh(p[:, 2 * size :] + (s * h) @ r[2 * size :].T + bh[2 * size :])
            h = (1 - z) * n + z * h
        else:
            i, o, f, g = np.split(p + q, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return [np.stack(states), h, c] if op == "LSTM" else [np.stack(states), h]


def expected(op: str, direction: str, x: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
    found: list[list[np.ndarray]] = []
    for number in range(len(weights[0])):
        back = direction == "reverse" or number == 1
        own = layer(op, (x[::-1] if back else x).astype(float), *(each[number].astype(float) for each in weights))
        found.append([own[0][::-1] if back else own[0], *own[1:]])
    sequences, *states = zip(*found, strict=True)
    return [np.stack(sequences, axis=1), *(np.stack(each) for each in states)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "direction", "known", "shapes"),
    [
        ("LSTM", "bidirectional", False, [(37, 3), (1, 1), (300, 2)]),
        ("LSTM", "forward", True, [(301, 5)]),
        ("GRU", "reverse", False, [(129, 1), (2, 7)]),
        ("GRU", "forward", True, [(113, 2)]),
        ("RNN", "bidirectional", True, [(255, 1)]),
    ],
)
def test_many_steps(op: str, direction: str, known: bool, shapes: list[tuple[int, int]]) -> None:
    features, size = (int(n) for n in RANDOM.integers(1, 70, 2))
    count = 2 if direction == "bidirectional" else 1
    rows, bound = GATES[op] * size, 1 / math.sqrt(size)
    extents = ((count, rows, features), (count, rows, size), (count, 2 * rows))
    weights = [RANDOM.uniform(-bound, bound, shape).astype(np.float32) for shape in extents]
    results = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w", "r", "b"], results, hidden_size=size, direction=direction)], "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*(shapes[0] if known else ("t", "n")), features])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(array, name) for array, name in zip(weights, "wrb", strict=True)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = motet.load(motet.compile(onnx.shape_inference.infer_shapes(proto)), threads=1)
    for shape in shapes:
        x = RANDOM.standard_normal((*shape, features)).astype(np.float32)
        for own, other in zip(session(x), expected(op, direction, x, weights), strict=True):
            np.testing.assert_allclose(own, other, atol=5e-6, err_msg=f"{op} {features} to {size}, {shape}")


# The elements of %x are no neighbours in memory; the last two states are carried as a pair that moves on.
SECOND_ORDER = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<{B}x?x{K}x{T}>, %w: tensor<{K}x{N}x{T}>, %r: tensor<{N}x{N}x{T}>, %h: tensor<{B}x{N}x{T}>,
    %g: tensor<{B}x{N}x{T}>) -> (tensor<{B}x?x{N}x{T}>, tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {T}
  %steps = tensor.dim %x, %c1 : tensor<{B}x?x{K}x{T}>
  %empty = tensor.empty(%steps) : tensor<{B}x?x{N}x{T}>
  %small = tensor.empty() : tensor<{B}x{N}x{T}>
  %f = linalg.fill ins(%zero : {T}) outs(%small : tensor<{B}x{N}x{T}>) -> tensor<{B}x{N}x{T}>
  %y:3 = scf.for %t = %c0 to %steps step %c1 iter_args(%o = %empty, %u = %h, %v = %g)
      -> (tensor<{B}x?x{N}x{T}>, tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>) {{
    %e = tensor.extract_slice %x[0, %t, 0] [{B}, 1, {K}] [1, 1, 1] : tensor<{B}x?x{K}x{T}> to tensor<{B}x{K}x{T}>
    %p = linalg.matmul ins(%e, %w : tensor<{B}x{K}x{T}>, tensor<{K}x{N}x{T}>) outs(%f : tensor<{B}x{N}x{T}>)
      -> tensor<{B}x{N}x{T}>
    %q = linalg.matmul ins(%u, %r : tensor<{B}x{N}x{T}>, tensor<{N}x{N}x{T}>) outs(%f : tensor<{B}x{N}x{T}>)
      -> tensor<{B}x{N}x{T}>
    %n = linalg.generic {{indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}}
        ins(%p, %q, %v : tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>)
        outs(%small : tensor<{B}x{N}x{T}>) {{
    ^bb0(%i: {T}, %j: {T}, %k: {T}, %out: {T}):
      %s = arith.addf %i, %j : {T}
      %d = arith.subf %s, %k : {T}
      %a = math.tanh %d : {T}
      linalg.yield %a : {T}
    }} -> tensor<{B}x{N}x{T}>
    %z = tensor.insert_slice %n into %o[0, %t, 0] [{B}, 1, {N}] [1, 1, 1]
      : tensor<{B}x{N}x{T}> into tensor<{B}x?x{N}x{T}>
    scf.yield %z, %n, %u : tensor<{B}x?x{N}x{T}>, tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>
  }}
  return %y#0, %y#1, %y#2 : tensor<{B}x?x{N}x{T}>, tensor<{B}x{N}x{T}>, tensor<{B}x{N}x{T}>
}}
"""


@pytest.mark.parametrize(
    ("dtype", "kind", "tolerance", "batch"),
    [("f64", np.float64, 1e-12, 3), ("f32", np.float32, 1e-5, 17), ("bf16", ml_dtypes.bfloat16, 0.1, 1)],
)
def test_a_loop_written_by_hand(dtype: str, kind: type, tolerance: float, batch: int) -> None:
    k, n = (int(each) for each in RANDOM.integers(9, 80, 2))
    session = motet.load(motet.compile(SECOND_ORDER.format(B=batch, K=k, N=n, T=dtype)), threads=1)
    w, r = (RANDOM.uniform(-1, 1, shape).astype(kind) / kind(math.sqrt(n)) for shape in ((k, n), (n, n)))
    for steps in (9, 40, 1, 0):
        x = RANDOM.uniform(-1, 1, (batch, steps, k)).astype(kind)
        h, g = (RANDOM.uniform(-1, 1, (batch, n)).astype(kind) for _ in range(2))
        u, v = h.astype(float), g.astype(float)
        states: list[np.ndarray] = []
        for t in range(steps):
            u, v = np.tanh(x[:, t].astype(float) @ w.astype(float) + u @ r.astype(float) - v), u
            states.append(u)
        whole = np.stack(states, axis=1) if steps else np.zeros((batch, 0, n))
        for own, other in zip(session(x, w, r, h, g), (whole, u, v), strict=True):
            np.testing.assert_allclose(
                np.asarray(own, float), other, atol=tolerance, err_msg=f"{dtype} {k} to {n}, {batch}x{steps}"
            )


def test_equal_layers_share_code() -> None:
    """Four layers of one network, three of equal shape: two loops have code."""
    random = np.random.default_rng(23)
    length, sizes = 40, [10, 10, 10, 13]
    nodes, values, previous, wide = [], [], "x", 10
    reference = x = random.standard_normal((length, 3, 10)).astype(np.float32)
    for number, size in enumerate(sizes):
        w, r, b = (
            (random.standard_normal(shape) / 4).astype(np.float32)
            for shape in ((1, 4 * size, wide), (1, 4 * size, size), (1, 8 * size))
        )
        named = {f"w{number}": w, f"r{number}": r, f"b{number}": b}
        values += [numpy_helper.from_array(array, name) for name, array in named.items()]
        nodes.append(helper.make_node("LSTM", [previous, *named], [f"s{number}"], hidden_size=size))
        nodes.append(helper.make_node("Squeeze", [f"s{number}", "axis"], [f"y{number}"]))
        reference = expected("LSTM", "forward", reference, [w, r, b])[0][:, 0]
        previous, wide = f"y{number}", size
    values.append(numpy_helper.from_array(np.array([1]), "axis"))
    graph = helper.make_graph(
        nodes, "layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [length, 3, 10])],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, [length, 3, 13])], values,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    artifact = motet.compile(model.SerializeToString(), devices="host{cpu=x86-64-v3}", cache=False)
    loops = [kernel.name for kernel in artifact.manifest.variants[0].kernels if kernel.kind == "generic"]
    assert len(loops) == len(sizes)
    commands = artifact.manifest.variants[0].schedules["main"].commands
    assert len({command.kernel for command in commands} & set(loops)) == 2
    np.testing.assert_allclose(motet.load(artifact)(x), reference, rtol=1e-4, atol=1e-5)
