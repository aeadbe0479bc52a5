"""Boxes of images (`tma_conv.py`): their shapes, and the tiles that they form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from motet.compiler.codegen.gpu.gemm.tiles import Stayed
from motet.compiler.kernels.windows import Window
from motet.compiler.targets.gpu import GpuTarget

UNIT = 64  # pixels of a box, channels per iteration, and columns of the pieces in which results are stored
LINE = 128  # bytes of `UNIT` channels
_PLACES = (4, 2)  # most and fewest slots of a ring buffer


@dataclass(frozen=True)
class Filters:
    """The other operand. `place`, `channel` and `filter` are its strides between window points, channels and filters,
    of which one of the last two is 1; `dim` is the stage's dimension of the filters."""

    value: int
    dim: int
    count: int
    place: int
    channel: int
    filter: int


@dataclass(frozen=True)
class Image:
    """A convolution whose image TMA can load. `axes` are all axes except the channels, outermost first; windows move by
    one pixel. `pixels` and `places` are the stage's dimensions with their sizes; `places` are the window points, in the
    order of the filters."""

    value: int
    axes: tuple[Window, ...]
    pixels: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int], ...]
    channels: int
    filters: Filters
    are_rows: bool  # whether pixels are the rows of the product

    @property
    def window(self) -> int:
        return math.prod(size for _, size in self.places)

    @property
    def turns(self) -> int:
        """Iterations along K for a tile."""
        return self.window * self.chunks

    @property
    def chunks(self) -> int:
        return -(-self.channels // UNIT)


@dataclass(frozen=True)
class Boxes(Stayed):
    """Tiles of `m` rows and `widths` columns, `stages` slots in the ring buffer; pixels are boxes of `shape`."""

    shape: tuple[int, ...]
    m: int
    widths: tuple[int, ...]
    stages: int

    @property
    def label(self) -> str:
        return f"images {'x'.join(map(str, self.shape))} {self.m}x{self.n}x{UNIT} stages={self.stages}"


def shapes_of(image: Image) -> list[tuple[int, ...]]:
    """For each length along image rows, the shape of boxes that wastes the fewest pixels at the borders."""
    sizes = [size for _, size in image.pixels]
    sides = [1 << i for i in range(UNIT.bit_length())]
    best: dict[int, tuple[int, ...]] = {}
    for shape in product(sides, repeat=len(sizes)):
        least = best.get(shape[-1], shape)
        is_first = shape[-1] not in best
        if math.prod(shape) == UNIT and (is_first or padded(sizes, shape) < padded(sizes, least)):
            best[shape[-1]] = shape
    return list(best.values())


def padded(sizes: Sequence[int], shape: Sequence[int]) -> int:
    """The number of pixels in all boxes."""
    return math.prod(-(-size // side) * side for size, side in zip(sizes, shape, strict=True))


def fitting(shape: tuple[int, ...], m: int, widths: tuple[int, ...], item: int, target: GpuTarget) -> list[Boxes]:
    """The tiling with as many slots as shared memory holds; results of `item` bytes also need shared memory."""
    for stages in range(_PLACES[0], _PLACES[1] - 1, -1):
        if stages * (m + sum(widths)) * LINE + m * UNIT * item + 2048 <= target.shared:
            return [Boxes(shape, m, widths, stages)]
    return []


def _pixels(image: Image, boxes: Boxes) -> int:
    return padded([size for _, size in image.pixels], boxes.shape)


def tiles_of(image: Image, boxes: Boxes) -> tuple[int, int]:
    pixels, filters = _pixels(image, boxes), image.filters.count
    m, n = (pixels, filters) if image.are_rows else (filters, pixels)
    return -(-m // boxes.m), -(-n // boxes.n)
