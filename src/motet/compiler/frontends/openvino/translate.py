"""Writes an OpenVINO model as an ONNX model, with every operator's name as the name of its nodes.

    supported(op)    whether an operator has a lowering, and if not, why
    read(model)      the whole model

Parameters become inputs with their tensors' names. Dynamic extents are named, equal where the model knows that they
are, and keep their bounds. A state (ReadValue and Assign of one variable) becomes an input and a result, which the
session keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.model import ExtentBound, KeptState, OnnxModel
from motet.compiler.frontends.openvino.bodies import ModelValues, write_operator, write_operators
from motet.compiler.frontends.openvino.operation import (
    NoLowering,
    OpenvinoOperation,
    constant_value,
    dtype_of,
    extents_of,
)
from motet.compiler.frontends.openvino.rules import RULES
from motet.compiler.frontends.openvino.writer import OPSET, GraphWriter
from motet.errors import CompileError, Location

if TYPE_CHECKING:
    import onnx

_MOST_SHOWN = 3  # operators named in an error
_ALWAYS = frozenset({"Parameter", "Result", "Constant"})


def supported(op: Any) -> str | None:
    """Why an `openvino.Node` has no lowering, in the form that it has in its model; None if it has one.

    ReadValue and Assign are lowered only in whole models (`read`): where a session keeps their state.
    """
    if op.get_type_name() in _ALWAYS:
        return None
    if op.get_type_name() in ("ReadValue", "Assign"):
        return "a state, which only a model that is compiled whole keeps"
    w = GraphWriter(RULES)
    w.stem = op.get_friendly_name()
    inputs = [w.names.fresh(f"operand {place}") for place in range(op.get_input_size())]
    try:
        for output in op.outputs():
            dtype_of(output)
            if extents_of(output) is None:
                return "a result of unknown rank"
        write_operator(OpenvinoOperation(op, inputs), w)
    except NoLowering as error:
        return str(error)
    return None


def read(model: Any, file: str = "<openvino.Model>") -> OnnxModel:
    """An `openvino.Model` as an ONNX model; constants are views of the model's memory, which must outlive the result.

    Raises CompileError for operators without a lowering, with their friendly names and the reasons, and for states
    that a session cannot keep.
    """
    import onnx

    location = Location(file)
    w, values = GraphWriter(RULES), ModelValues()
    inputs = [_input(parameter, w, values, location) for parameter in model.get_parameters()]
    outputs = [w.names.fresh(_name(output, result)) for output, result in zip(
        model.outputs, model.get_results(), strict=True)]
    states = [_State(name, node, location) for name, node in _reads(model)]
    bounds = [bound for value, node in zip(inputs, model.get_parameters(), strict=True)
              for bound in _bounds(value.name, node.output(0))]
    for state in states:
        inputs.append(state.begin(w, values))
    write_operators(model, w, values)
    if values.failed:
        raise CompileError(_refusal(values), location)
    results: list[onnx.ValueInfoProto] = []
    for name, result in zip(outputs, model.get_results(), strict=True):
        _copy(w, values.name(result.input_value(0)), name)
        results.append(_typed(name, result.output(0), location, name))
    for state in states:
        results.append(state.end(w, values, model))
    graph = onnx.helper.make_graph(w.nodes, model.get_friendly_name() or "model", inputs, results)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    used = {name for node in w.nodes for name in node.input} | _inner_reads(w.nodes)
    constants = {name: value for name, value in w.constants.items() if name in used}
    return OnnxModel(proto, file, constants, states=[state.kept for state in states], bounds=bounds)


def _inner_reads(nodes: list[onnx.NodeProto]) -> set[str]:
    """The names that bodies of `nodes` read or return."""
    found: set[str] = set()
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                inner = list(attribute.g.node)
                found |= {name for each in inner for name in each.input} | _inner_reads(inner)
                found |= {value.name for value in attribute.g.output}
    return found


def _refusal(values: ModelValues) -> str:
    shown = [f"{op.kind} {op.name!r} (opset{op.version}): {reason}" for op, reason in values.failed[:_MOST_SHOWN]]
    more = len(values.failed) - len(shown)
    return "no lowering for " + "; ".join(shown) + (f"; and for {more} more operators" if more else "")


def _name(output: Any, node: Any) -> str:
    """The name of a tensor, or of its operator where it has none."""
    names = sorted(output.get_names())
    if not names and node.get_type_name() == "Result":
        node = node.input_value(0).get_node()
    return names[0] if len(names) == 1 else output.get_any_name() if names else node.get_friendly_name()


def _input(parameter: Any, w: GraphWriter, values: ModelValues, location: Location) -> onnx.ValueInfoProto:
    output = parameter.output(0)
    name = w.names.fresh(_name(output, parameter))
    values.names[parameter.get_name(), 0] = name
    return _typed(name, output, location, f"input {name!r}")


def _bounds(name: str, output: Any) -> Iterator[ExtentBound]:
    """The bounds of an input's dynamic extents: `[1..32,3,224,224]` has those of axis 0."""
    shape = output.get_partial_shape()
    if shape.rank.is_dynamic:
        return
    for axis, dim in enumerate(shape):
        if dim.is_dynamic and (dim.min_length > 0 or dim.max_length >= 0):
            yield ExtentBound(name, axis, int(dim.min_length), int(dim.max_length) if dim.max_length >= 0 else None)


