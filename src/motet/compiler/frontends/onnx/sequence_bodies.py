"""Resolves sequences in bodies of If, Loop and Scan.

    y = If(c) { then: s = SequenceConstruct(a, b) } { else: s = SequenceConstruct(b, a) }
    →  y[0], y[1] = If(c) { then: a, b } { else: b, a }

Loops that carry sequences are unrolled; an outer sequence is constructed again in each body that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import each_body, graphs_of, reads
from motet.compiler.frontends.onnx.control import unroll
from motet.compiler.frontends.onnx.writing import ModelFacts

if TYPE_CHECKING:
    import onnx

    from motet.compiler.frontends.onnx.model import OnnxModel

_Held = dict[str, list[str]]
# Resolves the sequences of a body, and appends the lengths of its outputs, None for tensors.
_Resolve = Callable[["OnnxModel", list[list[int | None]]], None]


def is_sequence(value: onnx.ValueInfoProto) -> bool:
    """Whether a value is a sequence, or an optional one."""
    kind = value.type
    if kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    return kind.WhichOneof("value") == "sequence_type"


def unrolled(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The iterations of a Loop; None if their number is unknown."""
    return unroll(node, facts) if node.op_type == "Loop" else None


def settle_bodies(node: onnx.NodeProto, model: OnnxModel, held: _Held, resolve: _Resolve) -> onnx.NodeProto:
    """`node` with bodies without sequences; results that were sequences become their elements."""
    import onnx

    lengths: list[list[int | None]] = []
    for graph in graphs_of(node):
        _make_again(graph, held)

    proto = onnx.ModelProto.FromString(model.proto.SerializeToString())
    del proto.graph.node[:]
    proto.graph.node.append(node)
    alone = replace(model, proto=proto)
    each_body(alone, lambda body: resolve(body, lengths))
    settled = onnx.NodeProto.FromString(proto.graph.node[0].SerializeToString())
    if any(each != lengths[0] for each in lengths):
        raise model.error(
            f"node {node.name!r}: {node.op_type} whose branches give sequences of different lengths is not supported; "
            "expected equal lengths"
        )
    if node.op_type == "If":
        _name_results(settled, lengths[0], held)
    return settled


def _name_results(node: onnx.NodeProto, lengths: list[int | None], held: _Held) -> None:
    outputs = list(node.output)
    del node.output[:]
    for name, length in zip(outputs, lengths, strict=True):
        if length is None:
            node.output.append(name)
        else:
            held[name] = [f"{name}[{number}]" for number in range(length)]
            node.output.extend(held[name])


def _make_again(graph: onnx.GraphProto, held: _Held) -> None:
    """Constructs the outer sequences that the body reads in front of its own nodes."""
    import onnx

    read = {name for node in graph.node for name in reads(node)}
    made = [
        onnx.helper.make_node("SequenceConstruct", held[name], [name], f"{name}/again")
        for name in held if name in read
    ]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in (*made, *graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)


def flatten(graph: onnx.GraphProto, held: _Held) -> list[int | None]:
    """Replaces outputs that are sequences by their elements; returns the length of each, None for tensors."""
    import onnx

    lengths = [len(held[value.name]) if value.name in held else None for value in graph.output]
    outputs: list[onnx.ValueInfoProto] = []
    for value in graph.output:
        for number, element in enumerate(held.get(value.name, ())):
            name = f"{value.name}[{number}]"
            graph.node.append(onnx.helper.make_node("Identity", [element], [name], f"{name}/element"))
            kind = value.type.sequence_type.elem_type.tensor_type.elem_type
            outputs.append(onnx.helper.make_tensor_value_info(name, kind, None))
        if value.name not in held:
            outputs.append(value)
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in outputs]
    del graph.output[:]
    graph.output.extend(copies)
    return lengths
