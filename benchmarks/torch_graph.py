"""An ONNX model as a torch module, node by node: what torch is timed on."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as nnf


class OnnxModule(torch.nn.Module):
    """Runs the nodes of `model` with torch's own operators. Raises KeyError for an operator it has none for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        self.constants = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in graph.initializer}
        self.nodes = [
            (n.op_type, list(n.input), n.output[0], {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
            for n in graph.node
        ]
        self.inputs = [i.name for i in graph.input if i.name not in self.constants]
        self.output = graph.output[0].name
        missing = {op for op, *_ in self.nodes} - set(OPERATORS)
        if missing:
            raise KeyError(f"no torch operator for {', '.join(sorted(missing))}")

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        values: dict[str, Any] = {"": None, **self.constants, **dict(zip(self.inputs, arguments, strict=True))}
        for op, names, output, attributes in self.nodes:
            values[output] = OPERATORS[op]([values[name] for name in names], attributes)
        return values[self.output]


def _pads(attributes: dict[str, Any]) -> list[int]:
    pads = attributes.get("pads", [0, 0, 0, 0])
    return [pads[0], pads[1]]


def _conv(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    bias = x[2] if len(x) > 2 else None
    return nnf.conv2d(
        x[0], x[1], bias, a.get("strides", [1, 1]), _pads(a), a.get("dilations", [1, 1]), a.get("group", 1)
    )


def _batch_norm(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    return nnf.batch_norm(x[0], x[3], x[4], x[1], x[2], False, 0.0, a.get("epsilon", 1e-5))


def _gemm(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    left = x[0].T if a.get("transA") else x[0]
    right = x[1].T if a.get("transB") else x[1]
    return torch.addmm(x[2], left, right) if len(x) > 2 else left @ right


def _layer_norm(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    return nnf.layer_norm(x[0], x[1].shape, x[1], x[2], a.get("epsilon", 1e-5))


def _reduce_mean(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    axes = x[1].tolist() if len(x) > 1 else a["axes"]
    return x[0].mean(axes, keepdim=bool(a.get("keepdims", 1)))


def _clip(x: list[Any], a: dict[str, Any]) -> torch.Tensor:
    return x[0].clamp(*(None if bound is None else float(bound) for bound in x[1:]))


OPERATORS = {
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "Relu": lambda x, a: torch.relu(x[0]),
    "Sigmoid": lambda x, a: torch.sigmoid(x[0]),
    "Erf": lambda x, a: torch.erf(x[0]),
    "Sqrt": lambda x, a: torch.sqrt(x[0]),
    "Clip": _clip,
    "Add": lambda x, a: x[0] + x[1],
    "Sub": lambda x, a: x[0] - x[1],
    "Mul": lambda x, a: x[0] * x[1],
    "Div": lambda x, a: x[0] / x[1],
    "Pow": lambda x, a: x[0] ** x[1],
    "MatMul": lambda x, a: x[0] @ x[1],
    "Gemm": _gemm,
    "Softmax": lambda x, a: torch.softmax(x[0], a.get("axis", -1)),
    "LayerNormalization": _layer_norm,
    "ReduceMean": _reduce_mean,
    "MaxPool": lambda x, a: nnf.max_pool2d(x[0], a["kernel_shape"], a.get("strides"), _pads(a)),
    "GlobalAveragePool": lambda x, a: x[0].mean((2, 3), keepdim=True),
    "Flatten": lambda x, a: x[0].flatten(a.get("axis", 1)),
    "Reshape": lambda x, a: x[0].reshape(
        [x[0].shape[i] if size == 0 else size for i, size in enumerate(x[1].tolist())]
    ),
    "Transpose": lambda x, a: x[0].permute(a["perm"]),
    "Identity": lambda x, a: x[0],
}
