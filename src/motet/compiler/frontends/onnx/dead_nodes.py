"""Drops nodes that nothing reads, but not what demands of extents they are known to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import reads
from motet.compiler.frontends.onnx.model import Dropped, Extents, OnnxModel
from motet.compiler.frontends.onnx.writing import replace_nodes

if TYPE_CHECKING:
    import onnx


def drop_dead_nodes(model: OnnxModel, extents: Mapping[str, Extents]) -> None:
    """Removes nodes without used results, and unused constants; `extents` are those of the graph's values."""
    kept, dead, live = _read_nodes(model)
    if dead and not model.inner:
        if model.dropped is not None:
            for node in dead:
                model.dropped.add(node, extents, model.constants)
        if _keep_demands(model, dead, live):
            kept, _, live = _read_nodes(model)
    replace_nodes(model, kept)
    if model.inner:
        return  # other graphs of the model may read the other constants
    for name in model.constants.keys() - live:
        del model.constants[name]


def collect_dropped(model: OnnxModel) -> None:
    """Lets `model.dropped` collect the nodes that are read now and will be dropped."""
    _, dead, _ = _read_nodes(model)
    unread = {name for node in dead for name in node.output}
    model.dropped = Dropped(unread, [])
    model.demands -= unread


def _read_nodes(model: OnnxModel) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto], set[str]]:
    """The nodes with results that are used, those without, and the values that are used."""
    graph = model.proto.graph
    live = {*model.kept, *(output.name for output in graph.output)}
    kept: list[onnx.NodeProto] = []
    dead: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if live.intersection(node.output):
            kept.append(node)
            live.update(reads(node))
        else:
            dead.append(node)
    return kept[::-1], dead, live


def _keep_demands(model: OnnxModel, dead: Sequence[onnx.NodeProto], live: set[str]) -> bool:
    """Keeps those of `dead` that assert a demand of extents of `live` values; returns whether there are any."""
    demands = [node for node in dead if model.demands.intersection(node.output)]
    producers = {name: node for node in model.proto.graph.node for name in node.output} if demands else {}
    known = live | {value.name for value in model.proto.graph.input} | set(model.constants)
    found = [node for node in demands if known.issuperset(_measured(node.input[0], producers))]
    for node in found:
        none = f"{node.name}/none"
        model.constants[none] = np.array(0)
        node.input[1:] = [none, none]
        node.output[0] = f"{node.name}/asserted"  # for it has no longer the extents of what it was
        model.kept.add(node.output[0])
    return bool(found)


def _measured(name: str, producers: dict[str, onnx.NodeProto]) -> set[str]:
    """The values whose extents, and the inputs and constants whose elements, the value `name` is computed from."""
    found: set[str] = set()
    seen, work = {name}, [name]
    while work:
        node = producers.get(current := work.pop())
        if node is None or node.op_type == "Shape":
            found.add(current if node is None else node.input[0])
        else:
            work += [each for each in node.input if each not in seen]
            seen.update(node.input)
    return found
