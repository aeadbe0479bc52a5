"""Recurrent layers in training, as they are unrolled for torch.compile: results, masks and gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

LAYERS: dict[str, Callable[..., Any]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}
FORMS: list[dict[str, Any]] = [
    {"num_layers": 2}, {"num_layers": 3, "bidirectional": True}, {"num_layers": 2, "batch_first": True},
    {"num_layers": 3, "bias": False}, {"num_layers": 1},
]


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_layers_in_training_have_the_dropout_of_torch(name: str, form: dict[str, Any], dropout: float) -> None:
    from motet.pytorch.recurrences import decompositions

    torch.manual_seed(0)
    layer = LAYERS[name](3, 4, dropout=dropout, **form).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    states = torch.zeros(len(layer.all_weights), 5 if layer.batch_first else 2, 4, dtype=torch.float64)
    given = [states, states] if name == "lstm" else states
    operator = getattr(torch.ops.aten, name).input
    options = (layer.bias, layer.num_layers, dropout, True, layer.bidirectional, layer.batch_first)
    found: list[list[Any]] = []
    for call in (decompositions()[operator], operator):
        torch.manual_seed(3)
        layer.zero_grad()
        results = call(x, given, layer._flat_weights, *options)
        sum(each.square().sum() for each in results).backward()
        found.append([*results, *(weight.grad.clone() for weight in layer.parameters())])
    torch.testing.assert_close(*found)
