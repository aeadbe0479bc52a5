"""Rewrites control flow that the torch-mlir wheel cannot lower.

- If whose branches only return constants and outer values: becomes Where.
- Scan of operator set 8, whose operands are batched: its iterations are written out for each element of the batch. A
  later Scan whose iterations only depend on their slices: becomes the operators of its body (`maps.py`). One along
  other axes than the first, or backwards: becomes one forwards along the first axes (`directed.py`).
- Loop whose number of iterations follows from constants, or from the declared extents of its results: unrolled. One of
  as many iterations as a call decides becomes a Scan over their numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import all_nodes, graphs_of
from motet.compiler.frontends.onnx.directed import forwards, is_directed
from motet.compiler.frontends.onnx.evaluation import evaluate
from motet.compiler.frontends.onnx.maps import at_once
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, refused, symbolic_shapes

if TYPE_CHECKING:
    import onnx

_CONVERSIONS = ("Cast", "CastLike", "Identity")
NODES = 4096  # nodes that unrolling may create, at most


def _choice(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    chosen: list[str] = []
    branches = [attribute(node, name, None) for name in ("then_branch", "else_branch")]
    if any(inner.op_type not in ("Constant", "Identity") for branch in branches for inner in branch.node):
        return None
    values = [{n.output[0]: _constant_or_input(n, facts) for n in branch.node} for branch in branches]
    extents = symbolic_shapes(facts.model)
    for results in zip(*(branch.output for branch in branches), strict=True):
        first, second = (_source(result.name, known) for result, known in zip(results, values, strict=True))
        shapes = [extents.get(name) for name in (first, second)]
        if shapes[0] is None or None in shapes[0] or shapes[0] != shapes[1]:
            raise refused(
                node, facts, f"of outer values with the extents {' and '.join(str(shape) for shape in shapes)}",
                "values that both branches declare with the same extents, or a constant condition",
            )
        chosen.append(w.add("Where", node.input[0], first, second))
    return w.done(chosen)


def _constant_or_input(inner: onnx.NodeProto, facts: ModelFacts) -> str:
    """The operand of an Identity; the value of a Constant, added to the constants of the model."""
    import onnx

    if inner.op_type == "Identity":
        return inner.input[0]
    item = inner.attribute[0]
    value = onnx.helper.get_attribute_value(item)
    array = onnx.numpy_helper.to_array(value) if item.name == "value" else np.array(value)
    if item.name.startswith(("value_float", "value_int")):
        array = array.astype(np.float32 if "float" in item.name else np.int64)
    name = facts.constant(inner, "value", array)
    facts.shapes[name] = array.shape
    return name


def _source(name: str, known: dict[str, str]) -> str:
    while name in known:
        name = known[name]
    return name


def unroll(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The iterations of a Loop, one after the other; None if their number is dynamic or too large."""
    iterations = facts.model.constants.get(node.input[0]) if node.input[0] else None
    begins = facts.model.constants.get(node.input[1]) if node.input[1] else np.array(True)
    inner: onnx.GraphProto = attribute(node, "body", None)
    carried = len(node.input) - 2
    if iterations is None or begins is None or not begins.all():
        return None
    count = max(0, int(iterations.reshape(-1)[0]))
    if not _goes_on(inner, facts) and (count := _counted(node, inner, facts, count)) is None:
        return None
    if (count == 0 and len(inner.output) > 1 + carried) or count * sum(1 for _ in all_nodes(inner)) > NODES:
        return None
    w = NodeWriter(node, facts)
    going = w.constant(np.array(True), "going")
    values, collected, _ = _iterations(w, inner, count, going)
    return w.done([*values, *(w.add("Concat", *found, axis=0) for found in collected)])


def _counted(node: onnx.NodeProto, inner: onnx.GraphProto, facts: ModelFacts, most: int) -> int | None:
    """The number of iterations, at most `most`, of a Loop whose condition follows from constants and the iteration
    number, as in Keras' loops over time steps; None if it depends on anything else."""
    carried = [facts.model.constants.get(name) for name in node.input[2:]]
    within = NODES // max(1, sum(1 for _ in all_nodes(inner)))  # iterations that unrolling may write
    for iteration in range(min(most, within)):
        given = [np.array(iteration, np.int64), np.array(True), *carried]
        names = [value.name for value in inner.input]
        known = facts.model.constants | {n: v for n, v in zip(names, given, strict=True) if v is not None}
        model = replace(facts.model, constants=known)
        for each in inner.node:
            known.update(evaluate(model, each, dict) or {})
        goes_on, *results = [known.get(value.name) for value in inner.output]
        if goes_on is None:
            return None
        if not goes_on.all():
            return iteration + 1
        carried = results[: len(carried)]
    return most


