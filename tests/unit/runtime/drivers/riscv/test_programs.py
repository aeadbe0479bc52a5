"""Compiled programs on the emulated accelerator against numpy: every vector length, odd shapes, many dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from tests.unit.runtime.drivers.riscv.opening import needs_qemu

import motet
from motet import builder as mb
from motet.artifact import Artifact
from motet.errors import DeviceError

pytestmark = needs_qemu

TARGETS = ("rv64gcv512", "rv64gcv256", "rv64gcv128", "rv64gc")
ARCHITECTURES = ("rv64gc", "rv64gcv128", "rv64gcv256", "rv64gcv512", "rv64gcv1024")

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A program, what it is called with, what numpy gives for that, and how near that must be met."""

    program: mb.Graph
    inputs: Arrays
    expected: Arrays
    tolerance: float = 0.0


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def add() -> Case:
    x, y = _random(7, 19), _random(7, 19, seed=1)
    x[0, :4] = np.nan, np.inf, -np.inf, -0.0
    with mb.Graph("main") as g:
        g.result(g.input("x", x.shape) + g.input("y", y.shape))
    return Case(g, [x, y], [x + y])


def matmul_bias_relu() -> Case:
    x, w, b = _random(13, 37), _random(37, 29) / 6, _random(29)
    with mb.Graph("main") as g:
        g.result(mb.relu(g.input("x", x.shape) @ g.constant(w) + g.constant(b)))
    return Case(g, [x], [np.maximum(x.astype(np.float64) @ w + b, 0)], 1e-5)


def matmul_of_two_inputs() -> Case:
    a, b = _random(31, 67), _random(67, 41)
    with mb.Graph("main") as g:
        g.result(g.input("a", a.shape) @ g.input("b", b.shape))
    return Case(g, [a, b], [a.astype(np.float64) @ b], 1e-5)


def softmax_and_gelu() -> Case:
    x = _random(5, 31) * 20
    x[1, 3], x[2] = np.inf, -np.inf
    with mb.Graph("main") as g:
        given = g.input("x", x.shape)
        g.result(mb.softmax(given))
        g.result(mb.gelu(given))
    with np.errstate(invalid="ignore"):
        e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        erf = np.vectorize(math.erf, otypes=[np.float64])
        gelu = 0.5 * x * (1 + erf(x.astype(np.float64) / math.sqrt(2)))
    return Case(g, [x], [e / e.sum(-1, keepdims=True), gelu], 2e-5)


def convolution() -> Case:
    x, w, b = _random(1, 3, 9, 11), _random(5, 3, 3, 3) / 5, _random(5)
    with mb.Graph("main") as g:
        g.result(mb.relu(mb.conv2d(g.input("x", x.shape), g.constant(w), g.constant(b), padding=1)))
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    product = np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))
    return Case(g, [x], [np.maximum(product + b[:, None, None], 0)], 1e-5)


def integers() -> Case:
    random = np.random.default_rng(4)
    a, b = (random.integers(-(2**31), 2**31, (9, 17)).astype(np.int32) for _ in range(2))
    p, q = (random.integers(-50, 50, shape).astype(np.int32) for shape in ((5, 23), (23, 7)))
    with mb.Graph("main") as g:
        x, y = g.input("a", a.shape, "i32"), g.input("b", b.shape, "i32")
        g.result(x * y - x)
        g.result(mb.where(mb.less(x, y), mb.maximum(x, y), x))
        g.result(g.input("p", p.shape, "i32") @ g.input("q", q.shape, "i32"))
    with np.errstate(over="ignore"):
        return Case(g, [a, b, p, q], [a * b - a, np.where(a < b, np.maximum(a, b), a), p @ q])


def halves() -> Case:
    x, y = (_random(11, 13, seed=seed).astype(np.float16) for seed in (0, 1))
    x[0, :4] = np.nan, np.inf, 65504, 6e-8
    z = _random(17).astype(ml_dtypes.bfloat16)
    with mb.Graph("main") as g:
        g.result(g.input("x", x.shape, "f16") + g.input("y", y.shape, "f16"))
        bf16 = g.input("z", z.shape, "bf16")
        g.result(bf16 * bf16)
    with np.errstate(over="ignore"):
        return Case(g, [x, y, z], [x + y, z * z])


def half_product() -> Case:
    a, b = _random(6, 21).astype(np.float16), _random(21, 10).astype(np.float16)
    with mb.Graph("main") as g:
        g.result(g.input("a", a.shape, "f16") @ g.input("b", b.shape, "f16"))
    return Case(g, [a, b], [a.astype(np.float64) @ b.astype(np.float64)], 4e-3)


def doubles() -> Case:
    x = np.random.default_rng(0).standard_normal((3, 41))
    with mb.Graph("main") as g:
        given = g.input("x", x.shape, "f64")
        g.result(mb.exp(given))
        g.result(mb.reduce_sum(given * given, axes=1))
    return Case(g, [x], [np.exp(x), (x * x).sum(1)], 1e-13)


