"""Reads convolutions of bytes as products of lines: each line is what a window sees of the image, each column a filter.

    y[n, f, h, w] += x[n, c, h + i, w + j] * g[f, c, i, j]     →     lines (n, h, w), columns f, K = (i, j, c)

Each group of a convolution in groups is such a product. K runs over the channels first, which are contiguous in a
channels-last image, then over the taps from the last axis on. An image with contiguous pixels is transposed before
(`ByteImage.transposed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.cpu.products.instructions import BLOCK, BYTES
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.epilogue import match_epilogue, stored_place
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, Value, known_product, row_major
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, initial_of, memory_strides, place_of
from motet.compiler.kernels.windows import Axis, Windows, image_axes

_DEEPEST = 1 << 16


@dataclass(frozen=True)
class ImageAxis:
    """An axis of the image: element `out * by + tap * dilation - low` for point `out` of dimension `dim` (-1: there is
    one point). `checked` says that elements may be outside `extent`. Elements are `stride` bytes apart."""

    dim: int
    by: int
    taps: int
    tap_dim: int
    dilation: int
    low: int
    extent: Extent
    stride: Extent
    checked: bool


@dataclass(frozen=True)
class Transposed:
    """An image whose pixels are contiguous, as matrices of `channels` rows of `pixels` bytes. `count` is their
    number."""

    count: Extent
    channels: int
    pixels: int


@dataclass(frozen=True)
class ByteImage:
    """The operand `value` of a product that is read through windows: A if `is_a`, else B. `axes` are those besides the
    channels, outermost in memory first. `lines` are the dimensions that number its lines, outermost first, with their
    extents; elements outside the image are `padding`."""

    value: int
    is_a: bool
    axes: tuple[ImageAxis, ...]
    channels: int
    lines: tuple[tuple[Extent, int], ...]
    padding: int
    transposed: Transposed | None
    filters: int
    filter_packing: Packing

    @property
    def depth(self) -> int:
        taps = 1
        for axis in self.axes:
            taps *= axis.taps
        return taps * self.channels


def match_image(kernel: Kernel, read: Windows) -> tuple[Contraction, ByteImage] | None:
    """The product that computes the convolution `read` of `kernel`; None if it is not of a supported form."""
    stage, dims = read.stage, read.dims
    epilogue = match_epilogue(kernel, stage, kernel.stages[1:])
    init, output = initial_of(kernel, stage), place_of(kernel, stage.outputs[0], len(stage.sizes))
    filters = kernel.values[read.filters.value]
    if epilogue is None or init is None or output is None or filters.role != "constant":
        return None
    if dims.broadcast or dims.summed or len(dims.n) != 1 or not dims.m or not dims.k:
        return None
    stored = stored_place(epilogue) or output
    found = _channels_last(kernel, stage, read.image)
    order = None if found is None else _filter_axes(
        stage, read.filters, (*dims.batch, dims.n[0]), found[0], found[1])
    if found is None or order is None or kernel.values[read.image.value].role == "temporary":
        return None
    axes, channel, transposed = found
    places = [stored, *epilogue.places, *([init] if isinstance(init, StridedAccess) else [])]
    sizes = [Extent.of(size) for size in stage.sizes]
    lines, outer = _lines(sizes, dims.m, stored, places)
    groups = [(sizes[d], d) for d in dims.batch]
    column_axis = next(number for number, entry in enumerate(read.filters.map) if entry.single == dims.n[0])
    channels = 1 if channel < 0 else stage.sizes[channel]
    column = (sizes[dims.n[0]], dims.n[0])
    row = (_product([size for size, _ in lines]), lines[-1][1])
    is_a = stored.strides[column[1]] == ONE or stored.strides[row[1]] != ONE
    if not isinstance(channels, int) or filters.order != row_major(filters.rank):
        return None
    image = ByteImage(
        read.image.value, is_a, axes, channels, tuple(lines), int(read.image.padding or 0), transposed,
        read.filters.value, _packing(order, len(order) - 1 - order.index(column_axis), is_a),
    )
    if image.depth > _DEEPEST:
        return None
    deep = dims.k[0]
    a, b = _places(image, len(sizes), [*groups, column], deep)
    m, n = (row, column) if is_a else (column, row)
    product = dims.product if is_a else dims.swapped.product
    depth = ((Extent(image.depth), deep),)
    rank = len(sizes)
    return Contraction(kernel, product, a, b, init, output.dtype, (*groups, *outer), m, n, depth, epilogue, rank), image


def _places(
    image: ByteImage, rank: int, columns: Sequence[tuple[Extent, int]], deep: int
) -> tuple[StridedAccess, StridedAccess]:
    """The accesses of both operands as lines of K; that of the image, which is gathered, has no strides. `columns` are
    the loops over groups and filters."""
    strides = [ZERO] * rank
    lines = StridedAccess(image.value, "i8", (), tuple(strides))
    strides[deep], step = ONE, Extent(image.depth)
    for size, dim in reversed(columns):
        strides[dim], step = step, step * size
    filters = StridedAccess(image.filters, "i8", (), tuple(strides))
    return (lines, filters) if image.is_a else (filters, lines)


def _product(extents: Sequence[Extent]) -> Extent:
    result = ONE
    for extent in extents:
        result = result * extent
    return result


def _lines(
    sizes: Sequence[Extent], dims: Sequence[int], stored: StridedAccess, places: Sequence[StridedAccess]
) -> tuple[list[tuple[Extent, int]], list[tuple[Extent, int]]]:
    """The dimensions of the result's points that all `places` treat as one, and the others."""
    ordered = sorted(dims, key=lambda d: (len(stored.strides[d].symbols), stored.strides[d].factor), reverse=True)
    lines = [ordered.pop()]
    while ordered:
        inner, outer = lines[0], ordered[-1]
        if any(place.strides[outer] != place.strides[inner] * sizes[inner] for place in places):
            break
        lines.insert(0, ordered.pop())
    return [(sizes[d], d) for d in lines], [(sizes[d], d) for d in ordered]


