"""Reads convolutions as bf16 products whose left operand is a copy of the image, padded and with channels inside.

    y[n, h, w, f] += x[n, c, 2*h + i - 1, w + j - 1] * z[f, c, i, j]
    copy[n, 2*h + i, w + j, c]    M: w    N: f    K: i, j, c    outer: n, h

The copy has zeros where the window leaves the image, and 32 channels or a multiple of it. Every AMX tile then reads its
pixels in place, at the stride of the convolution, without a copy for each position of the window. There may be any
number of axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BLOCK
from motet.compiler.kernels import contraction as contraction_reading
from motet.compiler.kernels.contraction import Contraction, Loop, read_contraction
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage, Value, row_major
from motet.compiler.kernels.strides import ONE, ZERO, Extent, memory_strides, span_of

DEPTH = BFLOATS.depth
_FEW = 4  # images, if their number is not known: tiles of as many rows are as good as rows of so many pixels


@dataclass(frozen=True)
class CopiedAxis:
    """An axis of a copied image: `size` positions from `low` on, of which those in [0, `extent`) exist, `stride`
    numbers apart."""

    low: int
    size: Size
    extent: Size
    stride: Extent


@dataclass(frozen=True)
class CopiedImage:
    """A copy of value `value`: `axes` outermost first, then `channels`, which are `channel_stride` numbers apart in the
    image, padded to `padded` ones."""

    value: int
    axes: tuple[CopiedAxis, ...]
    channels: int
    channel_stride: Extent

    @property
    def padded(self) -> int:
        return -(-self.channels // DEPTH) * DEPTH


def match_windows(kernel: Kernel) -> tuple[Contraction, CopiedImage] | None:
    """`kernel`, a convolution with constant filters, as a product of a copied image, on the left; None if it is
    none, or if it has too few channels or filters."""
    stage = kernel.stages[0]
    dims = read_contraction(stage)
    constants = [n for n, access in enumerate(stage.inputs) if kernel.values[access.value].role == "constant"]
    if dims is None or len(constants) != 1:
        return None
    number = 1 - constants[0]
    image = stage.inputs[number]
    channel = _channel_axis(kernel, stage, image, dims.k)
    if image.padding not in (None, 0) or kernel.values[image.value].role != "argument" or channel is None:
        return None
    copied = _copied(kernel, stage, image, channel)
    if copied is None:
        return None
    shape = (*(axis.size for axis in copied.axes), copied.padded)
    value = Value(shape, "bf16", "argument", row_major(len(shape)))
    entries = [entry for axis, entry in enumerate(image.map) if axis != channel]
    moved = [replace(e, constant=e.constant - axis.low) for e, axis in zip(entries, copied.axes, strict=True)]
    inputs = list(stage.inputs)
    inputs[number] = Access(len(kernel.values), (*moved, image.map[channel]))
    copy = replace(
        kernel, values=(*kernel.values, value), stages=(replace(stage, inputs=tuple(inputs)), *kernel.stages[1:])
    )
    found = contraction_reading.match(copy)
    arranged = None if found is None else _arranged(found, len(kernel.values))
    return None if arranged is None else (replace(arranged, kernel=kernel), copied)


def _channel_axis(kernel: Kernel, stage: Stage, image: Access, summed: tuple[int, ...]) -> int | None:
    """The longest axis of the image that is summed from end to end, of at least half of a step of K."""
    shape = kernel.values[image.value].shape
    found: list[tuple[int, int]] = []
    for axis, entry in enumerate(image.map):
        size = shape[axis]
        if entry.single in summed and isinstance(size, int) and stage.sizes[entry.single] == size >= DEPTH // 2:
            found.append((size, axis))
    return max(found)[1] if found else None


def _copied(kernel: Kernel, stage: Stage, image: Access, channel: int) -> CopiedImage | None:
    """The part of the image that the windows reach; None if its layout is not known when compiling."""
    value = kernel.values[image.value]
    strides = memory_strides(value)
    axes: list[CopiedAxis] = []
    for axis, entry in enumerate(image.map):
        if axis == channel:
            continue
        extent = value.shape[axis]
        span = span_of(entry, stage.sizes)
        if span is not None and isinstance(extent, int):
            axes.append(CopiedAxis(span[0], span[1] - span[0] + 1, extent, strides[axis]))
        elif not axes and entry.single is not None and stage.sizes[entry.single] == extent:
            axes.append(CopiedAxis(0, extent, extent, strides[axis]))
        else:
            return None
    size = value.shape[channel]
    return CopiedImage(image.value, tuple(axes), size, strides[channel]) if axes and isinstance(size, int) else None


def _arranged(c: Contraction, image: int) -> Contraction | None:
    """`c` with the image on the left, rows along the axis that fills tiles best, and channels innermost; None if it has
    fewer filters than half of a block."""
    a, b = (c.a, c.b) if c.a.value == image else (c.b, c.a)
    loops = [*c.outer, *([c.m] if c.m else []), c.n]
    rows = [loop for loop in loops if a.strides[loop[1]] != ZERO and b.strides[loop[1]] == ZERO]
    columns = [loop for loop in loops if a.strides[loop[1]] == ZERO and b.strides[loop[1]] != ZERO]
    inner = next((loop for loop in c.depth if loop[1] >= 0 and a.strides[loop[1]] == ONE), None)
    if not rows or not columns or inner is None or any(extent.known == 0 for extent, _ in (*loops, *c.depth)):
        return None

    def filled(loop: Loop) -> tuple[int, int]:
        rows = loop[0].known if loop[0].known is not None else _FEW
        return min(rows, BLOCK), -guess(a.strides[loop[1]])

    row, column = max(rows, key=filled), max(columns, key=lambda loop: guess(loop[0]))
    if guess(column[0]) < BLOCK // 2:
        return None
    outer = tuple(loop for loop in loops if loop not in (row, column))
    depth = (*(loop for loop in c.depth if loop != inner), inner)
    return replace(c, a=a, b=b, outer=outer, m=row, n=column, depth=depth)
