"""Convolutions on Hopper whose images the copy engine reads: what `ring.py` is for matrices.

    y[n, h, w, f] = sum over i, j, c of x[n, h + i, w + j, c] * k[i, j, c, f]

The pixels of a tile are boxes of images, 64 each, along lines as long as the engine is quick about, else as much of
each of n, h and w as leaves least over at the borders. For every place i, j of the window and every 64 channels the
engine brings the boxes, moved by the place, as lines of channels, which is how tensor cores take them; outside of the
image it brings zeros, which is the padding. So no thread calculates an address. Pixels are the product's rows, or its
columns where what lies side by side in the result are pixels. Around it are a ring and warps that fetch, as in
`ring.py`. Source: NVIDIA, CUTLASS, "Implicit GEMM Convolution".
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
_RANK = 5  # of what the engine moves
_SHORT = {1: 2.0, 2: 1.6, 4: 1.6, 8: 1.4}  # times as long take turns whose boxes are so long along lines
_RATE = 2048  # products of 16-bit floats in a cycle
_CACHE_BYTES = 64  # that one processor reads from the second-level cache in a cycle
_BEGIN = 8500  # cycles until a program multiplies
_GATHERED = 1.25  # times as long as `tiles.py` thinks take programs whose threads read images
_ROWS_OF_PIXELS = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (256, (64,)), (128, (64,)), (64, (256,)),
)
# Not with 64 filters: the one program that had such tiles, a block of a U-Net, once ended in a launch failure on an
# H100, of which neither the kernel nor the cause is known.
_COLUMNS_OF_PIXELS = ((128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)))
_FACTORS = ("f16", "bf16")


# -- matching --------------------------------------------------------------------------------------


def image_of(c: ContractionLaunch, target: GpuTarget) -> Image | None:
    """The contraction as a convolution whose image the engine can read; None where it cannot."""
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
    """The axes of an image, the outermost first, and the dimension of its channels, which lie side by side."""
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
    """Boxes of an image that have room, the best first."""
    result = next(iter(c.task.stored.values()))
    shapes = _ROWS_OF_PIXELS if image.are_rows else _COLUMNS_OF_PIXELS
    found = [
        boxes for shape in shapes_of(image) for m, widths in shapes
        for boxes in fitting(shape, m, widths, item_bytes(result.dtype) if image.are_rows else 4, target)
    ]
    return sorted(found, key=lambda boxes: image_cycles(image, boxes, target))[:_FORMS]


def expected_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """What the best boxes would take, as `tiles.py` would say; infinite where that is not sure to be less."""
    return math.inf if image.are_rows else image_cycles(image, boxes, target) / _GATHERED


def image_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """What a convolution takes on the busiest processor; fitted to what an H200 took for some 40 of them."""
    rows, columns = tiles_of(image, boxes)
    waves = -(-rows * columns // target.processors)
    arithmetic = boxes.m * boxes.n * UNIT / _RATE
    reading = (boxes.m + boxes.n) * LINE / _CACHE_BYTES
    step = max(1.04 * arithmetic, 0.93 * reading) + 0.1 * min(arithmetic, reading) + 20
    ending = boxes.m * boxes.n * (4 if image.are_rows else 14) / _CACHE_BYTES + 500  # the engine stores, or threads do
    return _BEGIN + waves * (image.turns * step * _SHORT.get(boxes.shape[-1], 1.0) + ending)
