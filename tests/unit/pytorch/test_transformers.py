"""Attention and encoder layers as PyTorch has them fused, against what PyTorch calculates."""

from __future__ import annotations

import operator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


OF_DEVICES = {
    "cudnn": ("_scaled_dot_product_cudnn_attention", lambda mask: (mask, False, 0.0, mask is None), {"scale": 0.3}),
    "efficient": ("_scaled_dot_product_efficient_attention", lambda mask: (mask, True, 0.0, mask is None), {}),
    "flash": ("_scaled_dot_product_flash_attention", lambda mask: (0.0, True), {"scale": 0.4}),
}


@pytest.mark.parametrize("name", OF_DEVICES)
@pytest.mark.parametrize("masked", [False, True])
def test_operators_of_devices_become_the_general_one(name: str, masked: bool) -> None:
    """Whose arguments have another order."""
    from motet.pytorch.transformers import settle_attention

    operator_name, arguments, named = OF_DEVICES[name]
    if masked and name == "flash":
        pytest.skip("it takes no mask")
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))
    mask = torch.randn(2, 3, 7, 7) if masked else None
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(letter) for letter in "qkvm"]
    node = graph.call_function(
        getattr(torch.ops.aten, operator_name).default, (*inputs[:3], *arguments(inputs[3] if masked else None)), named
    )
    node.meta["val"] = (torch.empty(2, 3, 7, 8, device="meta"),)
    result = graph.call_function(operator.getitem, (node, 0))
    graph.output((graph.call_function(torch.ops.aten.view.default, (result, [2, 21, 8])),))
    program = torch.fx.GraphModule(torch.nn.Module(), graph)
    settle_attention(program)
    expected = F.scaled_dot_product_attention(q, k, v, mask, is_causal=not masked, scale=named.get("scale"))
    torch.testing.assert_close(program(q, k, v, mask)[0], expected.reshape(2, 21, 8))


def test_operators_whose_other_results_are_used_stay() -> None:
    from motet.pytorch.transformers import settle_attention

    target = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    graph = torch.fx.Graph()
    node = graph.call_function(target, tuple(graph.placeholder(letter) for letter in "qkv"))
    graph.output((graph.call_function(operator.getitem, (node, 0)), graph.call_function(operator.getitem, (node, 1))))
    program = torch.fx.GraphModule(torch.nn.Module(), graph)
    settle_attention(program)
    assert any(node.target is target for node in program.graph.nodes)


@pytest.mark.parametrize("how", ["plain", "causal", "truth", "added"])
@torch.no_grad()
def test_attention_under_compile(how: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(2)
    mask: Any = {"truth": torch.rand(9, 9) > 0.5, "added": torch.randn(9, 9)}.get(how)
    if how == "truth":
        mask[4] = False

    def function(x: Any) -> Any:
        q, k, v = x.view(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=how == "causal")
        return y.transpose(1, 2).reshape(2, 9, 32)

    x = torch.randn(2, 9, 96)
    found = torch.compile(function, backend="motet")(x)
    torch.testing.assert_close(found, function(x))
    assert "torch runs this graph itself" not in caplog.text


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("hidden", ["none", "padding", "ahead", "both", "whole"])
@torch.no_grad()
def test_encoder_layers(first: bool, hidden: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 24, batch_first=True, norm_first=first, activation="gelu" if first else "relu"
    ).eval()
    x = torch.randn(2, 7, 16)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 0 if hidden == "whole" else 4 :] = True
    masks: dict[str, Any] = {}
    if hidden in ("padding", "both", "whole"):
        masks["src_key_padding_mask"] = padding
    if hidden in ("ahead", "both"):
        masks["src_mask"] = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected = torch.compile(layer, backend="eager")(x, **masks)
    torch._dynamo.reset()
    found = torch.compile(layer, backend="motet")(x, **masks)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert "torch runs this graph itself" not in caplog.text
