"""Many ONNX nodes compiled as one model, each of which has inputs and results of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import motet


@dataclass
class Node:
    """An operator with its inputs, None where one is absent; those at the places `fixed` are constants."""

    operator: str
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    domain: str = ""
    results: int = 1
    fixed: Sequence[int] = ()


def model_of(nodes: Sequence[Node], **opsets: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One model of all `nodes`, and what its inputs are."""
    made: list[onnx.NodeProto] = []
    given: dict[str, np.ndarray] = {}
    constants: list[onnx.TensorProto] = []
    for number, node in enumerate(nodes):
        names = [f"x{number}_{place}" if value is not None else "" for place, value in enumerate(node.inputs)]
        results = [f"y{number}_{place}" for place in range(node.results)]
        made.append(onnx.helper.make_node(node.operator, names, results, f"{node.operator}{number}",
                                          domain=node.domain, **node.attributes))
        for place, (name, value) in enumerate(zip(names, node.inputs, strict=True)):
            if value is not None and place in node.fixed:
                constants.append(onnx.numpy_helper.from_array(value, name))
            elif value is not None:
                given[name] = value
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for name, value in given.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for node in made for name in node.output]
    graph = onnx.helper.make_graph(made, "main", inputs, outputs, constants)
    domains = [onnx.helper.make_opsetid(name.replace("_", "."), version) for name, version in opsets.items()]
    return onnx.helper.make_model(graph, opset_imports=domains, ir_version=9), given


def run(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    found = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))(*given.values())
    return list(found) if isinstance(found, tuple | list) else [found]
