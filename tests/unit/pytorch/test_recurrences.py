"""PyTorch's recurrent layers: loops over their steps, of any number, with PyTorch's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'motet[torch]'")

import motet  # noqa: E402

DEVICE = "host{cpu=native}"
KINDS = {
    "LSTM of two layers, both directions": lambda: torch.nn.LSTM(5, 7, 2, bidirectional=True, batch_first=True),
    "LSTM without bias": lambda: torch.nn.LSTM(5, 17, bias=False, batch_first=True),
    "GRU of both directions": lambda: torch.nn.GRU(5, 3, bidirectional=True, batch_first=True),
    "GRU of three layers": lambda: torch.nn.GRU(5, 16, 3, batch_first=True),
    "RNN": lambda: torch.nn.RNN(5, 9, bidirectional=True, batch_first=True),
    "RNN of relu": lambda: torch.nn.RNN(5, 9, nonlinearity="relu", batch_first=True),
}


def _leaves(value: Any) -> list[Any]:
    return [leaf.detach().numpy() for leaf in torch.utils._pytree.tree_leaves(value)]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_layers_of_any_number_of_steps(name: str) -> None:
    torch.manual_seed(7)
    layer = KINDS[name]().eval()
    steps = torch.export.Dim("steps", max=500)
    batch = torch.export.Dim("batch", max=50)
    with torch.no_grad():
        shapes = ({0: batch, 1: steps},)
        artifact = motet.compile(layer, inputs=(torch.randn(2, 11, 5),), devices=DEVICE, dynamic_shapes=shapes)
        with motet.load(artifact) as session:
            for extents in ((2, 11), (1, 1), (3, 5), (7, 130)):
                x = torch.randn(*extents, 5)
                for found, expected in zip(session(x.numpy()), _leaves(layer(x)), strict=True):
                    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "dtype"), [("LSTM", "float64"), ("GRU", "float64"), ("RNN", "float64")])
def test_given_states_and_doubles(kind: str, dtype: str) -> None:
    torch.manual_seed(7)
    layer = getattr(torch.nn, kind)(3, 8, num_layers=2).to(getattr(torch, dtype)).eval()
    x = torch.randn(40, 2, 3, dtype=torch.float64)
    state = torch.randn(2, 2, 8, dtype=torch.float64)
    states = (state, torch.randn_like(state)) if kind == "LSTM" else state
    with torch.no_grad(), motet.load(motet.compile(layer, inputs=(x, states), devices=DEVICE)) as session:
        for found, expected in zip(session(*_leaves((x, states))), _leaves(layer(x, states)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_the_code_does_not_grow_with_the_steps() -> None:
    layer = torch.nn.LSTM(3, 4).eval()
    sizes = [len(motet.compile(layer, inputs=(torch.randn(steps, 2, 3),), devices=DEVICE).data) for steps in (30, 300)]
    assert abs(sizes[0] - sizes[1]) < 2000


@pytest.mark.slow
def test_compiled_for_inference_and_left_alone_for_training() -> None:
    torch.manual_seed(7)
    layer = torch.nn.GRU(3, 4, batch_first=True)
    compiled = torch.compile(layer, backend="motet")
    x = torch.randn(2, 9, 3)
    with torch.no_grad():
        for found, expected in zip(compiled(x), layer(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    compiled(x)[0].sum().backward()
    found = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    for mine, parameter in zip(found, layer.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_graphs_that_torch_runs(kind: str) -> None:
    from motet.pytorch.recurrences import decompositions

    torch.manual_seed(7)
    layer = getattr(torch.nn, kind)(3, 5, num_layers=2, bidirectional=True)
    x, states = torch.randn(9, 2, 3), torch.randn(4, 2, 5)
    operator = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[kind]
    given = (states, states.sin()) if kind == "LSTM" else states
    with torch.no_grad():
        mine = decompositions()[getattr(torch.ops.aten, operator).input]
        found = mine(x, given, list(layer.parameters()), True, 2, 0.0, False, True, False)
        expected = layer(x, given)
    for one, other in zip(_leaves(found), _leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
