"""Resolves sequences of tensors whose lengths and positions are known when compiling.

    s = SequenceConstruct(x, y); r = SequenceAt(s, 1)    →   r = Identity(y)
    n = SequenceLength(s)                                →   n = 2, a constant
    c = ConcatFromSequence(s)                            →   c = Concat(x, y)

The wheel's lowering takes sequences for lists, and gets the length of one that another operator made wrong. What is
left of sequences afterwards is refused, with the node's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx_bodies import reads
from motet.compiler.frontends.onnx_model import OnnxModel
from motet.compiler.frontends.onnx_simplify import attribute, infer_shapes, ranks, static_shapes
from motet.compiler.frontends.onnx_writing import Facts, Writer, copy, element_types

if TYPE_CHECKING:
    import onnx

    from motet.errors import CompileError

_Held = dict[str, list[str]]  # the elements of each sequence


def resolve_sequences(model: OnnxModel) -> bool:
    """In place, in the graph of `model`, whose constants are folded and types inferred; whether there was any.
    Raises CompileError for sequences that are not known when compiling."""
    if not any(node.op_type in _RULES for node in model.proto.graph.node):
        return False
    facts = Facts(model, static_shapes(model), element_types(model), ranks(model))
    held: dict[str, list[str]] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is None and node.op_type == "Identity" and node.input[0] in held:
            held[node.output[0]] = held[node.input[0]]
        elif rule is None and held.keys().isdisjoint(reads(node)):
            nodes.append(node)
        elif rule is None:
            raise _refused(node, facts, "a sequence as its operand")
        else:
            nodes += rule(node, facts, held)
    copies = [copy(node) for node in nodes]
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(copies)
    infer_shapes(model)
    return True


def _refused(node: onnx.NodeProto, facts: Facts, what: str) -> CompileError:
    return facts.model.error(
        f"node {node.name!r}: {node.op_type} with {what} is not supported; expected sequences whose lengths and "
        "positions are known when compiling, or tensors"
    )


def _elements(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[str]:
    if node.input[0] not in held:
        raise _refused(node, facts, "a sequence that is not known")
    return list(held[node.input[0]])


def _position(node: onnx.NodeProto, facts: Facts, place: int, count: int, last: int, default: int) -> int:
    """The position, up to `last`, that operand `place` gives in a sequence of `count` elements, from the front."""
    name = node.input[place] if len(node.input) > place else ""
    if not name:
        return default
    array = facts.model.constants.get(name)
    if array is None:
        raise _refused(node, facts, "a position that a call decides")
    position = int(array.reshape(-1)[0])
    if not -count <= position <= last:
        raise facts.model.error(
            f"node {node.name!r}: {node.op_type}: position {position} is outside of a sequence of {count}; expected "
            f"-{count} to {last}"
        )
    return position if position >= 0 else position + count


def _construct(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    held[node.output[0]] = list(node.input)
    return []


def _insert(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    elements.insert(_position(node, facts, 2, len(elements), len(elements), len(elements)), node.input[1])
    held[node.output[0]] = elements
    return []


def _erase(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    del elements[_position(node, facts, 1, len(elements), len(elements) - 1, len(elements) - 1)]
    held[node.output[0]] = elements
    return []


def _at(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    return Writer(node, facts).done([elements[_position(node, facts, 1, len(elements), len(elements) - 1, 0)]])


def _length(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    w = Writer(node, facts)
    return w.done([w.constant(np.array(len(_elements(node, facts, held)), np.int64), "length")])


def _concat(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    w, elements, axis = Writer(node, facts), _elements(node, facts, held), attribute(node, "axis", 0)
    if not elements:
        raise _refused(node, facts, "a sequence without elements")
    if attribute(node, "new_axis", 0):
        elements = [w.over("Unsqueeze", element, [axis]) for element in elements]
    return w.done([w.add("Concat", *elements, axis=axis)])


def _split(node: onnx.NodeProto, facts: Facts, held: _Held) -> list[onnx.NodeProto]:
    extents, axis = facts.extents(node.input[0]), attribute(node, "axis", 0)
    extent = extents[axis] if extents is not None else None
    given = node.input[1] if len(node.input) > 1 else ""
    split = facts.model.constants.get(given) if given else np.array(1)
    if extent is None or split is None or bool((split < (0 if split.ndim else 1)).any()):
        raise _refused(node, facts, "parts, or an extent, that a call decides")
    ends = np.cumsum(split) if split.ndim else np.minimum(np.arange(0, extent, int(split)) + int(split), extent)
    w, begin = Writer(node, facts), 0
    parts: list[str] = []
    for end in ends.tolist():
        part = w.slice(node.input[0], axis, begin, end)
        parts.append(part if given or attribute(node, "keepdims", 1) else w.over("Squeeze", part, [axis]))
        begin = end
    held[node.output[0]] = parts
    return w.nodes


_RULES: dict[str, Callable[[onnx.NodeProto, Facts, _Held], list[onnx.NodeProto]]] = {
    "ConcatFromSequence": _concat, "SequenceAt": _at, "SequenceConstruct": _construct, "SequenceEmpty": _construct,
    "SequenceErase": _erase, "SequenceInsert": _insert, "SequenceLength": _length, "SplitToSequence": _split,
}  # fmt: skip
