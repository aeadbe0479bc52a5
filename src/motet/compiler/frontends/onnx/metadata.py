"""The metadata of an ONNX model that says what ONNX itself cannot: its state, and bounds of dynamic extents.

    metadata_props: motet.states = [{"name": "cache", "input": "past", "output": "present", "initial": "zeros"}]
                    motet.bounds = [{"input": "x", "axis": 0, "least": 1, "most": 32}]

`initial` is the name of an initializer. Inputs and outputs that are state are the last ones of the graph, in the same
order. A `most` of null is no bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from motet.compiler.frontends.onnx.model import ExtentBound, KeptState, OnnxModel

if TYPE_CHECKING:
    import onnx

_T = TypeVar("_T")
_FIELDS = {"states": "name, input, output, initial", "bounds": "input, axis, least and most"}


def read_states(model: OnnxModel) -> list[KeptState]:
    """The states that the metadata names. Raises CompileError where it does not fit the model."""
    states = _read(model, "states", lambda one: KeptState(
        str(one["name"]), str(one["input"]), str(one["output"]), model.constants[one["initial"]]
    ))  # fmt: skip
    graph = model.proto.graph
    inputs = [value.name for value in graph.input if value.name not in model.constants]
    for role, there, named in (("inputs", inputs, [one.input for one in states]),
                               ("outputs", [value.name for value in graph.output], [one.output for one in states])):
        if named and there[-len(named):] != named:
            raise model.error(f"its states are the {role} {named}; expected the last ones of {there}")
    return states


def read_bounds(model: OnnxModel) -> list[ExtentBound]:
    """The bounds in the metadata. Raises CompileError where it does not fit the model."""
    bounds = _read(model, "bounds", lambda one: ExtentBound(
        str(one["input"]), int(one["axis"]), int(one["least"]), None if one["most"] is None else int(one["most"])
    ))  # fmt: skip
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.proto.graph.input}
    for bound in bounds:
        if not 0 <= bound.axis < ranks.get(bound.input, 0):
            raise model.error(f"bounds of axis {bound.axis} of {bound.input!r}: there is no such axis; expected one of "
                              f"the inputs {', '.join(ranks)}")
    return bounds


def _read(model: OnnxModel, what: str, make: Callable[[dict[str, Any]], _T]) -> list[_T]:
    text = next((entry.value for entry in model.proto.metadata_props if entry.key == f"motet.{what}"), "[]")
    try:
        return [make(one) for one in json.loads(text)]
    except (ValueError, TypeError, KeyError) as error:
        raise model.error(f"its {what} cannot be read: {error}; expected metadata motet.{what} as a list of objects "
                          f"with {_FIELDS[what]}") from None


def write_states(proto: onnx.ModelProto, states: Sequence[KeptState], initials: Sequence[str]) -> None:
    """Records states in the metadata; `initials` are the names of initializers with their first values."""
    _write(proto, "states", [
        {"name": one.name, "input": one.input, "output": one.output, "initial": initial}
        for one, initial in zip(states, initials, strict=True)
    ])


def write_bounds(proto: onnx.ModelProto, bounds: Sequence[ExtentBound]) -> None:
    """Records bounds in the metadata."""
    _write(proto, "bounds", [asdict(one) for one in bounds])


def _write(proto: onnx.ModelProto, what: str, entries: Sequence[dict[str, Any]]) -> None:
    entry = proto.metadata_props.add()
    entry.key = f"motet.{what}"
    entry.value = json.dumps(entries)
