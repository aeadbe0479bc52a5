"""Recurrent operators of forms that are written step by step, against numpy in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.integration.onnx_nodes import Node, model_of, run

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
