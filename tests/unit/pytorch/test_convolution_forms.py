"""Convolutions that are rewritten on their way, against PyTorch: transposed ones, by phases, and ones in groups."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

import motet  # noqa: E402

pytestmark = pytest.mark.usefixtures("all_levels")

nn = torch.nn
Make = Callable[[], Any]

TRANSPOSED = [
    (lambda: nn.ConvTranspose2d(10, 7, 2, 2), (2, 10, 9, 7), None),
    (lambda: nn.ConvTranspose2d(8, 8, (2, 1), (2, 1)), (1, 8, 5, 7), None),
    (lambda: nn.ConvTranspose3d(4, 6, 2, 2), (1, 4, 3, 5, 2), None),
    (lambda: nn.ConvTranspose2d(8, 9, 3, 1, 1), (1, 8, 5, 7), ["convolution"]),
    (lambda: nn.ConvTranspose2d(6, 5, 4, 2, 1), (2, 6, 9, 7), None),
    (lambda: nn.ConvTranspose2d(8, 8, 3, 2, 1, 1), (1, 8, 5, 7), None),
    (lambda: nn.ConvTranspose2d(8, 8, 3, 2, 1), (1, 8, 5, 7), None),
    (lambda: nn.ConvTranspose2d(8, 8, 3, 3, 2), (1, 8, 5, 7), None),
    (lambda: nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=4), (1, 8, 5, 7), None),
    (lambda: nn.ConvTranspose1d(6, 8, 16, 8, 4), (2, 6, 21), None),
]
IN_GROUPS = [
    (lambda: nn.Conv2d(32, 64, 3, 1, 1, groups=4), (2, 32, 11, 9)),
    (lambda: nn.Conv2d(32, 64, 3, 2, 1, groups=4, bias=False), (2, 32, 11, 9)),
    (lambda: nn.Conv2d(32, 32, 1, groups=8), (2, 32, 11, 9)),
    (lambda: nn.Conv1d(16, 16, 3, padding=1, groups=4), (2, 16, 19)),
    (lambda: nn.Conv2d(6, 12, 3, 1, 1, groups=6), (2, 6, 11, 9)),
]


def compiled(module: Any, shape: tuple[int, ...]) -> list[str]:
    """The kinds of the kernels that are run; fails unless the results are PyTorch's."""
    torch.manual_seed(0)
    network = nn.Sequential(module, nn.ReLU()).eval().requires_grad_(False)
    x = torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifact = motet.compile(network, inputs=[x], devices="host", cache=False)
    torch.testing.assert_close(motet.load(artifact)(x), network(x), rtol=1e-5, atol=1e-5)
    variant = artifact.manifest.variants[0]
    kinds = {kernel.name: kernel.kind for kernel in variant.kernels}
    return [kinds.get(command.kernel, command.kernel) for command in next(iter(variant.schedules.values())).commands]


@pytest.mark.parametrize(("make", "shape", "kinds"), TRANSPOSED)
def test_transposed_convolutions(
    make: Make, shape: tuple[int, ...], kinds: list[str] | None
) -> None:
    found = compiled(make(), shape)
    assert kinds is None or found == kinds


@pytest.mark.parametrize(("make", "shape"), IN_GROUPS)
def test_groups_are_one_kernel(make: Make, shape: tuple[int, ...]) -> None:
    kinds = compiled(make(), shape)
    assert len([kind for kind in kinds if not kind.endswith("_copy")]) == 1  # its image may be copied first
