"""Unrolls recurrent operators of few steps, and those of forms that the torch-mlir wheel cannot lower.

    LSTM(x, w, r, b, …, peepholes)  →  inner = x · wᵀ + b; for each step: gates = inner[t] + h · rᵀ; i = f(gates[0]) …

The product of the input is one for all steps, and a step has one product for all gates. The forms are peepholes,
`clip`, `input_forget`, other activations, and sequences shorter than the input. Past the end of a sequence the results
are zero and the states stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.control import NODES
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, refused

if TYPE_CHECKING:
    import onnx

USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_OF_STEP = 40  # nodes of one step, at most
_SHORT = 192  # nodes of the few steps for which separate kernels are as fast as a loop
_OF_PLAIN_STEP = 24  # of one without lengths, peepholes, clips and other activations
_ALPHA = {"Affine": 1.0, "Elu": 1.0, "HardSigmoid": 0.2, "LeakyRelu": 0.01, "ScaledTanh": 1.0, "ThresholdedRelu": 1.0}
_BETA = {"Affine": 0.0, "HardSigmoid": 0.5, "ScaledTanh": 1.0}
_PLAIN = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")


def is_special(node: onnx.NodeProto) -> bool:
    """Whether a node has a form, other than sequence lengths, that the wheel does not support."""
    usual = USUAL[node.op_type]
    named = _names(node)
    return (
        (len(node.input) > 7 and bool(node.input[7])) or attribute(node, "clip", None) is not None
        or bool(attribute(node, "input_forget", 0)) or named != usual * (len(named) // len(usual))
    )


def is_short(node: onnx.NodeProto, facts: ModelFacts) -> bool:
    """Whether a node of a usual form has so few steps that it is faster unrolled: the input's products of all steps are
    one product, and those of all gates of a step another."""
    return facts.version >= 10 and 0 < _steps(node, facts) * _directions(node) * _nodes_of_step(node) <= _SHORT


def _steps(node: onnx.NodeProto, facts: ModelFacts) -> int:
    """The number of steps; 0 if it is unknown."""
    extents = facts.extents(node.input[0])
    return (extents[1 if attribute(node, "layout", 0) else 0] or 0) if extents else 0


def _directions(node: onnx.NodeProto) -> int:
    return 2 if attribute(node, "direction", b"forward") == b"bidirectional" else 1


def _nodes_of_step(node: onnx.NodeProto) -> int:
    return _OF_STEP if is_special(node) or any(node.input[4:5]) else _OF_PLAIN_STEP


def write_steps(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto]:
    """The unrolled node. Raises CompileError for too many steps and for activations that ONNX does not define."""
    w, layout = NodeWriter(node, facts), attribute(node, "layout", 0)
    steps, count = _steps(node, facts), _directions(node)
    if not steps or steps * count * _nodes_of_step(node) > NODES:
        most = NODES // _nodes_of_step(node) // count
        raise refused(node, facts, "of this form, for a number of steps that only a call knows, or many",
                       f"at most {most} known steps; or no peepholes, clip, input_forget, other activations or lengths")
    found = [_Cell(w, number, count).run(steps) for number in range(count)]
    sequence = w.add("Concat", *(part for part, *_ in found), axis=1)
    states = [w.add("Concat", *parts, axis=0) for parts in zip(*(rest for _, *rest in found), strict=True)]
    if layout:
        sequence = w.add("Transpose", sequence, perm=[2, 0, 1, 3])
        states = [w.add("Transpose", state, perm=[1, 0, 2]) for state in states]
    return w.done([sequence, *states])


def _names(node: onnx.NodeProto) -> list[str]:
    return [name.decode() for name in attribute(node, "activations", [name.encode() for name in USUAL[node.op_type]])]


@dataclass(frozen=True)
class _Activation:
    name: str
    alpha: float
    beta: float

    def of(self, cell: _Cell, value: str) -> str:
        w = cell.w
        match self.name:
            case "Affine":
                return w.add("Add", w.add("Mul", value, cell.number(self.alpha)), cell.number(self.beta))
            case "HardSigmoid":
                line = w.add("Add", w.add("Mul", value, cell.number(self.alpha)), cell.number(self.beta))
                return w.add("Max", w.add("Min", line, cell.number(1.0)), cell.number(0.0))
            case "ScaledTanh":
                inner = w.add("Tanh", w.add("Mul", value, cell.number(self.beta)))
                return w.add("Mul", inner, cell.number(self.alpha))
            case "ThresholdedRelu":
                return w.add("Where", w.add("Greater", value, cell.number(self.alpha)), value, cell.number(0.0))
            case "Elu" | "LeakyRelu":
                return w.add(self.name, value, alpha=self.alpha)
            case _:
                return w.add(self.name, value)


def _activations(node: onnx.NodeProto, facts: ModelFacts, count: int) -> list[_Activation]:
    """The activations of all directions. Alphas and betas are consumed, in order, by the activations that take them."""
    names, usual = _names(node), USUAL[node.op_type]
    named = {name.lower(): name for name in (*_PLAIN, *_ALPHA)}
    alphas, betas = (iter(attribute(node, f"activation_{kind}", [])) for kind in ("alpha", "beta"))
    if unknown := next((name for name in names if name.lower() not in named), ""):
        raise refused(node, facts, f"with the activation {unknown}", f"one of {', '.join(sorted(named.values()))}")
    if len(names) != count * len(usual) and names != usual:
        raise refused(node, facts, f"with {len(names)} activations", f"{count * len(usual)}")
    found: list[_Activation] = []
    for name in names if len(names) == count * len(usual) else usual * count:
        name = named[name.lower()]
        found.append(_Activation(name, _next(alphas, _ALPHA, name), _next(betas, _BETA, name)))
    return found


def _next(given: Iterator[float], defaults: dict[str, float], name: str) -> float:
    return next(given, defaults[name]) if name in defaults else 0.0


class _Cell:
    """One direction of the operator: number `number` of `count`."""

    def __init__(self, w: NodeWriter, number: int, count: int) -> None:
        node, self.w = w.node, w
        self.place = number
        self.layout = attribute(node, "layout", 0)
        self.back = number == 1 or attribute(node, "direction", b"forward") == b"reverse"
        self.inputs = [*node.input, *[""] * (8 - len(node.input))]
        self.dtype = w.facts.dtype(node.input[0])
        each = len(USUAL[node.op_type])
        self.activations = _activations(node, w.facts, count)[number * each : (number + 1) * each]
        weights = w.facts.extents(node.input[2])
        size = weights[2] if weights else attribute(node, "hidden_size", None)
        if size is None:
            raise refused(node, w.facts, "of unknown size", "hidden_size")
        self.size = int(size)
        self.clip = attribute(node, "clip", None)
        self.weights = w.add("Transpose", self._own(1), perm=[1, 0])
        recurrent = w.add("Transpose", self._own(2), perm=[1, 0])
        # The new gate of a GRU may have a product of its own, of the state that the reset gate has scaled.
        self.scaled = node.op_type == "GRU" and not attribute(node, "linear_before_reset", 0)
        self.recurrent = w.slice(recurrent, 1, 0, 2 * self.size) if self.scaled else recurrent
        self.of_scaled = w.slice(recurrent, 1, 2 * self.size, 3 * self.size) if self.scaled else ""
        self.bias, self.inner_bias = self._biases()
        self.peepholes = self._own(7) if self.inputs[7] else ""

    def number(self, value: float) -> str:
        return self.w.constant(np.array(value, self.dtype), "number")

    def run(self, steps: int) -> list[str]:
        """The results of all steps, and the final states, each with an axis for the direction."""
        w, node = self.w, self.w.node
        x = w.add("Transpose", self.inputs[0], perm=[1, 0, 2]) if self.layout else self.inputs[0]
        projected = self._sum(w.add("MatMul", x, self.weights), self.bias)  # of all steps at once
        step = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[node.op_type]
        states = [self._first(place) for place in ((5, 6) if node.op_type == "LSTM" else (5,))]
        lengths = w.over("Unsqueeze", self.inputs[4], [1]) if self.inputs[4] else ""
        results = [""] * steps
        for time in reversed(range(steps)) if self.back else range(steps):
            new = step(w.over("Squeeze", w.slice(projected, 0, time, time + 1), [0]), *states)
            results[time] = new[0]
            if lengths:
                kind = w.facts.dtype(self.inputs[4])
                inside = w.add("Less", w.constant(np.array(time, kind), "time"), lengths)
                results[time] = w.add("Where", inside, new[0], self.number(0.0))
                new = [w.add("Where", inside, one, other) for one, other in zip(new, states, strict=True)]
            states = new
        whole = w.add("Concat", *(w.over("Unsqueeze", result, [0, 1]) for result in results), axis=0)
        return [whole, *(w.over("Unsqueeze", state, [0]) for state in states)]

    def _own(self, place: int, axis: int = 0) -> str:
        return self.w.over("Squeeze", self.w.slice(self.inputs[place], axis, self.place, self.place + 1), [axis])

    def _first(self, place: int) -> str:
        """The initial state, with the extents of all other states: not those that a broadcast would have."""
        w = self.w
        batch = w.add("Shape", self.inputs[0])
        batch = w.slice(batch, 0, 0 if self.layout else 1, 1 if self.layout else 2)
        shape = w.add("Concat", batch, w.constant(np.array([self.size]), "size"), axis=0)
        if self.inputs[place]:
            return w.add("Reshape", self._own(place, 1 if self.layout else 0), shape)
        return w.add("Expand", self.number(0.0), shape)

    def _gates(self, value: str, count: int) -> list[str]:
        return [self.w.slice(value, 1, n * self.size, (n + 1) * self.size) for n in range(count)]

    def _biases(self) -> tuple[str, str]:
        """What is added to the input's products of all gates, and to the state's product of a GRU's new gate, which the
        reset gate scales with its bias; empty if there are no biases."""
        if not self.inputs[3]:
            return "", ""
        w, own = self.w, self._own(3)
        end = _GATES[w.node.op_type] * self.size
        of_input, of_state = w.slice(own, 0, 0, end), w.slice(own, 0, end, 2 * end)
        if w.node.op_type != "GRU" or self.scaled:
            return w.add("Add", of_input, of_state), ""
        zero = w.constant(np.zeros(self.size, self.dtype), "zero")
        others = w.add("Concat", w.slice(of_state, 0, 0, 2 * self.size), zero, axis=0)
        return w.add("Add", of_input, others), w.slice(of_state, 0, 2 * self.size, end)

    def _sum(self, *values: str) -> str:
        return self.w.joined("Add", [value for value in values if value])

    def _act(self, which: int, value: str) -> str:
        if self.clip is not None:
            value = self.w.add("Max", self.w.add("Min", value, self.number(self.clip)), self.number(-self.clip))
        return self.activations[which].of(self, value)

    def _rnn(self, x: str, h: str) -> list[str]:
        return [self._act(0, self.w.add("Add", x, self.w.add("MatMul", h, self.recurrent)))]

    def _gru(self, x: str, h: str) -> list[str]:
        w, two = self.w, 2 * self.size
        product = w.add("MatMul", h, self.recurrent)
        first = product if self.scaled else w.slice(product, 1, 0, two)
        gates = w.add("Add", w.slice(x, 1, 0, two), first)
        update, reset = (self._act(0, gate) for gate in self._gates(gates, 2))
        if self.scaled:
            inner = w.add("MatMul", w.add("Mul", reset, h), self.of_scaled)
        else:
            inner = w.add("Mul", reset, self._sum(w.slice(product, 1, two, 3 * self.size), self.inner_bias))
        total = w.add("Add", w.slice(x, 1, two, 3 * self.size), inner)
        new = w.add("Mul", w.add("Sub", self.number(1.0), update), self._act(1, total))
        return [w.add("Add", new, w.add("Mul", update, h))]

    def _peep(self, part: int, value: str) -> str:
        if not self.peepholes:
            return ""
        own = self.w.slice(self.peepholes, 0, part * self.size, (part + 1) * self.size)
        return self.w.add("Mul", own, value)

    def _lstm(self, x: str, h: str, c: str) -> list[str]:
        w = self.w
        gates = w.add("Add", x, w.add("MatMul", h, self.recurrent))
        into, out, forget, cell = self._gates(gates, 4)
        into = self._act(0, self._sum(into, self._peep(0, c)))
        coupled = attribute(w.node, "input_forget", 0)
        kept = w.add("Sub", self.number(1.0), into) if coupled else self._act(0, self._sum(forget, self._peep(2, c)))
        new = w.add("Add", w.add("Mul", kept, c), w.add("Mul", into, self._act(1, cell)))
        out = self._act(0, self._sum(out, self._peep(1, new)))
        return [w.add("Mul", out, self.activations[2].of(self, new)), new]
