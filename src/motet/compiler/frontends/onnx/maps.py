"""Writes a Scan whose iterations depend on their slices alone with the operators of its body, over all slices at once.

    y = Scan(X, C): y[t] = ReduceSumSquare(X - C[t], 1)    →    y = ReduceSumSquare(X - Unsqueeze(C, 1), 2)

It is how skl2onnx writes distances. The wheel's lowering makes a loop, and takes dynamic extents of slices for 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, copy

if TYPE_CHECKING:
    import onnx

_ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater",
    "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Sub", "Tanh", "Where", "Xor",
))  # fmt: skip
_REDUCTIONS = frozenset((
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
))  # fmt: skip


@dataclass(frozen=True)
class _Value:
    """A value of the body: what it is called outside, its rank in the body, and whether it has an axis of slices in
    front."""

    name: str
    rank: int
    sliced: bool


def at_once(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """None where an iteration reads a state that another has changed, or the body has operators of other kinds."""
    body: onnx.GraphProto = attribute(node, "body", None)
    states = len(node.input) - attribute(node, "num_scan_inputs", 0)
    ways = ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions")
    ranks = [facts.rank(name) for name in node.input]
    if any(any(attribute(node, way, [])) for way in ways) or None in ranks:
        return None
    known = {
        value.name: _Value(name, rank - (number >= states), number >= states)
        for number, (value, name, rank) in enumerate(zip(body.input, node.input, ranks, strict=True))
        if rank is not None
    }
    w = NodeWriter(node, facts)
    for inner in body.node:
        found = _written(w, inner, known)
        if found is None:
            return None
        known[inner.output[0]] = found
    results = [known.get(value.name) for value in body.output]
    scanned = [result for result in results[states:] if result is not None and result.sliced]
    if not _kept(results[:states], list(node.input[:states])) or len(scanned) != len(results) - states:
        return None
    return w.done([*node.input[:states], *(result.name for result in scanned)])


def _kept(results: list[_Value | None], states: list[str]) -> bool:
    return all(result is not None and result.name == name for result, name in zip(results, states, strict=True))


def _written(w: NodeWriter, inner: onnx.NodeProto, known: dict[str, _Value]) -> _Value | None:
    """What a node of the body becomes outside."""
    values = [_value(w.facts, name, known) for name in inner.input if name]
    operands = [value for value in values if value is not None]
    if len(operands) != len(inner.input) or len(inner.output) != 1:
        return None
    if inner.op_type == "Identity":
        return operands[0]
    if inner.op_type in _REDUCTIONS and operands[0].sliced:
        return _reduction(w, inner, operands[0])
    if inner.op_type in _ELEMENTWISE:
        return _elementwise(w, inner, operands)
    return None


def _value(facts: ModelFacts, name: str, known: dict[str, _Value]) -> _Value | None:
    if name in known:
        return known[name]
    rank = facts.rank(name)
    return None if rank is None else _Value(name, rank, False)


def _elementwise(w: NodeWriter, inner: onnx.NodeProto, operands: list[_Value]) -> _Value:
    """Operands of lower rank get axes of extent 1 behind that of slices, as broadcasting in the body gives them."""
    rank = max(value.rank for value in operands)
    made = copy(inner)
    names = [
        w.over("Unsqueeze", value.name, range(1, 1 + rank - value.rank))
        if value.sliced and value.rank < rank
        else value.name
        for value in operands
    ]
    made.name = f"{w.node.name}/{inner.name}"
    made.input[:] = names
    made.output[:] = [f"{made.name}/{inner.output[0]}"]
    w.nodes.append(made)
    return _Value(made.output[0], rank, any(value.sliced for value in operands))


def _reduction(w: NodeWriter, inner: onnx.NodeProto, operand: _Value) -> _Value | None:
    """Over the same axes, one further to the right; None where a call gives them."""
    given = w.facts.model.constants.get(inner.input[1]) if len(inner.input) > 1 else None
    axes = [int(axis) for axis in (attribute(inner, "axes", []) if given is None else given.reshape(-1))]
    if (given is None and len(inner.input) > 1) or (not axes and attribute(inner, "noop_with_empty_axes", 0)):
        return None
    axes = [axis % operand.rank for axis in axes] or list(range(operand.rank))
    keep = attribute(inner, "keepdims", 1)
    result = w.over(inner.op_type, operand.name, [axis + 1 for axis in axes], keepdims=keep)
    return _Value(result, operand.rank - (0 if keep else len(axes)), True)
