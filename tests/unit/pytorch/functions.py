"""Modules of PyTorch that return the results of several functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Functions(torch.nn.Module):
    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: Any) -> Any:
        found: list[Any] = []
        for function in self.functions:
            result = function(*inputs)
            found += [result] if isinstance(result, torch.Tensor) else list(result)
        return tuple(found)


class Function(torch.nn.Module):
    """A module that calls one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)
