"""What rules that rewrite ONNX nodes know about the model, and helpers that write the replacing nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.model import OnnxModel
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx


REQUIRE = "/require "  # in the name of a node; the operator and its requirement follow


@dataclass
class ModelFacts:
    """Facts about a model's values by name: static shapes, element types, ranks."""

    model: OnnxModel
    shapes: dict[str, tuple[int, ...]]
    types: dict[str, int]
    ranks: dict[str, int]

    @staticmethod
    def of(model: OnnxModel) -> ModelFacts:
        ranks = {name: len(extents) for name, extents in _each_shape(model)}
        return ModelFacts(model, static_shapes(model), element_types(model), ranks)

    @functools.cached_property
    def of_data(self) -> set[str]:
        """The values that depend on elements of inputs, and not on extents and constants alone."""
        graph = self.model.proto.graph
        made = {name for node in graph.node for name in node.output}
        found = {value.name for value in graph.input}
        for node in graph.node:
            read = [] if node.op_type in ("Shape", "Size") else [name for name in node.input if name]
            outer = {name for name in read if name not in made and name not in self.model.constants}
            bodies = any(item.HasField("g") for item in node.attribute)
            if bodies or outer or not found.isdisjoint(read):
                found.update(node.output)
        return found - set(self.model.constants)

    @functools.cached_property
    def asserted(self) -> set[str]:
        """The values of assertions: their readers were rewritten already."""
        return {name for node in self.model.proto.graph.node if REQUIRE in node.name for name in node.output}

    @functools.cached_property
    def producers(self) -> dict[str, onnx.NodeProto]:
        """The node that computes each value."""
        return {name: node for node in self.model.proto.graph.node for name in node.output if name}

    @functools.cached_property
    def declared(self) -> dict[str, onnx.TensorShapeProto]:
        return _declared(self.model)

    @property
    def version(self) -> int:
        return self.model.opsets.get("", 0)

    def extents(self, name: str) -> list[int | None] | None:
        """The extents of a value, None for dynamic ones."""
        if name in self.model.constants:
            return list(self.model.constants[name].shape)
        shape = self.declared.get(name)
        return None if shape is None else [d.dim_value if d.HasField("dim_value") else None for d in shape.dim]

    def rank(self, name: str) -> int | None:
        array = self.model.constants.get(name)
        return self.ranks.get(name) if array is None else array.ndim

    def constant(self, node: onnx.NodeProto, suffix: str, value: np.ndarray) -> str:
        name, count = f"{node.name}/{suffix}", 1
        while name in self.model.constants:
            count += 1
            name = f"{node.name}/{suffix}{count}"
        self.model.constants[name] = value
        return name

    def dtype(self, name: str) -> np.dtype[Any]:
        import onnx

        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(self.types[name]))


def element_types(model: OnnxModel) -> dict[str, int]:
    """ONNX's number of the element type of every value."""
    import onnx

    graph = model.proto.graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    return found | {name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in model.constants.items()}


def symbolic_shapes(model: OnnxModel) -> dict[str, list[int | str | None]]:
    """The extents of all values of known rank: numbers, the model's names of dynamic extents, None for others."""
    return dict(_each_shape(model))


def static_shapes(model: OnnxModel) -> dict[str, tuple[int, ...]]:
    """The shapes of all values whose extents are all known."""
    return {
        name: known for name, extents in _each_shape(model)
        if len(known := tuple(extent for extent in extents if isinstance(extent, int))) == len(extents)
    }  # fmt: skip


def _each_shape(model: OnnxModel) -> Iterator[tuple[str, list[int | str | None]]]:
    for name, shape in _declared(model).items():
        yield name, [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in shape.dim]
    yield from ((name, list(array.shape)) for name, array in model.constants.items())


def _declared(model: OnnxModel) -> dict[str, onnx.TensorShapeProto]:
    """The shapes that the graph has for values."""
    graph = model.proto.graph
    infos = (*graph.output, *graph.value_info, *graph.input)
    return {info.name: kind.shape for info in infos if (kind := info.type.tensor_type).HasField("shape")}


