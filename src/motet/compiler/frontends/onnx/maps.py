"""Writes a Scan whose iterations only depend on their slices as the operators of its body, over all slices at once.

    y = Scan(X, C): y[t] = ReduceSumSquare(X - C[t], 1)    →    y = ReduceSumSquare(X - Unsqueeze(C, 1), 2)

skl2onnx writes distances in this form. The torch-mlir wheel would make a loop, and take dynamic extents of slices for
1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.directed import is_directed
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
    """A value of the body: its outer name, its rank in the body, and whether the outer value has a leading axis of
    slices."""

    name: str
    rank: int
    sliced: bool


def at_once(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The rewritten Scan; None if an iteration reads a state that another changed, or the body has other operators."""
    body: onnx.GraphProto = attribute(node, "body", None)
    states = len(node.input) - attribute(node, "num_scan_inputs", 0)
    ranks = [facts.rank(name) for name in node.input]
    if is_directed(node) or None in ranks:
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
    """The outer value that a node of the body becomes; None if unsupported."""
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
    """An element-wise node; operands of lower rank get axes of extent 1 after that of slices, to broadcast alike."""
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
    """A reduction over the same axes, shifted by one; None if the axes are dynamic."""
    given = w.facts.model.constants.get(inner.input[1]) if len(inner.input) > 1 else None
    axes = [int(axis) for axis in (attribute(inner, "axes", []) if given is None else given.reshape(-1))]
    if (given is None and len(inner.input) > 1) or (not axes and attribute(inner, "noop_with_empty_axes", 0)):
        return None
    axes = [axis % operand.rank for axis in axes] or list(range(operand.rank))
    keep = attribute(inner, "keepdims", 1)
    result = w.over(inner.op_type, operand.name, [axis + 1 for axis in axes], keepdims=keep)
    return _Value(result, operand.rank - (0 if keep else len(axes)), True)
