"""Writes graphs of onnxruntime as ONNX models, with their weights in a file."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.onnxruntime.provider.attributes import AttributeKind, NodeAttributes
from motet.onnxruntime.provider.interface import InterfaceError, OnnxruntimeApi

if TYPE_CHECKING:
    import onnx

MODEL, _WEIGHTS = "model.onnx", "weights"
_LARGE = 1 << 12  # bytes of weights that are kept outside the model
_ALIGNMENT = 64
_STRINGS = 8  # ONNXTensorElementDataType
# The types of attributes, as ONNX numbers them.
_ATTRIBUTE_TYPES = {
    AttributeKind.FLOAT: 1, AttributeKind.INT: 2, AttributeKind.STRING: 3, AttributeKind.FLOATS: 6,
    AttributeKind.INTS: 7, AttributeKind.STRINGS: 8,
}  # fmt: skip


class GraphReader:
    """Reads graphs through onnxruntime's interface."""

    def __init__(self, api: OnnxruntimeApi) -> None:
        self._api = api

    def nodes(self, graph: int) -> list[int]:
        """The addresses of a graph's nodes, producers first."""
        return self._api.several("Graph", "Nodes", graph)

    def operator(self, node: int) -> tuple[str, str]:
        """A node's domain and operator."""
        domain = self._api.text("Node_GetDomain", node)
        return ("" if domain == "ai.onnx" else domain), self._api.text("Node_GetOperatorType", node)

    def inputs(self, node: int) -> list[str]:
        """The names of a node's inputs, those of its bodies included; "" for one that is not given."""
        values = self._api.several("Node", "Inputs", node) + self._api.several("Node", "ImplicitInputs", node)
        return [self._name(value) for value in values]

    def outputs(self, node: int) -> list[str]:
        """The names of a node's outputs; "" for one that is not computed."""
        return [self._name(value) for value in self._api.several("Node", "Outputs", node)]

    def write(self, graph: int, inputs: Sequence[str] | None, folder: Path) -> Path:
        """Write a graph as a model into `folder`. `inputs` is the order of its inputs, by default the graph's.

        Raises InterfaceError for a graph that uses what models of Motet lack, such as values that are no tensors.
        """
        import onnx

        api = self._api
        with (folder / _WEIGHTS).open("wb") as weights:
            written = _ModelWriter(api, weights)
            proto = written.graph_of(graph)
        given = {value.name: value for value in proto.input}
        order = [name for name in inputs if name in given] if inputs is not None else []
        proto.ClearField("input")
        proto.input.extend([given[name] for name in dict.fromkeys((*order, *given))])
        count = api.pointer("Graph_GetNumOperatorSets", graph)
        domains, versions = (ctypes.c_char_p * count)(), (ctypes.c_int64 * count)()
        api.call("Graph_GetOperatorSets", graph, domains, versions, count)
        model = onnx.ModelProto(
            ir_version=min(api.pointer("Graph_GetOnnxIRVersion", graph), onnx.IR_VERSION), producer_name="onnxruntime",
            graph=proto,
            opset_import=[onnx.OperatorSetIdProto(domain=(domain or b"").decode(), version=version)
                          for domain, version in zip(domains, versions, strict=True)],
        )
        (folder / MODEL).write_bytes(model.SerializeToString())
        return folder / MODEL

    def _name(self, value: int) -> str:
        return self._api.text("GetValueInfoName", value) if value else ""