def _channels_last(
    kernel: Kernel, stage: Stage, image: Access
) -> tuple[tuple[ImageAxis, ...], int, Transposed | None] | None:
    """The axes of an image besides its channels, the dimension of the channels (-1 for one channel), and how the image
    is transposed to be channels-last."""
    value, axes = kernel.values[image.value], image_axes(kernel, stage, image)
    if len(axes.summed) > 1 or any(len(axis.outs) > 1 or len(axis.taps) > 1 for axis in axes.windows):
        return None
    channel = axes.summed[0] if axes.summed else None
    strides, transposed = memory_strides(value), None
    if channel is not None and channel.stride != ONE:
        transposed = _transposition(value, channel.number)
        if transposed is None:
            return None
        moved = (*range(channel.number), *range(channel.number + 1, value.rank), channel.number)
        strides = memory_strides(Value(value.shape, value.dtype, value.role, moved))
    found: list[ImageAxis] = []
    for axis in (*axes.points, *axes.windows):
        made = _axis(axis, strides[axis.number], image.padding is not None)
        if made is None:
            return None
        found.append(made)
    found.sort(key=lambda axis: (len(axis.stride.symbols), axis.stride.factor), reverse=True)
    return tuple(found), -1 if channel is None else channel.taps[0].dim, transposed


def _transposition(value: Value, channel: int) -> Transposed | None:
    pixels, channels = known_product(value.shape[channel + 1 :]), value.shape[channel]
    if value.order != row_major(value.rank) or pixels is None or not isinstance(channels, int):
        return None
    return Transposed(_product([Extent.of(size) for size in value.shape[:channel]]), channels, pixels)


def _axis(axis: Axis, stride: Extent, padded: bool) -> ImageAxis | None:
    out, tap = (part[0] if part else None for part in (axis.outs, axis.taps))
    if tap is not None and not isinstance(tap.size, int):
        return None
    return ImageAxis(
        -1 if out is None else out.dim, 1 if out is None else out.by, 1 if tap is None else int(tap.size),
        -1 if tap is None else tap.dim, 1 if tap is None else tap.by, axis.low, Extent.of(axis.extent), stride,
        padded and (axis.plain is None or axis.plain.size != axis.extent),
    )


def _filter_axes(
    stage: Stage, filters: Access, columns: Sequence[int], axes: Sequence[ImageAxis], channel: int
) -> tuple[int, ...] | None:
    """The axes of the filters in the order (`columns`: groups and filters, taps from the first axis on, channels); None
    if it has others."""
    axis_of = {entry.single: number for number, entry in enumerate(filters.map) if entry.single is not None}
    wanted = [*columns, *(axis.tap_dim for axis in axes if axis.taps > 1), *([channel] if channel >= 0 else [])]
    if any(d not in axis_of for d in wanted) or filters.padding is not None:
        return None
    own = [axis_of[d] for d in wanted]
    rest = [number for number in range(len(filters.map)) if number not in own]
    for number in rest:
        if filters.map[number].constant or any(stage.sizes[d] != 1 for d in filters.map[number].dims):
            return None
    return (*rest, *own)


def _packing(order: tuple[int, ...], taps: int, is_a: bool) -> Packing:
    """The filters as lines of K (for an image that is B), or as blocks of columns (`instructions.py`). K are the last
    `taps` axes of `order`."""
    count = len(order) - taps + 1
    if not is_a:
        return Packing(order, (1,) * count, tuple(range(2 * count)), merged=taps)
    split = (*range(2 * count - 4), 2 * count - 4, 2 * count - 2, 2 * count - 3, 2 * count - 1)
    return Packing(order, (1,) * (count - 2) + (BLOCK, BYTES.group), split,
                   (1,) * (count - 2) + (BLOCK, BYTES.depth), taps)
