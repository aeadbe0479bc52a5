"""Convolutions on Hopper whose images are loaded by TMA; `persistent.py` is the counterpart for matrices.

    y[n, h, w, f] = sum over i, j, c of x[n, h + i, w + j, c] * k[i, j, c, f]

The pixels of a tile are boxes of images of 64 pixels: along rows if TMA loads such rows fast, else the extents of n, h
and w that waste the fewest pixels at the borders. For every window point i, j and every 64 channels, TMA loads the
boxes, shifted by the window point, as rows of channels, the layout that tensor cores read. Outside the image it loads
zeros, which is the padding. No thread computes addresses. Pixels are the product's rows, or its columns if pixels are
contiguous in the result. The ring buffer and the producer warps are those of `persistent.py`.
Source: NVIDIA, CUTLASS, "Implicit GEMM Convolution".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from motet.compiler.codegen.gpu.conv.image_boxes import LINE, UNIT, Boxes, Filters, Image, fitting, shapes_of, tiles_of
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.kernels.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.kernels.windows import Window, read_axes
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_ALIGNMENT = 16  # bytes
_FORMS = 4
_RANK = 5  # rank of the tensors that TMA moves
_SHORT = {1: 2.0, 2: 1.6, 4: 1.6, 8: 1.4}  # by the length of boxes along image rows, the slowdown of an iteration
_RATE = 2048  # multiply-adds of 16-bit floats per cycle
_CACHE_BYTES = 64  # that one SM reads from the second-level cache per cycle
_BEGIN = 8500  # cycles before a program's first multiplication
_GATHERED = 1.25  # slowdown of programs whose threads load images, relative to the estimate of `tiles.py`
_ROWS_OF_PIXELS = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (256, (64,)), (128, (64,)), (64, (256,)),
)
# Without tiles of 64 filters: the only program that had them, a block of a U-Net, once caused a launch failure on an
# H100 whose cause is unknown.
_COLUMNS_OF_PIXELS = ((128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)))
_FACTORS = ("f16", "bf16")


# -- matching --------------------------------------------------------------------------------------


def image_of(c: ContractionLaunch, target: GpuTarget) -> Image | None:
    """Read the contraction as a convolution whose image TMA can load; None if it is not one."""
    stage, kernel = c.task.stage, c.task.kernel
    sizes = [size for size in stage.sizes if isinstance(size, int)]
    if target.architecture != _HOPPER or not target.is_cuda or c.task.epilogue is None or len(c.task.stored) != 1:
        return None
    if c.batch or c.factor not in _FACTORS or len(sizes) != len(stage.sizes) or len(stage.inputs) != 2:
        return None
    if any(kernel.values[access.value].dtype != c.factor for access in stage.inputs):
        return None
    for own, other in (stage.inputs, stage.inputs[::-1]):
        found = _axes(kernel, stage, own)
        if found is not None and other.padding is None:
            are_rows = c.left.value == own.value
            place = c.right if are_rows else c.left
            return _image(own.value, *found, sizes, place, are_rows)
    return None


def _axes(kernel: Kernel, stage: Stage, access: Access) -> tuple[tuple[Window, ...], int] | None:
    """The axes of an image, outermost first, and the dimension of its channels, which must be contiguous."""
    value = kernel.values[access.value]
    if access.padding not in (None, 0) or not 1 < value.rank <= _RANK:
        return None
    axes = read_axes(kernel, stage, access)
    *others, last = (axes[number] for number in value.order)
    windows = [axis.window for axis in others]
    found = tuple(window for window in windows if window is not None and window.stride == 1)
    if len(found) != len(others) or last.plain is None or not last.taps or not isinstance(last.extent, int):
        return None
    item = item_bytes(value.dtype)
    if any(window.step * item % _ALIGNMENT for window in found) or not any(axis.slides for axis in others):
        return None
    return found, last.plain.dim


def _image(
    value: int, axes: tuple[Window, ...], channel: int, sizes: Sequence[int], filters: StridedAccess, are_rows: bool
) -> Image | None:
    strides = {d: stride.factor for d, stride in enumerate(filters.strides) if stride.factor and sizes[d] > 1}
    pixels = [(axis.out, axis.size) for axis in axes if axis.out >= 0]
    places = [(axis.kernel, axis.taps) for axis in axes if axis.kernel >= 0]
    inside = {channel, *(d for d, _ in places)}
    own = [d for d in strides if d not in inside]
    if len(own) != 1 or own[0] in dict(pixels) or inside - strides.keys():
        return None
    if any(part.factor for part in filters.offset):
        return None
    places.sort(key=lambda place: strides[place[0]], reverse=True)
    if any(strides[outer] != strides[inner] * size for (outer, _), (inner, size) in pairwise(places)):
        return None
    across, along = strides[channel], strides[own[0]]
    place = strides[places[-1][0]]
    item = item_bytes(filters.dtype)
    if 1 not in (across, along) or any(stride * item % _ALIGNMENT for stride in (place, max(across, along))):
        return None
    found = Filters(filters.value, own[0], sizes[own[0]], place, across, along)
    return Image(value, axes, tuple(pixels), tuple(places), sizes[channel], found, are_rows)


# -- choice ----------------------------------------------------------------------------------------


def boxes_of(c: ContractionLaunch, image: Image, target: GpuTarget) -> list[Boxes]:
    """The boxes that fit in shared memory, best first."""
    result = next(iter(c.task.stored.values()))
    shapes = _ROWS_OF_PIXELS if image.are_rows else _COLUMNS_OF_PIXELS
    found = [
        boxes for shape in shapes_of(image) for m, widths in shapes
        for boxes in fitting(shape, m, widths, item_bytes(result.dtype) if image.are_rows else 4, target)
    ]
    return sorted(found, key=lambda boxes: image_cycles(image, boxes, target))[:_FORMS]


def expected_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """The estimated cycles on the scale of `tiles.py`, for comparison; infinite if pixels are rows of the product."""
    return math.inf if image.are_rows else image_cycles(image, boxes, target) / _GATHERED


def image_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """The estimated cycles of the busiest SM; fitted to some 40 convolutions measured on an H200."""
    rows, columns = tiles_of(image, boxes)
    waves = -(-rows * columns // target.processors)
    arithmetic = boxes.m * boxes.n * UNIT / _RATE
    reading = (boxes.m + boxes.n) * LINE / _CACHE_BYTES
    step = max(1.04 * arithmetic, 0.93 * reading) + 0.1 * min(arithmetic, reading) + 20
    ending = boxes.m * boxes.n * (4 if image.are_rows else 14) / _CACHE_BYTES + 500  # stored by TMA, or by threads
    return _BEGIN + waves * (image.turns * step * _SHORT.get(boxes.shape[-1], 1.0) + ending)
