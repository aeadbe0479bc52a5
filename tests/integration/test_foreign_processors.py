"""Code compiled for other processors really runs there: in qemu's user mode, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from examples import models
from onnx.reference import ReferenceEvaluator
from tests.integration.foreign_image import emulator, run_foreign

import motet
from motet import builder as mb
from motet.artifact import Artifact

pytestmark = pytest.mark.usefixtures("all_levels")

TARGETS = ("x86-64-v4", "x86-64-v3", "aarch64", "riscv64", "riscv64-v")
DEVICES = {"": f"host{{cpu={'+'.join(TARGETS)}}}"}

Arrays = list[np.ndarray]


def _run(artifact: Artifact, target: str, inputs: Arrays, folder: Path, **options: object) -> Arrays:
    if emulator(target) is None:
        pytest.skip(f"{target}: neither this processor nor a qemu-user that is installed runs it")
    return run_foreign(artifact, target, inputs, folder, **options).results  # type: ignore[arg-type]


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


# -- programs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A program, what it is called with, what numpy gives for that, and how near that must be met."""

    program: mb.Graph
    inputs: Arrays
    expected: Arrays
    tolerance: float


_erf = np.vectorize(math.erf, otypes=[np.float64])


def matmul_gelu() -> Case:
    x, w, b = _random(13, 37), _random(37, 29) / 6, _random(29)
    with mb.Graph("main") as g:
        g.result(mb.gelu(g.input("x", x.shape) @ g.constant(w) + g.constant(b)))
    y = x.astype(np.float64) @ w + b
    return Case(g, [x], [0.5 * y * (1 + _erf(y / math.sqrt(2)))], 2e-5)


def batched_matmul() -> Case:
    a, b = _random(3, 7, 11), _random(3, 11, 5)
    with mb.Graph("main") as g:
        g.result(g.input("a", a.shape) @ g.input("b", b.shape))
    return Case(g, [a, b], [a.astype(np.float64) @ b], 1e-5)


def softmax() -> Case:
    x = _random(7, 31) * 30
    x[1, 3], x[2, 5], x[3] = np.inf, np.nan, -np.inf
    with mb.Graph("main") as g:
        g.result(mb.softmax(g.input("x", x.shape)))
    with np.errstate(invalid="ignore"):
        e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        return Case(g, [x], [e / e.sum(-1, keepdims=True)], 1e-5)


def layernorm() -> Case:
    x, scale, bias = _random(5, 67) * 3 + 1, _random(67, seed=1), _random(67, seed=2)
    with mb.Graph("main") as g:
        g.result(mb.layernorm(g.input("x", x.shape), g.constant(scale), g.constant(bias)))
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    return Case(g, [x], [normal * scale + bias], 2e-5)


def _convolve(x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))


def convolution_relu() -> Case:
    x, w, b = _random(2, 5, 13, 11), _random(9, 5, 3, 3) / 6, _random(9)
    with mb.Graph("main") as g:
        g.result(mb.relu(mb.conv2d(g.input("x", x.shape), g.constant(w), g.constant(b), stride=2, padding=1)))
    return Case(g, [x], [np.maximum(_convolve(x, w, 2, 1) + b[:, None, None], 0)], 1e-5)


def depthwise_and_pool() -> Case:
    x, w = _random(1, 7, 12, 15), _random(7, 1, 3, 3)
    with mb.Graph("main") as g:
        g.result(mb.max_pool2d(mb.conv2d(g.input("x", x.shape), g.constant(w), padding=1, groups=7), 2))
    each = [_convolve(x[:, [c]], w[[c]], 1, 1) for c in range(7)]
    pools = np.concatenate(each, 1)[:, :, :, :14].reshape(1, 7, 6, 2, 7, 2)
    return Case(g, [x], [pools.max((3, 5))], 1e-5)


def integers() -> Case:
    random = np.random.default_rng(4)
    a, b = (random.integers(-(2**31), 2**31, (9, 17)).astype(np.int32) for _ in range(2))
    b[b == 0] = 1
    a[0, 0], b[0, 0] = -(2**31), 3
    wide = random.integers(-(2**62), 2**62, 23)
    with mb.Graph("main") as g:
        x, y, z = g.input("a", a.shape, "i32"), g.input("b", b.shape, "i32"), g.input("z", wide.shape, "i64")
        g.result(x * y - x)
        g.result(mb.where(mb.less(x, y), mb.maximum(x, y), mb.div(x, y)))
        g.result(mb.reduce_max(x, axes=1))
        g.result(z * 3 + z)
    with np.errstate(over="ignore"):
        quotients = np.trunc(a.astype(np.float64) / b).astype(np.int32)
        return Case(g, [a, b, wide], [a * b - a, np.where(a < b, b, quotients), a.max(1), wide * 4], 0)


