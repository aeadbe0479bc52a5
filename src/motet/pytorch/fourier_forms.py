"""Rewrites all forms of PyTorch's Fourier transforms to the three primitive ones.

    aten.fft_rfft2(%x, [n, m])   →   aten._fft_r2c(…%x cut or padded with zeros to n×m…, [-2, -1], 0, True)
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._refs
from torch.nn import functional


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    makers = {"fft": _whole(True), "ifft": _whole(False), "rfft": _from_real(True), "ihfft": _from_real(False),
              "irfft": _to_real(False), "hfft": _to_real(True)}
    table: dict[Any, Callable[..., Any]] = {}
    for name, transform in makers.items():
        table[getattr(aten, f"fft_{name}").default] = _along_one(transform)
        table[getattr(aten, f"fft_{name}2").default] = _along_two(transform)
        table[getattr(aten, f"fft_{name}n").default] = transform
    table[aten.fft_fftshift.default] = _shift(lambda extent: extent // 2)
    table[aten.fft_ifftshift.default] = _shift(lambda extent: (extent + 1) // 2)
    table[aten.stft.default] = _stft
    table[aten.stft.center] = torch._refs.stft
    table[aten.istft.default] = torch._refs.istft
    return table


def _along_one(transform: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:
        return transform(x, None if n is None else [n], [dim], norm)

    return call


def _along_two(transform: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, s: Any = None, dim: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
        return transform(x, s, dim, norm)

    return call


def _normalization(norm: str | None, forward: bool) -> int:
    """PyTorch's number of a normalization: 0 none, 1 by the square root of the length, 2 by the length."""
    if norm == "ortho":
        return 1
    return 2 if (norm == "forward") == forward else 0


def _dims(x: Any, s: Any, dim: Any) -> list[int]:
    if dim is None:
        count = x.ndim if s is None else len(s)
        return list(range(x.ndim - count, x.ndim))
    return [axis % x.ndim for axis in dim]


def _sized(x: Any, dims: Sequence[int], lengths: Sequence[Any] | None) -> Any:
    """Crops or zero-pads to `lengths`; -1 keeps a dimension."""
    for dim, length in zip(dims, lengths or (), strict=False):
        extent = x.shape[dim]
        if length == -1:
            continue
        if length < extent:
            x = x.narrow(dim, 0, length)
        elif length > extent:
            x = functional.pad(x, [0, 0] * (x.ndim - 1 - dim) + [0, length - extent])
    return x


def _real(x: Any) -> Any:
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


def _complex(x: Any) -> Any:
    return x if x.dtype.is_complex else torch.complex(_real(x), torch.zeros_like(_real(x)))


def _whole(forward: bool) -> Callable[..., Any]:
    def call(x: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        dims, number = _dims(x, s, dim), _normalization(norm, forward)
        x = _sized(x, dims, s)
        if forward and not x.dtype.is_complex:
            return torch.ops.aten._fft_r2c.default(_real(x), dims, number, False)
        return torch.ops.aten._fft_c2c.default(_complex(x), dims, number, forward)

    return call


def _from_real(forward: bool) -> Callable[..., Any]:
    """The non-redundant half of the spectrum of real numbers; its conjugate for the inverse."""

    def call(x: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        dims = _dims(x, s, dim)
        found = torch.ops.aten._fft_r2c.default(_real(_sized(x, dims, s)), dims, _normalization(norm, forward), True)
        return found if forward else torch.ops.aten._conj_physical.default(found)

    return call


def _to_real(forward: bool) -> Callable[..., Any]:
    def call(x: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        dims = _dims(x, s, dim)
        last = 2 * (x.shape[dims[-1]] - 1) if s is None or s[-1] == -1 else s[-1]
        x = _complex(_sized(x, dims, None if s is None else [*s[:-1], last // 2 + 1]))
        x = torch.ops.aten._conj_physical.default(x) if forward else x
        return torch.ops.aten._fft_c2r.default(x, dims, _normalization(norm, forward), last)

    return call


def _shift(amount: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None) -> Any:
        dims = list(range(x.ndim)) if dim is None else list(dim)
        return torch.roll(x, [amount(x.shape[axis]) for axis in dims], dims)

    return call


# The parameters are those of aten.stft.
def _stft(
    x: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """STFT without padding at the ends, which torch.stft adds before."""
    return torch._refs.stft(
        x, n_fft, hop_length, win_length, window, center=False, normalized=normalized, onesided=onesided,
        return_complex=return_complex, align_to_window=align_to_window,
    )
