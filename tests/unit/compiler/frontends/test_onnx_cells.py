"""Recurrent operators of forms that are written step by step, against numpy in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.integration.onnx_nodes import Node, model_of, run
from tests.seeds import seeds

from motet.compiler.frontends.onnx.loading import load_onnx
from motet.errors import CompileError

RANDOM = np.random.default_rng(3)
STEPS, BATCH, FEATURES, SIZE = 3, 2, 4, 5
LENGTHS = np.array([3, 1], np.int32)


def floats(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.6).astype(np.float32)


def weights(gates: int) -> list[np.ndarray]:
    return [floats(STEPS, BATCH, FEATURES), floats(1, gates * SIZE, FEATURES), floats(1, gates * SIZE, SIZE),
            floats(1, 2 * gates * SIZE)]  # fmt: skip


def lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
    """Backwards, with peepholes and sequences shorter than the input."""
    h, c, all_ = np.zeros((BATCH, SIZE)), np.zeros((BATCH, SIZE)), np.zeros((STEPS, 1, BATCH, SIZE))
    own = np.split(p[0].astype(np.float64), 3)
    for time in reversed(range(STEPS)):
        total = x[time].astype(np.float64) @ w[0].T + h @ r[0].T + b[0, : 4 * SIZE] + b[0, 4 * SIZE :]
        i, o, f, g = np.split(total, 4, 1)
        i, f = (1 / (1 + np.exp(-value)) for value in (i + own[0] * c, f + own[2] * c))
        new = f * c + i * np.tanh(g)
        o = 1 / (1 + np.exp(-(o + own[1] * new)))
        inside = (time < LENGTHS)[:, None]
        all_[time, 0] = np.where(inside, o * np.tanh(new), 0)
        h, c = np.where(inside, o * np.tanh(new), h), np.where(inside, new, c)
    return [all_, h[None], c[None]]


def rnn(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """Clipped, with the activation Affine."""
    h, all_ = np.zeros((BATCH, SIZE)), np.zeros((STEPS, 1, BATCH, SIZE))
    for time in range(STEPS):
        total = x[time].astype(np.float64) @ w[0].T + h @ r[0].T + b[0, :SIZE] + b[0, SIZE:]
        h = all_[time, 0] = 0.5 * np.clip(total, -0.4, 0.4) + 0.25
    return [all_, h[None]]


def test_peepholes_lengths_clips_and_activations() -> None:
    first, second, peepholes = weights(4), weights(1), floats(1, 3 * SIZE)
    nodes = [
        Node("LSTM", [*first, LENGTHS, None, None, peepholes], {"hidden_size": SIZE, "direction": "reverse"}, "", 3),
        Node("RNN", second, {"hidden_size": SIZE, "clip": 0.4, "activations": ["Affine"], "activation_alpha": [0.5],
                             "activation_beta": [0.25]}, "", 2),
    ]  # fmt: skip
    model, given = model_of(nodes)
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    for found, wanted in zip(run(model, given), [*lstm(*first, peepholes), *rnn(*second)], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_an_unknown_activation_is_refused() -> None:
    model, _ = model_of([Node("RNN", weights(1), {"hidden_size": SIZE, "activations": ["Sine"]}, "", 2)])
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    with pytest.raises(CompileError, match="node 'RNN0': RNN with the activation Sine is not supported; expected"):
        load_onnx(model.SerializeToString(), "m.onnx")


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def _layer(op: str, inputs: list[np.ndarray], states: list[np.ndarray], before: int, back: bool) -> list[np.ndarray]:
    """One direction in double precision: the results of all steps, and the final states."""
    x, w, r, b = (each.astype(np.float64) for each in inputs)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    of_x, of_h = np.split(b, 2)
    h, c = (state.astype(np.float64) for state in states)
    found = np.zeros((len(x), *h.shape))
    for time in reversed(range(len(x))) if back else range(len(x)):
        inner, own = np.split(x[time] @ w.T + of_x, gates, 1), np.split(h @ r.T + of_h, gates, 1)
        if op == "RNN":
            h = np.tanh(inner[0] + own[0])
        elif op == "GRU":
            update, reset = (_sigmoid(a + b) for a, b in zip(inner[:2], own[:2], strict=True))
            scaled = reset * own[2] if before else (reset * h) @ np.split(r, 3)[2].T + np.split(of_h, 3)[2]
            h = (1 - update) * np.tanh(inner[2] + scaled) + update * h
        else:
            into, out, forget, cell = (a + b for a, b in zip(inner, own, strict=True))
            c = _sigmoid(forget) * c + _sigmoid(into) * np.tanh(cell)
            h = _sigmoid(out) * np.tanh(c)
        found[time] = h
    return [found, h, c]


@pytest.mark.parametrize("seed", seeds(16))
def test_layers_are_those_of_numpy_in_double_precision(seed: int) -> None:
    rng = np.random.default_rng(seed)
    op = ("RNN", "GRU", "LSTM")[seed % 3]
    direction = ("forward", "reverse", "bidirectional")[seed // 3 % 3]
    layout, before, biased, begun = (int(rng.integers(2)) for _ in range(4))
    count, gates = 2 if direction == "bidirectional" else 1, {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    steps, batch, features, size = (int(rng.choice([1, 2, 5, 17])) for _ in range(4))

    def numbers(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.6).astype(np.float32)

    x = numbers(steps, batch, features)
    w, r = numbers(count, gates * size, features), numbers(count, gates * size, size)
    b = numbers(count, 2 * gates * size) if biased else np.zeros((count, 2 * gates * size), np.float32)
    states = [numbers(count, batch, size) if begun else np.zeros((count, batch, size), np.float32) for _ in range(2)]
    parts = [
        _layer(op, [x, w[k], r[k], b[k]], [state[k] for state in states], before, k == 1 or direction == "reverse")
        for k in range(count)
    ]
    wanted = [np.stack([part[0] for part in parts], 1), *(np.stack([part[k] for part in parts]) for k in (1, 2))]
    given = [x, w, r, b if biased else None, None, *(states if begun else [])]
    if layout:
        wanted = [wanted[0].transpose(2, 0, 1, 3), *(state.transpose(1, 0, 2) for state in wanted[1:])]
        given = [x.transpose(1, 0, 2), *given[1:5], *(state.transpose(1, 0, 2) for state in states if begun)]
    if op != "LSTM":
        given, wanted = given[:6], wanted[:2]
    attributes = {"hidden_size": size, "direction": direction, "layout": layout}
    attributes |= {"linear_before_reset": before} if op == "GRU" else {}
    model, values = model_of([Node(op, given, attributes, "", len(wanted))])
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    for found, expected in zip(run(model, values), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
