"""torch.compile with Motet behind it, compared with PyTorch itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'motet[torch]'")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled by Motet, in order."""
    import motet

    made: list[Any] = []
    original = motet.compile

    def compile(*arguments: Any, **named: Any) -> Any:
        made.append(named)
        return original(*arguments, **named)

    monkeypatch.setattr(motet, "compile", compile)
    return made


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.linear = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.conv(x)).mean((2, 3))
        return {"logits": self.linear(x), "features": x}


@pytest.fixture
def model() -> Any:
    torch.manual_seed(1)
    return Model().eval()


@torch.no_grad()
def test_it_is_found_by_name(model: Any, compiled: list[Any]) -> None:
    fast = torch.compile(model, backend="motet")
    x = torch.randn(2, 3, 7, 7)
    found, expected = fast(x), model(x)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])
    assert len(compiled) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@torch.no_grad()
def test_one_program_for_each_shape(model: Any, compiled: list[Any], dynamic: bool) -> None:
    fast = torch.compile(model, backend="motet", dynamic=dynamic)
    for size in (2, 5, 2, 5, 3):
        x = torch.randn(size, 3, 7, 7)
        torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])
    assert len(compiled) == 3


@torch.no_grad()
def test_parameters_that_change(model: Any, compiled: list[Any]) -> None:
    fast = torch.compile(model, backend="motet")
    x = torch.randn(2, 3, 7, 7)
    fast(x)
    model.linear.weight.mul_(2)
    torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])
    model.linear.weight.data = torch.randn(5, 8)
    torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])
    fast(x)
    assert len(compiled) == 3


@torch.no_grad()
def test_inputs_changed_in_place_numbers_and_none() -> None:
    def function(x: Any, n: int) -> Any:
        x.add_(1)
        return x * n, x.shape[0], None

    x = torch.randn(4)
    y = x.clone()
    found, expected = torch.compile(function, backend="motet")(x, 3), function(y, 3)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(x, y)
    assert found[1:] == expected[1:]


@torch.no_grad()
def test_inputs_that_are_not_contiguous(model: Any) -> None:
    x = torch.randn(7, 7, 3, 2).permute(3, 2, 1, 0)
    torch.testing.assert_close(torch.compile(model, backend="motet")(x)["logits"], model(x)["logits"])


@torch.no_grad()
def test_operators_without_lowering_run_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 3)
    with caplog.at_level(logging.WARNING, "motet"):
        found = torch.compile(lambda x: torch.linalg.svd(x + 1)[1], backend="motet")(x)
    torch.testing.assert_close(found, torch.linalg.svd(x + 1)[1])
    assert "_linalg_svd" in caplog.text


def test_gradients_flow_through_torch(model: Any, caplog: pytest.LogCaptureFixture, compiled: list[Any]) -> None:
    with caplog.at_level(logging.WARNING, "motet"):
        torch.compile(model, backend="motet")(torch.randn(2, 3, 7, 7))["logits"].sum().backward()
    assert model.linear.weight.grad is not None
    assert "gradients flow" in caplog.text
    assert not compiled


@torch.no_grad()
def test_options_reach_the_compiler(model: Any, compiled: list[Any]) -> None:
    options = {"devices": "host{cpu=x86-64-v3}", "jobs": 1}
    fast = torch.compile(model, backend="motet", options=options)
    x = torch.randn(2, 3, 7, 7)
    torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])
    assert compiled == [{"devices": "host{cpu=x86-64-v3}", "options": {"jobs": 1}}]


@torch.no_grad()
def test_parameters_of_many_layers(compiled: list[Any]) -> None:
    """Among them constants of the program that have no name of their own."""
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)) for _ in range(3)]
    model = torch.nn.Sequential(*layers).eval()
    x = torch.randn(5, 32)
    torch.testing.assert_close(torch.compile(model, backend="motet")(x), model(x))
    assert len(compiled) == 1