def likeness(path: Path) -> bytes:
    """The bytes of a model of one node without its names: equal for nodes that differ in names and large weights."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    numbers: dict[str, str] = {"": ""}
    for node in graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [numbers.setdefault(name, str(len(numbers))) for name in names]
    for each in (*graph.input, *graph.output, *graph.initializer):
        each.name = numbers.get(each.name, each.name)
    for tensor in graph.initializer:
        tensor.ClearField("external_data")
    return graph.SerializeToString(deterministic=True)


class _ModelWriter:
    """Writes one graph and the bodies in it; `weights` gets the large constants of all."""

    def __init__(self, api: OnnxruntimeApi, weights: Any) -> None:
        self._api = api
        self._weights = weights
        self._constants: dict[str, onnx.TensorProto] = {}  # of all graphs: names are unique, and bodies see them

    def graph_of(self, graph: int) -> onnx.GraphProto:
        """A graph with all constants that it and its bodies use."""
        proto = self._body(graph, is_body=False)
        proto.initializer.extend(self._constants.values())
        return proto

    def _body(self, graph: int, is_body: bool) -> onnx.GraphProto:
        import onnx

        api = self._api
        nodes = [self._node(node) for node in api.several("Graph", "Nodes", graph)]
        outputs = api.several("Graph", "Outputs", graph)
        self._keep_constants(outputs)
        inputs = [value for value in api.several("Graph", "Inputs", graph)
                  if not (is_body and api.flag("ValueInfo_IsFromOuterScope", value))]
        values = [self._value(value) for value in inputs if not api.flag("ValueInfo_IsConstantInitializer", value)]
        return onnx.GraphProto(
            name="main", node=nodes, input=values, output=[self._value(value) for value in outputs],
        )

    def _node(self, node: int) -> onnx.NodeProto:
        import onnx

        api = self._api
        inputs = api.several("Node", "Inputs", node)
        self._keep_constants((*inputs, *api.several("Node", "ImplicitInputs", node)))
        proto = onnx.NodeProto(
            name=api.text("Node_GetName", node), op_type=api.text("Node_GetOperatorType", node),
            domain=api.text("Node_GetDomain", node), input=[self._name(value) for value in inputs],
            output=[self._name(value) for value in api.several("Node", "Outputs", node)],
        )
        for attribute in api.several("Node", "Attributes", node):
            if (made := self._attribute(attribute)) is not None:
                proto.attribute.append(made)
        proto.attribute.extend(self._bodies(node))
        return proto

    def _bodies(self, node: int) -> Iterable[onnx.AttributeProto]:
        import onnx

        count = self._api.pointer("Node_GetNumSubgraphs", node)
        graphs, names = (ctypes.c_void_p * count)(), (ctypes.c_char_p * count)()
        if count:
            self._api.call("Node_GetSubgraphs", node, graphs, count, names)
        for graph, name in zip(graphs, names, strict=True):
            yield onnx.helper.make_attribute((name or b"").decode(), self._body(graph, is_body=True))

    def _attribute(self, attribute: int) -> onnx.AttributeProto | None:
        import onnx

        read = NodeAttributes(self._api)
        name, kind = read.name(attribute), read.kind(attribute)
        if kind is AttributeKind.GRAPH:
            return None  # written by _bodies
        if kind is AttributeKind.TENSOR:
            value = self._api.pointer("OpAttr_GetTensorAttributeAsOrtValue", attribute)
            try:
                return onnx.helper.make_attribute(name, self._tensor(value, ""))
            finally:
                self._api.call("ReleaseValue", value)
        return onnx.helper.make_attribute(name, read.value(attribute, kind), attr_type=_ATTRIBUTE_TYPES[kind])

    def _keep_constants(self, values: Iterable[int]) -> None:
        api = self._api
        for value in values:
            if value and api.flag("ValueInfo_IsConstantInitializer", value):
                name = self._name(value)
                if name not in self._constants:
                    tensor = api.pointer("ValueInfo_GetInitializerValue", value)
                    if not tensor:
                        raise InterfaceError(f"constant {name!r} has no value")
                    self._constants[name] = self._tensor(tensor, name)

    def _tensor(self, value: int, name: str) -> onnx.TensorProto:
        """A tensor; a large one with a name is written to the file of weights."""
        import onnx

        info = self._api.pointer("GetTensorTypeAndShape", value)
        try:
            element, extents = self._element(info), self._extents(info)
        finally:
            self._api.call("ReleaseTensorTypeAndShapeInfo", info)
        if element == _STRINGS:
            raise InterfaceError(f"constant {name!r} has strings")
        size = ctypes.c_size_t()
        self._api.call("GetTensorSizeInBytes", value, ctypes.byref(size))
        address = self._api.pointer("GetTensorMutableData", value)
        content = memoryview((ctypes.c_ubyte * size.value).from_address(address)) if size.value else b""
        proto = onnx.TensorProto(name=name, data_type=element, dims=extents)
        if not name or size.value < _LARGE:
            proto.raw_data = bytes(content)
            return proto
        self._weights.seek(-self._weights.tell() % _ALIGNMENT, 1)
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, text in (("location", _WEIGHTS), ("offset", self._weights.tell()), ("length", size.value)):
            proto.external_data.add(key=key, value=str(text))
        self._weights.write(content)
        return proto

    def _value(self, value: int) -> onnx.ValueInfoProto:
        """A tensor's name, element type and extents; an extent that is neither known nor named is left open."""
        import onnx

        api, name = self._api, self._name(value)
        kind = api.pointer("GetValueInfoTypeInfo", value)
        info = api.pointer("CastTypeInfoToTensorInfo", kind) if kind else 0
        if not info:
            raise InterfaceError(f"value {name!r} is no tensor")
        proto = onnx.ValueInfoProto(name=name)
        tensor = proto.type.tensor_type
        tensor.elem_type = self._element(info)
        if api.knows_ranks and not (api.call("TensorTypeAndShape_HasShape", info) or 0) & 0xFF:
            return proto
        extents = self._extents(info)
        names = (ctypes.c_char_p * len(extents))()
        if extents:
            api.call("GetSymbolicDimensions", info, names, len(extents))
        tensor.shape.SetInParent()
        for extent, symbol in zip(extents, names, strict=True):
            dimension = tensor.shape.dim.add()
            if extent >= 0:
                dimension.dim_value = extent
            elif symbol:
                dimension.dim_param = symbol.decode()
        return proto

    def _element(self, info: int) -> int:
        """The element type; onnxruntime numbers types as ONNX does."""
        out = ctypes.c_int()
        self._api.call("GetTensorElementType", info, ctypes.byref(out))
        return out.value

    def _extents(self, info: int) -> list[int]:
        extents = (ctypes.c_int64 * self._api.pointer("GetDimensionsCount", info))()
        if len(extents):
            self._api.call("GetDimensions", info, extents, len(extents))
        return list(extents)

    def _name(self, value: int) -> str:
        return self._api.text("GetValueInfoName", value) if value else ""
