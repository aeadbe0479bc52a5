"""Presents the bodies of If, Loop and Scan as separate models, so that rewrites of the main graph apply to them.

`separate_bodies` gives every value and node of a model a unique name, and moves the constants of bodies to those of the
model. `each_body` then presents a body as a model whose inputs are its own inputs and the outer values that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from motet.compiler.frontends.onnx.model import OnnxModel


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for item in node.attribute:
        yield from [item.g] if item.HasField("g") else item.graphs


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """All nodes, including those of bodies, which follow the node that owns the body."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from all_nodes(inner)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, including those that its bodies read."""
    yield from node.input
    for graph in graphs_of(node):
        for inner in graph.node:
            yield from reads(inner)
        yield from (output.name for output in graph.output)


def each_body(model: OnnxModel, work: Callable[[OnnxModel], bool | None]) -> bool:
    """Applies `work` to each body of the nodes of `model`'s graph; returns whether any call reported a change. Bodies
    inside bodies are left to `work`."""
    changed = False
    for node in model.proto.graph.node:
        for graph in graphs_of(node):
            inside, own = _inside(model, node, graph)
            changed |= bool(work(inside))
            graph.CopyFrom(inside.proto.graph)
            del graph.input[own:]
    return changed


def _inside(model: OnnxModel, node: onnx.NodeProto, graph: onnx.GraphProto) -> tuple[OnnxModel, int]:
    """The body `graph` of `node` as a model, and the number of its declared inputs, which come first."""
    import onnx

    outer = model.proto.graph
    visible = {info.name: info for info in (*outer.output, *outer.value_info, *outer.input)}
    declared = dict(visible)
    for name in set(node.input) & set(model.constants):
        array = model.constants[name]
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        declared[name] = onnx.helper.make_tensor_value_info(name, kind, array.shape)
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import, graph=graph)
    own = len(graph.input)
    for value, given in zip(proto.graph.input, _given(node), strict=False):
        kind = declared[given].type.tensor_type.elem_type if given in declared else 0
        if not value.type.tensor_type.elem_type and kind:
            value.type.tensor_type.elem_type = kind
    if node.op_type == "Scan":
        _give_shapes(node, proto.graph, declared)
    produced = {output for inner in graph.node for output in inner.output} | {value.name for value in graph.input}
    read = {name for inner in graph.node for name in reads(inner)} | {value.name for value in graph.output}
    proto.graph.input.extend(visible[name] for name in sorted(read - produced) if name in visible)
    return replace(model, proto=proto, inner=True), own


def _give_shapes(node: onnx.NodeProto, body: onnx.GraphProto, declared: dict[str, onnx.ValueInfoProto]) -> None:
    """Gives inputs of a Scan's body without a declared shape the shapes of the states and of the operands' slices."""
    attributes = {item.name: item for item in node.attribute}
    states = len(node.input) - attributes["num_scan_inputs"].i
    axes = list(attributes["scan_input_axes"].ints) if "scan_input_axes" in attributes else []
    for number, (value, given) in enumerate(zip(body.input, node.input, strict=False)):
        known = given in declared and declared[given].type.tensor_type.HasField("shape")
        if value.type.tensor_type.HasField("shape") or not known:
            continue
        extents = list(declared[given].type.tensor_type.shape.dim)
        if number >= states and extents:
            extents.pop(axes[number - states] if axes else 0)
        value.type.tensor_type.shape.dim.extend(extents)
        value.type.tensor_type.shape.SetInParent()


def _given(node: onnx.NodeProto) -> list[str]:
    """The operands of `node` that initialise the inputs of its body, or that these are slices of; "" for none."""
    if node.op_type == "Loop":
        return ["", "", *node.input[2:]]
    return list(node.input) if node.op_type == "Scan" else []


def separate_bodies(model: OnnxModel) -> None:
    """Makes names unique, in place; the nodes of the main graph must already have unique names. Raises CompileError
    for constants of a body whose data is missing or does not fit."""
    graph = model.proto.graph
    names = _Names(
        model, {*model.constants, *(value.name for value in graph.input)}, {node.name for node in graph.node}
    )
    names.values.update(output for node in graph.node for output in node.output)
    for node in graph.node:
        for inner in graphs_of(node):
            names.separate(inner, f"{node.name}/{inner.name}", {})


def _initializers(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto | onnx.SparseTensorProto]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    yield from ((sparse.values.name, sparse) for sparse in graph.sparse_initializer)


class _Names:
    """The names of values and nodes that are in use."""

    def __init__(self, model: OnnxModel, values: set[str], nodes: set[str]) -> None:
        self.model = model
        self.values = values
        self.nodes = nodes

    def separate(self, graph: onnx.GraphProto, where: str, outside: dict[str, str]) -> None:
        """Renames the values and nodes of `graph`. `outside` maps outer values to their current names."""
        import onnx

        known = dict(outside)
        for value in graph.input:
            value.name = self._own(value.name, where, known)
        for name, tensor in _initializers(graph):
            array = self.model.value(tensor, f"initializer {name!r} of the body {where!r}")
            self.model.constants[self._own(name, where, known)] = array
        del graph.initializer[:], graph.sparse_initializer[:], graph.value_info[:]
        made = {value.name for value in graph.input}
        for node in graph.node:
            for index, name in enumerate(node.input):
                node.input[index] = known.get(name, name)
            for index, name in enumerate(node.output):
                node.output[index] = self._own(name, where, known)
            made.update(node.output)
        for index, node in enumerate(graph.node):
            if not node.name or node.name in self.nodes:
                node.name = free_name(f"{where}/{node.name or node.op_type}#{index}", self.nodes)
            self.nodes.add(node.name)
            for inner in graphs_of(node):
                self.separate(inner, f"{node.name}/{inner.name}", known)
        for value in graph.output:
            name = known.get(value.name, value.name)
            if name not in made:  # a constant or an outer value, but results must be made inside
                value.name = self._own(name, where, {})
                graph.node.append(onnx.helper.make_node("Identity", [name], [value.name], f"{where}/{value.name}"))
                self.nodes.add(graph.node[-1].name)
            else:
                value.name = name

    def _own(self, name: str, where: str, known: dict[str, str]) -> str:
        if not name:
            return name
        own = free_name(f"{where}/{name}", self.values) if name in self.values else name
        known[name] = own
        self.values.add(own)
        return own


def free_name(name: str, taken: set[str]) -> str:
    """`name`, or `name` with the lowest number that makes it unique."""
    count, found = 1, name
    while found in taken:
        count += 1
        found = f"{name}{count}"
    return found
