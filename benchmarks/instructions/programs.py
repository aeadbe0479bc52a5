"""Defines the programs whose instructions are counted: every CPU kernel class, several dtypes, odd extents.

They are small, since counting is slow, but large enough that loops and tails dominate. Extents are mostly odd or prime.
The last group has operators without a kernel class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from examples.models import IR_VERSION, OPSET, Graph
from onnx import TensorProto, helper

Types = Mapping[str, tuple[int, Sequence[int | str]]]

F32, F64, F16, BF16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16
I8, U8, I32, I64 = TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64


@dataclass(frozen=True)
class Program:
    """One program. `extents` are the values of dynamic extents. Integer inputs are drawn from [0, `below`)."""

    name: str
    model: Callable[[], onnx.ModelProto]
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    below: int = 100


def _typed(graph: Graph, inputs: Types, outputs: Types) -> onnx.ModelProto:
    """The model of a graph with the given types of inputs and results."""
    values = [
        [helper.make_tensor_value_info(name, dtype, list(shape)) for name, (dtype, shape) in group.items()]
        for group in (inputs, outputs)
    ]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, graph.name, values[0], values[1], graph.initializers), opset_imports=opsets)
    model.ir_version = IR_VERSION
    return model


def _product(m: int | str, k: int, n: int, dtype: int = F32, tail: str = "") -> onnx.ModelProto:
    g = Graph("product")
    y = g.add("MatMul", ["a", "b"])
    y = g.add(tail, [y]) if tail else y
    return _typed(g, {"a": (dtype, (m, k)), "b": (dtype, (k, n))}, {y: (dtype, (m, n))})


def _dense(m: int | str, k: int, n: int) -> onnx.ModelProto:
    """A product with packed weights, followed by a bias and a sigmoid."""
    g = Graph("dense")
    y = g.add("Sigmoid", [g.add("Add", [g.add("MatMul", ["x", g.weight((k, n), k)]), g.bias(n)])])
    return g.model({"x": (m, k)}, {y: (m, n)})


def _batched() -> onnx.ModelProto:
    """Scores of attention: batched products with one operand transposed."""
    g = Graph("batched")
    y = g.add("MatMul", ["q", g.add("Transpose", ["k"], perm=[0, 1, 3, 2])])
    return g.model({"q": (2, 3, 37, 24), "k": (2, 3, 41, 24)}, {y: (2, 3, 37, 41)})


def _broadcast_product() -> onnx.ModelProto:
    """A product of a tensor of four dimensions and one weight matrix."""
    g = Graph("broadcast_product")
    return g.model({"x": (2, 5, 9, 48)}, {g.add("MatMul", ["x", g.weight((48, 40), 48)]): (2, 5, 9, 40)})


def _int8_product() -> onnx.ModelProto:
    g = Graph("int8_product")
    y = g.add("MatMulInteger", ["a", "b"])
    return _typed(g, {"a": (U8, (33, 70)), "b": (I8, (70, 45))}, {y: (I32, (33, 45))})


def _int8_dense() -> onnx.ModelProto:
    """QDQ around a product: quantised weights, requantised result."""
    g = Graph("int8_dense")
    scale, zero = g.constant(np.array(0.02, np.float32)), g.constant(np.array(3, np.uint8))
    weights = g.constant(g.random.integers(-127, 128, (64, 47)).astype(np.int8))
    scales, zeros = g.constant(np.full(47, 0.01, np.float32)), g.constant(np.zeros(47, np.int8))
    wide = g.add("DequantizeLinear", ["x", scale, zero])
    y = g.add("MatMul", [wide, g.add("DequantizeLinear", [weights, scales, zeros], axis=1)])
    y = g.add("QuantizeLinear", [y, scale, zero])
    return _typed(g, {"x": (U8, (21, 64))}, {y: (U8, (21, 47))})


def _nbits() -> onnx.ModelProto:
    """A product of one row and 4-bit weights in blocks of 32."""
    g = Graph("nbits")
    packed = g.constant(g.random.integers(0, 256, (50, 4, 16)).astype(np.uint8))
    scales = g.constant(g.random.random(50 * 4).astype(np.float32))
    y = g.add("MatMulNBits", ["x", packed, scales], K=128, N=50, bits=4, block_size=32, domain="com.microsoft")
    return _typed(g, {"x": (F32, (1, 128))}, {y: (F32, (1, 50))})


def _convolution(
    image: Sequence[int], filters: Sequence[int], operator: str = "Conv", out: Sequence[int | str] = (),
    **attributes: object,
) -> onnx.ModelProto:
    """A convolution with bias and relu; `out` is the shape of its result."""
    g = Graph("convolution")
    channels = filters[0] if operator == "Conv" else filters[1]
    weight = g.weight(filters, int(np.prod(filters[1:])))
    y = g.add(operator, ["x", weight, g.bias(channels)], kernel_shape=list(filters[2:]), **attributes)
    return g.model({"x": image}, {g.add("Relu", [y]): out})


def _int8_convolution() -> onnx.ModelProto:
    g = Graph("int8_convolution")
    weights = g.constant(g.random.integers(-127, 128, (20, 12, 3, 3)).astype(np.int8))
    y = g.add("ConvInteger", ["x", weights, g.constant(np.array(7, np.uint8))], kernel_shape=[3, 3], pads=[1] * 4)
    return _typed(g, {"x": (U8, (1, 12, 13, 11))}, {y: (I32, (1, 20, 13, 11))})


def _row_operator(operator: str, shape: Sequence[int | str], dtype: int = F32, **attributes: object) -> onnx.ModelProto:
    g = Graph(operator.lower())
    return _typed(g, {"x": (dtype, shape)}, {g.add(operator, ["x"], **attributes): (dtype, shape)})


def _layernorm(rows: int, columns: int) -> onnx.ModelProto:
    g = Graph("layernorm")
    y = g.add("LayerNormalization", ["x", g.bias(columns), g.bias(columns)], axis=-1)
    return g.model({"x": (rows, columns)}, {y: (rows, columns)})


def _group_norm() -> onnx.ModelProto:
    """Group normalisation of a channels-first image."""
    g = Graph("group_norm")
    shape = g.constant(np.array([2, 4, -1], np.int64))
    y = g.add("InstanceNormalization", [
        g.add("Reshape", ["x", shape]), g.constant(np.ones(4, np.float32)), g.constant(np.zeros(4, np.float32))])
    y = g.add("Reshape", [y, g.constant(np.array([2, 12, 9, 7], np.int64))])
    return g.model({"x": (2, 12, 9, 7)}, {g.add("Mul", [y, g.add("Sigmoid", [y])]): (2, 12, 9, 7)})


def _chain(dtype: int) -> onnx.ModelProto:
    """A chain of element-wise operations with a broadcast row."""
    g = Graph("chain")
    y = g.add("Mul", [g.add("Tanh", [g.add("Add", ["x", "b"])]), g.add("Exp", [g.add("Neg", ["x"])])])
    return _typed(g, {"x": (dtype, (67, 131)), "b": (dtype, (131,))}, {y: (dtype, (67, 131))})


def _reduction(axis: int, shape: Sequence[int], out: Sequence[int], dtype: int) -> onnx.ModelProto:
    g = Graph("reduction")
    y = g.add("ReduceSum", ["x", g.constant(np.array([axis], np.int64))], keepdims=0)
    return _typed(g, {"x": (dtype, shape)}, {y: (dtype, out)})


def _transpose(dtype: int) -> onnx.ModelProto:
    g = Graph("transpose")
    y = g.add("Transpose", ["x"], perm=[0, 2, 1])
    return _typed(g, {"x": (dtype, (3, 61, 47))}, {y: (dtype, (3, 47, 61))})


def _pool() -> onnx.ModelProto:
    g = Graph("pool")
    y = g.add("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return g.model({"x": (1, 12, 23, 19)}, {y: (1, 12, 12, 10)})


def _gather() -> onnx.ModelProto:
    g = Graph("gather")
    y = g.add("Gather", ["table", "rows"], axis=0)
    return _typed(g, {"table": (F32, (101, 33)), "rows": (I64, (7, 11))}, {y: (F32, (7, 11, 33))})


def _scatter() -> onnx.ModelProto:
    g = Graph("scatter")
    y = g.add("ScatterElements", ["x", "rows", "updates"], axis=0, reduction="add")
    shape = (53, 17)
    return _typed(g, {"x": (F32, (101, 17)), "rows": (I64, shape), "updates": (F32, shape)}, {y: (F32, (101, 17))})


def _resize() -> onnx.ModelProto:
    g = Graph("resize")
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    y = g.add("Resize", ["x", "", scales], mode="linear", coordinate_transformation_mode="half_pixel")
    return g.model({"x": (1, 5, 13, 11)}, {y: (1, 5, 26, 22)})


def _top() -> onnx.ModelProto:
    g = Graph("top")
    g.nodes.append(helper.make_node("TopK", ["x", g.constant(np.array([5], np.int64))], ["values", "places"]))
    return _typed(g, {"x": (F32, (9, 83))}, {"values": (F32, (9, 5)), "places": (I64, (9, 5))})


def _cumulative() -> onnx.ModelProto:
    g = Graph("cumulative")
    y = g.add("CumSum", ["x", g.constant(np.array(1, np.int64))])
    return _typed(g, {"x": (F64, (13, 57))}, {y: (F64, (13, 57))})


def _recurrent(operator: str, gates: int) -> onnx.ModelProto:
    """Seven steps of one layer, a batch of three."""
    g = Graph(operator.lower())
    weights = [g.weight((1, gates * 20, 12), 12), g.weight((1, gates * 20, 20), 20)]
    bias = g.constant(np.zeros((1, 2 * gates * 20), np.float32))
    y = g.add(operator, ["x", *weights, bias], hidden_size=20)
    return g.model({"x": (7, 3, 12)}, {y: (7, 1, 3, 20)})


PROGRAMS: Sequence[Program] = (
    # products
    Program("product-f32", lambda: _product(67, 93, 71)),
    Program("product-f32-row", lambda: _product(1, 131, 77)),
    Program("product-f32-narrow", lambda: _product(129, 64, 3, tail="Exp")),
    Program("product-f64", lambda: _product(35, 49, 41, F64)),
    Program("product-f16", lambda: _product(19, 40, 37, F16)),
    Program("product-bf16", lambda: _product(19, 40, 37, BF16)),
    Program("product-i32", lambda: _product(23, 31, 29, I32)),
    Program("product-batched", _batched),
    Program("product-broadcast", _broadcast_product),
    Program("dense-f32", lambda: _dense(33, 64, 50)),
    Program("dense-f32-dynamic", lambda: _dense("n", 64, 50), {"n": 37}),
    Program("product-int8", _int8_product),
    Program("dense-int8-qdq", _int8_dense),
    Program("dense-4bit-row", _nbits),
    # convolutions
    Program("conv-3x3", lambda: _convolution((1, 16, 15, 13), (24, 16, 3, 3), out=(1, 24, 15, 13), pads=[1] * 4)),
    Program("conv-1x1-stride", lambda: _convolution(
        (2, 24, 15, 13), (20, 24, 1, 1), out=(2, 20, 8, 7), strides=[2, 2])),
    Program("conv-3x3-one-channel", lambda: _convolution((5, 1, 14, 14), (32, 1, 3, 3), out=(5, 32, 12, 12))),
    Program("conv-depthwise", lambda: _convolution(
        (1, 24, 15, 13), (24, 1, 5, 5), out=(1, 24, 15, 13), pads=[2] * 4, group=24)),
    Program("conv-grouped", lambda: _convolution(
        (1, 24, 11, 9), (36, 8, 3, 3), out=(1, 36, 11, 9), pads=[1] * 4, group=3)),
    Program("conv-dilated", lambda: _convolution(
        (1, 10, 17, 15), (14, 10, 3, 3), out=(1, 14, 17, 15), pads=[2] * 4, dilations=[2, 2])),
    # rows, element-wise, movement
    Program("softmax-f32", lambda: _row_operator("Softmax", (41, 77))),
    Program("softmax-f16", lambda: _row_operator("Softmax", (11, 77), F16)),
    Program("softmax-dynamic", lambda: _row_operator("Softmax", ("n", 77)), {"n": 23}),
    Program("layernorm", lambda: _layernorm(37, 93)),
    Program("group-norm", _group_norm),
    Program("chain-f32", lambda: _chain(F32)),
    Program("chain-f64", lambda: _chain(F64)),
    Program("sum-last-f32", lambda: _reduction(1, (53, 211), (53,), F32)),
    Program("sum-first-f64", lambda: _reduction(0, (211, 53), (53,), F64)),
    Program("transpose-f32", lambda: _transpose(F32)),
    Program("transpose-i8", lambda: _transpose(I8)),
    Program("max-pool", _pool),
    # operators without a kernel class
    Program("conv-1d", lambda: _convolution((1, 20, 101), (24, 20, 5), out=(1, 24, 97))),
    Program("conv-3d", lambda: _convolution((1, 6, 7, 9, 11), (8, 6, 3, 3, 3), out=(1, 8, 7, 9, 11), pads=[1] * 6)),
    Program("conv-transposed", lambda: _convolution(
        (1, 12, 9, 7), (12, 10, 4, 4), "ConvTranspose", out=(1, 10, 18, 14), strides=[2, 2], pads=[1] * 4)),
    Program("conv-int8", _int8_convolution),
    Program("gru", lambda: _recurrent("GRU", 3)),
    Program("lstm", lambda: _recurrent("LSTM", 4)),
    Program("gather", _gather),
    Program("scatter-add", _scatter, below=101),
    Program("resize-linear", _resize),
    Program("top-k", _top),
    Program("cumulative-sum-f64", _cumulative),
)
