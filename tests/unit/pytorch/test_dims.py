"""Dimensions counted from the end, against what PyTorch calculates, and grouped heads of attention."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402

F = torch.nn.functional
PLACES = torch.tensor([0, 3, 6, 2])
# Of a tensor of 3×5×7, places in its last dimension of 3×5×4, and as many numbers.
WITH_PLACES: list[Callable[..., Any]] = [
    lambda x, i, s: torch.scatter(x, -1, i, s), lambda x, i, s: torch.scatter(x, -1, i, 2.5),
    lambda x, i, s: torch.scatter_add(x, -1, i, s), lambda x, i, s: torch.scatter(x, -1, i, s, reduce="multiply"),
    *(lambda x, i, s, r=r: torch.scatter_reduce(x, -1, i, s, r, include_self=r != "amin")
      for r in ("sum", "prod", "mean", "amax", "amin")),
    lambda x, i, s: torch.scatter_add(x, -2, i[:, :4] % 5, s[:, :4]),
    lambda x, i, s: torch.gather(x, -1, i), lambda x, i, s: torch.take_along_dim(x, i, -1),
    lambda x, i, s: torch.index_select(x, -1, PLACES), lambda x, i, s: torch.index_add(x, -1, PLACES, s),
    lambda x, i, s: torch.index_copy(x, -1, PLACES, s), lambda x, i, s: torch.index_fill(x, -1, PLACES, 3.0),
    lambda x, i, s: torch.slice_scatter(x, s, -1, 1, 5), lambda x, i, s: torch.select_scatter(x, s[..., 0], -1, 2),
    lambda x, i, s: torch.cat([x, s], -1),
]  # fmt: skip
ALONE: list[Callable[..., Any]] = [
    lambda x: x.cumsum(-2), lambda x: x.cumprod(-1), lambda x: x.cummax(-1), lambda x: x.logcumsumexp(-1),
    lambda x: x.sum((-1, -3)), lambda x: x.var(-1), lambda x: x.amax((-1, -2)), lambda x: x.max(-1),
    lambda x: x.argmax(-2), lambda x: x.prod(-1), lambda x: x.softmax(-2), lambda x: x.logsumexp(-1),
    lambda x: torch.linalg.vector_norm(x, dim=-1), lambda x: (x > 0).all(-2), lambda x: x[0, 0, 0].sum(-1),
    lambda x: x.unsqueeze(-1), lambda x: x.unsqueeze(-4), lambda x: x.unsqueeze(1).squeeze(-3),
    lambda x: torch.stack([x, x + 1], -1), lambda x: x.split(3, -1), lambda x: x.unbind(-2),
    lambda x: x.transpose(-1, -3), lambda x: x.permute(-1, 0, -2), lambda x: x.flip((-1,)), lambda x: x.roll(2, -1),
    lambda x: x.narrow(-1, 1, 3), lambda x: x.select(-1, -2), lambda x: x.flatten(-2, -1),
    lambda x: x.topk(3), lambda x: x.sort(-2), lambda x: x.median(-1), lambda x: torch.diag_embed(x),
    lambda x: torch.diagonal(x, 0, -2, -1), lambda x: x.repeat_interleave(2, -1), lambda x: x.diff(dim=-1),
]  # fmt: skip


@pytest.mark.parametrize("functions", [WITH_PLACES, ALONE], ids=["with places", "alone"])
def test_dimensions_counted_from_the_end(functions: list[Callable[..., Any]]) -> None:
    torch.manual_seed(0)
    x, places, source = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5, 4)), torch.randn(3, 5, 4)
    inputs = (x, places, source) if functions is WITH_PLACES else (x,)
    module = Functions(functions)
    artifact = motet.compile(module, inputs=inputs, devices="host{cpu=native}", cache=False)
    for number, (found, wanted) in enumerate(zip(motet.load(artifact)(*inputs), module(*inputs), strict=True)):
        torch.testing.assert_close(found, wanted, msg=lambda text, number=number: f"result {number}: {text}")


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("mask", ["none", "causal", "numbers"])
def test_heads_that_share_keys(heads: int, mask: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, 8)
    added = torch.randn(5, 7) if mask == "numbers" else None

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, added, is_causal=mask == "causal", enable_gqa=True)

    with torch.no_grad(), caplog.at_level(logging.WARNING, "motet"):
        found = torch.compile(attend, backend="motet")(q, k, v)
        torch.testing.assert_close(found, attend(q, k, v))
    assert not [each for each in caplog.records if each.name.startswith("motet")]  # torch did not run it itself
