"""Cuts a part out of an OpenVINO model: a model with the part's operations alone, and the values at its border.

Between OpenVINO's operations and a compiled function, tensors are f32, i32, u8 or i8: these are the types to which
OpenVINO's plug-in for processors converts others before its operations run. The cut model converts them back.
"""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as operations

from motet.openvino.operations import Subgraph, identity

PASSED = {"f32": "f32", "i32": "i32", "u8": "u8", "i8": "i8", "boolean": "u8", "f16": "f32", "bf16": "f32",
           "f64": "f32", "i64": "i32", "u64": "i32", "u32": "i32", "i16": "i32", "u16": "i32"}  # fmt: skip
CONVERSIONS = ("Convert", "NotEqual")  # what `_converted` makes
_CHANGING = ("ReadValue", "RandomUniform", "Multinomial")
AS_THEY_ARE = {kind: kind for kind in PASSED}


class CutModel:
    """A part that is cut out of its model. `model` computes it; `inputs` are the values that it reads, `outputs` those
    that the operations behind it read. Until `replace`, these still read the part's results, and `undo` restores the
    model. `passed` are the types of tensors at the border, by the types in the model."""

    def __init__(self, part: Subgraph, title: str, passed: Mapping[str, str] = PASSED) -> None:
        self._passed = passed
        inside = {identity(node) for node in part.nodes}
        self.inputs: list[Any] = []
        self._parameters: dict[tuple[Any, int], tuple[Any, Any]] = {}  # for each value read: the parameter, its value
        self._rewired: list[tuple[Any, Any]] = []
        for node in part.nodes:
            for read in node.inputs():
                source = read.get_source_output()
                name = identity(source.get_node())
                if name not in inside and name not in part.constants:
                    self._rewired.append((read, source))
                    read.replace_source_output(self._parameter(source))
        self.outputs = [value for node in part.nodes for value in node.outputs() if _is_read_outside(value, inside)]
        results = [operations.result(_converted(value, self._passed[_type(value)])) for value in self.outputs]
        for index, result in enumerate(results):  # fixed names: equal parts are compiled once
            result.set_friendly_name(f"result{index}")
        self.model = ov.Model(results, [parameter for parameter, _ in self._parameters.values()], title)

    def _parameter(self, source: Any) -> Any:
        """The value in the cut model that stands for `source`."""
        key = identity(source.get_node()), source.get_index()
        if key not in self._parameters:
            kind = _type(source)
            parameter = operations.parameter(source.get_partial_shape(), getattr(ov.Type, self._passed[kind]))
            parameter.set_friendly_name(f"input{len(self.inputs)}")
            self._parameters[key] = parameter, _converted(parameter.output(0), kind)
            self.inputs.append(source)
        return self._parameters[key][1]

    def undo(self) -> None:
        """Connect the part's operations as they were."""
        for read, source in self._rewired:
            read.replace_source_output(source)

    def passed_inputs(self) -> list[Any]:
        """The values that the part reads, in the types that are passed to a compiled function."""
        return [_converted(source, self._passed[_type(source)]) for source in self.inputs]

    def replace(self, results: Sequence[Any]) -> None:
        """Make everything behind the part read `results`, one for each of `outputs`."""
        own = {identity(node) for node in self.model.get_ordered_ops()}
        for old, passed in zip(self.outputs, results, strict=True):
            new = _converted(passed, _type(old))
            names = old.get_names()
            for read in old.get_target_inputs():
                if identity(read.get_node()) not in own:
                    read.replace_source_output(new)
            new.get_tensor().set_names(names)


def _type(value: Any) -> str:
    return value.get_element_type().get_type_name()


def _converted(value: Any, kind: str) -> Any:
    if _type(value) == kind:
        return value
    if kind == "boolean":
        # OpenVINO's plug-in for processors replaces a Convert to boolean, and then reads the first result of the
        # operation before it, whichever was read (2026.4).
        zero = np.zeros((), value.get_element_type().to_dtype())
        node = operations.not_equal(value, operations.constant(zero))
    else:
        node = operations.convert(value, kind)
    node.set_friendly_name(f"{value.get_node().get_friendly_name()}.{value.get_index()}.{kind}")
    return node.output(0)


def is_constant(node: Any) -> bool:
    """Whether a value depends on constants alone, and is the same in every call."""
    kind = node.get_type_name()
    if kind == "Constant":
        return True
    sources = node.input_values()
    return bool(sources) and kind not in _CHANGING and all(is_constant(source.get_node()) for source in sources)


def _is_read_outside(value: Any, inside: set[Any]) -> bool:
    return any(identity(read.get_node()) not in inside for read in value.get_target_inputs())
