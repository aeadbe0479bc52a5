"""Describes rows of the corpus: a torch module with inputs, or an ONNX model if torch lacks the operator.

All contenders get the same module: torch runs it, the others its ONNX export. Its result in float64 is the reference.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Accepted error, relative to the largest value of the reference.
TOLERANCES = {"f64": 1e-9, "f32": 2e-3, "f16": 2e-2, "bf16": 6e-2, "int8": 0.0, "int4": 2e-3}

Made = tuple[nn.Module, Sequence[torch.Tensor]]
Input = Sequence[int] | Callable[[], torch.Tensor]  # a shape of normal numbers, or a function that makes the tensor


@dataclass(frozen=True)
class Written:
    """An ONNX model with its inputs and results; `flops` is the minimum number of operations."""

    model: onnx.ModelProto
    inputs: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    flops: float


@dataclass(frozen=True)
class Row:
    """One row. `make` builds the module in float32 and its inputs, deterministically; `write` an ONNX model instead.

    `moved` is the number of bytes that must be moved if it is not that of all parameters, inputs and results.
    `dtype` is the compute type; `tolerance` replaces its default tolerance.
    """

    name: str
    family: str
    make: Callable[[], Made] | None = None
    write: Callable[[], Written] | None = None
    dtype: str = "f32"
    moved: float | None = None
    tolerance: float | None = None
    quick: bool = False
    fresh: bool = False  # drawn for this run

    @property
    def file(self) -> str:
        """The row's name as a folder name."""
        return re.sub(r"[^\w.,=+-]+", "-", self.name)

    @property
    def allowed(self) -> float:
        return TOLERANCES[self.dtype] if self.tolerance is None else self.tolerance

    def module(self) -> Made:
        """The module and its inputs in the row's dtype."""
        assert self.make is not None
        torch.manual_seed(zlib.crc32(self.name.encode()))
        module, inputs = self.make()
        dtype = DTYPES[self.dtype]
        inputs = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in inputs]
        return module.eval().to(dtype), inputs


class Function(nn.Module):
    """A function of tensors as a module; `parts` are modules and tensors that are its first arguments."""

    def __init__(self, function: Callable[..., Any], parts: Sequence[nn.Module | torch.Tensor] = ()) -> None:
        super().__init__()
        self.function = function
        self.names = [f"part{number}" for number in range(len(parts))]
        for name, part in zip(self.names, parts, strict=True):
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*(getattr(self, name) for name in self.names), *inputs)


class RowMajor(nn.Module):
    """`module` with its results in row-major order, as all contenders return them: torch otherwise gives the result of
    `x.permute(order).clone()` the strides of `x.permute(order)`, and transposes none of it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        results = self.module(*inputs)
        if isinstance(results, torch.Tensor):
            return results.contiguous()
        return [result.contiguous() for result in results]


@dataclass(frozen=True)
class Family:
    """Makes the rows of one family; `quick` names those of the short table."""

    name: str
    quick: Sequence[str] = ()

    def of(
        self, name: str, function: Callable[..., Any], *inputs: Input, dtype: str = "f32", moved: float | None = None,
        fresh: bool = False,
    ) -> Row:
        """A row that computes `function` of tensors."""
        return self.layer(name, lambda: Function(function), *inputs, dtype=dtype, moved=moved, fresh=fresh)

    def layer(
        self, name: str, build: Callable[[], nn.Module], *inputs: Input, dtype: str = "f32",
        moved: float | None = None, fresh: bool = False,
    ) -> Row:
        """A row that computes a module with weights."""
        name = name if dtype == "f32" else f"{name} {dtype}"

        def make() -> Made:
            module = build()
            return module, [one() if callable(one) else torch.randn(*one) for one in inputs]

        return Row(name, self.name, make, dtype=dtype, moved=moved, quick=name in self.quick, fresh=fresh)


def draw(below: int, *shape: int) -> Callable[[], torch.Tensor]:
    """A function that makes a tensor of integers in [0, below)."""
    return lambda: torch.randint(0, below, shape)


def uniform(*shape: int) -> Callable[[], torch.Tensor]:
    """A function that makes a tensor of uniform numbers in [0, 1)."""
    return lambda: torch.rand(*shape)


def text(*shape: int) -> str:
    return "×".join(map(str, shape))
