"""What a program is to calculate for given inputs, with the errors that are allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tests.fuzz.dtypes import NAMES
from tests.fuzz.graph import Array, Graph, Node
from tests.fuzz.operators import evaluate
from tests.fuzz.tracked import Invalid, Tracked, Undefined, exact


def _may_vanish(graph: Graph, node: Node, operands: Sequence[Tracked | None]) -> bool:
    """Whether a compiler need not compute `node`, and so need not see that a call does not fit it: its results are
    only asked for their shapes, it works on nothing, or all elements that it may take are the same number."""
    data = operands[0] if operands else None
    uniform = data is not None and node.op.startswith("Gather") and len(set(data.value.reshape(-1).tolist())) < 2
    empty = data is not None and data.value.size == 0 and not node.op.startswith("Gather")
    places = operands[1] if node.op.startswith("Gather") else None
    nowhere = places is not None and places.value.size == 0
    return _is_unseen(graph, node) or uniform or empty or nowhere


def _is_unseen(graph: Graph, node: Node) -> bool:
    """Whether no element of `node` reaches a result: what reads it asks for shapes alone, or is unseen itself."""
    readers = [other for other in graph.nodes if set(node.outputs) & set(other.inputs)]
    return not set(node.outputs) & set(graph.results) and all(
        other.op in ("Shape", "Size") or _takes_nothing(graph, other) or _never_chosen(graph, other, node.outputs)
        or _is_unseen(graph, other) for other in readers
    )


def _never_chosen(graph: Graph, node: Node, names: Sequence[str]) -> bool:
    """Whether a constant condition never chooses an operand of a Where that is one of `names`."""
    condition = graph.constants.get(node.inputs[0]) if node.op == "Where" else None
    if condition is None:
        return False
    sides = zip(node.inputs[1:], (condition, ~condition), strict=True)
    return all(name not in names or not chosen.any() for name, chosen in sides)


def _takes_nothing(graph: Graph, node: Node) -> bool:
    """Whether `node` takes the first 0 elements of its operand, or may cut all of it."""
    given = graph.constants.get(node.inputs[1]) if node.op in ("TopK", "Pad") else None
    return given is not None and (not given.any() if node.op == "TopK" else bool((given < 0).any()))


def calculate(graph: Graph, feeds: Mapping[str, Array | Tracked]) -> dict[str, Tracked]:
    """Every value of a graph. Raises Invalid where ONNX does not allow the call."""
    known = {
        name: given if isinstance(given, Tracked) else exact(given, NAMES[given.dtype])
        for name, given in (*feeds.items(), *graph.constants.items())
    }
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [known[name].as_operand() if name else None for name in node.inputs]
            try:
                results = evaluate(node.op, node.attributes, operands)
            except Undefined:
                raise
            except Invalid as error:
                vanishes = _may_vanish(graph, node, operands)
                raise (Undefined if vanishes else Invalid)(str(error)) from error
            if any(result.value.size > 1 << 20 for result in results):
                raise Undefined("too large for the reference")
            known.update(zip(node.outputs, results, strict=True))
    return known
