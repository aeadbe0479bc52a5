"""Replaces sequence inputs by one tensor input for each element, and removes optional inputs that are never given.

    x : seq(float)       with x=3xf32,?xf32    →    x[0] : float[3], x[1] : float[?]; x = SequenceConstruct(x[0], x[1])
    o : optional(float)  with o=none           →    o = Optional()

A model does not declare the number of elements of a sequence; the option `sequences` does: `x=3xf32,?x4xf32;o=none`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.sequence_bodies import is_sequence
from motet.errors import OptionError

if TYPE_CHECKING:
    import onnx

OPTION = "sequences"
ABSENT = "none"
_EXAMPLE = f"{OPTION}=x=3x4xf32,?x4xf32;y={ABSENT}"
_SHAPE = re.compile(r"((?:(?:[0-9]{1,18}|\?)x)*)([A-Za-z]\w*)")


@dataclass(frozen=True)
class Element:
    """A tensor of a sequence: its extents, None for dynamic ones, and its type."""

    extents: tuple[int | None, ...]
    dtype: str


Given = Mapping[str, Sequence[Element] | None]  # input name → its elements; None: never given


def parse_sequences(text: str) -> Given:
    """Raises OptionError for invalid text."""
    found: dict[str, Sequence[Element] | None] = {}
    for part in text.split(";") if text else ():
        name, equals, shapes = part.strip().rpartition("=")
        if not equals or not name or name in found:
            raise OptionError(f"option {OPTION}={text}: expected each input's name once, and its elements: {_EXAMPLE}")
        listed = [shape.strip() for shape in shapes.split(",")] if shapes.strip() else []
        found[name] = None if listed == [ABSENT] else [_parse_element(shape, text) for shape in listed]
    return found


def _parse_element(shape: str, text: str) -> Element:
    match = _SHAPE.fullmatch(shape)
    if match is None or match[2] not in DTYPES:
        raise OptionError(f"option {OPTION}={text}: {shape!r} is no shape; expected extents, ? for what only a call "
                          f"knows, and a dtype: {_EXAMPLE}")
    extents = match[1].split("x")[:-1]
    return Element(tuple(None if extent == "?" else int(extent) for extent in extents), match[2])


def give_sequences(model: OnnxModel, given: Given) -> None:
    """Rewrites the model in place. Raises CompileError for sequences without given elements, and for elements that do
    not fit the model."""
    import onnx

    graph = model.proto.graph
    names = {value.name for value in graph.input if value.type.WhichOneof("value") != "tensor_type"}
    if unknown := next(iter(given.keys() - names), None):
        there = ", ".join(sorted(names)) or "none"
        raise model.error(f"option {OPTION}: no input {unknown!r} is a sequence or optional; there are: {there}")
    inputs: list[onnx.ValueInfoProto] = []
    makers: list[onnx.NodeProto] = []
    for value in graph.input:
        if value.name not in given and not is_sequence(value):
            inputs.append(value)
            continue
        elements, maker = _taken_apart(model, value, given)
        inputs += elements
        makers.append(maker)
    if not makers:
        return
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in (*makers, *graph.node)]
    kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in inputs]
    del graph.input[:], graph.node[:]
    graph.input.extend(kept)
    graph.node.extend(nodes)


def _taken_apart(
    model: OnnxModel, value: onnx.ValueInfoProto, given: Given
) -> tuple[list[onnx.ValueInfoProto], onnx.NodeProto]:
    """The inputs that replace `value`, and the node that builds it from them."""
    import onnx

    name, make = value.name, onnx.helper.make_node
    if name not in given:
        raise model.error(
            f"input {name!r}: how many elements this sequence has, only a call knows, which is not supported; expected "
            f"their shapes: --option {OPTION}={name}=3x4xf32,3x4xf32"
        )
    optional = value.type.WhichOneof("value") == "optional_type"
    kind = value.type.optional_type.elem_type if optional else value.type
    elements = given[name]
    if elements is None:
        if not optional:
            raise model.error(f"option {OPTION}: input {name!r} is not optional; expected its elements")
        return [], make("Optional", [], [name], f"{name}/absent", type=kind)
    if not is_sequence(value):
        raise model.error(f"option {OPTION}: input {name!r} is an optional tensor, which every call gives; expected no "
                          f"elements, or {name}={ABSENT}")
    number = kind.sequence_type.elem_type.tensor_type.elem_type
    if number == onnx.TensorProto.STRING:
        raise model.error(f"input {name!r}: sequences of strings are not supported; expected numbers")
    wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    made: list[onnx.ValueInfoProto] = []
    for place, element in enumerate(elements):
        if DTYPES[element.dtype] != wanted:
            raise model.error(f"option {OPTION}: element {place} of input {name!r}: {element.dtype} given, "
                              f"{wanted} expected")
        dims = [f"{name}[{place}].{axis}" if n is None else n for axis, n in enumerate(element.extents)]
        made.append(onnx.helper.make_tensor_value_info(f"{name}[{place}]", number, dims))
    if not made:
        return [], make("SequenceEmpty", [], [name], f"{name}/elements", dtype=number)
    return made, make("SequenceConstruct", [one.name for one in made], [name], f"{name}/elements")
