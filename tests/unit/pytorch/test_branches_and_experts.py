"""torch.cond, histograms, products of groups of rows, bags of embeddings, dynamic strides, recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'motet[torch]'")

import motet  # noqa: E402


def check(module: Any, inputs: list[Any], again: list[Any] | None = None, dynamic_shapes: Any = None) -> None:
    module.eval()
    session: Any = motet.load(motet.compile(module, inputs=inputs, dynamic_shapes=dynamic_shapes, cache=False))
    for given in [inputs] + ([again] if again else []):
        found, wanted = session(*given), module(*given)
        for place, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(
                mine.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=f"result {place}"
            )


class Branches(torch.nn.Module):
    """A choice within a choice, one with two results, one of a constant condition."""

    def forward(self, x: Any) -> Any:
        def inner(y: Any) -> Any:
            return torch.cond(y[0, 0] > 0.5, lambda z: z * 2, lambda z: z - 1, (y,))

        first = torch.cond(x.sum() > 0, inner, lambda y: y / 0.0, (x,))
        both = torch.cond((x > 0).any(), lambda y: (y.sum(0), y.sin()), lambda y: (y.amax(0), y.clone()), (x,))
        return first, *both


def test_branches_are_chosen_by_the_call() -> None:
    x = torch.tensor([[0.7, 1.0], [2.0, 3.0]])
    for other in (torch.tensor([[0.2, 1.0], [2.0, 3.0]]), -x):
        check(Branches(), [x], [other])


class Groups(torch.nn.Module):
    def forward(self, x: Any, weight: Any, ends: Any, tokens: Any) -> Any:
        counts = torch.histc(tokens.float(), bins=5, min=0, max=4)
        return (
            torch._grouped_mm(x.bfloat16(), weight.bfloat16(), offs=ends).float()[:4], counts,
            torch.histc(x, bins=7), torch.histc(x, bins=3, min=-0.5, max=0.5),
            torch.topk(x, 3, sorted=False).values.sum(-1),
        )  # fmt: skip


def test_histograms_and_groups_of_rows() -> None:
    torch.manual_seed(5)
    x = torch.randint(-2, 3, (6, 8)).float()
    weight = torch.randint(-2, 3, (3, 8, 8)).float()
    tokens = torch.tensor([0, 4, 4, 7, -1, 2, 2, 2])
    check(Groups(), [x, weight, torch.tensor([1, 1, 4], dtype=torch.int32), tokens])


class Bags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(9, 4, mode=mode, padding_idx=pad)
            for mode in ("sum", "mean", "max") for pad in (None, 2)
        )

    def forward(self, tokens: Any, starts: Any, index: Any, rows: Any) -> Any:
        found = [bag(tokens, starts) for bag in self.bags]
        joined = [
            torch.ones(4, 3).index_reduce(0, index, rows, how, include_self=own)
            for how in ("prod", "mean", "amax", "amin") for own in (True, False)
        ]
        return (*found, *joined)


def test_bags_of_embeddings_and_indexed_reductions() -> None:
    torch.manual_seed(6)
    tokens, starts = torch.tensor([1, 2, 2, 8, 0, 5]), torch.tensor([0, 1, 3, 3])
    check(Bags(), [tokens, starts, torch.tensor([3, 0, 3, 1, 3]), torch.randn(5, 3)])


class Strides(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        windows = x.unfold(-1, 4, 2)
        return (
            torch.as_strided(x, (x.shape[0], 3), (x.shape[1], 2), 1), windows.sum(-1),
            x.view(-1, 2, 5).sum(1), x.unflatten(-1, (5, -1)).amax(1), x.reshape(x.shape[0] * 2, -1),
        )  # fmt: skip


def test_views_of_a_dynamic_extent() -> None:
    shapes = ({0: torch.export.Dim("batch", min=2, max=9)},)
    check(Strides(), [torch.randn(3, 10)], [torch.randn(7, 10)], shapes)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN", "projected"])
def test_recurrent_layers_are_part_of_a_compiled_graph(layer: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(7)
    torch._dynamo.reset()
    if layer == "projected":
        module: Any = torch.nn.LSTM(6, 5, 2, proj_size=3, batch_first=True)
    else:
        module = getattr(torch.nn, layer)(6, 5, 2, bidirectional=True)
    x = torch.randn(3, 4, 6)
    with torch.no_grad():
        found, wanted = torch.compile(module.eval(), backend="motet", fullgraph=True)(x), module(x)
    assert not [each for each in caplog.records if each.name.startswith("motet")]
    np.testing.assert_allclose(found[0].numpy(), wanted[0].numpy(), atol=1e-6)
