"""The axes of a convolution's image along which a window slides over pixels among zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.kernels.roles import Structure


@dataclass(frozen=True)
class SpreadAxis:
    """A spatial axis: its number in image, result and filters, and its dimensions in the nest, `dim` of the result and
    `tap` of the window, whose elements are `dilation` apart. Pixels are at `offset + step * i` among zeros."""

    image: int
    result: int
    filters: int
    dim: int
    tap: int
    dilation: int
    step: int
    offset: int


def spread_axes(
    structure: Structure, image: int, filters: int, offsets: Sequence[int], steps: Sequence[int]
) -> tuple[SpreadAxis, ...] | None:
    """The axes of operand `image` that have zeros inserted, or a window, given the offset and step of each axis; None
    if there are none, or one is read in another way. Operand `filters` has the window."""
    axes: list[SpreadAxis] = []
    for number, entry in enumerate(structure.maps[image]):
        if entry.single is not None and steps[number] == 1 and offsets[number] == 0:
            continue
        inside = [d for d in entry.dims if d in structure.reduced]
        outside = [d for d in entry.dims if d not in structure.reduced]
        if len(inside) != 1 or len(outside) != 1 or entry.constant or entry.coefficient(outside[0]) != 1:
            return None
        places = [a for a, out in enumerate(structure.maps[-1]) if out.single == outside[0]]
        windows = [a for a, own in enumerate(structure.maps[filters]) if own.single == inside[0]]
        dilation = entry.coefficient(inside[0])
        if len(places) != 1 or len(windows) != 1 or dilation < 1 or offsets[number] < 0:
            return None
        axes.append(SpreadAxis(
            number, places[0], windows[0], outside[0], inside[0], dilation, steps[number], offsets[number],
        ))
    return tuple(axes) or None
