"""Well-known networks as ONNX models, random weights: `python examples/models.py resnet18 resnet18.onnx`.

Weights are drawn with a fixed seed and scaled by their fan-in (He et al. 2015), so that activations keep
their magnitude through any depth and results can be compared with tight tolerances. The architectures follow
He et al. 2016 (ResNet, with the stride in the 3x3 of a bottleneck), Sandler et al. 2018 (MobileNetV2), Szegedy et al.
2016 (Inception-v3, normalisation folded into biases), Ronneberger et al. 2015 (U-Net, padded), Vaswani et al. 2017
(encoder block, normalisation first, exact gelu) and Radford et al. 2019 (GPT-2 block). Needs only `onnx` and numpy.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IR_VERSION = 9


class Graph:
    """An ONNX graph under construction: nodes in order, initializers, fresh names, seeded weights."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        count = self._count[stem] = self._count.get(stem, 0) + 1
        return f"{stem}_{count}"

    def add(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        """Append a node with one output and return that output's name."""
        output = self.fresh(op_type.lower())
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, array: np.ndarray, stem: str = "constant") -> str:
        name = self.fresh(stem)
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, shape: Sequence[int], fan_in: int, gain: float = 2.0, stem: str = "weight") -> str:
        scale = (gain / fan_in) ** 0.5
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32), stem)

    def bias(self, size: int, stem: str = "bias") -> str:
        return self.constant((self.random.standard_normal(size) * 0.1).astype(np.float32), stem)

    def model(
        self,
        inputs: dict[str, Sequence[int | str]],
        outputs: dict[str, Sequence[int | str]],
        dtype: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        """The finished model. Keys of `outputs` name values of the graph."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in outputs.items()],
            self.initializers,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="motet-examples"
        )
        model.ir_version = IR_VERSION
        return model


def two_conv(batch: int = 1024, size: int = 28, filters: int = 64, seed: int = 0) -> onnx.ModelProto:
    """Two 3x3 convolutions of one single-channel input, each with a bias, and their sum."""
    g = Graph("two_conv", seed)
    branches = [
        g.add(
            "Conv",
            ["x", g.weight((filters, 1, 3, 3), 9), g.bias(filters)],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        )
        for _ in range(2)
    ]
    y = g.add("Add", branches)
    return g.model({"x": (batch, 1, size, size)}, {y: (batch, filters, size, size)})


def mlp(
    batch: int | str = 64, sizes: Sequence[int] = (1024, 4096, 1024), seed: int = 0
) -> onnx.ModelProto:
    """Dense layers with relu between them. `batch` may be a name: a dynamic extent."""
    g = Graph("mlp", seed)
    value = "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        value = g.add("MatMul", [value, g.weight((rows, columns), rows)])
        value = g.add("Add", [value, g.bias(columns)])
        if layer < len(sizes) - 2:
            value = g.add("Relu", [value])
    return g.model({"x": (batch, sizes[0])}, {value: (batch, sizes[-1])})


def _conv_norm(
    g: Graph,
    x: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: str = "",
    gain: float = 2.0,
) -> str:
    """Convolution without a bias, batch normalisation, and `activation`: "", "relu" or "relu6"."""
    c_in, c_out = channels
    fan_in = c_in // groups * kernel * kernel
    pad = kernel // 2
    y = g.add(
        "Conv",
        [x, g.weight((c_out, c_in // groups, kernel, kernel), fan_in, gain)],
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
        group=groups,
    )
    scale = g.constant((1 + 0.1 * g.random.standard_normal(c_out)).astype(np.float32), "scale")
    shift, mean = g.bias(c_out, "shift"), g.bias(c_out, "mean")
    variance = g.constant((1 + 0.2 * g.random.random(c_out)).astype(np.float32), "variance")
    y = g.add("BatchNormalization", [y, scale, shift, mean, variance], epsilon=1e-5)
    if activation == "relu":
        return g.add("Relu", [y])
    if activation == "relu6":
        low = g.constant(np.array(0, np.float32), "low")
        return g.add("Clip", [y, low, g.constant(np.array(6, np.float32), "high")])
    return y


def _classifier(g: Graph, x: str, features: int, classes: int) -> str:
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])], axis=1)
    return g.add("Gemm", [x, g.weight((classes, features), features, 1.0), g.bias(classes)], transB=1)


def _basic_block(g: Graph, x: str, c_in: int, width: int, stride: int) -> tuple[str, int]:
    y = _conv_norm(g, x, (c_in, width), 3, stride, activation="relu")
    y = _conv_norm(g, y, (width, width), 3, gain=1.0)
    if stride != 1 or c_in != width:
        x = _conv_norm(g, x, (c_in, width), 1, stride, gain=1.0)
    return g.add("Relu", [g.add("Add", [y, x])]), width


def _bottleneck(g: Graph, x: str, c_in: int, width: int, stride: int) -> tuple[str, int]:
    c_out = 4 * width
    y = _conv_norm(g, x, (c_in, width), 1, activation="relu")
    y = _conv_norm(g, y, (width, width), 3, stride, activation="relu")
    y = _conv_norm(g, y, (width, c_out), 1, gain=0.5)
    if stride != 1 or c_in != c_out:
        x = _conv_norm(g, x, (c_in, c_out), 1, stride, gain=1.0)
    return g.add("Relu", [g.add("Add", [y, x])]), c_out


def _resnet(
    name: str,
    block: Callable[[Graph, str, int, int, int], tuple[str, int]],
    depths: Sequence[int],
    batch: int | str,
    size: int,
    width: int,
    classes: int,
    seed: int,
) -> onnx.ModelProto:
    g = Graph(name, seed)
    x = _conv_norm(g, "x", (3, width), 7, 2, activation="relu")
    x = g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            x, channels = block(g, x, channels, width << stage, stride)
    y = _classifier(g, x, channels, classes)
    return g.model({"x": (batch, 3, size, size)}, {y: (batch, classes)})


def resnet18(
    batch: int | str = 1, size: int = 224, width: int = 64, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """ResNet-18; `width` channels in the first stage."""
    return _resnet("resnet18", _basic_block, (2, 2, 2, 2), batch, size, width, classes, seed)


def resnet50(
    batch: int | str = 1, size: int = 224, width: int = 64, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """ResNet-50; `width` channels in the first stage."""
    return _resnet("resnet50", _bottleneck, (3, 4, 6, 3), batch, size, width, classes, seed)


# Expansion factor, output channels, repetitions, stride of the first repetition.
MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    batch: int | str = 1,
    size: int = 224,
    stages: Sequence[tuple[int, int, int, int]] = MOBILENET_STAGES,
    features: int = 1280,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    """MobileNetV2: inverted residuals of pointwise and depthwise convolutions, relu6 written as Clip."""
    g = Graph("mobilenet_v2", seed)
    channels = 32
    x = _conv_norm(g, "x", (3, channels), 3, 2, activation="relu6")
    for expansion, c_out, repetitions, first_stride in stages:
        for index in range(repetitions):
            stride = first_stride if index == 0 else 1
            hidden = channels * expansion
            y = x
            if expansion != 1:
                y = _conv_norm(g, y, (channels, hidden), 1, activation="relu6")
            y = _conv_norm(g, y, (hidden, hidden), 3, stride, groups=hidden, activation="relu6")
            y = _conv_norm(g, y, (hidden, c_out), 1, gain=1.0)
            x = g.add("Add", [x, y]) if stride == 1 and channels == c_out else y
            channels = c_out
    x = _conv_norm(g, x, (channels, features), 1, activation="relu6")
    y = _classifier(g, x, features, classes)
    return g.model({"x": (batch, 3, size, size)}, {y: (batch, classes)})


def _layer_norm(g: Graph, x: str, width: int) -> str:
    scale = g.constant((1 + 0.1 * g.random.standard_normal(width)).astype(np.float32), "scale")
    return g.add("LayerNormalization", [x, scale, g.bias(width, "shift")], axis=-1, epsilon=1e-5)


def _linear(g: Graph, x: str, rows: int, columns: int, gain: float = 1.0) -> str:
    return g.add("Add", [g.add("MatMul", [x, g.weight((rows, columns), rows, gain)]), g.bias(columns)])


def _attention(g: Graph, x: str, batch: int | str, width: int, heads: int) -> str:
    """Multi-head self-attention. Reshapes keep the batch (0) and infer the sequence length (-1)."""
    head = width // heads
    split = g.constant(np.array([0, -1, heads, head], np.int64), "split")
    query, key, value = (g.add("Reshape", [_linear(g, x, width, width), split]) for _ in range(3))
    query = g.add("Transpose", [query], perm=[0, 2, 1, 3])
    key = g.add("Transpose", [key], perm=[0, 2, 3, 1])
    value = g.add("Transpose", [value], perm=[0, 2, 1, 3])
    scores = g.add(
        "Mul", [g.add("MatMul", [query, key]), g.constant(np.array(head**-0.5, np.float32), "scale")]
    )
    mixed = g.add("MatMul", [g.add("Softmax", [scores], axis=-1), value])
    mixed = g.add("Transpose", [mixed], perm=[0, 2, 1, 3])
    mixed = g.add("Reshape", [mixed, g.constant(np.array([0, -1, width], np.int64), "join")])
    return _linear(g, mixed, width, width)


def _gelu(g: Graph, x: str) -> str:
    """0.5 x (1 + erf(x / sqrt 2)), in the four operators that exporters write."""
    root, one, half = (
        g.constant(np.array(number, np.float32), "number") for number in (2**0.5, 1.0, 0.5)
    )
    gate = g.add("Add", [g.add("Erf", [g.add("Div", [x, root])]), one])
    return g.add("Mul", [g.add("Mul", [x, gate]), half])


def encoder(
    batch: int | str = 1,
    sequence: int | str = 128,
    width: int = 768,
    heads: int = 12,
    layers: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """A stack of transformer encoder blocks, `batch` x `sequence` x `width` to the same shape."""
    g = Graph("encoder", seed)
    x = _encoder_layers(g, "x", batch, width, heads, layers)
    return g.model({"x": (batch, sequence, width)}, {x: (batch, sequence, width)})


def _encoder_layers(g: Graph, x: str, batch: int | str, width: int, heads: int, layers: int) -> str:
    for _ in range(layers):
        x = g.add("Add", [x, _attention(g, _layer_norm(g, x, width), batch, width, heads)])
        hidden = _gelu(g, _linear(g, _layer_norm(g, x, width), width, 4 * width))
        x = g.add("Add", [x, _linear(g, hidden, 4 * width, width)])
    return x


def bert(
    batch: int | str = 1,
    sequence: int = 128,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    vocabulary: int = 30522,
    seed: int = 0,
) -> onnx.ModelProto:
    """Token and position embedding, encoder blocks, a last normalisation: int64 tokens to hidden states."""
    g = Graph("bert", seed)
    table = g.weight((vocabulary, width), 1, 1.0, "embedding")
    x = g.add("Gather", [table, "tokens"], axis=0)
    x = g.add("Add", [x, g.weight((sequence, width), 1, 0.1, "position")])
    x = _layer_norm(g, _encoder_layers(g, x, batch, width, heads, layers), width)
    model = g.model({"tokens": (batch, sequence)}, {x: (batch, sequence, width)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return model


def _conv_relu(
    g: Graph, x: str, channels: tuple[int, int], kernel: tuple[int, int] = (1, 1), stride: int = 1, same: bool = True
) -> str:
    """Convolution with a bias, and relu; `same` pads, so that a stride of 1 keeps the extents."""
    c_in, c_out = channels
    pads = [kernel[0] // 2, kernel[1] // 2] * 2 if same else [0] * 4
    weight = g.weight((c_out, c_in, *kernel), c_in * kernel[0] * kernel[1])
    y = g.add(
        "Conv", [x, weight, g.bias(c_out)], kernel_shape=list(kernel), strides=[stride, stride], pads=pads,
    )
    return g.add("Relu", [y])


# A block's branches; each is a sequence of convolutions: output channels, kernel.
Branch = Sequence[tuple[int, tuple[int, int]]]


def _branches(g: Graph, x: str, c_in: int, branches: Sequence[Branch], stride: int = 1) -> tuple[list[str], int]:
    """The branches of an Inception block; a stride applies to the last convolution, which is then not padded."""
    ends, total = [], 0
    for branch in branches:
        y, channels = x, c_in
        for position, (c_out, kernel) in enumerate(branch):
            last = stride > 1 and position == len(branch) - 1
            y = _conv_relu(g, y, (channels, c_out), kernel, stride if last else 1, not last)
            channels = c_out
        ends.append(y)
        total += channels
    return ends, total


def _inception_block(g: Graph, x: str, c_in: int, branches: Sequence[Branch], pooled: int) -> tuple[str, int]:
    """Branches, and one of average pooling with `pooled` channels."""
    ends, total = _branches(g, x, c_in, branches)
    mean = g.add("AveragePool", [x], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=1)
    ends.append(_conv_relu(g, mean, (c_in, pooled)))
    return g.add("Concat", ends, axis=1), total + pooled


def _reduction_block(g: Graph, x: str, c_in: int, branches: Sequence[Branch]) -> tuple[str, int]:
    """Branches of stride 2, and max pooling."""
    ends, total = _branches(g, x, c_in, branches, 2)
    ends.append(g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2]))
    return g.add("Concat", ends, axis=1), total + c_in


def inception_v3(
    batch: int = 1, size: int = 299, divisor: int = 1, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """Inception-v3 without the auxiliary classifier; branches that fork in the last blocks are separate whole branches.
    All widths are divided by `divisor`."""
    g = Graph("inception_v3", seed)

    def c(channels: int) -> int:
        return max(1, channels // divisor)

    def branch(*steps: tuple[int, int, int]) -> Branch:
        return [(c(channels), (height, width)) for channels, height, width in steps]

    x = _conv_relu(g, "x", (3, c(32)), (3, 3), 2, same=False)
    x = _conv_relu(g, x, (c(32), c(32)), (3, 3), same=False)
    x = _conv_relu(g, x, (c(32), c(64)), (3, 3))
    x = g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
    x = _conv_relu(g, x, (c(64), c(80)))
    x = _conv_relu(g, x, (c(80), c(192)), (3, 3), same=False)
    x = g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
    width = c(192)
    for pooled in (32, 64, 64):
        towers = [branch((64, 1, 1)), branch((48, 1, 1), (64, 5, 5)), branch((64, 1, 1), (96, 3, 3), (96, 3, 3))]
        x, width = _inception_block(g, x, width, towers, c(pooled))
    x, width = _reduction_block(g, x, width, [branch((384, 3, 3)), branch((64, 1, 1), (96, 3, 3), (96, 3, 3))])
    for n in (128, 160, 160, 192):
        towers = [
            branch((192, 1, 1)), branch((n, 1, 1), (n, 1, 7), (192, 7, 1)),
            branch((n, 1, 1), (n, 7, 1), (n, 1, 7), (n, 7, 1), (192, 1, 7)),
        ]
        x, width = _inception_block(g, x, width, towers, c(192))
    long = branch((192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3))
    x, width = _reduction_block(g, x, width, [branch((192, 1, 1), (320, 3, 3)), long])
    for _ in range(2):
        towers = [
            branch((320, 1, 1)), branch((384, 1, 1), (384, 1, 3)), branch((384, 1, 1), (384, 3, 1)),
            branch((448, 1, 1), (384, 3, 3), (384, 1, 3)), branch((448, 1, 1), (384, 3, 3), (384, 3, 1)),
        ]
        x, width = _inception_block(g, x, width, towers, c(192))
    y = _classifier(g, x, width, classes)
    return g.model({"x": (batch, 3, size, size)}, {y: (batch, classes)})


def unet(batch: int = 1, size: int = 256, width: int = 32, levels: int = 4, seed: int = 0) -> onnx.ModelProto:
    """U-Net: two convolutions on each level, down by max pooling, up by transposed convolution, with skip connections.
    `width` channels on the first level."""
    g = Graph("unet", seed)
    x, channels = "x", 3
    kept: list[str] = []
    for level in range(levels + 1):
        c_out = width << level
        x = _conv_relu(g, _conv_relu(g, x, (channels, c_out), (3, 3)), (c_out, c_out), (3, 3))
        channels = c_out
        if level < levels:
            kept.append(x)
            x = g.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for level in reversed(range(levels)):
        c_out = width << level
        weight = g.weight((channels, c_out, 2, 2), channels)
        x = g.add("ConvTranspose", [x, weight, g.bias(c_out)], kernel_shape=[2, 2], strides=[2, 2])
        x = g.add("Concat", [kept[level], x], axis=1)
        x = _conv_relu(g, _conv_relu(g, x, (2 * c_out, c_out), (3, 3)), (c_out, c_out), (3, 3))
        channels = c_out
    y = g.add("Conv", [x, g.weight((2, channels, 1, 1), channels, 1.0), g.bias(2)], kernel_shape=[1, 1])
    return g.model({"x": (batch, 3, size, size)}, {y: (batch, 2, size, size)})


def gpt2_block(
    batch: int = 1, sequence: int = 256, width: int = 768, heads: int = 12, layers: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """GPT-2 blocks: one product for queries, keys and values, a causal mask, gelu by tanh."""
    g = Graph("gpt2_block", seed)
    head = width // heads
    mask = g.constant(np.triu(np.full((sequence, sequence), -1e9, np.float32), 1), "mask")
    scale = g.constant(np.array(head**-0.5, np.float32), "scale")
    split = g.constant(np.array([batch, sequence, heads, head], np.int64), "split")
    join = g.constant(np.array([batch, sequence, width], np.int64), "join")
    x = "x"
    for _ in range(layers):
        joint = _linear(g, _layer_norm(g, x, width), width, 3 * width)
        parts = []
        for first in (0, width, 2 * width):
            bounds = [g.constant(np.array([n], np.int64), "bound") for n in (first, first + width, 2)]
            parts.append(g.add("Slice", [joint, *bounds]))
        query, key, value = (g.add("Reshape", [part, split]) for part in parts)
        query = g.add("Transpose", [query], perm=[0, 2, 1, 3])
        key = g.add("Transpose", [key], perm=[0, 2, 3, 1])
        value = g.add("Transpose", [value], perm=[0, 2, 1, 3])
        scores = g.add("Add", [g.add("Mul", [g.add("MatMul", [query, key]), scale]), mask])
        mixed = g.add("Transpose", [g.add("MatMul", [g.add("Softmax", [scores], axis=-1), value])], perm=[0, 2, 1, 3])
        x = g.add("Add", [x, _linear(g, g.add("Reshape", [mixed, join]), width, width)])
        hidden = _linear(g, _layer_norm(g, x, width), width, 4 * width)
        x = g.add("Add", [x, _linear(g, g.add("Gelu", [hidden], approximate="tanh"), 4 * width, width)])
    return g.model({"x": (batch, sequence, width)}, {x: (batch, sequence, width)})


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "two_conv": two_conv,
    "mlp": mlp,
    "mlp_dynamic": lambda: mlp(batch="batch"),
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "encoder": encoder,
    "bert": bert,
    "two_conv_small": lambda: two_conv(3, 9, 5),
    "mlp_small": lambda: mlp(5, (19, 67, 13)),
    "mlp_dynamic_small": lambda: mlp("batch", (19, 67, 13)),
    "resnet18_small": lambda: resnet18(1, 32, 8, 10),
    "resnet50_small": lambda: resnet50(1, 32, 4, 10),
    "mobilenet_v2_small": lambda: mobilenet_v2(
        1, 32, stages=((1, 8, 1, 1), (6, 12, 2, 2)), features=24, classes=10
    ),
    "encoder_small": lambda: encoder(2, 7, 24, 3),
    "encoder_dynamic_small": lambda: encoder("batch", "sequence", 24, 3),
    "bert_small": lambda: bert(2, 7, 24, 3, 2, 101),
    "inception_v3": inception_v3,
    "unet": unet,
    "gpt2_block": gpt2_block,
    "inception_v3_small": lambda: inception_v3(1, 75, 16, 10),
    "unet_small": lambda: unet(2, 24, 4, 3),
    "gpt2_block_small": lambda: gpt2_block(2, 7, 24, 3, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(MODELS[arguments.model](), arguments.path)


if __name__ == "__main__":
    main()
