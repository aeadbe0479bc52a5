"""An ONNX model as a torch program that runs its nodes in order by torch functions.

It supports the operators of the benchmarks' models. In float64 it is the reference for whole networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
import torch.nn.functional as F  # noqa: N812 - as torch's users write it
from onnx import numpy_helper


def _half(pads: list[int]) -> list[int]:
    before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if before != after:
        raise ValueError(f"padding {pads}: torch pads both sides alike")
    return before


def _conv(a: dict[str, Any], x: Any, weight: Any, bias: Any = None) -> Any:
    return F.conv2d(x, weight, bias, a.get("strides", 1), _half(a["pads"]), 1, a.get("group", 1))


def _reshape(a: dict[str, Any], x: Any, shape: list[int]) -> Any:
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape)])


OPERATORS: dict[str, Callable[..., Any]] = {
    "MatMul": lambda a, x, y: torch.matmul(x, y),
    "MatMulInteger": lambda a, x, y: torch._int_mm(x, y),
    "Add": lambda a, x, y: x + y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Erf": lambda a, x: torch.erf(x),
    "Relu": lambda a, x: F.relu(x),
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Clip": lambda a, x, low, high: torch.clamp(x, low, high),
    "Softmax": lambda a, x: F.softmax(x, a["axis"]),
    "LayerNormalization": lambda a, x, s, b: F.layer_norm(x, x.shape[-1:], s, b, a["epsilon"]),
    "Conv": _conv,
    "BatchNormalization": lambda a, x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=a["epsilon"]),
    "MaxPool": lambda a, x: F.max_pool2d(x, a["kernel_shape"], a["strides"], _half(a["pads"])),
    "GlobalAveragePool": lambda a, x: F.adaptive_avg_pool2d(x, 1),
    "Flatten": lambda a, x: torch.flatten(x, a["axis"]),
    "Gemm": lambda a, x, w, b: F.linear(x, w if a.get("transB") else w.T, b),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Reshape": _reshape,
}


class TorchGraph(torch.nn.Module):
    """The model's graph; called with tensors for its inputs, returns its first result.

    Constants are buffers, except shapes and scalars, which are Python numbers as in hand-written models.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self.plain: dict[str, Any] = {}
        for initializer in model.graph.initializer:
            array = numpy_helper.to_array(initializer)
            if array.ndim == 0 or array.dtype.kind == "i":
                self.plain[initializer.name] = array.tolist()
            else:
                self.register_buffer(initializer.name, torch.from_numpy(array.copy()))
        self.names = [value.name for value in model.graph.input]
        self.result = model.graph.output[0].name
        self.steps = [
            (OPERATORS[node.op_type], list(node.input), node.output[0],
             {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute})
            for node in model.graph.node
        ]

    def forward(self, *inputs: Any) -> Any:
        values: dict[str, Any] = {**self.plain, **dict(self.named_buffers())}
        values.update(zip(self.names, inputs, strict=True))
        for operator, names, result, attributes in self.steps:
            values[result] = operator(attributes, *(values[name] for name in names))
        return values[self.result]