def _iterations(
    w: NodeWriter, inner: onnx.GraphProto, count: int, going: str
) -> tuple[list[str], list[list[str]], list[str]]:
    """Writes `count` iterations of a Loop. Returns the carried values after the last one, the values collected from
    each iteration, and the conditions after each."""
    carried = len(w.node.input) - 2
    values = list(w.node.input[2:])
    collected: list[list[str]] = [[] for _ in inner.output[1 + carried :]]
    conditions: list[str] = []
    for iteration in range(count):
        names = {
            inner.input[0].name: w.constant(np.array(iteration, np.int64), "turn"),
            inner.input[1].name: going,
            **{value.name: given for value, given in zip(list(inner.input)[2:], values, strict=True)},
        }
        _write_iteration(w, inner, names, iteration)
        going, *results = [names.get(value.name, value.name) for value in inner.output]
        conditions.append(going)
        values = results[:carried]
        for found, result in zip(collected, results[carried:], strict=True):
            found.append(w.over("Unsqueeze", result, [0]))
    return values, collected, conditions


def _loop(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Unrolls a Loop whose number of iterations is constant or follows from the declared extents of its results; in
    the latter case a call that needs another number fails."""
    if (iterations := unroll(node, facts)) is not None:
        return iterations
    inner: onnx.GraphProto = attribute(node, "body", None)
    carried = len(node.input) - 2
    counts = {found for name in node.output[carried:] if name and (found := _slices(name, facts))}
    count = counts.pop() if len(counts) == 1 else None
    typed = all(facts.types.get(name) for name in node.output if name)
    if not count or not typed or count * sum(1 for _ in all_nodes(inner)) > NODES:
        return _as_scan(node, facts)
    w = NodeWriter(node, facts)
    begins = node.input[1] or w.constant(np.array(True), "going")
    values, collected, (*goes_on, last) = _iterations(w, inner, count, begins)
    ends = w.add("Not", last) if not _goes_on(inner, facts) else ""
    if node.input[0]:
        exact = w.add("Equal", w.reshape(node.input[0], []), w.constant(np.array(count, np.int64), "turns"))
        more = w.add("Less", w.constant(np.array(count, np.int64), "turns"), w.reshape(node.input[0], []))
        ends = w.add("Or", exact, w.add("And", more, w.reshape(ends, []))) if ends else exact
    conditions = [begins, *goes_on, ends] if ends else [begins, *goes_on]
    fits = [w.reshape(name, []) for name in dict.fromkeys(conditions)]
    fine = w.required(w.joined("And", fits), f"its results have {count} slices, those of as many iterations")
    results = [*values, *(w.add("Concat", *found, axis=0) for found in collected)]
    return w.done([
        w.add("Where", fine, result, w.constant(np.zeros((), facts.dtype(name)), "zero")) if name else result
        for result, name in zip(results, node.output, strict=False)
    ])


def _as_scan(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A Loop that goes on until its number of iterations, which a call decides, as a Scan over the numbers of these; as
    a Loop with a first condition if it collects nothing, which the wheel lowers. None for others."""
    import onnx

    inner: onnx.GraphProto = attribute(node, "body", None)
    begins = facts.model.constants.get(node.input[1]) if node.input[1] else np.array(True)
    carried = len(node.input) - 2
    is_counted = bool(node.input[0]) and begins is not None and bool(begins.all()) and _goes_on(inner, facts)
    empty = any(0 in (facts.extents(name) or [])[1:] for name in node.output[carried:])  # the wheel miscounts these
    if not is_counted:
        return None
    if empty or len(inner.output) == 1 + carried:
        made = copy(node)
        made.input[1] = made.input[1] or facts.constant(node, "going", np.array(True))
        return None if node.input[1] else [made]
    w = NodeWriter(node, facts)
    true = onnx.numpy_helper.from_array(np.array(True))
    going = onnx.helper.make_node("Constant", [], [inner.input[1].name], value=true)
    body = onnx.helper.make_graph(
        [going, *inner.node], inner.name, [*list(inner.input)[2:], inner.input[0]], list(inner.output)[1:],
        inner.initializer,
    )  # fmt: skip
    zero, one = (w.constant(np.array(number), "number") for number in (0, 1))
    turns = w.add("Range", zero, w.reshape(node.input[0], []), one)
    return w.done(w.add_all("Scan", len(node.output), *node.input[2:], turns, body=body, num_scan_inputs=1))


def _slices(name: str, facts: ModelFacts) -> int | None:
    """The first extent of a value, or of the value that it is converted to."""
    while name:
        extents = facts.extents(name)
        if extents and extents[0]:
            return extents[0]
        graph = facts.model.proto.graph
        name = next((n.output[0] for n in graph.node if n.op_type in _CONVERSIONS and n.input[0] == name), "")
    return None


def _scan(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if facts.version <= 8:
        return _batches(node, facts)
    if is_directed(node):
        return forwards(node, facts)
    return at_once(node, facts)


def _batches(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto]:
    """Scan of operator set 8: sequence lengths, then states and operands, all with the batch as first axis."""
    inner, count = attribute(node, "body", None), attribute(node, "num_scan_inputs", 0)
    shapes = [facts.shapes.get(name) for name in node.input[1:]]
    if node.input[0] or not shapes or any(shape is None for shape in shapes):
        raise facts.model.error(
            f"node {node.name!r}: Scan of operator set 8 is supported without lengths of sequences, for extents that "
            "are known when compiling; convert it to operator set 9 or later"
        )
    known = [shape for shape in shapes if shape is not None]
    batch, iterations, states = known[0][0], known[-1][1], len(known) - count
    if not batch or not iterations or batch * iterations * sum(1 for _ in all_nodes(inner)) > NODES:
        raise facts.model.error(
            f"node {node.name!r}: Scan of {batch} batches of {iterations} iterations is more than is written out; "
            f"expected {NODES} nodes; convert it to operator set 9 or later"
        )
    w, backwards = NodeWriter(node, facts), attribute(node, "directions", [0] * count)
    rows = [_row(w, inner, number, (states, iterations, backwards)) for number in range(batch)]
    return w.done([w.add("Concat", *parts, axis=0) for parts in zip(*rows, strict=True)])


def _row(w: NodeWriter, inner: onnx.GraphProto, number: int, form: tuple[int, int, list[int]]) -> list[str]:
    """The results for one element of the batch, each with a batch axis of extent 1."""
    states, iterations, backwards = form
    own = [w.over("Squeeze", w.slice_of(name, 0, number), [0]) for name in w.node.input[1:]]
    values, collected = own[:states], [list[str]() for _ in inner.output[states:]]
    for iteration in range(iterations):
        slices = [
            w.over("Squeeze", w.slice_of(value, 0, iterations - 1 - iteration if back else iteration), [0])
            for value, back in zip(own[states:], backwards, strict=True)
        ]
        names = {value.name: given for value, given in zip(inner.input, [*values, *slices], strict=True)}
        _write_iteration(w, inner, names, number * iterations + iteration)
        results = [names.get(value.name, value.name) for value in inner.output]
        values = results[:states]
        for found, result in zip(collected, results[states:], strict=True):
            found.append(w.over("Unsqueeze", result, [0]))
    scanned = [w.add("Concat", *found, axis=0) for found in collected]
    return [w.over("Unsqueeze", value, [0]) for value in (*values, *scanned)]


def _goes_on(inner: onnx.GraphProto, facts: ModelFacts) -> bool:
    """Whether a body returns the condition that it receives, or always true."""
    known = {n.output[0]: n.input[0] for n in inner.node if n.op_type in ("Identity", "Cast")}
    name = _source(inner.output[0].name, known)
    array = facts.model.constants.get(name)
    return name == inner.input[1].name or (array is not None and bool(array.all()))


def _write_iteration(w: NodeWriter, inner: onnx.GraphProto, names: dict[str, str], iteration: int) -> None:
    """Writes one iteration: the nodes of the body, whose values are renamed and added to `names`."""
    for each in inner.node:
        made = copy(each)
        made.name = f"{each.name}/{iteration}"
        _rename(made, names)
        for index, name in enumerate(made.output):
            if name:
                names[name] = f"{name}/{iteration}"
                made.output[index] = names[name]
        w.nodes.append(made)


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Renames the values that a node and its bodies read."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for graph in graphs_of(node):
        for inner in graph.node:
            _rename(inner, names)


RULES: dict[str, Rule] = {"If": _choice, "Loop": _loop, "Scan": _scan}
