"""Convolution kernels for tests, as the compiler's middle yields them, and their meaning in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from tests.unit.compiler.codegen.cpu.harness import DTYPES
from tests.unit.compiler.codegen.cpu.kernels import at, op, value

from motet.compiler.kernels.kernel import Kernel, Scalar, Stage, Value

NCHW, NHWC = (0, 1, 2, 3), (0, 2, 3, 1)


@dataclass(frozen=True)
class Geometry:
    """Strides, dilations and padding before and after, along every spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    low: tuple[int, ...] = (0, 0)
    high: tuple[int, ...] = (0, 0)
    padding: float | None = None  # the number outside; None where nothing is

    def outputs(self, image: Sequence[int]) -> tuple[int, ...]:
        zipped = zip(image, self.kernel, self.stride, self.dilation, self.low, self.high, strict=True)
        return tuple((i + lo + hi - (k - 1) * d - 1) // s + 1 for i, k, s, d, lo, hi in zipped)


SAME = Geometry((3, 3), low=(1, 1), high=(1, 1), padding=0.0)


def entry(geometry: Geometry, axis: int, out: int, tap: int) -> tuple:
    return (-geometry.low[axis], {out: geometry.stride[axis], tap: geometry.dilation[axis]})


def multiply_add(dtype: str, wide: str) -> list[Scalar]:
    """`body` of inputs of `dtype` summed in `wide`."""
    kind = "f" if wide.startswith(("f", "b")) else "i"
    if dtype == wide:
        return [op(f"mul{kind}", 0, 1, dtype=wide), op(f"add{kind}", 2, 3, dtype=wide)]
    cast = "extf" if kind == "f" else "extsi"
    return [
        op(cast, 0, dtype=wide), op(cast, 1, dtype=wide),
        op(f"mul{kind}", 3, 4, dtype=wide), op(f"add{kind}", 2, 5, dtype=wide),
    ]


def windows_of(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Double-precision `image` (channels second) as [n, c, out…, tap…]."""
    spatial = len(geometry.kernel)
    widths = [(0, 0), (0, 0), *zip(geometry.low, geometry.high, strict=True)]
    padded = np.pad(image.astype(np.float64), widths, constant_values=geometry.padding or 0)
    outputs = geometry.outputs(image.shape[2:])
    result = np.empty((*image.shape[:2], *outputs, *geometry.kernel))
    for tap in product(*map(range, geometry.kernel)):
        cut = tuple(
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, geometry.dilation, outputs, geometry.stride, strict=True)
        )
        result[(..., *([slice(None)] * spatial), *tap)] = padded[(slice(None), slice(None), *cut)]
    return result


def random(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    kind: Any = DTYPES[dtype]
    if dtype.startswith("i"):
        return rng.integers(-100, 100, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def with_stages(values: Sequence[Value], *stages: Stage) -> Kernel:
    return Kernel("kernel", tuple(values), tuple(stages))


def relu6(source: int, target: int, rank: int, dtype: str = "f32") -> dict[str, Any]:
    """The inputs, outputs and body of a stage that clamps value `source` to [0, 6]."""
    return {
        "inputs": [at(source, rank, *range(rank))],
        "outputs": [at(target, rank, *range(rank))],
        "body": [
            op("constant", value=0.0, dtype=dtype), op("constant", value=6.0, dtype=dtype),
            op("maximumf", 0, 2, dtype=dtype), op("minimumf", 4, 3, dtype=dtype),
        ],
    }


__all__ = [
    "NCHW", "NHWC", "Geometry", "entry", "multiply_add", "random", "relu6", "value", "windows_of", "with_stages",
]
