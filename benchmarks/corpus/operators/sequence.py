"""Recurrent layers, state-space scans, short-time Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import torch
from torch import nn

from benchmarks.corpus.row import Family, Function, Row

RECURRENT = Family("recurrent", quick=("lstm 50×1×128→256", "gru 100×8×64→128"))
SPECTRUM = Family("spectrum", quick=("stft 16000 by 400 hop 160",))

# Operator, steps, batch, features, hidden, layers, both directions.
LAYERS = (
    ("lstm", 50, 1, 128, 256, 1, False), ("lstm", 100, 4, 80, 128, 2, True), ("lstm", 25, 32, 64, 64, 1, False),
    ("gru", 100, 8, 64, 128, 1, False), ("gru", 200, 1, 40, 96, 2, True), ("gru", 1, 64, 256, 256, 1, False),
    ("rnn", 60, 4, 32, 128, 1, False), ("lstm", 37, 3, 19, 53, 1, False),
)
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def rows() -> Iterator[Row]:
    for given in LAYERS:
        yield _layer(*given)
    for length, window, hop in ((16000, 400, 160), (8000, 512, 128), (4096, 256, 64)):
        yield SPECTRUM.layer(f"stft {length} by {window} hop {hop}", lambda w=window, h=hop: _transform(w, h),
                             (1, length))
    yield SPECTRUM.layer("mel 101×201→80", lambda: Function(
        lambda mel, x: torch.log(torch.clamp(x * x @ mel, 1e-5)), [torch.rand(201, 80)]), (1, 101, 201))
    yield RECURRENT.of("causal filter 1×64×500 of 4", _filter, (1, 64, 500), (64, 4))


def fresh(random: Random) -> Row:
    return _layer(random.choice(("lstm", "gru", "rnn")), random.randint(2, 90), random.randint(1, 9),
                  random.randint(5, 150), random.randint(5, 150), 1, random.random() < 0.3, fresh=True)


# Parameters: what a recurrent layer is.
def _layer(
    operator: str, steps: int, batch: int, features: int, hidden: int, layers: int, both: bool, fresh: bool = False,
) -> Row:
    more = f"{f' {layers} layers' if layers > 1 else ''}{' both directions' if both else ''}"

    def build() -> nn.Module:
        return Function(lambda layer, x: layer(x)[0], [KINDS[operator](features, hidden, layers, bidirectional=both)])

    return RECURRENT.layer(f"{operator} {steps}×{batch}×{features}→{hidden}{more}", build, (steps, batch, features),
                           fresh=fresh)


def _transform(window: int, hop: int) -> nn.Module:
    """The magnitude of a short-time Fourier transform, computed as a product, as in speech front ends."""
    time = torch.arange(window).double()
    phase = 2 * torch.pi / window * torch.outer(torch.arange(window // 2 + 1).double(), time)
    hann = torch.hann_window(window, dtype=torch.float64)
    basis = (torch.cat([phase.cos(), phase.sin()]) * hann).float().unsqueeze(1)

    def transform(basis: Any, sound: Any) -> Any:
        found = torch.nn.functional.conv1d(sound.unsqueeze(1), basis, stride=hop)
        real, imaginary = found.chunk(2, 1)
        return torch.sqrt(real * real + imaginary * imaginary + 1e-9)

    return Function(transform, [basis])


def _filter(x: Any, taps: Any) -> Any:
    """A causal filter of each channel, as Mamba's."""
    x = torch.nn.functional.pad(x, (3, 0))
    return sum(x[..., place : place + 500] * taps[:, place].unsqueeze(-1) for place in range(4))
