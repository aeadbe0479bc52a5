"""Recurrent layers over sequences [B, S, …], as ONNX's over [S, B, …]."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation, constant_value
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules

_ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
_DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_FORGET_FIRST = (1, 3, 0, 2)  # the places of ONNX's gates i, o, f, c among OpenVINO's f, i, c, o


def _lstm(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """Operands: X, H, C, lengths, W, R, B."""
    size = int(op.attribute("hidden_size"))
    weights, recurrent = (_reordered(op, w, place, size) for place in (4, 5))
    bias = w.add("Concat", _reordered(op, w, 6, size), _zeros(op, w, 4 * size), axis=1)
    states = [w.transpose(op.inputs[place], [1, 0, 2]) for place in (1, 2)]
    return _layer(op, w, "LSTM", 3, [weights, recurrent, bias, *states])


def _gru(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """Operands: X, H, lengths, W, R, B, whose last quarter with `linear_before_reset` belongs to R."""
    size, linear = int(op.attribute("hidden_size")), int(bool(op.attribute("linear_before_reset", False)))
    if linear:
        bias = w.add("Concat", w.slice(op.inputs[5], 1, 0, 3 * size), _zeros(op, w, 2 * size),
                     w.slice(op.inputs[5], 1, 3 * size), axis=1)
    else:
        bias = w.add("Concat", op.inputs[5], _zeros(op, w, 3 * size), axis=1)
    state = w.transpose(op.inputs[1], [1, 0, 2])
    return _layer(op, w, "GRU", 2, [op.inputs[3], op.inputs[4], bias, state], linear_before_reset=linear)


def _rnn(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    size = int(op.attribute("hidden_size"))
    bias = w.add("Concat", op.inputs[5], _zeros(op, w, size), axis=1)
    state = w.transpose(op.inputs[1], [1, 0, 2])
    return _layer(op, w, "RNN", 2, [op.inputs[3], op.inputs[4], bias, state])


def _layer(
    op: OpenvinoOperation, w: GraphWriter, kind: str, lengths: int, operands: list[str], **more: int
) -> list[str]:
    """ONNX's operator on `operands` (W, R, B and the first states), and its results as OpenVINO's. `lengths` is the
    number of the operand with the lengths of the sequences."""
    direction = str(op.attribute("direction", "forward")).lower()
    attributes: dict[str, Any] = {"hidden_size": int(op.attribute("hidden_size")), "direction": direction, **more}
    given = [str(each).lower() for each in op.attribute("activations") or _DEFAULTS[kind]]
    unknown = next((each for each in given if each not in _ACTIVATIONS), None)
    if unknown is not None:
        raise NoLowering(f"activation {unknown}; expected {', '.join(_ACTIVATIONS)}")
    if given != _DEFAULTS[kind]:
        attributes["activations"] = [_ACTIVATIONS[each] for each in given] * (2 if direction == "bidirectional" else 1)
    if clip := float(op.attribute("clip", 0.0) or 0.0):
        attributes["clip"] = clip
    sequence = w.transpose(op.inputs[0], [1, 0, 2])
    ends = "" if _whole(op, lengths) else w.cast(op.inputs[lengths], np.int32)
    weights, recurrent, bias, *states = operands
    found = w.add_all(kind, op.results, sequence, weights, recurrent, bias, ends, *states, **attributes)
    return [w.transpose(found[0], [2, 1, 0, 3]), *(w.transpose(each, [1, 0, 2]) for each in found[1:])]


def _whole(op: OpenvinoOperation, place: int) -> bool:
    """Whether every sequence is as long as the axis: constants, or its extent, broadcast."""
    extent = (op.extents(0) or [None, None])[1]
    lengths = op.value(place)
    if lengths is not None and extent is not None:
        return bool(np.all(lengths >= extent))
    return _is_extent(op.node.input_value(place), op.node.input_value(0))


def _is_extent(output: Any, image: Any) -> bool:
    """Whether `output` is the extent of axis 1 of `image`, gathered from its shape and broadcast."""
    for _ in range(8):
        node = output.get_node()
        if node.get_type_name() in ("Broadcast", "Convert", "Unsqueeze", "Squeeze", "Reshape"):
            output = node.input_value(0)
            continue
        if node.get_type_name() != "Gather" or node.input_value(0).get_node().get_type_name() != "ShapeOf":
            return False
        place = constant_value(node.input_value(1))
        of = node.input_value(0).get_node().input_value(0)
        same = of.get_node().get_name() == image.get_node().get_name() and of.get_index() == image.get_index()
        return same and place is not None and place.reshape(-1).tolist() == [1]
    return False


def _reordered(op: OpenvinoOperation, w: GraphWriter, place: int, size: int) -> str:
    """Weights or biases [D, 4·size, …] in the order of ONNX's gates."""
    value = op.value(place)
    if value is not None:
        return w.constant(np.concatenate([value[:, gate * size : (gate + 1) * size] for gate in _FORGET_FIRST], axis=1))
    return w.add("Concat", *(w.slice(op.inputs[place], 1, gate * size, (gate + 1) * size) for gate in _FORGET_FIRST),
                 axis=1)


def _zeros(op: OpenvinoOperation, w: GraphWriter, size: int) -> str:
    directions = 2 if str(op.attribute("direction", "forward")).lower() == "bidirectional" else 1
    return w.constant(np.zeros((directions, size)), op.dtype(0))


RULES: Rules = {"LSTMSequence": _lstm, "GRUSequence": _gru, "RNNSequence": _rnn}
