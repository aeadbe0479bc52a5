"""Asserts the demands of operators (`operator_demands.py`) on dynamic extents that no lowering would.

    BatchNormalization(x, s, …)   →   y = Where(Shape(x)[1] = Shape(s)[0], x, x), a node whose name has REQUIRE
                                      BatchNormalization(y, s, …)

Such operators become broadcasts, gathers or pads, which accept an extent of 1 or only a part of the elements, so that
no later stage would detect a mismatch. `broadcasts.py` converts the Where into an assertion. Static extents are
compared here.

Of nodes that `simplify.py` drops, for their results are known without them, all demands are asserted by such nodes
without readers. They read extents of values that are still computed, and of inputs with extents of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.dead_nodes import collect_dropped
from motet.compiler.frontends.onnx.extent_demands import Demand
from motet.compiler.frontends.onnx.model import OnnxModel, ShapedNode
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.operator_demands import REWRITTEN, demands_of
from motet.compiler.frontends.onnx.simplify import infer_shapes, name_nodes, simplify
from motet.compiler.frontends.onnx.writing import REQUIRE, ModelFacts, copy, replace_nodes, symbolic_shapes

if TYPE_CHECKING:
    import onnx

_WHERE_SINCE = 9  # the operator set


def demand_extents(model: OnnxModel) -> None:
    """Rewrites the main graph in place. Raises CompileError where static extents do not fit."""
    graph = model.proto.graph
    lost = [node.op_type in REWRITTEN and node.domain in ("", "ai.onnx") for node in graph.node]
    if model.opsets.get("", 0) < _WHERE_SINCE or not any(lost):
        return
    name_nodes(model)
    infer_shapes(model)
    facts, extents = ModelFacts.of(model), symbolic_shapes(model)
    nodes: list[onnx.NodeProto] = []
    for node, is_lost in zip(graph.node, lost, strict=True):
        shaped = ShapedNode.of(node, extents, model.constants) if is_lost else None
        if shaped is not None and (node.op_type != "Concat" or any(0 in part for part in shaped.extents)):
            nodes += _asserted(shaped, facts)
        else:
            nodes.append(node)
    replace_nodes(model, nodes)


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
    facts = ModelFacts.of(model)
    computed = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    named = {
        dim.dim_param: (value.name, axis) for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim) if dim.dim_param
    }  # fmt: skip
    before = len(graph.node)
    said = {node.name for node in graph.node}
    for shaped in dropped.nodes:
        node, extents = shaped.node, shaped.extents
        n = Numbers(node, facts, f"{node.name}/dropped")
        places = {
            (number, axis): (name, axis) if name in computed else named.get(str(extents[number][axis]))
            for number, name in enumerate(node.input) for axis in range(len(extents[number]))
        }  # fmt: skip
        for demand, met in _unknown(n, shaped, places):
            if f"{node.name}{REQUIRE}{node.op_type}: {demand}" not in said:
                model.kept.add(n.require(n.of(0), met, str(demand)))
        graph.node.extend(n.nodes)
    return len(graph.node) > before


def _unknown(
    n: Numbers, node: ShapedNode, places: Mapping[tuple[int, int], tuple[str, int] | None] | None = None
) -> Iterator[tuple[Demand, str]]:
    """The demands of a node that are not known to hold, with their conditions. `places` has a value of the graph and
    its axis with the extent of each axis of each input, those of the node itself by default; None if there is none, and
    the demand is left out."""
    model = n.facts.model
    for demand in demands_of(node, n.facts.version):
        extents = [node.extents[number][axis] for number, axis in demand.places]
        known = [extent for extent in extents if isinstance(extent, int)]
        if demand.fits(*known) if len(known) == len(extents) else demand.holds(extents):
            continue
        if len(known) == len(extents):
            where = f"node {node.node.name!r}: {node.node.op_type}"
            raise model.error(f"{where}: {demand}: {' and '.join(map(str, known))}")
        sizes: list[str | int] = []
        for extent, (number, axis) in zip(extents, demand.places, strict=True):
            source = (node.node.input[number], axis) if places is None else places[number, axis]
            if isinstance(extent, int):
                sizes.append(extent)
            elif source is not None:
                sizes.append(n.extent(*source))
        if len(sizes) == len(extents):
            yield demand, n.met(demand, sizes)


def _asserted(node: ShapedNode, facts: ModelFacts) -> list[onnx.NodeProto]:
    """The node, preceded by assertions of those demands that are not known to hold."""
    n, made = Numbers(node.node, facts, f"{node.node.name}/demand"), copy(node.node)
    for demand, met in _unknown(n, node):
        made.input[0] = n.require(made.input[0], met, str(demand))
        facts.model.demands.add(made.input[0])
    return [*n.nodes, made]
