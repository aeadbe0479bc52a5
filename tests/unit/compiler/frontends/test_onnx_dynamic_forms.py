"""Forms of ONNX operators that are written with others, over extents that only a call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet

RNG = np.random.default_rng(7)
Inputs = dict[str, tuple[np.ndarray, list[Any]]]


def model(
    op: str, inputs: Inputs, constants: dict[str, np.ndarray], order: list[str], result: list[Any], version: int,
    **attributes: Any,
) -> ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, (array, shape) in inputs.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(next(iter(inputs.values()))[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, order, ["y"], name="node", **attributes)], "g", infos,
        [helper.make_tensor_value_info("y", kind, result)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def check(whole: ModelProto, inputs: Inputs, tolerance: float = 1e-5) -> None:
    """For the arrays, and for their first half: extents are those of each call."""
    session = motet.load(motet.compile(whole, cache=False))
    for count in (2, 1):
        feeds = {name: array[:count] for name, (array, _) in inputs.items()}
        (wanted,) = ReferenceEvaluator(whole).run(None, feeds)
        found = session(*feeds.values())
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_a_batch_are_resampled(mode: str) -> None:
    inputs = {"x": (RNG.standard_normal((2, 3, 5, 4)).astype(np.float32), ["n", 3, 5, 4])}
    scales = {"s": np.array([1, 1, 2, 1.5], np.float32)}
    whole = model("Resize", inputs, scales, ["x", "", "s"], ["n", 3, 10, 6], 19, mode=mode,
                  coordinate_transformation_mode="half_pixel_symmetric")
    check(whole, inputs)


def test_groups_of_a_batch_are_normalised_far_from_zero() -> None:
    x = (1000 + RNG.standard_normal((2, 4, 31))).astype(np.float32)
    inputs = {"x": (x, ["n", 4, 31])}
    constants = {"s": np.array([2, 0.5], np.float32), "b": np.array([1, -1], np.float32)}
    whole = model("GroupNormalization", inputs, constants, ["x", "s", "b"], ["n", 4, 31], 18, num_groups=2)
    parts = x.astype(np.float64).reshape(2, 2, -1)
    unit = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    wanted = (unit * [[2.0], [0.5]] + [[1.0], [-1.0]]).reshape(x.shape)
    session = motet.load(motet.compile(whole, cache=False))
    np.testing.assert_allclose(session(x), wanted, rtol=0, atol=5e-4)
    np.testing.assert_allclose(session(x[:1]), wanted[:1], rtol=0, atol=5e-4)


def test_unsigned_numbers_of_a_batch_are_dequantised() -> None:
    inputs = {"x": (RNG.integers(0, 256, (2, 3, 5)).astype(np.uint8), ["n", 3, 5])}
    constants = {"s": np.array([0.5, 0.25, 2], np.float32), "z": np.array([0, 128, 255], np.uint8)}
    whole = model("DequantizeLinear", inputs, constants, ["x", "s", "z"], ["n", 3, 5], 21, axis=1)
    whole.graph.output[0].type.tensor_type.elem_type = 1
    check(whole, inputs)


def test_largest_unsigned_numbers_of_64_bits() -> None:
    x = np.array([[1, 2**63, 2**64 - 1, 5], [0, 2**63 - 1, 7, 2**63]], np.uint64)
    inputs = {"x": (x, ["n", 4])}
    whole = model("ReduceMax", inputs, {"a": np.array([1])}, ["x", "a"], ["n", 1], 20)
    session = motet.load(motet.compile(whole, cache=False))
    np.testing.assert_array_equal(session(x), [[2**64 - 1], [2**63]])


def test_averages_of_whole_windows_over_any_number_of_images() -> None:
    x = RNG.standard_normal((2, 3, 9, 8)).astype(np.float32)
    made = model(
        "AveragePool", {"x": (x, ["n", 3, 9, 8])}, {}, ["x"], [None] * 4, 19, kernel_shape=[2, 3], strides=[3, 2],
        pads=[1, 0, 0, 1], ceil_mode=1, count_include_pad=1,
    )
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op, attributes, what", [
    ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, "auto_pad"),
    ("LRN", {"size": 3}, "LRN over extents"),
])
def test_forms_that_depend_on_extents_of_a_call_are_refused(op: str, attributes: dict[str, Any], what: str) -> None:
    x = np.zeros((2, 3, 9, 8), np.float32)
    made = model(op, {"x": (x, ["n", 3, "h", "w"])}, {}, ["x"], [None] * 4, 19, **attributes)
    with pytest.raises(motet.errors.CompileError, match=what):
        motet.compile(made, devices="host")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis, keepdims", [(0, 1), (1, 0), (-1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_last_places_along_extents_of_a_call(op: str, axis: int, keepdims: int, dtype: type) -> None:
    x = RNG.integers(0, 3, (4, 5, 6)).astype(dtype)
    made = model(op, {"x": (x, ["n", "h", "w"])}, {}, ["x"], [None] * (2 + keepdims), 19, axis=axis,
                 keepdims=keepdims, select_last_index=1)  # fmt: skip
    made.graph.output[0].type.tensor_type.elem_type = 7
    check(made, {"x": (x, ["n", "h", "w"])})


@pytest.mark.parametrize("start, axis", [(100, 1), (2**31 - 1, 2), (-1, 1), (4, 1)])
def test_slices_from_beyond_the_end_backwards(start: int, axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    constants = {
        "s": np.array([start]), "e": np.array([-100]), "a": np.array([axis]), "t": np.array([-1]),
    }  # fmt: skip
    made = model("Slice", {"x": (x, ["n", 4, 5])}, constants, ["x", "s", "e", "a", "t"], [None] * 3, 13)
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_array_equal(np.asarray(got), np.flip(x, axis))


def test_slices_backwards_that_may_begin_outside_are_refused() -> None:
    constants = {"s": np.array([7]), "e": np.array([-100]), "a": np.array([0]), "t": np.array([-1])}
    x = np.zeros((3, 4, 5), np.float32)
    made = model("Slice", {"x": (x, ["n", 4, 5])}, constants, ["x", "s", "e", "a", "t"], [None] * 3, 13)
    with pytest.raises(motet.errors.CompileError, match="from element 7 backwards"):
        motet.compile(made, devices="host")


@pytest.mark.parametrize("op, attributes", [
    ("InstanceNormalization", {"epsilon": 0.1}), ("GroupNormalization", {"num_groups": 3}),
])
@pytest.mark.parametrize("dims", [["n", 6, "h", "w"], [2, 6, 5, "w"]])
def test_normalisations_of_images_of_any_size(op: str, attributes: dict[str, Any], dims: list[Any]) -> None:
    x = RNG.standard_normal((2, 6, 5, 7)).astype(np.float32)
    constants = {name: RNG.standard_normal(6).astype(np.float32) for name in "sb"}
    made = model(op, {"x": (x, dims)}, constants, ["x", "s", "b"], [None] * 4, 21, **attributes)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-5)


TO_THE_START, TO_THE_END = np.iinfo(np.int64).min, 1 << 62
SLICES = {
    "to the last": ([0], [-1], [0], [1]), "from behind": ([-1], [TO_THE_START], [0], [-1]),
    "between": ([1], [-1], [0], [1]), "the last two": ([-2], [TO_THE_END], [0], [1]),
    "both from behind": ([-1, -1], [TO_THE_START] * 2, [0, 1], [-1, -1]), "every other": ([0], [-1], [0], [2]),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_a_batch_that_count_from_its_end(name: str) -> None:
    whole = model(
        "Slice", {"x": (np.zeros((2, 3), np.float32), ["n", 3])},
        dict(zip("seat", (np.array(numbers, np.int64) for numbers in SLICES[name]), strict=True)),
        ["x", *"seat"], [None, 3], 13,
    )  # fmt: skip
    session = motet.load(motet.compile(whole, cache=False))
    slices = [slice(s, None if e == TO_THE_START else e, t) for s, e, _, t in zip(*SLICES[name], strict=True)]
    for rows in (0, 1, 2, 5, 8):
        x = RNG.standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(session(x), x[tuple(slices)])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def recurrence(op: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All states of one direction and the last, as ONNX's specification has them (operator set 14)."""
    hidden = r.shape[-1]
    state = np.zeros((x.shape[1], hidden))
    bw, br = np.split(b, 2)
    found: list[np.ndarray] = []
    for step in x.astype(np.float64):
        if op == "RNN":
            state = np.tanh(step @ w.T + bw + state @ r.T + br)
        else:
            wz, wr, wh = np.split(step @ w.T + bw, 3, -1)
            rz, rr, rh = np.split(state @ r.T + br, 3, -1)
            z = sigmoid(wz + rz)
            state = (1 - z) * np.tanh(wh + sigmoid(wr + rr) * rh) + z * state
        found.append(state)
    return np.stack(found), state


