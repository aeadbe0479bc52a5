"""Decompositions of adaptive pools whose windows differ in size: the parts of each axis, reduced one by one.

    adaptive_avg_pool1d(x, 2)  // of [5]  →  mean(x.unfold(0, 3, 2))
    adaptive_avg_pool1d(x, 6)  // of [9]  →  stack([mean(x.unfold(0, 2, 3)), mean(x[1:].unfold(0, 2, 3))]), interleaved
    adaptive_avg_pool1d(x, 2)  // of [n]  →  sum(where(places < ends, x[min(places, ends - 1)], 0)) / (ends - begins)

PyTorch gathers windows of one size, and masks what is too much. Pools with many windows are left to it, since each
window is a part of the program here, but not those with dynamic extents, for which it takes the windows of the extents
that were exported. Places of maxima come from gathered windows.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table

_MOST = 48  # windows that are parts of the program, along all axes together


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.adaptive_avg_pool1d.default: _mean(aten.adaptive_avg_pool1d.default),
        aten._adaptive_avg_pool2d.default: _mean(aten._adaptive_avg_pool2d.default),
        aten._adaptive_avg_pool3d.default: _mean(aten._adaptive_avg_pool3d.default),
        aten.adaptive_max_pool1d.default: _largest,
        aten.adaptive_max_pool2d.default: _largest,
        aten.adaptive_max_pool3d.default: _largest,
    }


def _mean(operator: Any) -> Callable[..., Any]:
    def run(x: Any, output_size: Sequence[Any]) -> Any:
        if x.ndim == len(output_size) + 1:  # torch-mlir lowers pools of batches only
            return operator(x.unsqueeze(0), output_size).squeeze(0)
        sizes = x.shape[x.ndim - len(output_size) :]
        if not all(isinstance(extent, int) for extent in (*sizes, *output_size)):
            wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            return _means_of_any_extent(wide, output_size).to(x.dtype)
        if len(sizes) == 1 and _is_static(sizes, output_size) and _divides(sizes, output_size):
            return torch.avg_pool1d(x, sizes[0] // output_size[0])
        if not _is_static(sizes, output_size) or not _is_short(sizes, output_size) or _divides(sizes, output_size):
            other = decomposition_table.get(operator)
            return NotImplemented if other is None else other(x, output_size)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return _along_each(wide, output_size, torch.mean).to(x.dtype)

    return run


def _largest(x: Any, output_size: Sequence[Any]) -> Any:
    """Maxima, and their places in the plane of the image; those that are not used are not computed."""
    sizes = x.shape[x.ndim - len(output_size) :]
    if any(isinstance(extent, int) and extent == 0 for extent in (*sizes, *output_size)):
        return NotImplemented
    values, places = _gathered(x, output_size)
    if _is_static(sizes, output_size) and _is_short(sizes, output_size):
        values = _along_each(x, output_size, torch.amax)
    return values, places


def _is_static(*extents: Sequence[Any]) -> bool:
    return all(isinstance(extent, int) and extent > 0 for each in extents for extent in each)


def _is_short(sizes: Sequence[int], outputs: Sequence[int]) -> bool:
    axes = [(size, count) for size, count in zip(sizes, outputs, strict=True) if size % count]
    return sum(count for size, count in axes if len(_parts(size, count)) > 1) <= _MOST


def _divides(sizes: Sequence[int], outputs: Sequence[int]) -> bool:
    return not any(size % count for size, count in zip(sizes, outputs, strict=True))


def _along_each(x: Any, outputs: Sequence[int], reduced: Callable[..., Any]) -> Any:
    """The last axes of `x` reduced to `outputs` windows, one axis after the other."""
    for axis, count in enumerate(outputs, x.ndim - len(outputs)):
        size = x.shape[axis]
        if size == count:
            continue
        if size % count == 0:
            x = reduced(x.unflatten(axis, (count, size // count)), axis + 1)
            continue
        parts = [_reduced(x, axis, part, reduced) for part in _parts(size, count)]
        x = parts[0] if len(parts) == 1 else torch.stack(parts, axis + 1).flatten(axis, axis + 1)
    return x


def _reduced(x: Any, axis: int, windows: Sequence[tuple[int, int]], reduced: Callable[..., Any]) -> Any:
    """Windows at equal distances along an axis, each reduced to an element."""
    (begin, length), (last, _) = windows[0], windows[-1]
    taken = x.narrow(axis, begin, last + length - begin)
    if len(windows) == 1:
        return taken if length == 1 else reduced(taken, axis, keepdim=True)
    return reduced(taken.unfold(axis, length, windows[1][0] - begin), -1)


def _parts(size: int, count: int) -> list[list[tuple[int, int]]]:
    """The windows of an axis as the fewest parts of equally many, of which each has every n-th window: these are of one
    length, at equal distances."""
    windows = [_window(number, size, count) for number in range(count)]
    periods = (period for period in range(1, count + 1) if count % period == 0)
    parts = ([windows[first::period] for first in range(period)] for period in periods)
    return next(found for found in parts if all(map(_is_regular, found)))


def _is_regular(windows: Sequence[tuple[int, int]]) -> bool:
    distances = {after - before for (before, _), (after, _) in itertools.pairwise(windows)}
    return len(distances) <= 1 and len({length for _, length in windows}) == 1


def _window(number: int, size: int, count: int) -> tuple[int, int]:
    """The first element of a window, and how many it has."""
    begin = number * size // count
    return begin, -(-(number + 1) * size // count) - begin


def _means_of_any_extent(x: Any, outputs: Sequence[Any]) -> Any:
    """The last axes of `x` reduced to `outputs` windows, whose sizes are known when running."""
    for axis, count in enumerate(outputs, x.ndim - len(outputs)):
        size = x.shape[axis]
        begin, end = _bounds(size, count)
        places = begin + torch.arange((size + count - 1) // count + 1)
        own = [*places.shape, *[1] * (x.ndim - 1 - axis)]
        taken = x[(slice(None),) * axis + (torch.minimum(places, end - 1),)]
        inside = torch.where((places < end).reshape(own), taken, 0)
        x = inside.sum(axis + 1) / (end - begin).reshape([own[0], *own[2:]])
    return x


def _gathered(x: Any, outputs: Sequence[int]) -> tuple[Any, Any]:
    """The maxima, and the place of each in the plane of the last axes."""
    rank, first = len(outputs), x.ndim - len(outputs)
    shape, places = list(x.shape[:first]), torch.zeros((), dtype=torch.int64)
    taken = x
    for number, count in enumerate(outputs):
        size = x.shape[first + number]
        line = _places(size, count)
        taken = taken.index_select(first + number, line.flatten())
        shape += [count, line.shape[1]]
        own = [1] * (2 * rank)
        own[number], own[rank + number] = line.shape
        places = places * size + line.reshape(own)
    order = [*range(first), *range(first, first + 2 * rank, 2), *range(first + 1, first + 2 * rank, 2)]
    values, found = taken.reshape(shape).permute(order).flatten(first + rank).max(-1)
    places = places.flatten(rank)
    chosen = torch.gather(places.expand(*values.shape, places.shape[-1]), -1, found.unsqueeze(-1)).squeeze(-1)
    return values, chosen


def _bounds(size: Any, outputs: Any) -> tuple[Any, Any]:
    """The first element of each window, and the one after its last, [outputs, 1]."""
    number = torch.arange(outputs).unsqueeze(-1)
    begin = torch.div(number * size, outputs, rounding_mode="trunc")
    return begin, torch.div((number + 1) * size + outputs - 1, outputs, rounding_mode="trunc")


def _places(size: Any, outputs: Any) -> Any:
    """Places of the window of each output, as many for all: the last is repeated, which changes no maximum."""
    most = (size + outputs - 1) // outputs + 1
    if _is_static([size, outputs]):
        most = max(_window(number, size, outputs)[1] for number in range(outputs))
    begin, end = _bounds(size, outputs)
    return torch.minimum(begin + torch.arange(most), end - 1)