def conversions() -> Case:
    """Their vector instructions end old emulators, which code is kept from."""
    x = _random(5, 23) * 100
    with mb.Graph("main") as g:
        given = g.input("x", x.shape)
        g.result(mb.cast(given, "i32"))
        g.result(mb.cast(given, "i8"))
        g.result(mb.cast(mb.cast(given, "f64"), "i64"))
        g.result(mb.cast(given, "f16"))
    x = np.clip(x, -127, 127)
    return Case(g, [x], [x.astype(dtype) for dtype in (np.int32, np.int8, np.int64, np.float16)])


def elementary_functions() -> Case:
    x = np.abs(_random(3, 19)) + np.float32(0.1)
    wide = x.astype(np.float64)
    functions = ("floor", "ceil", "round", "log", "sin", "cos", "tanh", "exp", "sqrt")
    with mb.Graph("main") as g:
        given = g.input("x", x.shape)
        for name in functions:
            g.result(getattr(mb, name)(given))
        g.result(mb.pow(given, given))
    return Case(g, [x], [getattr(np, name)(wide) for name in functions] + [wide**wide], 2e-6)


def chain_of_layers() -> Case:
    x, *weights = _random(4, 33), _random(33, 65) / 6, _random(65, 17) / 8, _random(17, 1) / 4
    value = x.astype(np.float64)
    with mb.Graph("main") as g:
        tensor = g.input("x", x.shape)
        for w in weights:
            tensor = mb.tanh(tensor @ g.constant(w))
            value = np.tanh(value @ w)
        g.result(tensor)
    return Case(g, [x], [value], 1e-5)


CASES: tuple[Callable[[], Case], ...] = (
    add, matmul_bias_relu, matmul_of_two_inputs, softmax_and_gelu, convolution, integers, halves, half_product, doubles,
    conversions, elementary_functions, chain_of_layers,
)


@cache
def _compiled(case: Callable[[], Case]) -> tuple[Case, Artifact]:
    made = case()
    return made, motet.compile(made.program, devices={"": f"riscv{{cpu={'+'.join(TARGETS)}}}"})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_the_device_computes_is_what_numpy_does(case: Callable[[], Case], architecture: str):
    made, artifact = _compiled(case)
    device = f"riscv:qemu?harts=2&memory=64M&guard=1&timeout=120&arch={architecture}"
    with motet.load(artifact, devices=device) as session:
        results = session(*made.inputs)
    results = [results] if isinstance(results, np.ndarray) else list(results)
    assert len(results) == len(made.expected)
    for result, expected in zip(results, made.expected, strict=True):
        assert result.shape == expected.shape
        if made.tolerance:
            np.testing.assert_allclose(result, expected, made.tolerance, made.tolerance)
        else:
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


def test_code_for_longer_vectors_than_the_cores_have_is_refused():
    with mb.Graph("main") as g:
        g.result(g.input("x", (3,)) * 2)
    artifact = motet.compile(g, devices={"": "riscv{cpu=rv64gcv512}"})
    with pytest.raises(DeviceError, match=r"zvl512b.*rv64gcv256.*arch=rv64gcv512"):
        motet.load(artifact, devices="riscv:qemu?memory=64M&arch=rv64gcv256")


def test_extents_that_are_known_at_run_time_alone():
    text = """
    func.func @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %m = tensor.dim %x, %c0 : tensor<?x?xf32>
      %n = tensor.dim %y, %c1 : tensor<?x?xf32>
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
      %product = linalg.matmul ins(%x, %y : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>)
        -> tensor<?x?xf32>
      return %product : tensor<?x?xf32>
    }
    """
    artifact = motet.compile(text, devices={"": "riscv{cpu=rv64gcv128}"})
    with motet.load(artifact, devices="riscv:qemu?harts=2&memory=64M&guard=1&timeout=120") as session:
        for m, k, n in ((1, 1, 1), (3, 7, 5), (17, 1, 40), (64, 65, 66), (2, 0, 3)):
            a, b = _random(m, k), _random(k, n, seed=1)
            np.testing.assert_allclose(session(a, b), a.astype(np.float64) @ b, 1e-4, 1e-5)


def test_a_program_on_the_host_and_two_accelerators():
    x, w, b = _random(13, 37), _random(37, 29), _random(29)
    with mb.Graph("main") as g:
        product = mb.matmul(g.input("x", x.shape, device="cpu"), g.constant(w), device="first")
        rectified = mb.relu(mb.add(product, g.constant(b), device="first"), device="first")
        decayed = mb.exp(mb.mul(rectified, -1.0, device="cpu"), device="cpu")
        g.result(mb.tanh(decayed, device="second"), device="cpu")
    artifact = motet.compile(g, devices={"cpu": "host", "first": "riscv", "second": "riscv{cpu=rv64gcv256}"})
    options = "memory=64M&guard=1"
    bound = {"first": f"riscv:qemu?{options}", "second": f"riscv:qemu/1?{options}&count=1&arch=rv64gcv256"}
    expected = np.tanh(np.exp(-np.maximum(x.astype(np.float64) @ w + b, 0)))
    with motet.load(artifact, devices=bound) as session:
        for _ in range(3):
            np.testing.assert_allclose(session(x), expected, 1e-5, 1e-6)
