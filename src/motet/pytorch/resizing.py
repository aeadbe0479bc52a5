"""Keeps resizing (torch.nn.functional.interpolate) whole through torch.export and torch.compile.

    aten.upsample_bilinear2d.vec(x, size, aligned, scales)   →   motet.resize(x, size, scales, "linear", aligned, False)

PyTorch decomposes these operators to many gathers and products. The compiler lowers motet.resize to one sum for each
axis, or to repeated elements (`compiler/operators/resize.py`). Operators with gradients and of integers are decomposed
as PyTorch does.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa")
_CUBIC = ("upsample_bicubic2d", "_upsample_bicubic2d_aa")
_NEAREST = ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
_EXACT = ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Of the forms with a list of scales, which torch.nn.functional calls, and of those with each scale by itself."""
    found: dict[Any, Callable[..., Any]] = {}
    for names, mode in ((_LINEAR, "linear"), (_CUBIC, "cubic"), (_NEAREST, "nearest"), (_EXACT, "nearest-exact")):
        for name in names:
            packet = getattr(torch.ops.aten, name)
            found[packet.vec] = _of_list(packet, mode)
            found[packet.default] = _of_numbers(packet, mode)
    for packet in (torch.ops.aten.grid_sampler_2d, torch.ops.aten.grid_sampler_3d):
        found[packet.default] = _as_it_is
    return found


def _as_it_is(*_: Any) -> Any:
    """Leaves an operator to the compiler (`compiler/frontends/torch/grids.py`)."""
    return NotImplemented


def _of_list(packet: Any, mode: str) -> Callable[..., Any]:
    def run(x: Any, size: Any, *options: Any) -> Any:
        *aligned, scales = options
        found = _resized(packet, mode, x, size, scales, aligned)
        return _decomposed(packet.vec, x, size, *options) if found is None else found

    return run


def _of_numbers(packet: Any, mode: str) -> Callable[..., Any]:
    def run(x: Any, size: Any, *options: Any) -> Any:
        aligned, scales = ([], options) if mode.startswith("nearest") else (options[:1], options[1:])
        found = _resized(packet, mode, x, size, [*scales, *[None] * len(size)][: len(size)], aligned)
        return _decomposed(packet.default, x, size, *options) if found is None else found

    return run


def _decomposed(operator: Any, *args: Any) -> Any:
    """As PyTorch decomposes it; NotImplemented if it does not."""
    made = decomposition_table.get(operator)
    return NotImplemented if made is None else made(*args)


def _resized(packet: Any, mode: str, x: Any, size: Any, scales: Any, aligned: Sequence[bool]) -> Any:
    """`x` resized; None if PyTorch's decomposition is needed."""
    spatial, antialias = list(x.shape[2:]), str(packet).endswith("_aa")
    counts = upsample_compute_output_size(x.shape, size, scales if size is None else None)
    whole = bool(aligned and aligned[0])
    if (torch.is_grad_enabled() and x.requires_grad) or x.dtype not in _FLOATS:
        return None
    is_static = all(isinstance(extent, int) for extent in (*spatial, *counts))
    if (is_static and not all((*spatial, *counts))) or (antialias and not is_static):
        return None
    if antialias and whole and 1 in counts:
        return None  # the filter has no width there
    factors = [0.0 if scale is None else float(scale) for scale in scales or [None] * len(spatial)]
    given = list(counts) if is_static or size is not None else None
    return _operator()(x, given, factors, mode, whole, antialias)


# -- the operator that stands for resizing -----------------------------------------------------------------------------


def _operator() -> Any:
    """motet.resize, registered with PyTorch when first needed. `factors` are 0 where the extents decide; without `size`
    they decide about the extents of the result."""
    if not hasattr(torch.ops.motet, "resize"):
        name = "motet::resize"
        torch.library.define(
            name, "(Tensor x, SymInt[]? size, float[] factors, str mode, bool aligned, bool antialias) -> Tensor"
        )
        torch.library.register_fake(name, _extents)
        torch.library.impl(name, "default", _run)
    return torch.ops.motet.resize.default


def _extents(x: Any, size: Any, factors: Sequence[float], *_: Any) -> Any:
    return x.new_empty([*x.shape[:2], *upsample_compute_output_size(x.shape, size, None if size else factors)])


def _run(x: Any, size: Any, factors: Sequence[float], mode: str, aligned: bool, antialias: bool) -> Any:
    """What PyTorch runs for the operator, in graphs that are not compiled."""
    rank = len(factors)
    size = upsample_compute_output_size(x.shape, size, None if size else factors)
    names = {
        "linear": "_upsample_bilinear2d_aa" if antialias else _LINEAR[rank - 1],
        "cubic": _CUBIC[antialias], "nearest": _NEAREST[rank - 1], "nearest-exact": _EXACT[rank - 1],
    }  # fmt: skip
    options = [] if mode.startswith("nearest") else [aligned]
    return getattr(torch.ops.aten, names[mode]).default(x, size, *options, *(factor or None for factor in factors))
