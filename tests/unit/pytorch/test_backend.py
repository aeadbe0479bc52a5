"""torch.compile with Motet behind it, compared with PyTorch itself."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")


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


@torch.no_grad()
def test_parameters_that_change_again_and_again_are_read_in_every_call(
    compiled: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = torch.nn.Linear(8, 5)
    fast = torch.compile(model, backend="motet")
    x = torch.randn(2, 8)
    with caplog.at_level(logging.WARNING, "motet"):
        for _ in range(8):
            torch.testing.assert_close(fast(x), model(x))
            model.weight.mul_(1.5)
    assert len(compiled) == 5
    assert "read in every call" in caplog.text


@torch.no_grad()
def test_parameters_written_where_torch_does_not_count(model: Any, compiled: list[Any]) -> None:
    fast = torch.compile(model, backend="motet", options={"freeze": False})
    x = torch.randn(2, 3, 7, 7)
    fast(x)
    model.linear.weight.data.mul_(2)
    model.conv.bias.detach().numpy()[:] = 1
    torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])
    assert len(compiled) == 1


def test_parameters_of_inference_mode(compiled: list[Any]) -> None:
    with torch.inference_mode():
        model = torch.nn.Linear(5, 4)
        fast = torch.compile(model, backend="motet")
        x = torch.randn(3, 5)
        torch.testing.assert_close(fast(x), model(x))
        model.weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
    assert len(compiled) == 1


@torch.no_grad()
def test_buffers_that_a_call_changes(compiled: list[Any]) -> None:
    torch.manual_seed(4)
    model, twin = torch.nn.BatchNorm1d(5).train(), torch.nn.BatchNorm1d(5).train()
    fast = torch.compile(model, backend="motet")
    for _ in range(3):
        x = torch.randn(6, 5) + 1
        torch.testing.assert_close(fast(x), twin(x))
    torch.testing.assert_close(model.running_mean, twin.running_mean)
    torch.testing.assert_close(model.running_var, twin.running_var)
    assert model.num_batches_tracked == 3
    assert len(compiled) == 1


def test_a_step_of_training_and_then_inference(model: Any, compiled: list[Any]) -> None:
    """What is compiled sees the weights that the step made."""
    twin = Model()
    twin.load_state_dict(model.state_dict())
    fast = torch.compile(model, backend="motet")
    x = torch.randn(2, 3, 7, 7)
    with torch.no_grad():
        fast(x)
    for one, call in ((model, fast), (twin, twin)):
        optimizer = torch.optim.SGD(one.parameters(), 0.1)
        call(x)["logits"].square().sum().backward()
        optimizer.step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    with torch.no_grad():
        torch.testing.assert_close(fast(x)["logits"], twin(x)["logits"])
    assert len(compiled) == 4  # inference, forward, backward, inference with other weights


def test_gradients_of_inputs(compiled: list[Any]) -> None:
    fast = torch.compile(lambda x: (x * x).sin().sum(), backend="motet")
    x = torch.randn(7, requires_grad=True)
    fast(x).backward()
    torch.testing.assert_close(x.grad, torch.cos(x.detach() ** 2) * 2 * x.detach())
    with torch.no_grad():
        result = fast(x)
    assert not result.requires_grad
    torch.testing.assert_close(result, (x * x).sin().sum().detach())
    assert len(compiled) == 3  # forward, backward, inference


@torch.no_grad()
def test_graphs_with_breaks_between(compiled: list[Any]) -> None:
    def function(x: Any) -> Any:
        y = x.relu() * 2
        torch._dynamo.graph_break()
        return y.sum(0) + 1

    for size in (3, 5):
        x = torch.randn(size, 4)
        torch.testing.assert_close(torch.compile(function, backend="motet")(x), function(x))
    assert len(compiled) >= 2


@torch.no_grad()
def test_results_that_are_views_of_arguments() -> None:
    fast = torch.compile(lambda x: (x.t(), x + 1), backend="motet")
    x = torch.randn(3, 5)
    view, more = fast(x)
    torch.testing.assert_close(more, x + 1)
    view[0, 0] = 7
    assert x[0, 0] == 7


@pytest.mark.parametrize("dynamic", [False, True])
@torch.no_grad()
def test_tensors_that_lie_in_any_way(dynamic: bool) -> None:
    fast = torch.compile(lambda x, y: (x @ y).softmax(-1), backend="motet", dynamic=dynamic)
    pairs = [
        (torch.randn(5, 4), torch.randn(4, 6)), (torch.randn(4, 5).t(), torch.randn(6, 4).t()),
        (torch.randn(5, 8)[:, ::2], torch.randn(1, 6).expand(4, 6)), (torch.randn(6, 4)[1:], torch.randn(4, 7)[:, 1:]),
        (torch.nn.Parameter(torch.randn(5, 4)), torch.randn(4, 6, requires_grad=True)),
    ]
    for x, y in pairs:
        found = fast(x, y)
        assert type(found) is torch.Tensor
        torch.testing.assert_close(found, (x @ y).softmax(-1))


@torch.no_grad()
def test_scalars_beside_tensors(compiled: list[Any]) -> None:
    def function(x: Any, scale: Any, n: int, f: float) -> Any:
        return x * scale + n * f

    fast = torch.compile(function, backend="motet")
    x = torch.randn(3, 4)
    for scale, n, f in ((torch.tensor(2.0), 2, 0.5), (torch.tensor(3.0), 2, 0.5), (torch.tensor(3.0), 5, 1.5)):
        torch.testing.assert_close(fast(x, scale, n, f), function(x, scale, n, f))


@torch.no_grad()
def test_tensors_on_devices_that_motet_has_not() -> None:
    with pytest.raises(Exception, match="its tensors are on meta; expected cpu or cuda"):
        torch.compile(lambda x: x + 1, backend="motet")(torch.empty(3, device="meta"))


@torch.no_grad()
def test_graphs_over_several_devices_run_in_torch(caplog: pytest.LogCaptureFixture, compiled: list[Any]) -> None:
    with caplog.at_level(logging.WARNING, "motet"):
        found = torch.compile(lambda x: (x + 1).to("meta") * 2, backend="motet")(torch.randn(3))
    assert found.device.type == "meta"
    assert "several devices" in caplog.text
    assert not compiled


@torch.no_grad()
def test_layers_that_pytorch_fuses(compiled: list[Any]) -> None:
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True).eval()
    x = torch.randn(2, 7, 16)
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[1, 4:] = True
    fast = torch.compile(layer, backend="motet")
    torch.testing.assert_close(fast(x), layer(x))
    ahead = torch.ones(7, 7, dtype=torch.bool).triu(1)
    torch.testing.assert_close(
        fast(x, src_key_padding_mask=hidden, src_mask=ahead), layer(x, src_key_padding_mask=hidden, src_mask=ahead)
    )
    assert len(compiled) == 2


@torch.no_grad()
def test_calls_while_autocasting_and_after(model: Any) -> None:
    fast = torch.compile(model, backend="motet")
    x = torch.randn(2, 3, 7, 7)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = fast(x)["logits"], model(x)["logits"]
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(fast(x)["logits"], model(x)["logits"])


@torch.no_grad()
def test_parameters_that_have_no_address() -> None:
    class Sparse(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.eye(5).to_sparse())

        def forward(self, x: Any) -> Any:
            return torch.sparse.mm(self.weight, x) + 1

    model, x = Sparse(), torch.randn(5, 3)
    torch.testing.assert_close(torch.compile(model, backend="motet")(x), model(x))


@pytest.mark.slow
def test_recurrent_layers_are_captured_once_the_backend_is_chosen() -> None:
    """In a process that has not chosen it yet: older versions of torch import the backend then, and tell it nothing."""
    program = """
import torch
torch.compile(torch.sin, backend="eager")
assert not torch._dynamo.config.allow_rnn
torch.compile(torch.sin, backend="motet")
assert torch._dynamo.config.allow_rnn
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
