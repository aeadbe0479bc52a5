"""Quantises a network of convolutions: `python examples/quantise.py resnet18.onnx resnet18_int8.onnx`.

The result has QuantizeLinear and DequantizeLinear around convolutions, products, additions and pools, in the form that
ONNX Runtime's quantiser writes: bytes with one zero point for activations, signed bytes with one scale per filter for
weights, and biases of 32 bits. Batch normalisation becomes part of the convolution before it. The ranges of
activations are those of one random image, which suits random weights: a trained network needs images of its task.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import motet

QUANTISED = ("Conv", "Gemm", "Add", "MaxPool", "GlobalAveragePool", "Flatten")


def fold_normalisations(model: onnx.ModelProto) -> None:
    """Makes each BatchNormalization part of the Conv before it."""
    graph = model.graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    makers = {node.output[0]: node for node in graph.node}
    for node in [each for each in graph.node if each.op_type == "BatchNormalization"]:
        conv = makers[node.input[0]]
        scale, shift, mean, variance = (arrays[name].astype(np.float64) for name in node.input[1:5])
        factor = scale / np.sqrt(variance + next(a.f for a in node.attribute if a.name == "epsilon"))
        weight = arrays[conv.input[1]] * factor[:, None, None, None]
        bias = (arrays[conv.input[2]] if len(conv.input) > 2 else 0) * factor + shift - mean * factor
        names = [f"{conv.name}_weight", f"{conv.name}_bias"]
        for name, array in zip(names, (weight, bias), strict=True):
            graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
        inputs = [conv.input[0], *names]
        del conv.input[:]
        conv.input.extend(inputs)
        conv.output[0] = node.output[0]
        graph.node.remove(node)


def ranges(model: onnx.ModelProto, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The least and greatest element of the values `names` for one random image."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    wanted = sorted(set(names) - {model.graph.input[0].name})
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted)
    shape = [each.dim_value or 1 for each in model.graph.input[0].type.tensor_type.shape.dim]
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inferred = onnx.shape_inference.infer_shapes(probe)
    results = motet.load(motet.compile(inferred))(image)
    arrays = dict(zip(wanted, results, strict=True)) | {model.graph.input[0].name: image}
    return {name: (float(np.min(array)), float(np.max(array))) for name, array in arrays.items()}


class Quantiser:
    """Rewrites a graph of floats; `found` are the ranges of its values."""

    def __init__(self, model: onnx.ModelProto, found: dict[str, tuple[float, float]]) -> None:
        self.graph = model.graph
        self.arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        self.found = found
        self.nodes: list[onnx.NodeProto] = []
        self.made: dict[str, str] = {}
        self.scales: dict[str, np.ndarray] = {}

    def run(self) -> None:
        for node in self.graph.node:
            follows = [each for each in self.graph.node if node.output[0] in each.input]
            if node.op_type in QUANTISED:
                self._inputs(node)
            self.nodes.append(node)
            joined = len(follows) == 1 and follows[0].op_type == "Relu"
            if node.op_type in (*QUANTISED, "Relu") and not joined and follows:
                self._activation(node.output[0])
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)

    def _inputs(self, node: onnx.NodeProto) -> None:
        for place, name in enumerate(node.input):
            if name not in self.arrays:
                node.input[place] = self._activation(name)
        if node.op_type in ("Conv", "Gemm"):
            step = self.scales[node.input[0]]
            weight = self._weight(node.input[1], np.ones(()))
            node.input[1] = weight
            if len(node.input) > 2:
                node.input[2] = self._weight(node.input[2], step * self.scales[weight], np.int32)

    def _activation(self, name: str) -> str:
        """The name of `name` after quantisation and its inverse."""
        if name not in self.made:
            low, high = (min(self.found[name][0], 0.0), max(self.found[name][1], 0.0))
            step = np.float32(max(high - low, 1e-6) / 255)
            self._pair(name, np.array(step), np.array(np.clip(round(-low / float(step)), 0, 255), np.uint8))
        return self.made[name]

    def _weight(self, name: str, steps: np.ndarray, kind: type = np.int8) -> str:
        """The name of the constant `name`, quantised along its first axis by `steps`, or by its own ranges."""
        array = self.arrays[name].astype(np.float64)
        if kind is np.int8:
            steps = np.maximum(np.abs(array.reshape(len(array), -1)).max(axis=1), 1e-9) / 127
        steps = np.asarray(steps, np.float32)
        along = steps.reshape(-1, *[1] * (array.ndim - 1)).astype(np.float64)
        self.graph.initializer.append(numpy_helper.from_array(np.rint(array / along).astype(kind), f"{name}_quantised"))
        self._dequantise(name, f"{name}_quantised", steps, np.zeros(len(array), kind), axis=0)
        return self.made[name]

    def _pair(self, name: str, step: np.ndarray, zero: np.ndarray) -> None:
        numbers = self._numbers(name, step, zero)
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *numbers], [f"{name}_q"], name=f"{name}_quantise"))
        self._dequantise(name, f"{name}_q", step, zero)

    def _numbers(self, name: str, step: np.ndarray, zero: np.ndarray) -> list[str]:
        names = [f"{name}_scale", f"{name}_zero"]
        if names[0] not in self.scales:
            self.scales[names[0]] = step
            self.graph.initializer.extend(
                numpy_helper.from_array(a, n) for a, n in zip((step, zero), names, strict=True))
        return names

    def _dequantise(self, name: str, value: str, step: np.ndarray, zero: np.ndarray, axis: int = 1) -> None:
        result = self.made[name] = f"{name}_real"
        self.scales[result] = step
        self.nodes.append(helper.make_node(
            "DequantizeLinear", [value, *self._numbers(name, step, zero)], [result], name=f"{name}_dequantise",
            axis=axis))


def quantise(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` in 8 bits, with its own input and result in f32."""
    fold_normalisations(model)
    values = [name for node in model.graph.node for name in (*node.input, *node.output)]
    constants = {each.name for each in model.graph.initializer}
    Quantiser(model, ranges(model, (name for name in values if name not in constants))).run()
    used = {name for node in model.graph.node for name in node.input}
    for each in [each for each in model.graph.initializer if each.name not in used]:
        model.graph.initializer.remove(each)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    onnx.save(quantise(onnx.load(arguments.source)), arguments.path)


if __name__ == "__main__":
    main()
