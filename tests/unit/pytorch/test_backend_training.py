"""Training behind torch.compile(backend="motet"), compared with PyTorch itself."""

from __future__ import annotations

import copy
import logging
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


class Attending(nn.Module):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, activation="gelu")
        self.classes = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.classes(self.layer(x).mean(1))


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8, padding_idx=0)
        self.classes = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.classes(torch.tanh(self.table(x)).sum(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 8, batch_first=True)
        self.classes = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.classes(self.layer(x)[0][:, -1])


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 5))


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "motet"]


# With a large eps: Adam would scale up the rounding of gradients that are zero, such as those of the keys' biases.
@pytest.mark.parametrize(
    ("dynamic", "optimizer"), [(False, partial(torch.optim.Adam, eps=1e-2)), (True, torch.optim.SGD)],
    ids=["static", "dynamic"],
)
@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (perceptron, lambda batch: torch.randn(batch, 12)),
        (convolutions, lambda batch: torch.randn(batch, 3, 10, 10)),
        (Attending, lambda batch: torch.randn(batch, 7, 16)),
        (Embedding, lambda batch: torch.randint(0, 30, (batch, 6))),
        (Recurrent, lambda batch: torch.randn(batch, 3, 6)),
    ],
    ids=["perceptron", "convolutions", "attention", "embedding", "recurrent"],
)
def test_three_steps(
    make: Callable[[], Any], draw: Callable[[int], Any], dynamic: bool, optimizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    twin = copy.deepcopy(model)
    pairs = [
        (call, optimizer(of.parameters(), 0.02))
        for call, of in ((torch.compile(model, backend="motet", dynamic=dynamic), model), (twin, twin))
    ]
    with caplog.at_level(logging.WARNING, "motet"):
        for batch in (4, 4, 6) if dynamic else (4, 4, 4):
            x, classes = draw(batch), torch.randint(0, 5, (batch,))
            for call, steps in pairs:
                steps.zero_grad()
                functional.cross_entropy(call(x), classes).backward()
            for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
            for _, steps in pairs:
                steps.step()
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-3, atol=1e-4)
    assert not warnings_of(caplog)


@pytest.mark.parametrize("mask", ["none", "causal", "additive", "a row hidden"])
def test_gradients_of_attention(mask: str, caplog: pytest.LogCaptureFixture) -> None:
    """With two heads of queries for each of keys."""
    given = [torch.randn(2, heads, 5, 8) for heads in (4, 2, 2)]
    added = torch.randn(5, 5)
    if mask == "a row hidden":
        added[2] = float("-inf")

    def attend(query: Any, key: Any, value: Any) -> Any:
        return functional.scaled_dot_product_attention(
            query, key, value, None if mask in ("none", "causal") else added, is_causal=mask == "causal",
            scale=0.3, enable_gqa=True,
        )

    found, expected = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    with caplog.at_level(logging.WARNING, "motet"):
        torch.compile(attend, backend="motet")(*found).square().sum().backward()
    attend(*expected).square().sum().backward()
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert not warnings_of(caplog)


