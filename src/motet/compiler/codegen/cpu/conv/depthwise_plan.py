"""Reads and schedules depthwise convolutions; `depthwise.py` generates the code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from motet.compiler.codegen.cpu.conv.plan import lanes_of, packing_of
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES
from motet.compiler.kernels.convolution import forward_windows
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue, stored_place
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, with_extents
from motet.compiler.kernels.product import Product
from motet.compiler.kernels.schedule import DepthwiseSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, initial_of, place_of
from motet.compiler.kernels.windows import SINGLE, Window, image_axes, read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_TASK_PRODUCTS = 64_000  # multiply-adds, about ten microseconds of one core
_MOST_TASKS = 64
_LEAST_ROWS = 2  # of the result in one task: neighbouring tasks both read the rows where their windows overlap
_MOST_SEGMENTS = 16  # each has separate code
MOST_TAPS = 32  # of one window row, unrolled
_TILE_PRODUCTS = 320  # multiply-adds unrolled in one tile


@dataclass(frozen=True)
class Segment:
    """Neighbouring output columns `[begin, begin + count)` that use the same `taps` of a window row."""

    taps: tuple[int, ...]
    begin: int
    count: int


@dataclass(frozen=True)
class Depthwise:
    """A kernel read as a depthwise convolution. `outer` are the dimensions that image and result share, except the
    channel. `tap_steps` are the strides of the packed filter along window rows and columns. Channels of the image are
    `channel_step` apart; `copy` is the copy that is read where they are not contiguous."""

    kernel: Kernel
    main: Stage
    product: Product
    image: StridedAccess
    filters: StridedAccess
    tap_steps: tuple[int, int]
    packing: Packing | None
    init: StridedAccess | float | int
    output: StridedAccess
    outer: tuple[tuple[Extent, int], ...]
    channel_dim: int
    channels: int
    rows: Window
    columns: Window
    padding: int | None
    epilogue: Epilogue

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.rows, self.columns

    @property
    def channel_step(self) -> int:
        return self.image.strides[self.channel_dim].factor

    @property
    def copy(self) -> PreparedImage | None:
        """The copy of the image that is read, with the padding if the ends of rows make too many segments; None if the
        image is read itself."""
        pads = self.padding is not None and len(self.segments()) > _MOST_SEGMENTS
        return PreparedImage.of(self, pads, by_rows=True) if pads or self.channel_step != 1 else None

    def of(self, copy: PreparedImage | None) -> Depthwise:
        """The convolution that is computed: of `copy`, if the image is copied."""
        if copy is None:
            return self
        rows, columns = (slide.window for slide in copy.copied)
        padding = None if copy.pads else self.padding
        return replace(self, product=copy.product, image=copy.image, rows=rows, columns=columns, padding=padding)

    @property
    def products(self) -> int:
        """Multiply-adds per iteration of the outer loops."""
        return self.channels * self.rows.size * self.columns.size * self.rows.taps * self.columns.taps

    def segments(self) -> list[Segment]:
        """The output columns, grouped by the taps that fall inside the image."""
        w = self.columns

        def taps(column: int) -> tuple[int, ...]:
            start = column * w.stride - w.low
            return tuple(k for k in range(w.taps) if self.padding is None or 0 <= start + k * w.dilation < w.image)

        result: list[Segment] = []
        for key, group in groupby(range(w.size), key=taps):
            columns = list(group)
            result.append(Segment(key, columns[0], len(columns)))
        return result


# -- matching ------------------------------------------------------------------------------------


def match(kernel: Kernel, target: CpuTarget) -> Depthwise | None:
    """Read `kernel` as a depthwise convolution of a channels-last image, zero-padded or unpadded, with an
    element-wise epilogue; None if it is not one or if its window has too many columns."""
    found = read_depthwise(kernel)
    if found is None or found.columns.taps > MOST_TAPS or len(found.of(found.copy).segments()) > _MOST_SEGMENTS:
        return None
    return found


def read_depthwise(kernel: Kernel, guesses: Mapping[str, int] | None = None) -> Depthwise | None:
    """Read `kernel` as a depthwise convolution; None if it is not one. `guesses` are different extents for all symbols:
    with them, windows are those of these extents, and only layouts have dynamic ones."""
    opening = read_windows(kernel.stages[0]) if kernel.stages else None
    if opening is None or opening.image.padding not in (None, 0):
        return None
    stage, factors, image, filters = opening.stage, opening.dims.product, opening.image, opening.filters
    rank = len(stage.sizes)
    epilogue = match_epilogue(kernel, stage, kernel.stages[1:])
    init = initial_of(kernel, stage)
    places = [place_of(kernel, access, rank) for access in (image, filters, stage.outputs[0])]
    image_place, filter_place, output = places
    if epilogue is None or init is None or image_place is None or filter_place is None or output is None:
        return None
    if "temporary" in (kernel.values[access.value].role for access in (image, filters)):
        return None
    if any(place.dtype not in MEMORY_TYPES for place in (image_place, filter_place, output)):
        return None
    shaped = with_extents(kernel, guesses) if guesses else kernel
    axes = _image_axes(shaped, shaped.stages[0], image, (image_place, stored_place(epilogue) or output), not guesses)
    if axes is None or not isinstance(stage.sizes[axes[1]], int):
        return None
    _, channel, windows = axes
    outer = tuple((Extent.of(stage.sizes[d]), d) for _, d in axes[0])
    taps = _filter_taps(kernel, stage, filters, filter_place, channel, windows)
    if taps is None:
        return None
    steps, packing = taps
    return Depthwise(
        kernel, stage, factors, replace(image_place, offset=()), filter_place, steps, packing, init, output, outer,
        channel, int(stage.sizes[channel]), windows[0], windows[1], None if image.padding is None else 0, epilogue,
    )


def _image_axes(
    kernel: Kernel, stage: Stage, image: Access, places: Sequence[StridedAccess], known: bool
) -> tuple[tuple[tuple[Extent, int], ...], int, tuple[Window, Window]] | None:
    """The image's dimensions as (outer dimensions, channel, windows over rows and columns). The channels are contiguous
    in the first of `places`, of image and result, in which some dimension without a window is; their stride in the
    image is known if it must be."""
    axes = image_axes(kernel, stage, image)
    windows = forward_windows(sorted([*axes.windows, *axes.summed], key=lambda axis: axis.number))
    plain = [walk.dim for axis in axes.points for walk in axis.outs]
    found = [[d for d in plain if place.strides[d] == ONE and isinstance(stage.sizes[d], int)] for place in places]
    channels = [d for d in found[0] or found[1] if not known or places[0].strides[d].known]
    if len(channels) != 1 or windows is None or not 1 <= len(windows) <= 2:
        return None
    windows.sort(key=lambda w: -w.step)
    if len(windows) == 1:
        windows.insert(0, SINGLE)
    seen = sorted([*plain, *(d for w in windows for d in (w.out, w.kernel) if d >= 0)])
    if seen != [d for d, size in enumerate(stage.sizes) if size != 1]:
        return None
    outer = tuple((Extent.of(stage.sizes[d]), d) for d in plain if d != channels[0])
    return outer, channels[0], (windows[0], windows[1])


def _filter_taps(
    kernel: Kernel, stage: Stage, access: Access, place: StridedAccess, channel: int, windows: tuple[Window, Window]
) -> tuple[tuple[int, int], Packing | None] | None:
    """The strides of the filter along window rows and columns, and the packing that gives it those strides."""
    value = kernel.values[access.value]
    kernels = [w.kernel for w in windows]
    axis_of: dict[int, int] = {}
    for axis in read_axes(kernel, stage, access):
        walk = axis.plain
        if not axis.is_fixed and (walk is None or walk.dim in axis_of):
            return None
        if walk is not None:
            axis_of[walk.dim] = axis.number
    expected = sorted([channel, *(d for d in kernels if d >= 0)])
    if sorted(axis_of) != expected or any(value.shape[a] != stage.sizes[d] for d, a in axis_of.items()):
        return None
    if value.role == "constant" and value.order == tuple(range(value.rank)):
        axes = [axis_of[d] for d in (*(d for d in kernels if d >= 0), channel)]
        channels, packing = int(stage.sizes[channel]), packing_of(value, axes, axis_of[channel], 1)
        return None if packing is None else ((windows[1].taps * channels, channels), packing)
    steps = [place.strides[d].known if d >= 0 else 0 for d in kernels]
    if place.strides[channel] != ONE or steps[0] is None or steps[1] is None:
        return None
    return (steps[0], steps[1]), None


# -- schedules ---------------------------------------------------------------------------------------


def choose(c: Depthwise, target: CpuTarget) -> DepthwiseSchedule:
    """Choose the register tile and the tasks from the extents."""
    lanes = lanes_of(c, target)
    vectors = min(-(-c.channels // lanes), 2 if target.vector_registers > 16 else 1)
    held = min(c.columns.taps, 3) * vectors  # taps that stay in registers
    pixels = min(8, (target.vector_registers - held - vectors) // vectors)
    pixels = max(1, min(pixels, _TILE_PRODUCTS // (c.columns.taps * vectors)))
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    wanted = max(1, -(-min(_MOST_TASKS, c.products * outer // _TASK_PRODUCTS) // outer))
    block = max(min(_LEAST_ROWS, c.rows.size), -(-c.rows.size // wanted))
    panels = -(-c.channels // (lanes * vectors))
    splits = max(1, min(panels, -(-wanted // -(-c.rows.size // block))))
    return DepthwiseSchedule(lanes, vectors, pixels, block, -(-panels // splits))


def check(c: Depthwise, schedule: DepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s, registers = schedule, target.vector_registers
    most = max(1, registers // max(1, s.vectors))
    return [
        *lanes_reason(s.lanes, lanes_of(c, target)),
        *in_range("vectors", s.vectors, 1, registers),
        *in_range("pixels", s.pixels, 1, most, f"{registers} vector registers"),
        *in_range("block", s.block, 1, c.rows.size, "rows of the result"),
        *in_range("panels", s.panels, 1, -(-c.channels // max(1, s.width)), "panels of channels"),
    ]
