"""Operators of ONNX that are written with others: many forms in each compiled model, against numpy or the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError

RNG = np.random.default_rng(3)
Arrays = dict[str, np.ndarray]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Forms:
    """A model that grows by one node for each form."""

    def __init__(self, version: int, **domains: int) -> None:
        self.opsets = [helper.make_opsetid("", version)]
        self.opsets += [helper.make_opsetid(name.replace("_", "."), number) for name, number in domains.items()]
        self.nodes: list[NodeProto] = []
        self.inputs: Arrays = {}
        self.constants: Arrays = {}
        self.outputs: list[Any] = []

    def add(
        self, op: str, inputs: list[np.ndarray | None], constants: Sequence[np.ndarray | None] = (),
        result: tuple[int, ...] | None = None, domain: str = "", count: int = 1, **attributes: Any,
    ) -> None:  # fmt: skip
        """`inputs`, which the call gives, come before `constants`; None is an input that is left out."""
        number, arrays = len(self.nodes), [*inputs, *constants]
        names = [f"x{number}.{place}" if array is not None else "" for place, array in enumerate(arrays)]
        for place, array in enumerate(arrays):
            if array is not None:
                (self.inputs if place < len(inputs) else self.constants)[names[place]] = array
        outputs = [f"y{number}.{each}" for each in range(count)]
        node = helper.make_node(op, names, outputs, f"node{number}", domain=domain, **attributes)
        self.nodes.append(node)
        kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype) if inputs[0] is not None else 0
        self.outputs += [
            helper.make_empty_tensor_value_info(name) if result is None
            else helper.make_tensor_value_info(name, kind, result) for name in outputs
        ]  # fmt: skip

    def model(self) -> ModelProto:
        infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                 for name, array in self.inputs.items()]  # fmt: skip
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "g", infos, self.outputs, constants)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=10)

    def check(self, wanted: list[np.ndarray] | None = None, tolerance: float = 1e-5) -> None:
        whole = self.model()
        if wanted is None:
            wanted = ReferenceEvaluator(whole).run(None, self.inputs)
        found = motet.load(motet.compile(whole, cache=False))(*self.inputs.values())
        results = found if isinstance(found, tuple) else (found,)
        for number, (one, other) in enumerate(zip(results, wanted, strict=True)):
            assert one.dtype == other.dtype
            scale = np.abs(other[np.isfinite(other)]).max(initial=0)
            np.testing.assert_allclose(one, other, tolerance, tolerance * scale, err_msg=self.outputs[number].name)


def complex_pairs(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1).astype(np.float32)


SHORT = [
    ((2, 7, 3, 2), 9, 1, 0, 0), ((5, 2, 1), 4, 0, 0, 1), ((2, 5, 2), 8, -2, 1, 1), ((1, 1, 2), 1, 1, 1, 0),
]  # fmt: skip
LONG = [((2, 1024, 1), 1024, 1, 0, 1), ((1, 1031, 2), 1031, 1, 0, 0), ((2, 513, 2), 1025, 1, 1, 1)]


@pytest.mark.parametrize("cases", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def test_transforms_are_those_of_numpy(cases: list[tuple[tuple[int, ...], int, int, int, int]]) -> None:
    forms, wanted = Forms(20), list[np.ndarray]()
    for shape, length, axis, inverse, onesided in cases:
        x = normal(*shape)
        numbers, at = x[..., 0] + (1j * x[..., 1] if shape[-1] == 2 else 0), axis + (axis < 0)
        if inverse and onesided:
            wanted.append(np.fft.irfft(numbers, length, at)[..., None].astype(np.float32))
        else:
            whole = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, at)
            wanted.append(complex_pairs(np.take(whole, range(length // 2 + 1), at) if onesided else whole))
        forms.add("DFT", [x], [np.array(length), np.array(axis)], inverse=inverse, onesided=onesided)
    x = normal(2, 12, 12, 1)
    forms.add("DFT", [x, np.array(13), np.array(-2)], result=(2, 12, 7, 2), onesided=1)
    wanted.append(complex_pairs(np.fft.rfft(x[..., 0], 13, 2)))
    forms.check(wanted, 1e-4)


@pytest.mark.slow
def test_signals_are_transformed_frame_by_frame() -> None:
    forms = Forms(17)
    forms.add("STFT", [normal(2, 50, 1)], [np.array(7), RNG.random(10).astype(np.float32)])
    forms.add("STFT", [normal(1, 50, 2)], [np.array(5), None, np.array(11)], onesided=0)
    forms.add("STFT", [normal(1, 128, 1), np.array(8), None, np.array(16)], result=(1, 15, 9, 2))
    wanted: list[np.ndarray] = []
    for number, (step, length) in enumerate([(7, 10), (5, 11), (8, 16)]):
        x = forms.inputs[f"x{number}.0"]
        numbers = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
        window = forms.constants["x0.2"] if number == 0 else 1
        starts = range(0, x.shape[1] - length + 1, step)
        frames = np.stack([np.fft.fft(numbers[:, start : start + length] * window) for start in starts], 1)
        wanted.append(complex_pairs(frames if number == 1 else frames[..., : length // 2 + 1]))
    forms.check(wanted)


def test_windows_are_put_at_their_places() -> None:
    forms = Forms(24)
    image, block = np.array([6, 7]), np.array([2, 3])
    more = {"strides": [1, 2], "pads": [0, 1, 2, 1], "dilations": [2, 1]}
    forms.add("Col2Im", [normal(2, 18, 24)], [image, block], **more)
    forms.add("Col2Im", [normal(2, 18, 24), image, block], result=(2, 3, 6, 7), **more)
    forms.add("MaxUnpool", [normal(1, 2, 3, 3), RNG.permutation(72)[:18].reshape(1, 2, 3, 3)],
              [np.array([1, 2, 7, 8])], kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip
    forms.add("TensorScatter", [normal(2, 3, 7, 4), normal(2, 3, 3, 4), np.array([0, 4])])
    forms.add("TensorScatter", [normal(2, 7, 4), normal(2, 3, 4), np.array([5, 6])], mode="circular")
    forms.add("TensorScatter", [normal(2, 7, 4), normal(2, 1, 4), np.array([6, 0])])
    forms.check()


@pytest.mark.parametrize("attributes", [
    {"kernel_shape": [3, 2], "strides": [2, 1], "dilations": [1, 3], "pads": [1, 0, 1, 0]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1},
])  # fmt: skip
def test_places_of_largest_elements_are_those_in_the_whole_operand(attributes: dict[str, Any]) -> None:
    x = normal(2, 3, 8, 6)
    node = helper.make_node("MaxPool", ["x"], ["y", "z"], **attributes)
    outputs = [helper.make_empty_tensor_value_info(name) for name in "yz"]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["n", *x.shape[1:]])], outputs)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    found, places = motet.load(motet.compile(data, cache=False))(x)
    order = "F" if attributes.get("storage_order") else "C"
    flat = np.concatenate([image.ravel(order) for image in x.reshape(-1, 8, 6)])
    np.testing.assert_array_equal(flat[places], found)
    assert (places // 48 == np.arange(6).reshape(2, 3, 1, 1)).all()


@pytest.mark.slow
def test_regions_are_those_of_the_reference() -> None:
    forms = Forms(22)
    image = normal(2, 3, 9, 11)
    regions = np.array([[0, 0, 5, 5], [3, 4, 90, 15], [-20, -1, 4, 8]], np.float32)
    for mode, ratio in (("avg", 2), ("avg", 0), ("max", 0), ("max", 3), ("avg", 5)):
        forms.add("RoiAlign", [image, regions, np.array([0, 1, 1])], mode=mode, sampling_ratio=ratio,
                  output_height=3, output_width=2, spatial_scale=0.5)  # fmt: skip
    forms.add("DeformConv", [normal(1, 4, 5, 6), normal(6, 2, 2, 2), 2 * normal(1, 16, 3, 3), normal(6),
                             normal(1, 8, 3, 3)], kernel_shape=[2, 2], group=2, offset_group=2, strides=[2, 2],
              pads=[1, 0, 1, 0], dilations=[2, 1])  # fmt: skip
    forms.check(tolerance=1e-4)


def test_products_determinants_and_attention() -> None:
    forms = Forms(26, ai_onnx_preview=1)
    whole = RNG.integers(-3, 4, (3, 5, 2)).astype(np.int32)
    forms.add("CumProd", [whole], [np.array(1)], exclusive=1)
    forms.add("CumProd", [normal(4, 9)], [np.array(-1)], reverse=1, exclusive=1)
    forms.add("CumProd", [normal(3, 2, 4), np.array(-2)], result=(3, 2, 4))
    singular = normal(3, 4, 4)
    singular[1, 2] = singular[1, 0]
    singular[2, 0, 0] = 0
    forms.add("Det", [singular])
    forms.add("Det", [np.array([[0, 1], [2, 3]], np.float64)])
    scores = [helper.make_tensor_value_info(name, 1, ["b", "h", "q", "k"]) for name in ("scores", "bent")]
    body = helper.make_graph([helper.make_node("Tanh", ["scores"], ["bent"])], "bend", scores[:1], scores[1:])
    operands: list[np.ndarray | None] = [normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)]
    forms.add("FlexAttention", operands, domain="ai.onnx.preview", score_mod=body)
    forms.check(tolerance=1e-4)


def test_linear_attention_decays_and_corrects_its_state() -> None:
    operands = [normal(2, 5, 12), normal(2, 5, 6), normal(2, 5, 10), normal(2, 2, 3, 5), -np.abs(normal(2, 5, 6)),
                RNG.random((2, 5, 1)).astype(np.float32)]  # fmt: skip
    forms = Forms(27)
    forms.add("LinearAttention", list(operands), count=2, q_num_heads=4, kv_num_heads=2)
    forms.check()


@pytest.mark.slow
def test_images_are_resized_by_what_a_call_gives() -> None:
    forms = Forms(21)
    linear = {"mode": "linear", "axes": [2, 3]}
    sizes, pixels = np.array([7, 8]), RNG.integers(0, 256, (1, 2, 5, 7)).astype(np.uint8)
    forms.add("Resize", [pixels, None, None, sizes], result=(1, 2, 7, 8), **linear)
    forms.add("Resize", [normal(1, 1, 4, 6), None, None, sizes], result=(1, 1, 5, 8), **linear,
              keep_aspect_ratio_policy="not_larger")  # fmt: skip
    forms.add("Resize", [normal(1, 1, 17, 13), None, np.array([1, 1, 0.3, 0.33], np.float32)], result=(1, 1, 5, 4),
              mode="cubic", antialias=1)  # fmt: skip
    forms.add("Resize", [normal(1, 1, 4, 4), np.array([0.4, -0.2, 0.6, 0.8], np.float32), None, np.array([3, 3])],
              result=(1, 1, 3, 3), **linear, coordinate_transformation_mode="tf_crop_and_resize",
              extrapolation_value=10.0)  # fmt: skip
    forms.check()


@pytest.mark.slow
def test_coordinates_that_are_no_numbers_read_no_element() -> None:
    grid = np.array([[[np.nan, 0], [1e30, 0], [-1e30, 0], [np.inf, 0], [0, 0]]], np.float32)[None]
    forms = Forms(20)
    image = normal(1, 1, 3, 3)
    for mode in ("linear", "nearest"):
        forms.add("GridSample", [image, grid], mode=mode, padding_mode="zeros", align_corners=1)
    middle, left = image[0, 0, 1, 1], image[0, 0, 1, 0]  # PyTorch takes NaN for -1
    forms.check([np.array([left, 0, 0, 0, middle], np.float32).reshape(1, 1, 1, 5)] * 2)


def test_updates_without_elements_must_fit_into_the_cache() -> None:
    import onnxruntime as ort

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
               for name, shape in (("cache", [2, 4, 0]), ("update", [2, "d", 0]), ("result", [2, 4, 0]))]
    starts = helper.make_tensor_value_info("starts", TensorProto.INT64, [2])
    node = helper.make_node("TensorScatter", ["cache", "update", "starts"], ["result"], axis=1)
    graph = helper.make_graph([node], "g", [*tensors[:2], starts], tensors[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10).SerializeToString()
    ours = motet.load(motet.compile(model, devices="host{cpu=x86-64-v3}", cache=False))
    peer = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for length, at in ((2, 2), (4, 0), (0, 4), (2, 9), (2, 3), (2, -1)):
        given = [np.zeros((2, 4, 0), np.float32), np.zeros((2, length, 0), np.float32), np.array([0, at])]
        try:
            peer.run(None, dict(zip(("cache", "update", "starts"), given, strict=True)))
        except Exception:  # one class for each kind of failure
            with pytest.raises(CallError, match="starts must leave room for the update"):
                ours(*given)
        else:
            assert ours(*given).shape == (2, 4, 0)


@pytest.mark.parametrize(("op", "version", "inputs", "result", "said"), [
    ("Resize", 21, [normal(1, 1, 4, 4), None, np.array([1, 1, 3, 2], np.float32)], (1, 1, 9, 8), "must lead to"),
    ("DFT", 20, [normal(2, 6, 6, 1), None, np.array(3)], (2, 6, 6, 2), "must be one of"),
    ("STFT", 17, [normal(1, 128, 1), np.array(4), None, np.array(16)], (1, 15, 9, 2), "must give 15 frames"),
    ("CumProd", 26, [normal(3, 2), np.array(2)], (3, 2), "expected different axes"),
    ("TensorScatter", 24, [normal(2, 7, 4), normal(2, 3, 4), np.array([0, 5])], (2, 7, 4), "must leave room"),
    ("Col2Im", 18, [normal(1, 4, 4), np.array([3, 3]), np.array([1, 4])], (1, 1, 3, 3), "must have 4 blocks"),
])  # fmt: skip
@pytest.mark.slow
def test_what_a_call_gives_must_lead_to_the_result(
    op: str, version: int, inputs: list[np.ndarray | None], result: tuple[int, ...], said: str
) -> None:
    forms = Forms(version)
    attributes = {"onesided": 0} if op == "DFT" else {"mode": "linear", "antialias": 1} if op == "Resize" else {}
    forms.add(op, inputs, result=result, **attributes)
    session = motet.load(motet.compile(forms.model(), cache=False))
    with pytest.raises(CallError, match=said):
        session(*forms.inputs.values())