def integer_matmul() -> Case:
    random = np.random.default_rng(5)
    a, b = random.integers(-128, 128, (7, 37)).astype(np.int8), random.integers(-128, 128, (37, 19)).astype(np.int8)
    with mb.Graph("main") as g:
        wide = mb.cast(g.input("a", a.shape, "i8"), "i32"), mb.cast(g.input("b", b.shape, "i8"), "i32")
        g.result(wide[0] @ wide[1])
    return Case(g, [a, b], [a.astype(np.int32) @ b.astype(np.int32)], 0)


def quantised_operators() -> Case:
    """A product and a depthwise convolution of dequantised bytes."""
    random = np.random.default_rng(6)
    shapes = (13, 67), (67, 45), (1, 19, 9, 7), (19, 1, 3, 3)
    a, b, image, filters = (random.integers(-128, 128, shape).astype(np.int8) for shape in shapes)
    with mb.Graph("main") as g:
        left = (mb.cast(g.input("a", a.shape, "i8"), "f32") - 7.0) * 0.5
        g.result(left @ (mb.cast(g.constant(b), "f32") * 0.25))
        real = mb.cast(g.input("image", image.shape, "i8"), "f32") * 0.5
        g.result(mb.conv2d(real, mb.cast(g.constant(filters), "f32") * 0.25, padding=1, groups=19))
    each = [_convolve(image[:, [c]], filters[[c]], 1, 1) for c in range(19)]
    product = (a.astype(np.int64) - 7) @ b.astype(np.int64)
    return Case(g, [a, image], [product * 0.125, np.concatenate(each, 1) * 0.125], 1e-6)


def _narrow(name: str, dtype: np.dtype, tolerance: float) -> Case:
    x, w = (_random(6, 21) * 2).astype(dtype), _random(21, 10).astype(dtype)
    with mb.Graph("main") as g:
        value = g.input("x", x.shape, name)
        g.result(mb.relu(value @ g.constant(w)))
        g.result(mb.softmax(value))
        g.result(mb.cast(value, "f32") * 2.5)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    expected = [np.maximum(wide @ w.astype(np.float64), 0), e / e.sum(-1, keepdims=True), wide * 2.5]
    return Case(g, [x], expected, tolerance)


def half_precision() -> Case:
    return _narrow("f16", np.dtype(np.float16), 4e-3)


