"""ONNX products and convolutions of 8-bit integers, with or without requantisation; products with 4-bit weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import torch
from examples.models import IR_VERSION, OPSET, Graph
from onnx import TensorProto, helper
from torch.nn import functional

from benchmarks.corpus.row import Row, Written, text

QUICK = ("int8 qdq conv 64×28×28→64 3×3", "4-bit linear 1×2048→2048")
_TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}
# Rows, K, N, bits and the length of a block.
_OTHER_BLOCKS = (
    (1, 4096, 11008, 4, 128), (1, 4096, 4096, 8, 32), (1, 3001, 4099, 4, 32), (7, 4096, 4096, 4, 32),
    (7, 2048, 2048, 8, 128), (128, 2048, 2048, 4, 128), (128, 1021, 3001, 8, 32),
)


def rows() -> Iterator[Row]:
    for m, k, n in ((128, 768, 768), (1, 1024, 1024), (77, 333, 555)):
        name = f"int8 product {text(m, k, n)}"
        yield Row(name, "int8", write=lambda a=(m, k, n): _product(*a), dtype="int8")
    for m, k, n in ((128, 768, 768), (49, 320, 1280)):
        yield Row(f"int8 qdq linear {m}×{k}→{n}", "int8", write=lambda a=(m, k, n): _linear(*a), dtype="int8",
                  tolerance=1 / 127)
    for channels, extent, filters, window in ((64, 28, 64, 3), (256, 14, 64, 1), (3, 112, 32, 3)):
        name = f"int8 qdq conv {text(channels, extent, extent)}→{filters} {text(window, window)}"
        yield Row(name, "int8", write=lambda a=(channels, extent, filters, window): _convolution(*a), dtype="int8",
                  tolerance=1 / 127, quick=name in QUICK)
    for m, k, n in ((1, 2048, 2048), (1, 4096, 4096), (16, 2048, 2048), (128, 1024, 4096)):
        name = f"4-bit linear {m}×{k}→{n}"
        yield Row(name, "4-bit weights", write=lambda a=(m, k, n): _few_bits(*a), dtype="int4", quick=name in QUICK)
    for m, k, n, bits, block in _OTHER_BLOCKS:
        name = f"{bits}-bit linear {m}×{k}→{n}, blocks of {block}"
        write = lambda a=(m, k, n, bits, block): _few_bits(*a)  # noqa: E731
        yield Row(name, f"{bits}-bit weights", write=write, dtype=f"int{bits}", quick=name in QUICK)


def _written(
    graph: Graph, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], output: str, flops: float
) -> Written:
    def value(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, _TYPES[str(array.dtype)], array.shape)

    named = [value(f"x{number}", array) for number, array in enumerate(inputs)]
    body = helper.make_graph(graph.nodes, graph.name, named, [value(output, results[0])], graph.initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(body, opset_imports=opsets)
    model.ir_version = IR_VERSION
    return Written(model, inputs, results, flops)


def _product(m: int, k: int, n: int) -> Written:
    g = Graph("product")
    x = g.random.integers(0, 256, (m, k)).astype(np.uint8)
    weights = g.random.integers(-127, 128, (k, n)).astype(np.int8)
    result = (x.astype(np.float64) @ weights.astype(np.float64)).astype(np.int32)
    return _written(g, [x], [result], g.add("MatMulInteger", ["x0", g.constant(weights)]), 2 * m * k * n)


def _linear(m: int, k: int, n: int) -> Written:
    """Dequantise, multiply, quantise, scales of weights for each column."""
    g = Graph("linear")
    x = g.random.integers(0, 256, (m, k)).astype(np.uint8)
    weights = g.random.integers(-127, 128, (k, n)).astype(np.int8)
    scales = (g.random.random(n) * 0.01 + 0.005).astype(np.float32)
    step, zero = np.float32(0.02), np.uint8(128)
    wide = g.add("DequantizeLinear", ["x0", g.constant(np.array(step)), g.constant(np.array(zero))])
    zeros = g.constant(np.zeros(n, np.int8))
    constant = g.add("DequantizeLinear", [g.constant(weights), g.constant(scales), zeros], axis=1)
    out = np.float32(0.02 * 0.01 * 74 * 74 * k**0.5 / 40)
    y = g.add("QuantizeLinear", [
        g.add("MatMul", [wide, constant]), g.constant(np.array(out)), g.constant(np.array(zero))])
    exact = (x.astype(np.float64) - 128) @ (weights * scales.astype(np.float64)) * step
    return _written(g, [x], [_quantised(exact, out)], y, 2 * m * k * n)


def _convolution(channels: int, extent: int, filters: int, window: int) -> Written:
    g = Graph("convolution")
    x = g.random.integers(0, 256, (1, channels, extent, extent)).astype(np.uint8)
    weights = g.random.integers(-127, 128, (filters, channels, window, window)).astype(np.int8)
    scales = (g.random.random(filters) * 0.01 + 0.005).astype(np.float32)
    step, zero = np.float32(0.02), np.uint8(128)
    wide = g.add("DequantizeLinear", ["x0", g.constant(np.array(step)), g.constant(np.array(zero))])
    constant = g.add(
        "DequantizeLinear", [g.constant(weights), g.constant(scales), g.constant(np.zeros(filters, np.int8))], axis=0)
    y = g.add("Conv", [wide, constant], kernel_shape=[window] * 2, pads=[window // 2] * 4)
    out = np.float32(0.02 * 0.01 * 74 * 74 * (channels * window**2) ** 0.5 / 40)
    y = g.add("QuantizeLinear", [y, g.constant(np.array(out)), g.constant(np.array(zero))])
    exact = functional.conv2d(
        torch.from_numpy((x.astype(np.float64) - 128) * step),
        torch.from_numpy(weights * scales.astype(np.float64)[:, None, None, None]), padding=window // 2).numpy()
    return _written(g, [x], [_quantised(exact, out)], y, 2 * extent**2 * filters * channels * window**2)


def _quantised(exact: np.ndarray, step: np.float32) -> np.ndarray:
    return np.clip(np.rint(exact / step) + 128, 0, 255).astype(np.uint8)


def _few_bits(m: int, k: int, n: int, bits: int = 4, block: int = 32) -> Written:
    """MatMulNBits with one scale per block, and the middle of the range as zero point."""
    g = Graph("few_bits")
    x = g.random.standard_normal((m, k)).astype(np.float32)
    blocks, high = -(-k // block), 1 << bits
    numbers = g.random.integers(0, high, (n, blocks, block)).astype(np.uint8)
    packed = numbers[..., ::2] | numbers[..., 1::2] << 4 if bits == 4 else numbers
    scales = ((g.random.random((n, blocks)) * 0.02 + 0.01) * 16 / high).astype(np.float32)
    weights = ((numbers.astype(np.float64) - high // 2) * scales[..., None]).reshape(n, -1)[:, :k]
    y = g.add("MatMulNBits", ["x0", g.constant(packed), g.constant(scales.reshape(-1))], K=k, N=n, bits=bits,
              block_size=block, domain="com.microsoft")
    return _written(g, [x], [(x.astype(np.float64) @ weights.T).astype(np.float32)], y, 2 * m * k * n)
