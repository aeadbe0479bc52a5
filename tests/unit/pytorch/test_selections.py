"""Reads and writes at places that a tensor of rank 0 gives, with slices, masks and other indices; compared with
PyTorch's results."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402


def put(x: Any, at: Any, value: Any) -> Any:
    y = x.clone()
    y[at] = value
    return y


def added(x: Any, at: Any) -> Any:
    y = x.clone()
    y[at] += 2
    y.select(1, at).mul_(3)
    return y


FUNCTIONS = [
    lambda x, i, s: x[s], lambda x, i, s: x[:, s], lambda x, i, s: x[s - 4, 1:] + 1, lambda x, i, s: x[s, s + 1, s],
    lambda x, i, s: x[i.sum() % 5].transpose(0, 1).reshape(-1), lambda x, i, s: x[x[:, 0, 0].argmax()],
    lambda x, i, s: torch.select(x, -1, s), lambda x, i, s: x[..., s.int(), :],
    lambda x, i, s: x[s, i], lambda x, i, s: x[s, :, i], lambda x, i, s: x[None, i, ..., s],
    lambda x, i, s: put(x, s, 1.5), lambda x, i, s: put(x, (slice(None), s), x[:, 0]),
    lambda x, i, s: put(x, (..., s - 4), x[0, 0, 0]), lambda x, i, s: put(x, (s, s.int(), slice(1, 3)), x[0, 1, :2]),
    lambda x, i, s: put(x, (s, i), x[1, i]), lambda x, i, s: put(x, (x[:, 0, 0] > 0, s), 0.5),
    lambda x, i, s: added(x, s), lambda x, i, s: added(x, s - 4),
]  # fmt: skip


@pytest.mark.parametrize("place", [0, 2])
def test_places_of_rank_0(place: int) -> None:
    torch.manual_seed(3)
    given = torch.randn(5, 6, 7), torch.tensor([4, 1, 0]), torch.tensor(1)
    module = Functions(FUNCTIONS)
    session = motet.load(motet.compile(module, inputs=list(given), devices="host{cpu=native}"))
    called = (*given[:2], torch.tensor(place))
    for found, expected in zip(session(*called), module(*called), strict=True):
        assert torch.equal(found, expected)


def test_places_in_tensors_of_dynamic_extent() -> None:
    module = Functions([*FUNCTIONS[:3], lambda x, i, s: put(x, s, 1.5), lambda x, i, s: added(x, s)])
    rows = torch.export.Dim("rows", min=5)
    given = torch.randn(5, 6, 7), torch.tensor([4, 1, 0]), torch.tensor(1)
    shapes = (({0: rows}, {}, {}),)
    artifact = motet.compile(module, inputs=list(given), devices="host{cpu=native}", dynamic_shapes=shapes)
    called = torch.randn(9, 6, 7), given[1], torch.tensor(3)
    for found, expected in zip(motet.load(artifact)(*called), module(*called), strict=True):
        assert torch.equal(found, expected)