def every_half() -> Case:
    """All halves, and floats and doubles around what they are rounded to: ties and the doubles beside them."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = np.sort(halves[np.isfinite(halves)]).astype(np.float64)
    ties = (finite[1:] + finite[:-1]) / 2
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520.0, 1e-8, 2.0**-25, 1e300, 1e-300]
    doubles = np.concatenate([finite, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), edges])
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
        expected: Arrays = [halves.astype(np.float32), floats.astype(np.float16), doubles.astype(np.float16)]
    with mb.Graph("main") as g:
        g.result(mb.cast(g.input("h", halves.shape, "f16"), "f32"))
        g.result(mb.cast(g.input("f", floats.shape, "f32"), "f16"))
        g.result(mb.cast(g.input("d", doubles.shape, "f64"), "f16"))
    return Case(g, [halves, floats, doubles], expected, 0)


def brain_floats() -> Case:
    return _narrow("bf16", np.dtype(ml_dtypes.bfloat16), 3e-2)


def elementary_functions() -> Case:
    x = np.concatenate([np.linspace(-20, 20, 57), [0.0, 1e-30, 88.0, -88.0, 3e4]]).astype(np.float32)
    names = ("exp", "tanh", "sigmoid", "erf", "floor", "round")  # those that no C library computes
    with mb.Graph("main") as g:
        value = g.input("x", x.shape)
        for name in names:
            g.result(getattr(mb, name)(value), name=name)
        g.result(mb.log(mb.abs(value)), name="log")
        g.result(mb.sqrt(mb.abs(value)), name="sqrt")
    wide = x.astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        expected: Arrays = [
            np.exp(wide).astype(np.float32), np.tanh(wide), 1 / (1 + np.exp(-wide)), _erf(wide),
            np.floor(x), np.round(x), np.log(np.abs(wide)), np.sqrt(np.abs(wide)),
        ]
    return Case(g, [x], expected, 1e-5)


def doubles() -> Case:
    x = np.random.default_rng(6).standard_normal((5, 13))
    with mb.Graph("main") as g:
        value = g.input("x", x.shape, "f64")
        g.result(mb.tanh(mb.exp(value)) @ mb.transpose(value))
    return Case(g, [x], [np.tanh(np.exp(x)) @ x.T], 1e-12)


def movement() -> Case:
    x, y = _random(4, 5, 6), _random(4, 3, 6)
    with mb.Graph("main") as g:
        a, b = g.input("x", x.shape), g.input("y", y.shape)
        joined = mb.concat([a, b], axis=1)
        g.result(mb.transpose(joined, (2, 0, 1)))
        g.result(mb.pad(mb.reshape(a[1:, ::2], (3, 18)), (1, 0), (2, 3), 7.0))
    expected = [
        np.concatenate([x, y], 1).transpose(2, 0, 1),
        np.pad(x[1:, ::2].reshape(3, 18), ((1, 2), (0, 3)), constant_values=7),
    ]
    return Case(g, [x, y], expected, 0)


CASES: list[Callable[[], Case]] = [
    matmul_gelu, batched_matmul, softmax, layernorm, convolution_relu, depthwise_and_pool, integers, integer_matmul,
    quantised_operators, half_precision, every_half, brain_floats, elementary_functions, doubles, movement,
]


@pytest.fixture(scope="module", params=CASES, ids=lambda make: make.__name__)
def compiled(request: pytest.FixtureRequest) -> tuple[Case, Artifact]:
    case = request.param()
    return case, motet.compile(case.program, devices=DEVICES)


@pytest.mark.parametrize("target", TARGETS)
def test_code_for_another_processor_agrees_with_numpy(
    compiled: tuple[Case, Artifact], target: str, tmp_path: Path
) -> None:
    case, artifact = compiled
    results = _run(artifact, target, case.inputs, tmp_path)
    assert len(results) == len(case.expected)
    for result, expected in zip(results, case.expected, strict=True):
        assert result.shape == expected.shape
        if case.tolerance == 0:
            np.testing.assert_array_equal(result, expected)
        else:
            np.testing.assert_allclose(
                result.astype(np.float64), expected, rtol=case.tolerance, atol=case.tolerance
            )


# -- extents, tasks and vectors of any length ------------------------------------------------------


@pytest.fixture(scope="module")
def dynamic() -> tuple[Artifact, list[np.ndarray]]:
    weights = [_random(19, 67) / 4, _random(67), _random(67, 13) / 8, _random(13)]
    with mb.Graph("main") as g:
        w0, b0, w1, b1 = map(g.constant, weights)
        g.result(mb.relu(g.input("x", ("batch", 19)) @ w0 + b0) @ w1 + b1)
    return motet.compile(g, devices=DEVICES), weights


@pytest.mark.parametrize("target", TARGETS)
def test_dynamic_batch_runs_with_any_split_of_its_tasks(
    dynamic: tuple[Artifact, list[np.ndarray]], target: str, tmp_path: Path
) -> None:
    artifact, (w0, b0, w1, b1) = dynamic
    for batch, at_once in ((1, 100), (3, 1), (17, 2), (64, 1)):
        x = _random(batch, 19)
        (result,) = _run(artifact, target, [x], tmp_path, at_once=at_once)
        expected = np.maximum(x.astype(np.float64) @ w0 + b0, 0) @ w1 + b1
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [256, 512, 1024])
def test_riscv_vector_code_runs_on_longer_vectors(
    dynamic: tuple[Artifact, list[np.ndarray]], bits: int, tmp_path: Path
) -> None:
    artifact, (w0, b0, w1, b1) = dynamic
    x = _random(11, 19)
    (result,) = _run(artifact, "riscv64-v", [x], tmp_path, vector_bits=bits)
    expected = np.maximum(x.astype(np.float64) @ w0 + b0, 0) @ w1 + b1
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


# -- networks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    artifact: Artifact
    x: np.ndarray
    expected: np.ndarray


@pytest.fixture(scope="module", params=["encoder_small", "resnet18_small", "mobilenet_v2_small"])
def network(request: pytest.FixtureRequest) -> Network:
    model = models.MODELS[request.param]()
    x = _random(*(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim))
    (expected,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})
    return Network(motet.compile(model, devices=DEVICES), x, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_networks_agree_with_the_reference_of_onnx(network: Network, target: str, tmp_path: Path) -> None:
    function = next(iter(network.artifact.functions))
    (result,) = _run(network.artifact, target, [network.x], tmp_path, function=function)
    np.testing.assert_allclose(result, network.expected, rtol=1e-3, atol=1e-4)
