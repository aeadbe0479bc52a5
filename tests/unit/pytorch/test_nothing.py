"""Tensors without elements, as a batch of none is: what is made of them, and what is written of them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

import motet  # noqa: E402

nn, F = torch.nn, torch.nn.functional


def zeros(*shape: int) -> Any:
    return torch.randn(shape)


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "rows": (lambda a, b: a @ b, [zeros(0, 5), zeros(5, 7)]),
    "columns": (lambda a, b: a @ b, [zeros(5, 4), zeros(4, 0)]),
    "depth": (lambda a, b: a @ b, [zeros(3, 0), zeros(0, 4)]),
    "batches": (torch.bmm, [zeros(0, 4, 17), zeros(0, 17, 33)]),
    "linear": (nn.Linear(8, 16), [zeros(2, 0, 8)]),
    "convolution": (nn.Conv2d(16, 32, 1), [zeros(0, 16, 9, 9)]),
    "groups": (nn.Conv2d(8, 8, 3, groups=2), [zeros(0, 8, 9, 9)]),
    "volume": (nn.Conv3d(2, 3, 3), [zeros(0, 2, 5, 5, 5)]),
    "network": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(392, 5)), [zeros(0, 3, 9, 9)]),
    "attention": (F.scaled_dot_product_attention, [zeros(2, 2, 0, 8), zeros(2, 2, 4, 8), zeros(2, 2, 4, 8)]),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1)), [zeros(0, 3)]),
    "joined": (lambda a, b: torch.cat([a, b]), [zeros(0, 3), zeros(2, 3)]),
    "written": (
        lambda x: torch.ones(4, 3).index_add(0, torch.zeros(0, dtype=torch.long), x), [zeros(0, 3)],
    ),
    "sorted": (lambda x: (*x.sort(1), *x.t().sort(1)), [zeros(2, 0)]),
    "none of what is sorted": (lambda x: x.topk(0, 1), [zeros(2, 600)]),
    "reshaped": (lambda x: x.reshape(3, 0) + 1, [zeros(0, 3)]),
}  # fmt: skip


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@pytest.mark.parametrize("case", CASES)
def test_tensors_without_elements(case: str) -> None:
    function, inputs = CASES[case]
    module = Wrapped(function).eval()
    found = motet.load(motet.compile(module, inputs=inputs, cache=False))(*inputs)
    with torch.no_grad():
        expected = module(*inputs)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for mine, wanted in pairs:
        torch.testing.assert_close(mine, wanted)