@pytest.mark.parametrize("op, parts", [("RNN", 1), ("GRU", 3)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dims", [["t", "n", 5], [4, "n", 5], ["t", 3, 5]], ids=["both", "batch", "time"])
def test_sequences_whose_length_and_batch_a_call_decides(
    op: str, parts: int, direction: str, dims: list[Any]
) -> None:
    ways = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}[direction]
    w, r, b = (
        RNG.standard_normal((len(ways), *shape)).astype(np.float32) / 2
        for shape in ((parts * 7, 5), (parts * 7, 7), (2 * parts * 7,))
    )
    before = helper.make_attribute("linear_before_reset", 1)
    nodes = [helper.make_node(op, ["x", "w", "r", "b"], ["y", "h"], name="node", hidden_size=7, direction=direction)]
    nodes[0].attribute.extend([before] if op == "GRU" else [])
    shapes: dict[str, list[Any]] = {
        "x": dims, "y": [dims[0], len(ways), dims[1], 7], "h": [len(ways), dims[1], 7],
    }  # fmt: skip
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in (("w", w), ("r", r), ("b", b))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = motet.load(motet.compile(whole, cache=False))
    for time, batch in ((4, 3), (6, 1), (1, 2)):
        extents = [size if isinstance(size, int) else other for size, other in zip(dims, (time, batch, 5), strict=True)]
        x = RNG.standard_normal(extents).astype(np.float32)
        y, h = session(x)
        for number, way in enumerate(ways):
            states, last = recurrence(op, x[::way], w[number], r[number], b[number])
            np.testing.assert_allclose(y[:, number], states[::way], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(h[number], last, rtol=1e-5, atol=1e-5)


def test_extents_that_are_known_beside_one_that_is_not() -> None:
    """Half of the last extent, which is known, as the end of a slice; of the batch as well, which is not."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "place"], ["last"], axis=0),
        helper.make_node("Div", ["last", "two"], ["half"]), helper.make_node("Unsqueeze", ["half", "zero"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "axis"], ["part"]),
        helper.make_node("Slice", ["shape", "zero", "ends"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["part", "wanted"], ["y"]),
    ]
    numbers = {"place": 2, "two": 2, "zero": [0], "axis": [2], "ends": [1], "rest": [-1]}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 3, 8])],
        [helper.make_tensor_value_info("y", 1, ["n", 12])],
        [numpy_helper.from_array(np.array(number, np.int64), name) for name, number in numbers.items()],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = motet.load(motet.compile(whole, cache=False))
    for count in (1, 5):
        x = RNG.standard_normal((count, 3, 8)).astype(np.float32)
        np.testing.assert_array_equal(session(x), x[:, :, :4].reshape(count, 12))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_images_of_half_precision_are_resampled(kind: type[np.floating[Any]]) -> None:
    x = RNG.standard_normal((2, 3, 5, 4)).astype(kind)
    inputs = {"x": (x, ["n", 3, 5, 4])}
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    whole = model("Resize", inputs, scales, ["x", "", "s"], ["n", 3, 10, 8], 17, mode="linear")
    check(whole, inputs, 2e-3 if kind is np.float16 else 1e-5)


def test_extents_of_what_is_reshaped_to_the_shape_of_another() -> None:
    """As groups of channels are normalised, and images padded to the size of others, by exporters."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("Relu", ["rows"], ["positive"]), helper.make_node("Reshape", ["positive", "shape"], ["image"]),
        helper.make_node("Shape", ["image"], ["known"]), helper.make_node("Gather", ["known", "three"], ["wide"]),
        helper.make_node("Sub", ["wide", "four"], ["more"]),
        helper.make_node("Concat", ["none", "more"], ["pads"], axis=0),
        helper.make_node("Pad", ["image", "pads"], ["padded"]),
        helper.make_node("Resize", ["padded", "", "scales"], ["y"], mode="linear"),
    ]
    numbers = {"flat": [0, 3, -1], "three": [3], "four": [4], "none": [0] * 7}
    constants = [numpy_helper.from_array(np.array(number, np.int64), name) for name, number in numbers.items()]
    constants.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 3, 4, 6])],
        [helper.make_tensor_value_info("y", 1, ["n", 3, 8, 16])], constants,
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    check(whole, {"x": (RNG.standard_normal((2, 3, 4, 6)).astype(np.float32), [])})
