"""Writes backward recurrent operators as forward ones, the only direction that the torch-mlir wheel supports.

    GRU(x, …, direction=bidirectional)  →  Concat(GRU(x, …), reversed(GRU(reversed(x), …)))

The wheel supports a bidirectional LSTM without a layout, but not a backward one. It ignores sequence lengths: they are
dropped if they equal the input's; with others, and for further forms, the operator is unrolled (`cells.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.cells import is_short, is_special, write_steps
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx

_TO_THE_START = np.iinfo(np.int64).min
_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}  # for each direction
_OF_DIRECTIONS = (1, 2, 3, 5, 6)  # inputs with an axis of directions: W, R, B and the initial states


def _directions(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    direction = attribute(node, "direction", b"forward").decode()
    given = [*node.input, *[""] * (8 - len(node.input))]
    layout = attribute(node, "layout", 0)
    known = ("forward", "bidirectional") if node.op_type == "LSTM" and not layout else ("forward",)
    whole = _without_lengths(node, facts, 1 if layout else 0) if given[4] else []
    plain = whole[0] if whole else node
    if whole is None or is_special(node) or is_short(plain, facts):
        return write_steps(plain, facts)
    if direction in known:
        return whole or None
    given[4] = ""
    w = NodeWriter(node, facts)
    backwards = [True] if direction == "reverse" else [False, True]
    found = [_one(w, given, number, len(backwards), back, layout) for number, back in enumerate(backwards)]
    if len(found) == 1:
        return w.done(found[0])
    sequences, *states = zip(*found, strict=True)
    joined = [w.add("Concat", *sequences, axis=2 if layout else 1)]
    joined += [w.add("Concat", *values, axis=1 if layout else 0) for values in states]
    return w.done(joined)


def _without_lengths(node: onnx.NodeProto, facts: ModelFacts, time: int) -> list[onnx.NodeProto] | None:
    """The node without lengths, if all sequences are as long as the input; None if they may be shorter."""
    lengths, extents = facts.model.constants.get(node.input[4]), facts.extents(node.input[0])
    if lengths is None or extents is None or (lengths != extents[time]).any():
        return None
    made = copy(node)
    made.input[4] = ""
    return [made]


def _one(w: NodeWriter, given: Sequence[str], number: int, count: int, back: bool, layout: int) -> list[str]:
    """All states, in the order of the input, and the final ones, of direction `number` of `count`."""
    inputs = list(given)
    for place in _OF_DIRECTIONS:
        if given[place] and count > 1:
            axis = 1 if place > 4 and layout else 0
            inputs[place] = w.slice(given[place], axis, number, number + 1)
    time = 1 if layout else 0
    if back:
        inputs[0] = _backwards(w, inputs[0], time)
    while not inputs[-1]:
        inputs.pop()
    sequence, *states = w.add_all(w.node.op_type, len(w.node.output), *inputs)
    made = w.nodes[-1]
    for item in w.node.attribute:
        if item.name == "activations":
            each = _ACTIVATIONS[w.node.op_type]
            own = item.strings[number * each : (number + 1) * each]
            made.attribute.add(name=item.name, type=item.type, strings=own)
        elif item.name != "direction":
            made.attribute.append(item)
    return [_backwards(w, sequence, time) if back else sequence, *states]


def _backwards(w: NodeWriter, value: str, time: int) -> str:
    extents = w.facts.extents(w.node.input[0])
    if extents is None or extents[time] is None:
        return w.reverse(value, time)
    return w.slice(value, time, -1, _TO_THE_START, -1)


RULES: dict[str, Rule] = {"GRU": _directions, "LSTM": _directions, "RNN": _directions}