def _typed(name: str, output: Any, location: Location, what: str) -> onnx.ValueInfoProto:
    """A value with its type and extents. Raises CompileError for types that Motet lacks and unknown ranks."""
    import onnx

    extents = extents_of(output)
    try:
        kind = onnx.helper.np_dtype_to_tensor_dtype(dtype_of(output))
    except NoLowering as error:
        raise CompileError(f"{what}: {error}", location) from None
    if extents is None:
        if what.startswith("input"):
            raise CompileError(f"{what}: its rank is dynamic; expected a known rank, such as after "
                               "model.reshape({...})", location)
        return onnx.helper.make_tensor_value_info(name, kind, None)
    named = [f"{name}.{axis}" if extent is None else extent for axis, extent in enumerate(extents)]
    return onnx.helper.make_tensor_value_info(name, kind, named)


def _copy(w: GraphWriter, value: str, name: str) -> None:
    import onnx

    w.nodes.append(onnx.helper.make_node("Identity", [value], [name], w.names.fresh(f"{name}/result")))


def _reads(model: Any) -> Iterator[tuple[str, Any]]:
    """The variables of a model with the ReadValue of each."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ReadValue":
            yield str(node.get_attributes()["variable_id"]), node


class _State:
    """A variable while its model is written. Raises CompileError for one that a session cannot keep."""

    def __init__(self, name: str, node: Any, location: Location) -> None:
        self.name, self.node, self.location = name, node, location
        extents = extents_of(node.output(0))
        if extents is None or None in extents:
            raise self._error(f"its extents are dynamic ({node.output(0).get_partial_shape()}); expected known ones, "
                              "such as after model.reshape({...}), or pass it as an input and a result, or have "
                              "OpenVINO keep it: motet.openvino.compile_model")
        try:
            dtype = dtype_of(node.output(0))
        except NoLowering as error:
            raise self._error(str(error)) from None
        self.initial = np.zeros([extent or 0 for extent in extents], dtype)
        if node.get_input_size():
            value = constant_value(node.input_value(0))
            if value is None:
                raise self._error("its first value is computed in a call; expected a constant")
            self.initial = np.broadcast_to(value, self.initial.shape)

    def begin(self, w: GraphWriter, values: ModelValues) -> onnx.ValueInfoProto:
        self.input = w.names.fresh(f"state {self.name}")
        values.names[self.node.get_name(), 0] = self.input
        return _typed(self.input, self.node.output(0), self.location, f"state {self.name!r}")

    def end(self, w: GraphWriter, values: ModelValues, model: Any) -> onnx.ValueInfoProto:
        writes = [node for node in model.get_ordered_ops()
                  if node.get_type_name() == "Assign" and node.get_attributes()["variable_id"] == self.name]
        stored = writes[-1].input_value(0) if writes else self.node.output(0)
        self.result = w.names.fresh(f"state {self.name} after")
        _copy(w, values.name(stored), self.result)
        return _typed(self.result, self.node.output(0), self.location, f"state {self.name!r}")

    @property
    def kept(self) -> KeptState:
        return KeptState(self.name, self.input, self.result, self.initial)

    def _error(self, what: str) -> CompileError:
        return CompileError(f"state {self.name!r} (ReadValue {self.node.get_friendly_name()!r}): {what}", self.location)
