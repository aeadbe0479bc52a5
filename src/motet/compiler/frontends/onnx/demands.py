"""Asserts operators' requirements on dynamic extents (`ties.py`, `dropped_ties.py`) that no lowering would.

    BatchNormalization(x, s, …)   →   y = Where(Shape(x)[1] = Shape(s)[0], x, x), a node whose name has REQUIRE
                                      BatchNormalization(y, s, …)

Such operators become broadcasts, gathers or pads, which accept an extent of 1 or only a part of the elements, so that
no later stage would detect a mismatch. `broadcasts.py` converts the Where into an assertion. Static extents are
compared here.

Of nodes that `simplify.py` drops, for their results are known without them, all requirements are asserted by such
nodes without readers. They read extents of values that are still computed, and of inputs with extents of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.dropped_ties import all_ties
from motet.compiler.frontends.onnx.model import Extents, OnnxModel
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.simplify import infer_shapes, name_nodes, ranks, simplify, static_shapes
from motet.compiler.frontends.onnx.ties import Demand, demands_of
from motet.compiler.frontends.onnx.unread import collect_dropped
from motet.compiler.frontends.onnx.writing import REQUIRE, ModelFacts, NodeWriter, copy, element_types, symbolic_shapes

if TYPE_CHECKING:
    import onnx

_WHERE_SINCE = 9  # the operator set


def demand_extents(model: OnnxModel) -> None:
    """Rewrites the main graph in place. Raises CompileError where static extents do not fit."""
    graph, version = model.proto.graph, model.opsets.get("", 0)
    if version < _WHERE_SINCE or not any(demands_of(node, version) for node in graph.node):
        return
    name_nodes(model)
    infer_shapes(model)
    facts = _facts(model)
    extents = symbolic_shapes(model)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        rule = demands_of(node, version)
        if rule is not None and all(name in extents for name in node.input if name):
            given = [extents.get(name, ()) for name in node.input]
            nodes += _asserted(node, facts, given, rule(node, given))
        else:
            nodes.append(node)
    copies = [copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def simplify_asserted(model: OnnxModel) -> None:
    """Simplifies the model, but keeps what nodes demand that are dropped. Raises CompileError where static extents do
    not fit."""
    collect_dropped(model)
    simplify(model)
    if _demand_dropped(model):
        simplify(model)


def _demand_dropped(model: OnnxModel) -> bool:
    """Asserts what nodes demand that were dropped; returns whether there was anything that a call must check."""
    graph, version = model.proto.graph, model.opsets.get("", 0)
    dropped, model.dropped = model.dropped, None
    if dropped is None or not dropped.nodes or version < _WHERE_SINCE:
        return False
    facts = _facts(model)
    computed = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    named = {
        dim.dim_param: (value.name, axis) for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim) if dim.dim_param
    }  # fmt: skip
    before = len(graph.node)
    said = {node.name for node in graph.node}
    for one in dropped.nodes:
        node, given = one.node, one.extents
        w = NodeWriter(node, facts, f"{node.name}/dropped")
        n = Numbers(w)
        places = {
            (number, axis): (name, axis) if name in computed else named.get(str(given[number][axis]))
            for number, name in enumerate(node.input) for axis in range(len(given[number]))
        }  # fmt: skip
        for tie, met in _unknown(n, facts, given, all_ties(one, version), places):
            if f"{node.name}{REQUIRE}{node.op_type}: {tie}" not in said:
                model.kept.add(n.require(n.of(0), met, str(tie)))
        graph.node.extend(w.nodes)
    return len(graph.node) > before


def _facts(model: OnnxModel) -> ModelFacts:
    return ModelFacts(model, static_shapes(model), element_types(model), ranks(model))


def _unknown(
    n: Numbers, facts: ModelFacts, extents: Sequence[Extents], ties: Iterable[Demand],
    places: Mapping[tuple[int, int], tuple[str, int] | None],
) -> Iterator[tuple[Demand, str]]:
    """Those of `ties` that are not known to hold, with their conditions. `places` has a value of the graph and its
    axis with the extent of each axis of each input; None if there is none, and the tie is left out."""
    node = n.w.node
    for tie in ties:
        given = [extents[number][axis] for number, axis in tie.places]
        known = [extent for extent in given if isinstance(extent, int)]
        if tie.fits(known) if len(known) == len(given) else tie.holds(given):
            continue
        if len(known) == len(given):
            raise facts.model.error(f"node {node.name!r}: {node.op_type}: {tie}: {' and '.join(map(str, known))}")
        sizes: list[str] = []
        for extent, place in zip(given, tie.places, strict=True):
            found = places[place]
            if isinstance(extent, int):
                sizes.append(n.of(extent))
            elif found is not None:
                sizes.append(n.w.add("Gather", n.w.add("Shape", found[0]), n.of(found[1])))
        if len(sizes) == len(given):
            yield tie, tie.met(n, sizes)


def _asserted(
    node: onnx.NodeProto, facts: ModelFacts, extents: Sequence[Extents], ties: Iterable[Demand]
) -> list[onnx.NodeProto]:
    """`node`, preceded by assertions of those `ties` that are not known to hold."""
    w, made = NodeWriter(node, facts, f"{node.name}/demand"), copy(node)
    n = Numbers(w)
    places = {
        (number, axis): (name, axis) for number, name in enumerate(node.input) for axis in range(len(extents[number]))
    }  # fmt: skip
    for tie, met in _unknown(n, facts, extents, ties, places):
        made.input[0] = n.require(made.input[0], met, str(tie))
        facts.model.demands.add(made.input[0])
    return [*w.nodes, made]
