"""Discrete Fourier transforms of any length, on real and imaginary parts, as products with constant matrices.

Lengths up to 64, and primes up to 1,024, are one product. Others are factored, n = a · b (Cooley and Tukey, 1965):
transforms of length a, twiddle factors, transforms of length b. Transforms of larger primes become a convolution, by
transforms of a power of two (Bluestein, 1970). Matrices are computed in f64.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_DIRECT = 64
_PRIME = 1024

Pair = tuple[Any, Any]  # real and imaginary part
Constant = Callable[[np.ndarray], Any]  # creates a constant of an array's elements


def transform_plan(length: int, constant: Constant) -> Any:
    """The matrices of a transform of `length`, created by `constant`, for `transformed`."""
    first = _factor(length)
    if length <= _DIRECT or (first == length and length <= _PRIME):
        rows = np.outer(np.arange(length), np.arange(length)) % length
        return ("direct", length, _turned(rows, length, constant))
    if first == length:
        return _chirp_plan(length, constant)
    second = length // first
    twiddle = _turned(np.outer(np.arange(first), np.arange(second)), length, constant)
    return ("split", (first, second), twiddle, transform_plan(first, constant), transform_plan(second, constant))


def _factor(length: int) -> int:
    """The largest divisor up to the square root; the length itself if it is prime."""
    for factor in range(math.isqrt(length), 1, -1):
        if length % factor == 0:
            return factor
    return length


def _turned(places: np.ndarray, length: int, constant: Constant) -> Pair:
    """cos and -sin of 2π · places / length."""
    angle = 2 * np.pi / length * (places % length)
    return constant(np.cos(angle)), constant(-np.sin(angle))


def _chirp_plan(length: int, constant: Constant) -> Any:
    size = 1 << (2 * length - 1).bit_length()
    squares = np.arange(length, dtype=np.int64) ** 2 % (2 * length)
    factors: Any = np.exp(-1j * np.pi / length * squares)
    kernel: Any = np.zeros(size, dtype=np.complex128)
    kernel[:length] = factors.conj()
    kernel[size - length + 1 :] = factors.conj()[1:][::-1]
    spectrum: Any = np.fft.fft(kernel)
    return (
        "chirp", (length, size), (constant(factors.real), constant(factors.imag)),
        (constant(spectrum.real), constant(spectrum.imag)), transform_plan(size, constant),
    )  # fmt: skip


def dynamic_plan(length: Any, dtype: Any) -> Any:
    """The matrices of a transform whose length is dynamic."""
    places = torch.arange(length)
    angle = torch.remainder(places.unsqueeze(-1) * places, length).to(torch.float64) * (2 * math.pi) / length
    return ("direct", length, (torch.cos(angle).to(dtype), -torch.sin(angle).to(dtype)))


def transformed(re: Any, im: Any, plan: Any) -> Pair:
    """The unscaled forward transform along the last dimension; `im` is None for real numbers."""
    kind, extent, constants, *inner = plan
    if kind == "direct":
        return _product(re, im, constants)
    if kind == "chirp":
        return _convolved(re, im, extent, constants, *inner)
    first, second = extent
    re, im = (None if part is None else part.unflatten(-1, (first, second)).transpose(-1, -2) for part in (re, im))
    re, im = transformed(re, im, inner[0])
    re, im = multiplied((re.transpose(-1, -2), im.transpose(-1, -2)), constants)
    re, im = transformed(re, im, inner[1])
    return re.transpose(-1, -2).flatten(-2), im.transpose(-1, -2).flatten(-2)


def _product(re: Any, im: Any, matrix: Pair) -> Pair:
    cos, sin = matrix
    if im is None:
        return re @ cos, re @ sin
    return re @ cos - im @ sin, re @ sin + im @ cos


def _convolved(re: Any, im: Any, extent: Any, factors: Pair, spectrum: Pair, plan: Any) -> Pair:
    length, size = extent
    start = multiplied((re, torch.zeros_like(re) if im is None else im), factors)
    padded = [torch.nn.functional.pad(part, (0, size - length)) for part in start]
    re, im = multiplied(transformed(padded[0], padded[1], plan), spectrum)
    back, front = transformed(im, re, plan)  # with the parts exchanged: the inverse
    return multiplied((front[..., :length] / size, back[..., :length] / size), factors)


def multiplied(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def transform(re: Any, im: Any, dims: Sequence[int], plans: Sequence[Any], forward: bool, scale: Any) -> Pair:
    """The transform along each of `dims`, forward or inverse."""
    for dim, plan in zip(dims, plans, strict=True):
        re, im = (None if part is None else part.transpose(dim, -1) for part in (re, im))
        if forward:
            re, im = transformed(re, im, plan)
        else:
            im, re = transformed(torch.zeros_like(re) if im is None else im, re, plan)
        re, im = re.transpose(dim, -1), im.transpose(dim, -1)
    return re * scale, im * scale


def mirrored(part: Any, dim: int, length: Any, sign: int) -> Any:
    """The full spectrum of real numbers, given its first half; `sign` is -1 for imaginary parts."""
    part = part.narrow(dim, 0, length // 2 + 1)
    count = length - length // 2 - 1
    if isinstance(count, int) and not count:
        return part
    tail = part.narrow(dim, 1, count).flip(dim)
    return torch.cat([part, tail * sign], dim)


def scale_of(normalization: int, lengths: Sequence[Any]) -> float:
    """The factor for PyTorch's number of a normalization: none, 1 / √length, 1 / length."""
    if not normalization:
        return 1.0
    count = math.prod(lengths)
    return count**-0.5 if normalization == 1 else 1.0 / count
