"""Makes a failing program smaller, as long as it fails in the same way: fewer operators and results, smaller extents,
plainer types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.fuzz.dtypes import DTYPES, FLOATS, NAMES
from tests.fuzz.graph import Array, Graph, Input, Node, to_json
from tests.fuzz.parent import Child, Finding
from tests.fuzz.registry import accepts
from tests.fuzz.shapes import Types, types_of
from tests.fuzz.tracked import Invalid

Fails = Callable[[Graph], bool]


def minimise(graph: Graph, child: Child, say: Callable[[str], None]) -> tuple[Graph, Finding]:
    """The smallest graph found that fails as `graph` does, and how it fails."""
    first = child.try_graph(to_json(graph))
    best = [graph, first]
    if first.kind == "ok":
        return graph, first

    def fails(candidate: Graph) -> bool:
        try:
            types = types_of(candidate)
            if not all(_is_operator(candidate, node, types) for node in candidate.nodes):
                return False
        except (Invalid, ValueError, KeyError, TypeError, IndexError):
            return False
        found = child.try_graph(to_json(candidate))
        if found.kind != first.kind or (found.kind == "refused" and _head(found.text) != _head(first.text)):
            return False
        best[:] = [candidate, found]
        say(f"{len(candidate.nodes)} operators, {_size(candidate)} elements: {found.text[:120]}")
        return True

    for _ in range(4):
        before = to_json(best[0])
        for reduce in (_fewer_results, _without_nodes, _cut, _static, _smaller, _plainer):
            _greedily(best, reduce, fails)
        if to_json(best[0]) == before:
            break
    return best[0], best[1]


def _greedily(best: Sequence[Any], reduce: Callable[[Graph], Iterator[Graph]], fails: Fails) -> None:
    """Takes the first smaller graph that fails, and looks for more from there, until there is none."""
    tried: set[str] = set()
    progress = True
    while progress:
        progress = False
        for candidate in reduce(best[0]):
            words = str(to_json(candidate))
            if words in tried:
                continue
            tried.add(words)
            if fails(candidate):
                progress = True
                break


def _is_operator(graph: Graph, node: Node, types: Types) -> bool:
    """Whether ONNX has the operator for such operands, or it is of another language."""
    dtypes = tuple(types[i][0] if i else "" for i in node.inputs)
    return node.op.startswith("linalg.") or accepts(node.op, graph.opset, dtypes)


def _head(text: str) -> str:
    return text[:60]


def _size(graph: Graph) -> int:
    return sum(int(np.prod(i.concrete(graph.symbols), initial=1)) for i in graph.inputs)


# -- each makes graphs that are a little smaller ----------------------------------------------------


def _fewer_results(graph: Graph) -> Iterator[Graph]:
    if len(graph.results) < 2:
        return
    for result in graph.results:
        yield replace(graph, results=(result,)).pruned()
    for number in range(len(graph.results)):
        yield replace(graph, results=graph.results[:number] + graph.results[number + 1 :]).pruned()


def _without_nodes(graph: Graph) -> Iterator[Graph]:
    """Without an operator that has an operand of the same type: its readers take that."""
    types = types_of(graph)
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        for operand in node.inputs:
            if operand and types[operand] == types[node.outputs[0]]:
                yield _renamed(graph, number, node.outputs[0], operand).pruned()


def _renamed(graph: Graph, number: int, old: str, new: str) -> Graph:
    nodes = [
        replace(node, inputs=tuple(new if i == old else i for i in node.inputs))
        for k, node in enumerate(graph.nodes) if k != number
    ]
    return replace(graph, nodes=tuple(nodes), results=tuple(new if r == old else r for r in graph.results))


def _cut(graph: Graph) -> Iterator[Graph]:
    """With an input in the place of a result, so that what it was made of is not needed."""
    types = types_of(graph)
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        if any(None in types[output][1] for output in node.outputs) or set(node.outputs) & set(graph.results):
            continue
        made = tuple(Input(f"{o}i", types[o][0], types[o][1]) for o in node.outputs)  # type: ignore[arg-type]
        cut = replace(graph, inputs=(*graph.inputs, *made))
        for output in node.outputs:
            cut = _renamed(cut, -1, output, f"{output}i")
        kept = tuple(n for k, n in enumerate(cut.nodes) if k != number)
        yield replace(cut, nodes=kept).pruned()


def _static(graph: Graph) -> Iterator[Graph]:
    """With one extent fewer that calls decide."""
    for symbol, value in graph.symbols.items():
        inputs = tuple(replace(i, shape=tuple(value if e == symbol else e for e in i.shape)) for i in graph.inputs)
        yield replace(graph, inputs=inputs, symbols={s: v for s, v in graph.symbols.items() if s != symbol})


def _smaller(graph: Graph) -> Iterator[Graph]:
    """With an extent replaced wherever it is: in inputs, constants and attributes."""
    extents = {e for i in graph.inputs for e in i.concrete(graph.symbols)} | {
        e for array in graph.constants.values() for e in array.shape
    }
    for extent in sorted(extents, reverse=True):
        for smaller in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32):
            if smaller < extent:
                yield _resized(graph, extent, smaller, True)
                yield _resized(graph, extent, smaller, False)


def _resized(graph: Graph, old: int, new: int, values: bool) -> Graph:
    def constant(array: Array) -> Array:
        for axis, extent in enumerate(array.shape):
            if extent == old:
                array = np.take(array, range(new), axis)
        if values and array.dtype == np.int64:
            array = np.where(array == old, new, array)
        return array

    symbols = {s: new if v == old else v for s, v in graph.symbols.items()}
    inputs = tuple(replace(i, shape=tuple(new if e == old else e for e in i.shape)) for i in graph.inputs)
    constants = {name: constant(array) for name, array in graph.constants.items()}
    return replace(graph, inputs=inputs, constants=constants, symbols=symbols)


def _plainer(graph: Graph) -> Iterator[Graph]:
    """Of another type, zeros in constants, without attributes."""
    used = {i.dtype for i in graph.inputs} | {NAMES[a.dtype] for a in graph.constants.values()}
    for old in sorted(used & set(FLOATS) - {"f32"}):
        yield _retyped(graph, old, "f32")
    for old in sorted(used & {"i8", "i16", "i64", "u8", "u16", "u32", "u64"}):
        yield _retyped(graph, old, "i32")
    for number, node in enumerate(graph.nodes):
        for attribute in node.attributes:
            fewer = {k: v for k, v in node.attributes.items() if k != attribute}
            changed = Node(node.op, node.inputs, node.outputs, fewer)
            yield replace(graph, nodes=(*graph.nodes[:number], changed, *graph.nodes[number + 1 :]))


def _retyped(graph: Graph, old: str, new: str) -> Graph:
    inputs = tuple(replace(i, dtype=new if i.dtype == old else i.dtype) for i in graph.inputs)
    constants = {n: a.astype(DTYPES[new]) if NAMES[a.dtype] == old else a for n, a in graph.constants.items()}
    nodes = tuple(
        replace(n, attributes={k: new if k == "to" and v == old else v for k, v in n.attributes.items()})
        for n in graph.nodes
    )
    return replace(graph, inputs=inputs, constants=constants, nodes=nodes)

