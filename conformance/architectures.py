"""The description of a named architecture: its module, and the tensors that it is called with."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Inputs = Sequence[Any] | Mapping[str, Any]
Built = tuple[torch.nn.Module, Inputs]


@dataclass(frozen=True)
class Architecture:
    """One case. `build` returns the module, with random weights, and its example inputs.

    `dynamic_shapes` is torch.export's argument of that name. The program is also called with `inputs_again`, if given:
    the same inputs with other extents.
    """

    name: str
    build: Callable[[], Built]
    dynamic_shapes: Any = None
    inputs_again: Callable[[], Inputs] | None = None
    through_compile: bool = False  # by torch.compile(backend="motet") instead of motet.compile


def token_ids(count: int, length: int, vocabulary: int = 99) -> torch.Tensor:
    return torch.randint(3, vocabulary, (count, length))


def image(size: int, count: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.randn(count, channels, size, size)
