"""What onnxruntime's optimiser and quantiser write, against numpy in float64; and random numbers by their seeds."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from tests.integration.onnx_nodes import Node, model_of, run

from motet.compiler.frontends.onnx.loading import load_onnx
from motet.errors import CallError, CompileError

RANDOM = np.random.default_rng(0)
CONTRIB = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def byte(value: int) -> np.ndarray:
    return np.array(value, np.uint8)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | float, *, centred: bool = True) -> np.ndarray:
    apart = x - x.mean(-1, keepdims=True) if centred else x
    return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray | float) -> np.ndarray:
    """Of heads; joined again."""
    scores = q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5 + added
    result = softmax(scores) @ v
    return result.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


def _fused() -> tuple[list[Node], list[np.ndarray]]:
    """Nodes, and what all their results must be."""
    x, y, bias, gamma, beta = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    a, b = floats(5, 2, 3), floats(2, 7, 3)
    image, filters = floats(1, 2, 4, 4), floats(3, 2, 1, 1)
    wide = x.astype(np.float64)
    nodes = [
        Node("BiasGelu", [x, bias], {}, CONTRIB), Node("QuickGelu", [x], {"alpha": 1.5}, CONTRIB),
        Node("FusedMatMul", [a, b], {"transBatchA": 1, "transB": 1, "alpha": 0.5}, CONTRIB),
        Node("FusedConv", [image, filters], {"activation": "Clip", "activation_params": [-0.5, 1.0]}, CONTRIB),
        Node("LayerNormalization", [x, gamma, beta], {"epsilon": 1e-5}, CONTRIB),
        Node("SimplifiedLayerNormalization", [x, gamma], {"epsilon": 1e-5}),
        Node("SkipLayerNormalization", [x, y, gamma, beta, bias], {"epsilon": 1e-5}, CONTRIB),
        Node("SkipSimplifiedLayerNormalization", [x, y, gamma], {"epsilon": 1e-5}, CONTRIB),
    ]  # fmt: skip
    product = np.einsum("mbk,bnk->bmn", a, b) * 0.5
    convolved = np.clip(np.einsum("bchw,oc->bohw", image, filters[:, :, 0, 0]), -0.5, 1)
    expected = [
        gelu(wide + bias), wide / (1 + np.exp(-1.5 * wide)), product, convolved, normalised(wide, gamma, beta),
        normalised(wide, gamma, 0, centred=False), normalised(wide + y + bias, gamma, beta),
        normalised(wide + y, gamma, 0, centred=False),
    ]  # fmt: skip
    return nodes, expected


def test_fused_operators() -> None:
    nodes, expected = _fused()
    model, given = model_of(nodes, com_microsoft=1)
    model.opset_import.append(onnx.helper.make_opsetid("", 13))  # which has no LayerNormalization
    for node, found, wanted in zip(nodes, run(model, given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=node.operator)


def test_fused_attention() -> None:
    x, weights, bias = floats(2, 4, 8), floats(8, 24), floats(24)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    q, k, v, past = floats(2, 2, 8), floats(2, 2, 4), floats(2, 2, 4), [floats(2, 1, 3, 4) for _ in range(2)]
    nodes = [
        Node("Attention", [x, weights, bias, mask], {"num_heads": 2, "unidirectional": 1}, CONTRIB),
        Node("MultiHeadAttention", [x, x, x, bias], {"num_heads": 2}, CONTRIB),
        Node("GroupQueryAttention", [q, k, v, *past, np.array([4, 4], np.int32), np.array(5, np.int32)],
             {"num_heads": 2, "kv_num_heads": 1}, CONTRIB, 3),
    ]  # fmt: skip
    model, given = model_of(nodes, com_microsoft=1)
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    own, several, grouped, keys, values = run(model, given)
    parts = [heads(part, 2) for part in np.split(x.astype(np.float64) @ weights + bias, 3, axis=2)]
    future = np.where(np.tri(4, dtype=np.bool_), 0, -np.inf)
    np.testing.assert_allclose(own, attention(*parts, future + (mask[:, None, None] - 1) * 1e4), rtol=1e-4, atol=1e-5)
    biased = [heads(x.astype(np.float64) + part, 2) for part in np.split(bias, 3)]
    np.testing.assert_allclose(several, attention(*biased, 0), rtol=1e-4, atol=1e-5)
    all_keys, all_values = (np.concatenate([old, heads(new, 1)], 2) for old, new in zip(past, (k, v), strict=True))
    np.testing.assert_allclose(keys, all_keys)
    np.testing.assert_allclose(values, all_values)
    seen = np.where(np.arange(5) <= np.arange(3, 5)[:, None], 0, -np.inf)
    wanted = attention(heads(q.astype(np.float64), 2), all_keys.repeat(2, 1), all_values.repeat(2, 1), seen)
    np.testing.assert_allclose(grouped, wanted, rtol=1e-4, atol=1e-5)
    given["x2_5"] = np.array([4, 3], np.int32)
    with pytest.raises(CallError, match="seqlens_k of every row must be the number of the last key"):
        run(model, given)


def test_quantised_operators() -> None:
    a, b = (RANDOM.integers(0, 256, shape).astype(np.uint8) for shape in ((3, 4), (3, 4)))
    x, packed = floats(3, 20), RANDOM.integers(0, 256, (5, 2, 8)).astype(np.uint8)
    scales, zeros = np.abs(floats(10)), RANDOM.integers(0, 256, 5).astype(np.uint8)
    of_a, of_b, of_y = [scale(0.1), byte(3)], [scale(0.2), byte(100)], [scale(0.3), byte(60)]
    nodes = [
        Node("QLinearAdd", [a, *of_a, b, *of_b, *of_y], {}, CONTRIB),
        Node("QLinearMul", [a, *of_a, b, *of_b, *of_y], {}, CONTRIB),
        Node("QLinearSigmoid", [a, *of_a, scale(1 / 256), byte(0)], {}, CONTRIB),
        Node("QLinearConcat", [*of_y, a, *of_a, b, *of_b], {"axis": 1}, CONTRIB),
        Node("MatMulNBits", [x, packed, scales, zeros], {"K": 20, "N": 5, "bits": 4, "block_size": 16}, CONTRIB, 1,
             (1, 2, 3)),
        Node("MatMulIntegerToFloat", [a, b.T.copy(), of_a[0], of_b[0], of_a[1], of_b[1]], {}, CONTRIB),
    ]  # fmt: skip
    model, given = model_of(nodes, com_microsoft=1)
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    found = run(model, given)
    real_a, real_b = (a.astype(np.float64) - 3) * 0.1, (b.astype(np.float64) - 100) * 0.2
    sigmoid = np.clip(np.rint(256 / (1 + np.exp(-real_a))), 0, 255)
    joined = np.concatenate([real_a, real_b], 1)
    quantised = [np.clip(np.rint(value / 0.3) + 60, 0, 255) for value in (real_a + real_b, real_a * real_b, joined)]
    for one, wanted in zip(found[:4], [*quantised[:2], sigmoid, quantised[2]], strict=True):
        np.testing.assert_allclose(one.astype(np.float64), wanted, atol=1)  # a half may be rounded either way
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(5, 2, 16).astype(np.float64)
    shifts = np.stack([zeros & 15, zeros >> 4], -1).reshape(5, 2, 1)
    weights = ((halves - shifts) * scales.reshape(5, 2, 1)).reshape(5, 32)[:, :20]
    np.testing.assert_allclose(found[4], x @ weights.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found[5], real_a @ real_b.T, rtol=1e-5, atol=1e-4)


def test_random_numbers_are_those_of_the_seed() -> None:
    """Of numpy's generator where extents are known; of a hash where they are not, whose moments are looked at."""
    x, many = floats(3, 5), np.full((1, 20_000), 0.3, np.float32)
    training, ratio = np.array(True), np.array(0.25, np.float32)
    nodes = [
        Node("Dropout", [x, ratio, training], {"seed": 5}, results=2),
        Node("RandomUniform", [], {"seed": 3.0, "shape": [2, 3], "low": -1.0, "high": 2.0}),
        Node("RandomNormalLike", [x], {"seed": 3.0, "mean": 1.0, "scale": 0.5}),
        Node("Bernoulli", [many], {}), Node("RandomNormalLike", [many], {}),
        Node("Multinomial", [np.log(np.array([[0.2, 0.5, 0.3]], np.float32))], {"sample_size": 4000}),
    ]  # fmt: skip
    model, given = model_of(nodes)
    model.opset_import.append(onnx.helper.make_opsetid("", 22))
    for number in (4, 5):
        model.graph.input[number].type.tensor_type.shape.dim[1].dim_param = f"n{number}"
    dropped, kept, uniform, normal, drawn, hashed, classes = run(model, given)
    mask = np.random.RandomState(5).uniform(0, 1, x.shape) >= 0.25
    np.testing.assert_array_equal(kept, mask)
    np.testing.assert_allclose(dropped, mask * x / 0.75, rtol=1e-5)
    np.testing.assert_allclose(uniform, np.random.RandomState(3).rand(2, 3) * 3 - 1, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(normal, np.random.RandomState(3).randn(3, 5) * 0.5 + 1, rtol=1e-5, atol=1e-6)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert abs(drawn.mean() - 0.3) < 0.02
    assert abs(hashed.mean()) < 0.03
    assert abs(hashed.std() - 1) < 0.03
    assert abs(np.corrcoef(hashed[0, 1:], hashed[0, :-1])[0, 1]) < 0.03
    np.testing.assert_allclose(np.bincount(classes[0], minlength=3) / 4000, [0.2, 0.5, 0.3], atol=0.04)


def test_known_conditions_and_batched_scans() -> None:
    """A branch whose result has another rank than the other one, and Scan of operator set 8, backwards."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [helper.make_empty_tensor_value_info(op)])
        for op in ("Squeeze", "Identity")
    ]
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["d"]),
             helper.make_node("Equal", ["d", "one"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]  # fmt: skip
    constants = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in (("zero", 0), ("one", 1))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, [1, 3])],
                              [helper.make_empty_tensor_value_info("y")], constants)  # fmt: skip
    x = floats(1, 3)
    opsets = [helper.make_opsetid("", 13)]
    np.testing.assert_array_equal(run(helper.make_model(graph, opset_imports=opsets, ir_version=9), {"x": x})[0], x[0])

    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])], "b",
        [helper.make_tensor_value_info(name, kind, [2]) for name in "ab"],
        [helper.make_tensor_value_info(name, kind, [2]) for name in "cd"],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["", "i", "x"], ["y", "z"], "scan", num_scan_inputs=1, body=body, directions=[1])
    start, x = floats(2, 2), floats(2, 3, 2)
    graph = helper.make_graph([scan], "g", [helper.make_tensor_value_info("i", kind, [2, 2]),
                                            helper.make_tensor_value_info("x", kind, [2, 3, 2])],
                              [helper.make_empty_tensor_value_info(name) for name in "yz"])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    last, all_ = run(model, {"i": start, "x": x})
    sums = start[:, None] + np.cumsum(x[:, ::-1], 1)
    np.testing.assert_allclose(all_, sums, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, sums[:, -1], rtol=1e-5, atol=1e-6)


def test_products_along_axes() -> None:
    x = floats(2, 7, 5)
    nodes = [Node("ReduceProd", [x, np.array(axes)], {"keepdims": keep}, fixed=(1,))
             for axes, keep in (([1], 1), ([-1, 0], 0), ([0, 1, 2], 1))]  # fmt: skip
    model, given = model_of(nodes)
    model.opset_import.append(onnx.helper.make_opsetid("", 18))
    expected = [x.prod(1, keepdims=True), x.prod((0, 2)), x.prod(keepdims=True)]
    for found, wanted in zip(run(model, given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_optional_tensors_are_tensors() -> None:
    helper = onnx.helper
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [4]))
    nodes = [helper.make_node("OptionalGetElement", ["x"], ["y"]), helper.make_node("OptionalHasElement", ["x"], ["h"]),
             helper.make_node("Optional", [], ["none"], type=kind.optional_type.elem_type),
             helper.make_node("OptionalHasElement", ["none"], ["n"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("x", kind)],
                              [helper.make_empty_tensor_value_info(name) for name in "yhn"])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = floats(4)
    same, has, none = run(model, {"x": x})
    np.testing.assert_array_equal(same, x)
    assert (has, none) == (True, False)


@pytest.mark.parametrize(("node", "what"), [
    (Node("MatMulNBits", [floats(2, 4), np.zeros((3, 1, 8), np.uint8), floats(3)], {"K": 4, "N": 3, "block_size": 16},
          CONTRIB), "MatMulNBits of weights that a call gives is not supported; expected an initializer"),
    (Node("CDist", [floats(2, 4), floats(2, 4)], {"metric": "cosine"}, CONTRIB), "CDist with metric cosine"),
    (Node("FusedConv", [floats(1, 2, 4, 4), floats(3, 2, 1, 1)], {"activation": "Erf"}, CONTRIB), "activation Erf"),
])  # fmt: skip
def test_what_is_not_supported_is_named(node: Node, what: str) -> None:
    model, _ = model_of([node], com_microsoft=1)
    with pytest.raises(CompileError, match=f"node '{node.operator}0': .*{what}"):
        load_onnx(model.SerializeToString(), "m.onnx")
