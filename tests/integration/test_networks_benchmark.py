"""The table of networks by precision: ratios to the fastest peer, and contenders that are absent."""

from __future__ import annotations

import numpy as np
from benchmarks.networks import Measured, inputs_of, table
from examples import models


def test_the_ratio_is_that_of_the_fastest_peer() -> None:
    seconds = {"Motet": 2e-3, "onnxruntime": 6e-3, "OpenVINO": 3e-3}
    row = Measured("net", "int8", seconds, {"Motet": 1e-2, "OpenVINO": 2e-2})
    assert row.ratio == 1.5
    assert "| net | int8 | 2.00 | 6.00 | 3.00 | 1.50 | 1.0e-02 | 2.0e-02 |" in table([row])


def test_a_contender_that_fails_is_named_below_the_table() -> None:
    row = Measured("net", "bf16", {"Motet": 2e-3}, {"Motet": 1e-2},
                   {"onnxruntime": "no bf16 on this processor", "OpenVINO": "not installed"})
    assert row.ratio is None
    text = table([row])
    assert "| net | bf16 | 2.00 | – | – | – | 1.0e-02 | – |" in text
    assert text.endswith("- net, bf16, OpenVINO: not installed")


def test_inputs_have_the_types_of_the_model() -> None:
    (tokens,) = inputs_of(models.bert(2, 7, 24, 3, 2, 101), 0).values()
    assert tokens.shape == (2, 7)
    assert tokens.dtype == np.int64
    assert tokens.max() < 100
