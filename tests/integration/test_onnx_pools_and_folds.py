"""Windows with gaps over padding that counts, and constants that are not computed by formulas that cancel."""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import motet

POOLS = [
    ((1, 1, 3), [2], [3], [0, 1]), ((1, 2, 5), [2], [3], [0, 1]), ((2, 1, 9), [3], [2], [2, 1]),
    ((1, 1, 5, 4), [2, 2], [3, 1], [0, 0, 1, 1]), ((1, 1, 7, 6), [2, 3], [2, 2], [1, 2, 1, 2]),
]


def _compiled(model: onnx.ModelProto) -> motet.Session:
    return motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))


def test_average_pools_with_gaps_count_their_padding() -> None:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape, *_ in POOLS]
    kind = onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node(
            "AveragePool", [f"x{n}"], [f"y{n}"], kernel_shape=kernel, dilations=dilations, pads=pads,
            count_include_pad=1,
        )
        for n, (_, kernel, dilations, pads) in enumerate(POOLS)
    ]
    graph = onnx.helper.make_graph(
        nodes, "main", [onnx.helper.make_tensor_value_info(f"x{n}", kind, x.shape) for n, x in enumerate(inputs)],
        [onnx.helper.make_tensor_value_info(f"y{n}", kind, None) for n in range(len(POOLS))],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    expected = ReferenceEvaluator(model).run(None, {f"x{n}": x for n, x in enumerate(inputs)})
    for pool, found, wanted in zip(POOLS, _compiled(model)(*inputs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=str(pool))


def test_constants_are_folded_by_no_formula_that_overflows() -> None:
    x = np.array([[0.0, -112.0, 90.0], [111.0, 0.5, -90.0]], np.float32)
    nodes = [onnx.helper.make_node(op, ["x"], [op]) for op in ("LogSoftmax", "Mish")]
    nodes.append(onnx.helper.make_node("ReduceLogSumExp", ["x"], ["ReduceLogSumExp"], keepdims=0))
    graph = onnx.helper.make_graph(
        nodes, "main", [], [
            onnx.helper.make_tensor_value_info(node.op_type, onnx.TensorProto.FLOAT, None) for node in nodes
        ], [onnx.numpy_helper.from_array(x, "x")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    log_softmax, mish, sum_exp = _compiled(model)()
    wide = x.astype(np.float64)
    most = wide.max(-1, keepdims=True)
    sums = np.exp(wide - most).sum(-1, keepdims=True)
    np.testing.assert_allclose(log_softmax, wide - most - np.log(sums), 1e-6, 1e-6)
    np.testing.assert_allclose(mish, wide * np.tanh(np.logaddexp(wide, 0)), 1e-6, 1e-36)
    np.testing.assert_allclose(sum_exp, wide.max() + np.log(np.exp(wide - wide.max()).sum()), 1e-6)


def test_pools_of_constants_are_padded_where_their_axes_are() -> None:
    """Beside the same pool of an operand."""
    x = np.random.default_rng(1).integers(0, 200, (1, 2, 3, 4), np.uint8)
    windows = [([2, 1], [0, 0, 1, 0]), ([2, 3], [1, 0, 0, 2]), ([1, 2], [0, 1, 0, 0])]
    nodes = [
        onnx.helper.make_node("MaxPool", [source], [f"{source}{n}"], kernel_shape=kernel, pads=pads)
        for n, (kernel, pads) in enumerate(windows) for source in ("given", "constant")
    ]
    graph = onnx.helper.make_graph(
        nodes, "main", [onnx.helper.make_tensor_value_info("given", onnx.TensorProto.UINT8, x.shape)],
        [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UINT8, None) for node in nodes],
        [onnx.numpy_helper.from_array(x, "constant")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    found = _compiled(model)(x)
    for (kernel, pads), pooled, folded in zip(windows, found[::2], found[1::2], strict=True):
        padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
        wanted = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3)).max((4, 5))
        np.testing.assert_array_equal(pooled, wanted)
        np.testing.assert_array_equal(folded, wanted)
