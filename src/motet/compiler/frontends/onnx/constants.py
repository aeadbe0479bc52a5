"""Moves the values of Constant nodes that are sparse or in a file to the constants that the model keeps as arrays.

    y = Constant[value = tensor with external data]()   →   y = Identity(y/value)

External data of other tensor attributes, and of those in functions, is loaded into the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import all_nodes, free_name

if TYPE_CHECKING:
    import onnx

    from motet.compiler.frontends.onnx.model import OnnxModel


def take_constants(model: OnnxModel) -> None:
    """Rewrites the model in place. Raises CompileError for data that is missing or does not fit."""
    import onnx

    taken: set[str] | None = None
    for node in all_nodes(model.proto.graph):
        value = _value(node)
        if value is None:
            _load_attributes(model, node)
            continue
        taken = taken or _names(model)
        name = free_name(f"{node.output[0]}/value", taken)
        taken.add(name)
        model.constants[name] = model.value(value, _called(node))
        reader = onnx.helper.make_node("Identity", [name], list(node.output), node.name, domain=node.domain)
        node.CopyFrom(reader)
    for function in model.proto.functions:
        for node in _function_nodes(function):
            _load_attributes(model, node)


def _value(node: onnx.NodeProto) -> onnx.TensorProto | onnx.SparseTensorProto | None:
    """The value of a Constant if it is sparse or external data; None otherwise."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for item in node.attribute:
        if item.name == "sparse_value" and item.HasField("sparse_tensor"):
            return item.sparse_tensor
        if item.name == "value" and item.HasField("t") and _is_external(item.t):
            return item.t
    return None


def _load_attributes(model: OnnxModel, node: onnx.NodeProto) -> None:
    import onnx

    for item in node.attribute:
        for tensor in [item.t] if item.HasField("t") else item.tensors:
            if _is_external(tensor):
                array = model.value(tensor, f"{_called(node)}, attribute {item.name}")
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _is_external(tensor: onnx.TensorProto) -> bool:
    import onnx

    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _called(node: onnx.NodeProto) -> str:
    return f"node {node.name!r}" if node.name else f"node that computes {list(node.output)}"


def _function_nodes(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in function.node:
        yield node
        for item in node.attribute:
            for graph in [item.g] if item.HasField("g") else item.graphs:
                yield from all_nodes(graph)


def _names(model: OnnxModel) -> set[str]:
    """The names of all values, including those of bodies."""
    names = {*model.constants, *(value.name for value in model.proto.graph.input)}
    for node in all_nodes(model.proto.graph):
        names.update(node.output)
        names.update(node.input)
        for item in node.attribute:
            for graph in [item.g] if item.HasField("g") else item.graphs:
                names.update(value.name for value in (*graph.input, *graph.initializer))
                names.update(sparse.values.name for sparse in graph.sparse_initializer)
    return names
