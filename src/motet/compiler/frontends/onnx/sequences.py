"""Resolves sequences of tensors whose lengths and positions are known when compiling.

    s = SequenceConstruct(x, y); r = SequenceAt(s, 1)    →   r = Identity(y)
    n = SequenceLength(s)                                →   n = 2, a constant
    c = ConcatFromSequence(s)                            →   c = Concat(x, y)
    return s                                             →   return s[0], s[1]

The torch-mlir wheel lowers sequences as lists, and miscounts the lengths of those that other operators made. Sequences
that remain afterwards are refused, with the node's name. Loops over sequences, including SequenceMap, are unrolled
(`sequence_bodies.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import all_nodes, graphs_of, reads
from motet.compiler.frontends.onnx.functions import expand_functions
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.sequence_bodies import flatten, is_sequence, settle_bodies, unrolled
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes, simplify
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, copy, replace_nodes
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx

_Held = dict[str, list[str]]  # sequence → its elements


def resolve_sequences(model: OnnxModel) -> None:
    """Rewrites the graph of `model` in place; its constants must be folded and types inferred. Raises CompileError for
    sequences that are not known when compiling."""
    graph = model.proto.graph
    if not any(node.op_type in _RULES for node in all_nodes(graph)) and not any(map(is_sequence, graph.output)):
        return
    if expand_functions(model, {"SequenceMap"}):
        simplify(model)
    failed = ""
    while (error := _resolve(model)) is not None:
        node, reason = error
        if node == failed:  # the facts inferred since did not help
            raise reason
        failed = node
        simplify(model)
    simplify(model)


def _resolve(
    model: OnnxModel, lengths: list[list[int | None]] | None = None
) -> tuple[str, CompileError] | None:
    """Resolves sequences up to the first node that cannot be resolved, which is returned with the reason. If there is
    none, outputs that are sequences become their elements, whose numbers are appended to `lengths`."""
    facts = ModelFacts.of(model)
    held: _Held = {}
    done: list[onnx.NodeProto] = []
    waiting = deque(copy(node) for node in model.proto.graph.node)
    error: tuple[str, CompileError] | None = None
    while waiting and error is None:
        node = waiting.popleft()
        try:
            found, again = _settle(node, facts, held)
        except CompileError as reason:
            error = node.name, reason
            waiting.appendleft(node)
        else:
            waiting.extendleft(reversed(again))
            done += found
    outputs = [value.name for value in model.proto.graph.output]
    if error is not None:
        done += _rebuilt(waiting, outputs, facts, held)
    replace_nodes(model, [*done, *waiting])
    if error is None:
        found = flatten(model.proto.graph, held)
        if lengths is not None:
            lengths.append(found)
    infer_shapes(model)
    return error


def _settle(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """The nodes that replace `node`, and those among them whose own sequences must still be resolved."""
    if (rule := _RULES.get(node.op_type)) is not None:
        return rule(node, facts, held), []
    touched = not held.keys().isdisjoint(reads(node))
    if node.op_type == "Identity" and touched:
        held[node.output[0]] = held[node.input[0]]
        return [], []
    if any(True for _ in graphs_of(node)):
        if touched and (iterations := unrolled(node, facts)) is not None:
            return [], iterations
        if held.keys().isdisjoint(node.input) and (touched or _has_sequences(node)):
            return [settle_bodies(node, facts.model, held, _resolve_body)], []
    if touched:
        raise _refused(node, facts, "a sequence as its operand")
    return [node], []


def _has_sequences(node: onnx.NodeProto) -> bool:
    """Whether the bodies of `node` contain sequences."""
    return any(
        any(inner.op_type in _RULES for inner in all_nodes(graph)) or any(map(is_sequence, graph.output))
        for graph in graphs_of(node)
    )


def _resolve_body(body: OnnxModel, lengths: list[list[int | None]]) -> None:
    error = _resolve(body, lengths)
    if error is not None:
        raise error[1]


def _rebuilt(
    waiting: Iterable[onnx.NodeProto], outputs: Iterable[str], facts: ModelFacts, held: _Held
) -> list[onnx.NodeProto]:
    """Nodes that construct the sequences which waiting nodes or `outputs` read."""
    import onnx

    wanted = {*(name for node in waiting for name in reads(node)), *outputs}
    made: list[onnx.NodeProto] = []
    for name, elements in held.items():
        if name in wanted and elements:
            made.append(onnx.helper.make_node("SequenceConstruct", elements, [name], f"{name}/rebuilt"))
        elif name in wanted:
            kind = facts.types.get(name) or int(onnx.TensorProto.FLOAT)
            made.append(onnx.helper.make_node("SequenceEmpty", [], [name], f"{name}/rebuilt", dtype=kind))
    return made


def _refused(node: onnx.NodeProto, facts: ModelFacts, what: str) -> CompileError:
    return facts.model.error(
        f"node {node.name!r}: {node.op_type} with {what} is not supported; expected sequences whose lengths and "
        "positions are known when compiling, or tensors"
    )


def _elements(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[str]:
    if node.input[0] not in held:
        raise _refused(node, facts, "a sequence that is not known")
    return list(held[node.input[0]])


def _position(node: onnx.NodeProto, facts: ModelFacts, place: int, count: int, last: int, default: int) -> int:
    """The position from the front, at most `last`, that operand `place` gives in a sequence of `count` elements."""
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


def _construct(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    held[node.output[0]] = list(node.input)
    return []


def _insert(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    elements.insert(_position(node, facts, 2, len(elements), len(elements), len(elements)), node.input[1])
    held[node.output[0]] = elements
    return []


def _erase(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    del elements[_position(node, facts, 1, len(elements), len(elements) - 1, len(elements) - 1)]
    held[node.output[0]] = elements
    return []


def _at(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    elements = _elements(node, facts, held)
    return NodeWriter(node, facts).done([elements[_position(node, facts, 1, len(elements), len(elements) - 1, 0)]])


def _length(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    w = NodeWriter(node, facts)
    length = np.array(len(_elements(node, facts, held)), np.int64)
    if all(value.name != node.output[0] for value in facts.model.proto.graph.output):
        facts.model.constants[node.output[0]] = length
        return []
    return w.done([w.constant(length, "length")])


def _concat(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    w, elements, axis = NodeWriter(node, facts), _elements(node, facts, held), attribute(node, "axis", 0)
    if not elements:
        raise _refused(node, facts, "a sequence without elements")
    if attribute(node, "new_axis", 0):
        elements = [w.over("Unsqueeze", element, [axis]) for element in elements]
    return w.done([w.add("Concat", *elements, axis=axis)])


def _split(node: onnx.NodeProto, facts: ModelFacts, held: _Held) -> list[onnx.NodeProto]:
    extents, axis = facts.extents(node.input[0]), attribute(node, "axis", 0)
    extent = extents[axis] if extents is not None else None
    given = node.input[1] if len(node.input) > 1 else ""
    split = facts.model.constants.get(given) if given else np.array(1)
    if extent is None or split is None or bool((split < (0 if split.ndim else 1)).any()):
        raise _refused(node, facts, "parts, or an extent, that a call decides")
    ends = np.cumsum(split) if split.ndim else np.minimum(np.arange(0, extent, int(split)) + int(split), extent)
    w, begin = NodeWriter(node, facts), 0
    parts: list[str] = []
    for end in ends.tolist():
        part = w.slice(node.input[0], axis, begin, end)
        parts.append(part if given or attribute(node, "keepdims", 1) else w.over("Squeeze", part, [axis]))
        begin = end
    held[node.output[0]] = parts
    return w.nodes


_RULES: dict[str, Callable[[onnx.NodeProto, ModelFacts, _Held], list[onnx.NodeProto]]] = {
    "ConcatFromSequence": _concat, "SequenceAt": _at, "SequenceConstruct": _construct, "SequenceEmpty": _construct,
    "SequenceErase": _erase, "SequenceInsert": _insert, "SequenceLength": _length, "SplitToSequence": _split,
}  # fmt: skip
