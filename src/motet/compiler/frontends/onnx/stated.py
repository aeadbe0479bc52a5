"""The metadata of an ONNX model that says which of its inputs and outputs are state, which ONNX itself cannot say.

    metadata_props: motet.states = [{"name": "cache", "input": "past", "output": "present", "initial": "zeros"}]

`initial` is the name of an initializer. Such inputs and outputs are the last ones of the graph, in the same order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx.model import KeptState, OnnxModel

if TYPE_CHECKING:
    import onnx

_KEY = "motet.states"
_FIELDS = ("name", "input", "output", "initial")


def stated(model: OnnxModel) -> list[KeptState]:
    """The states that the metadata of `model` names. Raises CompileError where it does not fit the model."""
    text = next((entry.value for entry in model.proto.metadata_props if entry.key == _KEY), None)
    if text is None:
        return []
    expected = f"expected metadata {_KEY} as a list of objects with {', '.join(_FIELDS)}"
    try:
        listed: list[dict[str, Any]] = json.loads(text)
        states = [KeptState(str(one["name"]), str(one["input"]), str(one["output"]), model.constants[one["initial"]])
                  for one in listed]
    except (ValueError, TypeError, KeyError) as error:
        raise model.error(f"its states cannot be read: {error}; {expected}") from None
    graph = model.proto.graph
    inputs = [value.name for value in graph.input if value.name not in model.constants]
    for role, there, named in (("inputs", inputs, [one.input for one in states]),
                               ("outputs", [value.name for value in graph.output], [one.output for one in states])):
        if named and there[-len(named):] != named:
            raise model.error(f"its states are the {role} {named}; expected the last ones of {there}")
    return states


def state(proto: onnx.ModelProto, states: list[KeptState], initials: list[str]) -> None:
    """Records `states` in the metadata; `initials` are the names of initializers with their first values."""
    entry = proto.metadata_props.add()
    entry.key = _KEY
    entry.value = json.dumps([
        {"name": one.name, "input": one.input, "output": one.output, "initial": initial}
        for one, initial in zip(states, initials, strict=True)
    ])
