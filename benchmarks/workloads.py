"""The rows of the peers table: what is computed, on which inputs, and how much work that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from examples import models

from benchmarks.graphs import chain

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Workload:
    """`onnx` is the model, run by every contender that reads ONNX; `reference` the same in numpy, where it is
    short enough to write. `flops` and `bytes` are the least that any implementation does and moves."""

    name: str
    onnx: bytes
    inputs: Arrays
    flops: float
    bytes: float
    reference: Callable[[Arrays], np.ndarray] | None = None


def _float(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def _matmul(n: int) -> Workload:
    a, b = _float(n, n), _float(n, n, seed=1)
    model = chain({"a": a.shape, "b": b.shape}, [("MatMul", ["a", "b"], "y", {})], {"y": (n, n)})
    return Workload(f"matmul {n}", model, [a, b], 2 * n**3, 12 * n * n, lambda x: x[0] @ x[1])


def _fragment() -> Workload:
    a, b = _float(64, 128), _float(128, 128)
    model = chain(
        {"a": a.shape, "b": b.shape}, [("MatMul", ["a", "b"], "t", {}), ("Add", ["t", "a"], "y", {})], {"y": a.shape}
    )
    return Workload("64x128 · 128x128 + lhs", model, [a, b], 2 * 64 * 128 * 128, 0, lambda x: x[0] @ x[1] + x[0])


def _softmax(n: int) -> Workload:
    x = _float(n, n)

    def reference(inputs: Arrays) -> np.ndarray:
        e = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    model = chain({"x": x.shape}, [("Softmax", ["x"], "y", {"axis": -1})], {"y": x.shape})
    return Workload(f"softmax {n}x{n}", model, [x], 0, 8 * n * n, reference)


def _layernorm(rows: int, columns: int) -> Workload:
    x = _float(rows, columns)
    scale, bias = _float(columns, seed=1), _float(columns, seed=2)

    def reference(inputs: Arrays) -> np.ndarray:
        mean = inputs[0].mean(-1, keepdims=True)
        centred = inputs[0] - mean
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + bias

    step = ("LayerNormalization", ["x", "scale", "bias"], "y", {"axis": -1, "epsilon": 1e-5})
    model = chain({"x": x.shape}, [step], {"y": x.shape}, {"scale": scale, "bias": bias})
    return Workload(f"layernorm {rows}x{columns}", model, [x], 0, 8 * rows * columns, reference)


def _add(n: int) -> Workload:
    a, b = _float(n, n), _float(n, n, seed=1)
    model = chain({"a": a.shape, "b": b.shape}, [("Add", ["a", "b"], "y", {})], {"y": a.shape})
    return Workload(f"add {n}x{n}", model, [a, b], 0, 12 * n * n, lambda x: x[0] + x[1])


def _chain() -> Workload:
    x, y = _float(2048, 2048), _float(2048, 2048, seed=1)
    steps = [
        ("Mul", ["x", "two"], "a", {}), ("Add", ["a", "one"], "b", {}), ("Relu", ["b"], "c", {}),
        ("Sigmoid", ["y"], "d", {}), ("Mul", ["c", "d"], "z", {}),
    ]
    constants = {"two": np.float32([2.0]), "one": np.float32([1.0])}
    model = chain({"x": x.shape, "y": y.shape}, steps, {"z": x.shape}, constants)
    return Workload(
        "relu(2x+1)·sigmoid(y) 2048x2048", model, [x, y], 0, 12 * x.size,
        lambda v: np.maximum(2 * v[0] + 1, 0) / (1 + np.exp(-v[1])),
    )


def _conv() -> Workload:
    x = _float(1, 64, 56, 56)
    constants = {"w": _float(64, 64, 3, 3, scale=0.05), "b": _float(64)}
    steps = [("Conv", ["x", "w", "b"], "t", {"pads": [1, 1, 1, 1]}), ("Relu", ["t"], "y", {})]
    model = chain({"x": x.shape}, steps, {"y": x.shape}, constants)
    return Workload("conv 3x3 64→64 56x56 + relu", model, [x], 2 * 56 * 56 * 64 * 64 * 9, 8 * x.size)


def _model(name: str, label: str, flops: float, bytes_: float, *shape: int) -> Workload:
    return Workload(label, models.MODELS[name]().SerializeToString(), [_float(*shape)], flops, bytes_)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "fragment": _fragment,
    "matmul256": lambda: _matmul(256),
    "matmul512": lambda: _matmul(512),
    "matmul1024": lambda: _matmul(1024),
    "matmul2048": lambda: _matmul(2048),
    "mlp": lambda: _model("mlp", "MLP 64x1024-4096-1024", 2 * 64 * 2 * 1024 * 4096, 8 * 1024 * 4096, 64, 1024),
    "softmax": lambda: _softmax(4096),
    "layernorm": lambda: _layernorm(4096, 1024),
    "add": lambda: _add(4096),
    "chain": _chain,
    "conv": _conv,
    "two_conv": lambda: _model(
        "two_conv", "two convolutions + add", 2 * 2 * 9 * 1024 * 64 * 784, 4 * 1024 * 64 * 784, 1024, 1, 28, 28
    ),
    "resnet18": lambda: _model("resnet18", "ResNet-18 b1", 3.63e9, 46.8e6, 1, 3, 224, 224),
    "mobilenet_v2": lambda: _model("mobilenet_v2", "MobileNetV2 b1", 0.6e9, 14e6, 1, 3, 224, 224),
    "encoder": lambda: _model("encoder", "encoder block s128 d768", 1.86e9, 28.3e6, 1, 128, 768),
}
