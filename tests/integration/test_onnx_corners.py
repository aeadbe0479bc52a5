"""Forms of ONNX operators at the corners of their attributes, against ONNX Runtime, or numpy where it lacks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

HELD = np.random.default_rng(3)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model_of(node: Any, x: np.ndarray, held: dict[str, np.ndarray], opset: int) -> bytes:
    h = onnx.helper
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info("x", h.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [h.make_value_info(name, onnx.TypeProto()) for name in node.output],
        [onnx.numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, data_prop=True).SerializeToString()


def motets(model: bytes, x: np.ndarray) -> list[np.ndarray]:
    with motet.load(motet.compile(model, cache=False)) as session:
        found = session.main(x)
    return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


def runtimes(model: bytes, x: np.ndarray) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'motet[onnxruntime]'")
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})


def agree(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert [each.shape for each in found] == [each.shape for each in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
def test_images_that_keep_their_ratio(policy: str) -> None:
    x = HELD.standard_normal((1, 2, 4, 6)).astype(np.float32)
    node = onnx.helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=[2, 3],
                                 keep_aspect_ratio_policy=policy)  # fmt: skip
    model = model_of(node, x, {"sizes": np.array([7, 8])}, 19)
    agree(motets(model, x), runtimes(model, x))


@pytest.mark.every
@pytest.mark.parametrize("region", [[0.4, -0.2, 0.6, 0.8], [0.0, 0.0, 1.0, 1.0], [-0.5, 0.1, 0.7, 1.6]])
def test_regions_beyond_the_image(region: list[float]) -> None:
    x = HELD.standard_normal((5, 6)).astype(np.float32)
    node = onnx.helper.make_node(
        "Resize", ["x", "roi", "", "sizes"], ["y"], mode="linear", extrapolation_value=10.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    model = model_of(node, x, {"roi": np.array(region, np.float32), "sizes": np.array([4, 7])}, 13)
    agree(motets(model, x), runtimes(model, x))


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 2, 1]])
def test_places_of_the_largest(pads: list[int]) -> None:
    x = HELD.standard_normal((2, 3, 7, 8)).astype(np.float32)
    node = onnx.helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[3, 2], strides=[2, 1], pads=pads)
    model = model_of(node, x, {}, 13)
    agree(motets(model, x), runtimes(model, x))


@pytest.mark.parametrize("sides", [(7, 5), (2, 9), (3, -1), (0, 4)])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_reflections_of_reflections(count: int, sides: tuple[int, int]) -> None:
    x = np.arange(count, dtype=np.float32)
    node = onnx.helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")
    cut = x[: count + min(0, sides[1])]
    expected = np.pad(cut, [(sides[0], max(0, sides[1]))], "reflect")
    agree(motets(model_of(node, x, {"pads": np.array(sides)}, 18), x), [expected])


@pytest.mark.parametrize("kind", GATES)
def test_batches_first_in_both_directions(kind: str) -> None:
    steps, batch, inputs, hidden, gates = 5, 2, 3, 4, GATES[kind]
    x = HELD.standard_normal((steps, batch, inputs)).astype(np.float32)
    held = {
        "W": HELD.standard_normal((2, gates * hidden, inputs)).astype(np.float32),
        "R": HELD.standard_normal((2, gates * hidden, hidden)).astype(np.float32),
        "B": HELD.standard_normal((2, 2 * gates * hidden)).astype(np.float32),
        "h": HELD.standard_normal((2, batch, hidden)).astype(np.float32),
    }
    names = ["x", "W", "R", "B", "", "h"]
    if kind == "LSTM":
        held["c"] = HELD.standard_normal((2, batch, hidden)).astype(np.float32)
        names.append("c")

    def node(layout: int) -> Any:
        return onnx.helper.make_node(kind, names, ["y", "last"], hidden_size=hidden, direction="bidirectional",
                                     **({"layout": 1} if layout else {}))  # fmt: skip

    every, last = runtimes(model_of(node(0), x, held, 14), x)
    turned = held | {name: held[name].swapaxes(0, 1).copy() for name in ("h", "c") if name in held}
    first = x.swapaxes(0, 1).copy()
    agree(motets(model_of(node(1), first, turned, 14), first), [every.transpose(2, 0, 1, 3), last.swapaxes(0, 1)])


def dynamic(node: Any, results: list[int], opset: int = 18, **inputs: tuple[type, list[Any]]) -> bytes:
    """A model of one node whose results have `results` as element types."""
    h = onnx.helper
    types = {name: (h.np_dtype_to_tensor_dtype(np.dtype(kind)), shape) for name, (kind, shape) in inputs.items()}
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info(name, *kind) for name, kind in types.items()],
        [h.make_tensor_value_info(name, kind, None) for name, kind in zip(node.output, results, strict=True)],
    )  # fmt: skip
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9).SerializeToString()


def same_in_calls(model: bytes, calls: list[dict[str, np.ndarray]]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'motet[onnxruntime]'")
    runtime = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with motet.load(motet.compile(model, cache=False)) as session:
        for given in calls:
            found = [np.asarray(each) for each in session.main(*given.values())]
            expected = runtime.run(None, given)
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("axis", "shape"), [(0, ("n",)), (1, ("b", "n", 3)), (-2, ("n", 5))])
def test_the_first_along_a_dynamic_axis(axis: int, shape: tuple[Any, ...], held: bool, largest: int) -> None:
    """`held`: the model has the number of elements, else each call gives it."""
    node = onnx.helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=axis, largest=largest)
    model = dynamic(node, [1, 7], x=(np.float32, list(shape)), k=(np.int64, [1]))
    if held:
        proto = onnx.ModelProto.FromString(model)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "k"))
        del proto.graph.input[1]
        model = proto.SerializeToString()
    calls = list[dict[str, np.ndarray]]()
    for extent, count in ((2, 2), (3, 0), (17, 1), (64, 64), (129, 50)):
        x = HELD.integers(-9, 9, [{"n": extent, "b": 2}.get(each, each) for each in shape]).astype(np.float32)
        calls.append({"x": x} if held else {"x": x, "k": np.array([count])})
    same_in_calls(model, calls)
    x = np.ones([{"n": 1, "b": 2}.get(each, each) for each in shape], np.float32)
    with motet.load(motet.compile(model, cache=False)) as session, pytest.raises(motet.CallError, match="TopK"):
        session.main(*[x] if held else [x, np.array([2])])


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_different_elements_of_dynamic_extents(axis: int | None, dtype: type, ordered: int) -> None:
    along = {} if axis is None else {"axis": axis}
    node = onnx.helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=ordered, **along)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shapes = [(1, 2), (4, 2), (2, 17), (33, 3), *([(0, 2)] if axis != 1 else [(2, 0)])]
    same_in_calls(dynamic(node, [kind, 7, 7, 7], x=(dtype, ["n", "m"])),
                  [{"x": HELD.integers(0, 3, shape).astype(dtype)} for shape in shapes])  # fmt: skip


@pytest.mark.parametrize(("axis", "shape"), [(None, [1]), (None, [1, 1]), (None, []), (0, [1, 3]), (1, ["n", 1])])
def test_one_element_is_different(axis: int | None, shape: list[int | str]) -> None:
    along = {} if axis is None else {"axis": axis}
    node = onnx.helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], **along)
    x = HELD.integers(0, 3, [4 if isinstance(each, str) else each for each in shape])
    same_in_calls(dynamic(node, [7, 7, 7, 7], x=(np.int64, shape)), [{"x": x}])
