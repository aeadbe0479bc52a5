"""Writes the optimiser steps of the domain `ai.onnx.preview.training` with arithmetic.

    Adagrad, Adam, Momentum(rate, count, tensors…, gradients…, state…)  →  new tensors…, new state…

The formulas are those of the specification. The step count is dynamic, and selects by Where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_Step = Callable[["_StepNumbers", "Sequence[str]"], "list[str]"]


class _StepNumbers:
    """Arithmetic on values and numbers in the type `kind` of the optimised tensor."""

    def __init__(self, w: NodeWriter, kind: int) -> None:
        import onnx

        self.w, self.kind = w, kind
        self.dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        self.rate = w.cast(w.node.input[0], kind)
        self.count = w.cast(w.node.input[1], kind)

    def number(self, value: float) -> str:
        return self.w.constant(np.array(value, self.dtype), "number")

    def attribute(self, name: str, default: float) -> str:
        return self.number(attribute(self.w.node, name, default))

    def add(self, left: str, right: str) -> str:
        return self.w.add("Add", left, right)

    def sub(self, left: str, right: str) -> str:
        return self.w.add("Sub", left, right)

    def mul(self, left: str, right: str) -> str:
        return self.w.add("Mul", left, right)

    def div(self, left: str, right: str) -> str:
        return self.w.add("Div", left, right)

    def regularised(self, tensor: str, gradient: str) -> str:
        return self.add(self.mul(self.attribute("norm_coefficient", 0.0), tensor), gradient)

    def started(self) -> str:
        """Whether this is not the first step."""
        return self.w.add("Greater", self.count, self.number(0.0))


def _adagrad(n: _StepNumbers, values: Sequence[str]) -> list[str]:
    tensor, gradient, squares = values
    rate = n.div(n.rate, n.add(n.number(1.0), n.mul(n.count, n.attribute("decay_factor", 0.0))))
    gradient = n.regularised(tensor, gradient)
    squares = n.add(squares, n.mul(gradient, gradient))
    root = n.add(n.w.add("Sqrt", squares), n.attribute("epsilon", 1e-6))
    return [n.sub(tensor, n.div(n.mul(rate, gradient), root)), squares]


def _adam(n: _StepNumbers, values: Sequence[str]) -> list[str]:
    tensor, gradient, momentum, squares = values
    alpha, beta = attribute(n.w.node, "alpha", 0.9), attribute(n.w.node, "beta", 0.999)
    gradient = n.regularised(tensor, gradient)
    momentum = n.add(n.mul(n.number(alpha), momentum), n.mul(n.number(1 - alpha), gradient))
    squares = n.add(n.mul(n.number(beta), squares), n.mul(n.number(1 - beta), n.mul(gradient, gradient)))
    root = n.add(n.w.add("Sqrt", squares), n.attribute("epsilon", 1e-6))
    rate = n.w.add("Where", n.started(), n.mul(n.rate, _correction(n, alpha, beta)), n.rate)
    stepped = n.sub(tensor, n.mul(rate, n.div(momentum, root)))
    kept = n.number(1 - attribute(n.w.node, "norm_coefficient_post", 0.0))
    return [n.mul(kept, stepped), momentum, squares]


def _correction(n: _StepNumbers, alpha: float, beta: float) -> str:
    """√(1 − βᵗ) / (1 − αᵗ), which is not defined before the first step."""
    one = n.number(1.0)
    above, below = (n.sub(one, n.w.add("Pow", n.number(base), n.count)) for base in (beta, alpha))
    return n.div(n.w.add("Sqrt", above), below)


def _momentum(n: _StepNumbers, values: Sequence[str]) -> list[str]:
    tensor, gradient, momentum = values
    alpha = n.attribute("alpha", 0.0)
    gradient = n.regularised(tensor, gradient)
    beta = n.w.add("Where", n.started(), n.attribute("beta", 0.0), n.number(1.0))
    momentum = n.add(n.mul(alpha, momentum), n.mul(beta, gradient))
    along = momentum
    if attribute(n.w.node, "mode", b"standard") == b"nesterov":
        along = n.add(gradient, n.mul(alpha, momentum))
    return [n.sub(tensor, n.mul(n.rate, along)), momentum]


def _rule(step: _Step, states: int) -> Rule:
    """The rule for an optimiser: the inputs are the tensors, then their gradients, then `states` states of each."""

    def write(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
        count, rest = divmod(len(node.input) - 2, 2 + states)
        if rest or count < 1:
            raise facts.model.error(
                f"node {node.name!r}: {node.op_type} has {len(node.input)} inputs; expected 2, and {2 + states} for "
                "each tensor"
            )
        w = NodeWriter(node, facts)
        results: list[list[str]] = []
        for number in range(count):
            values = [node.input[2 + group * count + number] for group in range(2 + states)]
            results.append(step(_StepNumbers(w, facts.types[values[0]]), values))
        return w.done([result[group] for group in range(1 + states) for result in results])

    return write


RULES: dict[str, Rule] = {"Adagrad": _rule(_adagrad, 1), "Adam": _rule(_adam, 2), "Momentum": _rule(_momentum, 1)}