@pytest.mark.parametrize(("layer", "extents"), [
    (lambda: nn.Conv2d(12, 12, 3, 2, 1, groups=2), (5, 5)),
    (lambda: nn.Conv2d(12, 24, 3, 2, 1, groups=12, dilation=2), (9, 8)),
    (lambda: nn.Conv2d(12, 6, (3, 2), (2, 3), (1, 0), groups=3, bias=False), (8, 12)),
    (lambda: nn.Conv1d(12, 12, 4, 1, 3, groups=12), (10,)),
    (lambda: nn.ConvTranspose2d(12, 4, 3, 2, 1, 1, groups=2), (5, 4)),
    (lambda: nn.ConvTranspose2d(12, 4, 3, 2, 1, 2, dilation=3), (5, 4)),
    (lambda: nn.ConvTranspose3d(12, 12, 2, 2, groups=12, bias=False), (3, 2, 3)),
], ids=["groups", "depthwise", "unreached", "1d", "transposed", "dilated", "transposed depthwise"])  # fmt: skip
def test_gradients_of_convolutions(
    layer: Callable[[], Any], extents: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(layer(), nn.SiLU(), nn.Flatten())
    twin, x = copy.deepcopy(model), torch.randn(2, 12, *extents)
    images = [x.clone().requires_grad_() for _ in range(2)]
    with caplog.at_level(logging.WARNING, "motet"):
        for call, image in zip((torch.compile(model, backend="motet"), twin), images, strict=True):
            call(image).square().sum().backward()
    for mine, theirs in zip((images[0], *model.parameters()), (images[1], *twin.parameters()), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert not warnings_of(caplog)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_steps_of_optimizers(optimizer: str, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(6, 5)
    twin = copy.deepcopy(model)
    mine, theirs = (getattr(torch.optim, optimizer)(of.parameters(), 0.05) for of in (model, twin))
    step = torch.compile(mine.step, backend="motet")
    with caplog.at_level(logging.WARNING, "motet"):
        for _ in range(3):
            x = torch.randn(4, 6)
            for of, call in ((model, step), (twin, theirs.step)):
                of.zero_grad()
                of(x).square().sum().backward()
                call()
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-4, atol=1e-5)
    assert not warnings_of(caplog)


class Applying(nn.Module):
    """A function between two layers."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(6, 8), nn.Linear(8, 5), function

    def forward(self, x: Any) -> Any:
        return self.last(self.function(self.first(x)))


def _attend_with_dropout(x: Any) -> Any:
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.3).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("make", "extents"),
    [
        *((partial(Applying, partial(functional.dropout, p=p)), (6,)) for p in (0.0, 0.3, 1.0)),
        (lambda: Applying(lambda x: x * torch.rand_like(x) + torch.randn(x.shape[0], 8)), (6,)),
        (lambda: Applying(lambda x: torch.bernoulli(torch.sigmoid(x)) * x), (6,)),
        (partial(Applying, _attend_with_dropout), (5, 6)),
        pytest.param(
            lambda: nn.TransformerEncoderLayer(6, 2, 12, 0.2, batch_first=True), (5, 6), marks=pytest.mark.slow
        ),
    ],
    ids=["kept", "dropout", "dropped", "numbers", "bernoulli", "attention", "transformer"],
)
def test_random_numbers_are_those_of_torch(
    make: Callable[[], Any], extents: tuple[int, ...], dynamic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Three steps for equal states of torch's generator."""
    model = make()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="motet", dynamic=dynamic)
    pairs = [(call, torch.optim.SGD(of.parameters(), 0.05)) for call, of in ((compiled, model), (twin, twin))]
    with caplog.at_level(logging.WARNING, "motet"):
        for seed, batch in enumerate((4, 4, 6) if dynamic else (4, 4, 4)):
            x = torch.randn(batch, *extents)
            for call, steps in pairs:
                torch.manual_seed(seed)
                steps.zero_grad()
                call(x).square().mean().backward()
                steps.step()
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-4, atol=1e-5)
    assert not warnings_of(caplog)


def test_each_call_draws_other_numbers() -> None:
    """Also without gradients, where the masks keep their expected share of elements."""
    fast = torch.compile(nn.Dropout(0.25), backend="motet")
    with torch.no_grad():
        first, second = (fast(torch.ones(100, 100)) for _ in range(2))
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((first > 0).float().mean() - 0.75) < 0.02


def test_operators_without_lowering_train_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    """Here the slopes of a random rectifier; its noise is an argument of the backward graph."""
    model = nn.Sequential(nn.Linear(6, 8), nn.RReLU(), nn.Linear(8, 5))
    twin, x = copy.deepcopy(model), torch.randn(4, 6)
    with caplog.at_level(logging.WARNING, "motet"):
        for call in (torch.compile(model, backend="motet"), twin):
            torch.manual_seed(5)
            call(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    (warning,) = warnings_of(caplog)
    assert "aten.rrelu_with_noise" in warning


def test_states_that_only_torch_can_read() -> None:
    """A forward graph whose operator keeps bytes for its own backward operator is not compiled."""
    from motet.pytorch.backend import _opaque_state

    graph = torch.fx.Graph()
    made = graph.call_function(torch.ops.aten.mkldnn_rnn_layer.default, (graph.placeholder("x"),))
    state = graph.call_function(operator.getitem, (made, 3))
    state.meta["val"] = torch.empty(0, dtype=torch.uint8)
    graph.output((state,))
    assert _opaque_state(torch.fx.GraphModule(nn.Module(), graph)) == "aten.mkldnn_rnn_layer.default"
