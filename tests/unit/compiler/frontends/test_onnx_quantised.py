"""Products of bytes with zero points: right, and products of signed bytes still."""

import numpy as np
import pytest

import motet

onnx = pytest.importorskip("onnx")

KINDS = {np.int8: onnx.TensorProto.INT8, np.uint8: onnx.TensorProto.UINT8}


def _bytes(kind, *shape):
    info = np.iinfo(kind)
    return np.random.default_rng(len(shape)).integers(info.min, info.max + 1, shape).astype(kind)


def _model(a, b, zeros, version=17):
    """MatMulInteger of inputs like `a` and `b`; `zeros` are constants, None where a zero point is not given."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, KINDS[array.dtype.type], array.shape)
        for name, array in (("a", a), ("b", b))
    ]
    names = ["" if zero is None else f"z{number}" for number, zero in enumerate(zeros)]
    constants = [
        onnx.numpy_helper.from_array(zero, name) for zero, name in zip(zeros, names, strict=True) if zero is not None
    ]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    node = onnx.helper.make_node("MatMulInteger", ["a", "b", *names], ["y"])
    graph = onnx.helper.make_graph([node], "g", inputs, [output], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=9)


def _product(a, b, zeros):
    first, second = (np.zeros((), np.int64) if zero is None else zero.astype(np.int64) for zero in zeros)
    if first.ndim == 1:
        first = first[:, None]
    return (a.astype(np.int64) - first) @ (b.astype(np.int64) - second)


@pytest.mark.parametrize("kinds", [(np.int8, np.int8), (np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("given", ["none", "first", "second", "both", "rows and columns"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 13, 5), (33, 64, 17)])
def test_products_with_zero_points_are_exact(kinds, given, shape):
    rows, depth, columns = shape
    a, b = _bytes(kinds[0], rows, depth), _bytes(kinds[1], depth, columns)
    zeros = [
        {"none": None, "second": None, "rows and columns": _bytes(kinds[0], rows)}.get(given, np.array(101, kinds[0])),
        {"none": None, "first": None, "rows and columns": _bytes(kinds[1], columns)}.get(given, np.array(3, kinds[1])),
    ]
    session = motet.load(motet.compile(_model(a, b, zeros).SerializeToString()))
    np.testing.assert_array_equal(session(a, b), _product(a, b, zeros))


@pytest.mark.parametrize("version", [10, 13, 17])
def test_batches_with_zero_points_are_exact(version):
    a, b = _bytes(np.uint8, 2, 3, 5, 7), _bytes(np.int8, 3, 7, 4)
    zeros = [np.array(128, np.uint8), np.array(-7, np.int8)]
    session = motet.load(motet.compile(_model(a, b, zeros, version).SerializeToString()))
    np.testing.assert_array_equal(session(a, b), _product(a, b, zeros))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("given", [False, True])
def test_bytes_are_multiplied_as_bytes(kind, given):
    a = _bytes(kind, 64, 64)
    zeros = [np.array(5, kind)] * 2 if given else [None, None]
    artifact = motet.compile(_model(a, a, zeros).SerializeToString())
    kinds = {kernel.kind for variant in artifact.manifest.variants for kernel in variant.kernels}
    assert any(kind.startswith("integer product") for kind in kinds), kinds


def test_quotients_at_ties_are_rounded_as_their_own():
    """By a scale of all elements and one of each row: not as products with the scale's reciprocal."""
    random, kind = np.random.default_rng(0), onnx.TensorProto.FLOAT
    ends = random.uniform(0.1, 3, (33, 1)).astype(np.float32)
    x = ((random.integers(-126, 126, (33, 301)) + 0.5) * (ends / 127)).astype(np.float32)
    x[:, :1] = ends
    nodes = [
        onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["whole", "scale", "zero"]),
        onnx.helper.make_node("Abs", ["x"], ["sizes"]),
        onnx.helper.make_node("ReduceMax", ["sizes", "axes"], ["most"]),
        onnx.helper.make_node("Div", ["most", "steps"], ["scales"]),
        onnx.helper.make_node("Div", ["x", "scales"], ["quotients"]),
        onnx.helper.make_node("Round", ["quotients"], ["rows"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", kind, x.shape)],
        [onnx.helper.make_tensor_value_info("whole", onnx.TensorProto.UINT8, None),
         onnx.helper.make_tensor_value_info("rows", kind, None)],
        [onnx.numpy_helper.from_array(np.array([1]), "axes"),
         onnx.numpy_helper.from_array(np.array(127, np.float32), "steps")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    whole, rows = motet.load(motet.compile(model))(x)
    np.testing.assert_array_equal(rows, np.rint(x / (np.abs(x).max(1, keepdims=True) / np.float32(127))))
    scale = (x.max() - x.min()) / np.float32(255)
    np.testing.assert_array_equal(whole, np.clip(np.rint(x / scale) + np.rint(-x.min() / scale), 0, 255))
