"""The workloads: each is one ONNX model with its inputs, its amount of work, and, if it is short, a numpy
implementation.

Every contender gets the same model. `numpy_run(inputs, out)` computes in the inputs' dtype, into `out` where possible,
so that in float64 it is the reference. Single operations take all operands as inputs; networks contain their weights as
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from examples import models
from onnx import TensorProto

Run = Callable[[list[np.ndarray], Any], Any]


@dataclass(frozen=True)
class Workload:
    """`flops` and `bytes` are the minimum to compute and to move; `tolerance` is relative to the largest value of the
    reference. `ops` is the type of operations, float or int8."""

    name: str
    title: str
    model: Callable[[], onnx.ModelProto]
    flops: float
    bytes: float
    numpy_run: Run | None = None
    torch_out: str = ""  # the torch function that takes `out=`, if the workload consists of it
    tolerance: float = 1e-4
    ops: str = "float"

    def inputs(self, model: onnx.ModelProto) -> list[np.ndarray]:
        random = np.random.default_rng(7)
        arrays = []
        for value in model.graph.input:
            tensor = value.type.tensor_type
            shape = [dim.dim_value for dim in tensor.shape.dim]
            if tensor.elem_type == TensorProto.INT8:
                arrays.append(random.integers(-127, 128, shape, dtype=np.int8))
            else:
                arrays.append(random.standard_normal(shape, dtype=np.float32))
        return arrays


def _fragment() -> onnx.ModelProto:
    g = models.Graph("fragment")
    y = g.add("Add", [g.add("MatMul", ["x", "w"]), "x"])
    return g.model({"x": (64, 128), "w": (128, 128)}, {y: (64, 128)})


def _binary(operator: str, n: int, rows: int = 0) -> onnx.ModelProto:
    g = models.Graph(f"{operator.lower()}_{n}")
    shape = (rows or n, n)
    return g.model({"a": shape, "b": shape}, {g.add(operator, ["a", "b"]): shape})


def _int8(n: int) -> onnx.ModelProto:
    g = models.Graph(f"matmul_int8_{n}")
    y = g.add("MatMulInteger", ["a", "b"])
    model = g.model({"a": (n, n), "b": (n, n)}, {y: (n, n)}, TensorProto.INT8)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    return model


def _softmax() -> onnx.ModelProto:
    g = models.Graph("softmax")
    return g.model({"x": (4096, 4096)}, {g.add("Softmax", ["x"], axis=-1): (4096, 4096)})


def _layernorm() -> onnx.ModelProto:
    g = models.Graph("layernorm")
    y = g.add("LayerNormalization", ["x", "scale", "shift"], axis=-1, epsilon=1e-5)
    return g.model({"x": (4096, 1024), "scale": (1024,), "shift": (1024,)}, {y: (4096, 1024)})


def _chain() -> onnx.ModelProto:
    """relu(x * s + b) * sigmoid(y)"""
    g = models.Graph("chain")
    left = g.add("Relu", [g.add("Add", [g.add("Mul", ["x", "s"]), "b"])])
    z = g.add("Mul", [left, g.add("Sigmoid", ["y"])])
    return g.model({"x": (4096, 1024), "y": (4096, 1024), "s": (1024,), "b": (1024,)}, {z: (4096, 1024)})


def _convolution() -> onnx.ModelProto:
    g = models.Graph("conv")
    y = g.add("Conv", ["x", g.weight((64, 64, 3, 3), 576), g.bias(64)], kernel_shape=[3, 3], pads=[1] * 4)
    return g.model({"x": (1, 64, 56, 56)}, {g.add("Relu", [y]): (1, 64, 56, 56)})


def _numpy_fragment(inputs: list[np.ndarray], out: Any) -> np.ndarray:
    x, w = inputs
    out = np.matmul(x, w, out=out)
    return np.add(out, x, out=out)


def _numpy_int8(inputs: list[np.ndarray], out: Any) -> np.ndarray:
    """An int8 product in float64, which is exact here: numpy multiplies integer matrices without BLAS."""
    return np.matmul(inputs[0].astype(np.float64), inputs[1].astype(np.float64)).astype(np.int32)


def _numpy_softmax(inputs: list[np.ndarray], out: Any) -> np.ndarray:
    x = inputs[0]
    out = np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)
    return out


def _numpy_layernorm(inputs: list[np.ndarray], out: Any) -> np.ndarray:
    x, scale, shift = inputs
    out = np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    variance = np.einsum("ij,ij->i", out, out)[:, None] / x.shape[1]
    out *= 1 / np.sqrt(variance + 1e-5)
    out *= scale
    out += shift
    return out


def _numpy_chain(inputs: list[np.ndarray], out: Any) -> np.ndarray:
    x, y, s, b = inputs
    out = np.multiply(x, s, out=out)
    out += b
    np.maximum(out, 0, out=out)
    gate = np.exp(-y)
    gate += 1
    out /= gate
    return out


def _matmul(n: int) -> Workload:
    return Workload(f"matmul-{n}", f"matmul {n}", lambda: _binary("MatMul", n), 2 * n**3, 12 * n * n,
                    lambda i, out: np.matmul(i[0], i[1], out=out), "matmul")


MIB = 1 << 20
WORKLOADS: Sequence[Workload] = (
    Workload("call", "a call: add of 8 floats", lambda: _binary("Add", 8, 1), 0, 96,
             lambda i, out: np.add(i[0], i[1], out=out), "add"),
    Workload("fragment", "64×128·128×128 + lhs", _fragment, 2 * 64 * 128 * 128, 4 * 32768, _numpy_fragment),
    *(_matmul(n) for n in (256, 512, 1024, 2048)),
    Workload("matmul-int8", "int8 matmul 1024", lambda: _int8(1024), 2 * 1024**3, 6 * MIB, _numpy_int8,
             "_int_mm", 0.0, "int8"),
    Workload("mlp", "MLP 64×1024-4096-1024", models.mlp, 4 * 64 * 1024 * 4096, 33.5 * MIB),
    Workload("softmax", "softmax 4096²", _softmax, 0, 128 * MIB, _numpy_softmax, "softmax"),
    Workload("layernorm", "layernorm 4096×1024", _layernorm, 0, 32 * MIB, _numpy_layernorm),
    Workload("chain", "relu(x·s+b)·sigmoid(y) 4096×1024", _chain, 0, 48 * MIB, _numpy_chain),
    Workload("conv", "conv 1×64×56×56 3×3→64 + bias + relu", _convolution, 2 * 56 * 56 * 64 * 576, 1.7 * MIB),
    Workload("add", "add 4096²", lambda: _binary("Add", 4096), 0, 192 * MIB,
             lambda i, out: np.add(i[0], i[1], out=out), "add"),
    Workload("two-conv", "two convolutions + add, 1024×1×28×28→64", models.two_conv,
             2 * 1024 * 784 * 64 * 9 * 2, 1024 * 784 * 65 * 4),
    Workload("resnet18", "ResNet-18", models.resnet18, 3.63e9, 46 * MIB, tolerance=1e-3),
    Workload("mobilenet_v2", "MobileNetV2", models.mobilenet_v2, 0.60e9, 14 * MIB, tolerance=1e-3),
    Workload("encoder", "encoder block 1×128×768", models.encoder, 1.86e9, 28 * MIB, tolerance=1e-3),
)
