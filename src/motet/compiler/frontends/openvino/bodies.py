"""Writes the operators of a model, or of the body of a loop or branch, in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.operation import (
    FOLD_ELEMENTS,
    NoLowering,
    OpenvinoOperation,
    constant_data,
    evaluate,
    extents_of,
)
from motet.compiler.frontends.openvino.writer import GraphWriter

_NEVER_FOLDED = ("If", "Loop", "TensorIterator")
Place = tuple[str, int]  # of a value: the unique name of its operator, and the number of the result


@dataclass
class ModelValues:
    """The names of a model's values in the ONNX graph, and the operators that have no lowering, with the reasons."""

    names: dict[Place, str] = field(default_factory=dict[Place, str])
    failed: list[tuple[OpenvinoOperation, str]] = field(default_factory=list[tuple[OpenvinoOperation, str]])

    def name(self, output: Any) -> str:
        return self.names[place_of(output)]

    def __contains__(self, output: Any) -> bool:
        return place_of(output) in self.names


def place_of(output: Any) -> Place:
    return output.get_node().get_name(), output.get_index()


def write_operators(model: Any, w: GraphWriter, values: ModelValues) -> None:
    """Writes all operators of `model`, whose parameters and states `values` names. An operator without a lowering is
    added to `values.failed`, and what depends on it is left out."""
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind in ("Parameter", "Result", "ReadValue", "Assign"):
            continue
        if any(each not in values for each in node.input_values()):
            continue
        op = OpenvinoOperation(node, [values.name(each) for each in node.input_values()])
        w.stem = op.name
        try:
            written = _folded(op, w) or write_operator(op, w)
        except NoLowering as error:
            values.failed.append((op, str(error)))
            continue
        for number, name in enumerate(written):
            values.names[node.get_name(), number] = name


def _folded(op: OpenvinoOperation, w: GraphWriter) -> list[str] | None:
    """The results of an operator on constants; None for other operators, large tensors, and 8-bit weights, which stay
    as they are stored."""
    arrays = [w.constants[name] for name in op.inputs if name in w.constants]
    if not arrays or len(arrays) < op.count or op.kind not in w.rules or op.kind in _NEVER_FOLDED:
        return None
    extents = [extents_of(output) for output in op.node.outputs()]
    if any(one is None or None in one or math.prod(each or 0 for each in one) > FOLD_ELEMENTS for one in extents):
        return None
    if any(array.size > FOLD_ELEMENTS or (array.ndim > 1 and array.dtype.itemsize == 1 and array.dtype != np.bool_)
           for array in arrays):
        return None
    found = evaluate(op.node, arrays)
    return None if found is None else [w.constant(value) for value in found]


def write_operator(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """The names of the results of an operator. Raises NoLowering."""
    if op.kind == "Constant":
        return [w.constant(constant_data(op.node))]
    rule = w.rules.get(op.kind)
    if rule is None:
        raise NoLowering("no lowering")
    for place in range(op.count):
        op.dtype(place)  # raises NoLowering for types that Motet lacks
    found = rule(op, w)
    return [found] if isinstance(found, str) else found


def write_body(body: Any, w: GraphWriter, given: dict[int, str]) -> list[str]:
    """The results of a body whose parameters, by number, have the names `given`. Raises NoLowering."""
    values = ModelValues()
    for number, name in given.items():
        values.names[body.get_parameters()[number].get_name(), 0] = name
    write_operators(body, w, values)
    if values.failed:
        op, reason = values.failed[0]
        raise NoLowering(f"in its body, {op.kind} {op.name!r}: {reason}")
    state = next((each for each in body.get_ordered_ops() if each.get_type_name() in ("ReadValue", "Assign")), None)
    if state is not None:
        raise NoLowering(f"in its body, the state of {state.get_friendly_name()!r}; expected states outside of bodies")
    return [values.name(result.input_value(0)) for result in body.get_results()]