def replace_nodes(model: OnnxModel, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Makes `nodes` the graph's nodes; returns whether their number changed."""
    graph = model.proto.graph
    if len(nodes) == len(graph.node) and all(a is b for a, b in zip(nodes, graph.node, strict=True)):
        return False
    copies = [copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return True


def copy(node: onnx.NodeProto) -> onnx.NodeProto:
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


class Chain:
    """Nodes that replace `node`, each applied to the result of the previous one."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.node = node
        self.value = node.input[0]
        self.nodes: list[onnx.NodeProto] = []

    def then(self, op: str, *more: str, **attributes: Any) -> Chain:
        import onnx

        suffix = f"{op}{len(self.nodes)}"
        made = onnx.helper.make_node(
            op, [self.value, *more], [f"{self.node.output[0]}/{suffix}"], f"{self.node.name}/{suffix}", **attributes
        )
        self.value = made.output[0]
        self.nodes.append(made)
        return self

    def done(self) -> list[onnx.NodeProto]:
        self.nodes[-1].output[0] = self.node.output[0]
        return self.nodes


class NodeWriter:
    """Nodes that replace `node`, in any arrangement. `add` returns the names of values, which begin with `stem`; the
    default is the node's name."""

    def __init__(self, node: onnx.NodeProto, facts: ModelFacts, stem: str = "") -> None:
        self.node = node
        self.facts = facts
        self.stem = stem or node.name
        self.nodes: list[onnx.NodeProto] = []

    def constant(self, value: np.ndarray, what: str = "constant") -> str:
        return self.facts.constant(self.node, what, value)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.add_all(op, 1, *inputs, **attributes)[0]

    def add_all(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Adds a node with several results."""
        import onnx

        suffix = f"{op}{len(self.nodes)}"
        outputs = [f"{self.stem}/{suffix}.{number}" for number in range(count)]
        self.nodes.append(onnx.helper.make_node(op, inputs, outputs, f"{self.stem}/{suffix}", **attributes))
        return outputs

    def over(self, op: str, value: str, axes: Sequence[int], **attributes: Any) -> str:
        """Adds a reduction, Squeeze or Unsqueeze; the axes are an attribute in older operator sets."""
        since = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}.get(op, 18)
        if self.facts.version < since:
            return self.add(op, value, axes=list(axes), **attributes)
        return self.add(op, value, self.constant(np.array(axes, np.int64), "axes"), **attributes)

    def cast(self, value: str, kind: int) -> str:
        return self.add("Cast", value, to=int(kind))

    def widened(self, value: str) -> str:
        """`value`, in float32 if its floats are narrower."""
        import onnx

        narrow = self.facts.types[value] in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
        return self.cast(value, onnx.TensorProto.FLOAT) if narrow else value

    def reshape(self, value: str, extents: Sequence[int]) -> str:
        return self.add("Reshape", value, self.constant(np.array(extents, np.int64), "extents"))

    def like(self, value: str, other: str) -> str:
        """`value` reshaped to the shape of `other`."""
        shape = self.facts.shapes.get(other)
        if shape is not None and 0 not in shape:
            return self.reshape(value, shape)
        return self.add("Reshape", value, self.add("Shape", other))

    def extent(self, value: str, axis: int) -> str:
        return self.add("Gather", self.add("Shape", value), self.constant(np.array(axis, np.int64), "axis"), axis=0)

    def slice_of(self, value: str, axis: int, place: int) -> str:
        """The slice of extent 1 at `place` along `axis`, in any operator set: bounds are attributes before 10."""
        if self.facts.version >= 10:
            return self.slice(value, axis, place, place + 1)
        return self.add("Slice", value, axes=[axis], starts=[place], ends=[place + 1])

    def slice(self, value: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        numbers = [self.constant(np.array([number], np.int64), "slice") for number in (start, stop, axis, step)]
        return self.add("Slice", value, *numbers)

    def reverse(self, value: str, axis: int) -> str:
        """`value` reversed along `axis`, of any extent; the wheel's lowering fails for an empty axis."""
        zero, one = (self.constant(np.array(item, np.int64), "number") for item in (0, 1))
        extent = self.extent(value, axis)
        last = self.add("Sub", extent, one)
        return self.add("Gather", value, self.add("Sub", last, self.add("Range", zero, extent, one)), axis=axis)

    def joined(self, op: str, values: Sequence[str]) -> str:
        """All values combined by a binary operator."""
        first, *others = values
        for other in others:
            first = self.add(op, first, other)
        return first

    def required(self, condition: str, what: str) -> str:
        """A scalar that is true; if `condition` does not hold in a call, the call fails with `what` as requirement.

        It is a Gather that is then out of bounds; the error shows the name of the Gather node.
        """
        import onnx

        place = self.add("Where", condition, self.constant(np.array(0), "fine"), self.constant(np.array(2), "outside"))
        result = f"{self.node.name}/required{len(self.nodes)}"
        table = self.constant(np.array([1, 0]), "table")
        said = f"{self.node.name}: {what}"
        self.nodes.append(onnx.helper.make_node("Gather", [table, place], [result], said))
        return self.cast(result, onnx.TensorProto.BOOL)

    def done(self, values: Sequence[str]) -> list[onnx.NodeProto]:
        """The nodes, with `values` as the results of the node that they replace."""
        import onnx

        for value, output in zip(values, self.node.output, strict=False):
            if output:
                made = onnx.helper.make_node("Identity", [value], [output], f"{self.node.name}/{output}")
                self.nodes.append(made)
        return self.nodes


# Returns the nodes that replace a node; None to keep it.
Rule = Callable[[Any, ModelFacts], "list[Any] | None"]


def refused(node: onnx.NodeProto, facts: ModelFacts, what: str, expected: str) -> CompileError:
    """The error for an operator in a form that has no correct lowering."""
    return facts.model.error(f"node {node.name!r}: {node.op_type} {what} is not supported; expected {expected}")


def unsupported(node: onnx.NodeProto, facts: ModelFacts, expected: str) -> CompileError:
    """The error for an operator that is supported only where something is `expected`."""
    return facts.model.error(f"node {node.name!r}: {node.op_type} is supported where {expected}")
