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

from motet.compiler.codegen.triton.conv.image_boxes import (
    LINE,
    UNIT,
    Axis,
    Boxes,
    Filters,
    Image,
    fitting,
    shapes_of,
    tiles_of,
)
from motet.compiler.codegen.triton.conv.tma_conv_text import ImageWriter, TmaConvText, can_store, coordinates, stores
from motet.compiler.codegen.triton.gemm.products import ContractionLaunch, finish, stay
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.writer import Coordinate
from motet.compiler.kernels.kernel import Access, Kernel, item_bytes
from motet.compiler.kernels.strides import StridedAccess, memory_strides
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
        found = _axes(kernel, own, stage.iterators, sizes)
        if found is not None and other.padding is None:
            are_rows = c.left.value == own.value
            place = c.right if are_rows else c.left
            return _image(own.value, *found, sizes, place, are_rows)
    return None


def _axes(
    kernel: Kernel, access: Access, iterators: Sequence[str], sizes: Sequence[int]
) -> tuple[tuple[Axis, ...], int] | None:
    """The axes of an image, and the dimension of its channels, which are contiguous."""
    value = kernel.values[access.value]
    shape = [size for size in value.shape if isinstance(size, int)]
    if access.padding not in (None, 0) or not 1 < value.rank <= _RANK or len(shape) != value.rank:
        return None
    strides = [stride.factor for stride in memory_strides(value)]
    found: list[Axis] = []
    for axis in value.order[:-1]:
        entry = access.map[axis]
        dims = [(d, by) for d, by in enumerate(entry.coefficients) if by and sizes[d] > 1]
        pixels = [d for d, by in dims if iterators[d] != "reduction" and by == 1]
        places = [(d, by) for d, by in dims if iterators[d] == "reduction"]
        if len(pixels) + len(places) != len(dims) or len(pixels) > 1 or len(places) > 1:
            return None
        place, step = places[0] if places else (None, 1)
        found.append(Axis(shape[axis], strides[axis], entry.constant, pixels[0] if pixels else None, place, step))
    channel = access.map[value.order[-1]]
    if channel.single is None or channel.constant or iterators[channel.single] != "reduction":
        return None
    item = item_bytes(value.dtype)
    if any(axis.stride * item % _ALIGNMENT for axis in found) or strides[value.order[-1]] != 1:
        return None
    if not any(axis.pixel is not None and axis.place is not None for axis in found):
        return None
    return tuple(found), channel.single


def _image(
    value: int, axes: tuple[Axis, ...], channel: int, sizes: Sequence[int], filters: StridedAccess, are_rows: bool
) -> Image | None:
    strides = {d: stride.factor for d, stride in enumerate(filters.strides) if stride.factor and sizes[d] > 1}
    pixels = [(axis.pixel, sizes[axis.pixel]) for axis in axes if axis.pixel is not None]
    places = [(axis.place, sizes[axis.place]) for axis in axes if axis.place is not None]
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


def image_forms(c: ContractionLaunch, target: GpuTarget) -> tuple[float, list[Form]]:
    """(estimated cycles on the scale of `tiles.py`, forms, best first); no forms if the contraction is not such a
    convolution. Raises `Unsupported`."""
    image = image_of(c, target)
    if image is None:
        return math.inf, []
    result = next(iter(c.task.stored.values()))
    shapes = _ROWS_OF_PIXELS if image.are_rows else _COLUMNS_OF_PIXELS
    found = [
        boxes for shape in shapes_of(image) for m, widths in shapes
        for boxes in fitting(shape, m, widths, item_bytes(result.dtype) if image.are_rows else 4, target)
    ]
    found.sort(key=lambda boxes: image_cycles(image, boxes, target))
    forms = [_form(c, image, boxes, target) for boxes in found[:_FORMS]]
    unsure = image.are_rows or not found
    return (math.inf if unsure else image_cycles(image, found[0], target) / _GATHERED), forms


def image_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """The estimated cycles of the busiest SM; fitted to some 40 convolutions measured on an H200."""
    rows, columns = tiles_of(image, boxes)
    waves = -(-rows * columns // target.processors)
    arithmetic = boxes.m * boxes.n * UNIT / _RATE
    reading = (boxes.m + boxes.n) * LINE / _CACHE_BYTES
    step = max(1.04 * arithmetic, 0.93 * reading) + 0.1 * min(arithmetic, reading) + 20
    ending = boxes.m * boxes.n * (4 if image.are_rows else 14) / _CACHE_BYTES + 500  # stored by TMA, or by threads
    return _BEGIN + waves * (image.turns * step * _SHORT.get(boxes.shape[-1], 1.0) + ending)


def _form(c: ContractionLaunch, image: Image, boxes: Boxes, target: GpuTarget) -> Form:
    task, filters = c.task, image.filters
    result = next(iter(task.stored.values()))
    leaves = can_store(image, result)
    w = ImageWriter(task.kernel, task.buffers, (boxes.m, UNIT), stores(image, boxes) if leaves else ())
    wide = ".to(tl.int64)" if w.wide else ""
    points = [w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn")]
    axis = 0 if image.are_rows else 1
    at, mask = coordinates(w, image, boxes, points[axis], axis)
    at[filters.dim] = Coordinate(points[1 - axis], frozenset({1 - axis}))
    w.masks[axis] = w.define("b", mask)
    if filters.count % (boxes.n if image.are_rows else boxes.m):
        w.masks[1 - axis] = w.define("b", f"{points[1 - axis]} < {filters.count}")
    finish(w, c, "acc", at)
    rows, columns = tiles_of(image, boxes)
    text = TmaConvText(w, c, image, boxes, result if leaves else None)
    return Form(
        text.module(task.symbol, task.about), stay(rows * columns, target.processors), boxes.warps, boxes.stages,
        boxes.label,
    )
