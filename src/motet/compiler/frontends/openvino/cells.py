"""Steps of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules

_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def _functions(op: OpenvinoOperation, defaults: Sequence[str]) -> list[str]:
    given = [str(each).lower() for each in op.attribute("activations") or defaults]
    unknown = next((each for each in given if each not in _FUNCTIONS), None)
    if unknown is not None:
        raise NoLowering(f"activation {unknown}; expected {', '.join(_FUNCTIONS)}")
    return [_FUNCTIONS[each] for each in given]


def _product(w: GraphWriter, value: str, weights: str) -> str:
    return w.add("MatMul", value, w.transpose(weights, [1, 0]))


def _clipped(op: OpenvinoOperation, w: GraphWriter, value: str) -> str:
    bound = float(op.attribute("clip", 0.0) or 0.0)
    if not bound:
        return value
    return w.add("Clip", value, w.constant(-bound, op.dtype(0)), w.constant(bound, op.dtype(0)))


def _parts(op: OpenvinoOperation, w: GraphWriter, value: str, count: int) -> list[str]:
    size = int(op.attribute("hidden_size"))
    return w.add_all("Split", count, value, w.ints([size] * count), axis=-1)


def _lstm(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """The gates are f, i, c, o."""
    x, hidden, cell, weights, recurrent = op.inputs[:5]
    f, g, h = _functions(op, ("sigmoid", "tanh", "tanh"))
    gates = w.add("Add", _product(w, x, weights), _product(w, hidden, recurrent))
    if op.has(5):
        gates = w.add("Add", gates, op.inputs[5])
    forget, update, new, output = (_clipped(op, w, each) for each in _parts(op, w, gates, 4))
    kept = w.add("Mul", w.add(f, forget), cell)
    cell = w.add("Add", kept, w.add("Mul", w.add(f, update), w.add(g, new)))
    return [w.add("Mul", w.add(f, output), w.add(h, cell)), cell]


def _gru(op: OpenvinoOperation, w: GraphWriter) -> str:
    """The gates are z, r, h; with `linear_before_reset` the bias has the part of the recurrent product last."""
    x, hidden, weights, recurrent = op.inputs[:4]
    f, g = _functions(op, ("sigmoid", "tanh"))
    linear = bool(op.attribute("linear_before_reset", False))
    size = int(op.attribute("hidden_size"))
    given = _parts(op, w, _product(w, x, weights), 3)
    if op.has(4):
        biases = _parts(op, w, op.inputs[4], 4 if linear else 3)
        given = [w.add("Add", value, bias) for value, bias in zip(given, biases, strict=False)]
        inner = biases[3] if linear else ""
    else:
        inner = ""
    rows = [w.slice(recurrent, 0, gate * size, (gate + 1) * size) for gate in range(3)]
    update, reset = (w.add(f, _clipped(op, w, w.add("Add", given[gate], _product(w, hidden, rows[gate]))))
                     for gate in (0, 1))
    if linear:
        product = _product(w, hidden, rows[2])
        candidate = w.add("Mul", reset, w.add("Add", product, inner) if inner else product)
    else:
        candidate = _product(w, w.add("Mul", reset, hidden), rows[2])
    new = w.add(g, _clipped(op, w, w.add("Add", given[2], candidate)))
    rest = w.add("Sub", w.constant(1, op.dtype(0)), update)
    return w.add("Add", w.add("Mul", rest, new), w.add("Mul", update, hidden))


def _rnn(op: OpenvinoOperation, w: GraphWriter) -> str:
    x, hidden, weights, recurrent = op.inputs[:4]
    value = w.add("Add", _product(w, x, weights), _product(w, hidden, recurrent))
    if op.has(4):
        value = w.add("Add", value, op.inputs[4])
    return w.add(_functions(op, ("tanh",))[0], _clipped(op, w, value))


RULES: Rules = {"LSTMCell": _lstm, "GRUCell": _gru, "RNNCell": _rnn}

__all__ = ["RULES"]
