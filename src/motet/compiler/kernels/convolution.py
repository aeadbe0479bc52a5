"""Whether a kernel is a convolution, with what follows it and the siblings whose sums are added to it.

`windows.py` reads windows over any number of axes. The innermost two are the image's columns and rows, the others its
planes. A convolution over one axis has the axis next to it, or one of one element, as the other of rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.kernels.epilogue import Epilogue, match_epilogue, stored_place
from motet.compiler.kernels.kernel import Access, Kernel, Stage, with_extents
from motet.compiler.kernels.product import PLAIN_DTYPES, Product, match_product
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, initial_of, place_of
from motet.compiler.kernels.windows import SINGLE, Axis, Window, Windows, image_axes, read_windows


@dataclass(frozen=True)
class Convolution:
    """A kernel read as a convolution, or as a sum of several convolutions of one image with different `filters`.

    `outer` are the dimensions of the result other than filters, rows and columns: those along which each point reads
    one element of the image, and those of `planes`, the windows outside of rows and columns, outermost first."""

    kernel: Kernel
    product: Product
    image: StridedAccess
    filters: tuple[StridedAccess, ...]
    inits: tuple[StridedAccess | float | int, ...]
    output: StridedAccess
    outer: tuple[tuple[Extent, int], ...]
    filter_dim: int
    filter_count: int
    channel_dim: int
    channels: int
    channel_step: int
    planes: tuple[Window, ...]
    rows: Window
    columns: Window
    padding: float | int | None
    epilogue: Epilogue
    main: Stage

    @property
    def places(self) -> list[StridedAccess]:
        return self.epilogue.places + [init for init in self.inits if isinstance(init, StridedAccess)]

    @property
    def stored(self) -> StridedAccess:
        """The access that determines the layout of tiles: the last one that stores a result."""
        return stored_place(self.epilogue) or self.output

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows along planes, rows and columns."""
        return (*self.planes, self.rows, self.columns)

    @property
    def depth(self) -> int:
        return math.prod(window.taps for window in self.windows) * self.channels


def match(kernel: Kernel, guesses: Mapping[str, int] | None = None) -> Convolution | None:
    """Read `kernel` as a convolution; None if it is not one of a supported form. `guesses` are different extents for
    all symbols: with them, windows are those of these extents, and only layouts have dynamic ones."""
    opening = read_windows(kernel.stages[0]) if kernel.stages else None
    if opening is None:
        return None
    stage, product, image = opening.stage, opening.dims.product, opening.image
    count, main = _siblings(kernel, stage, product)
    if count == 0:
        return None
    epilogue = match_epilogue(kernel, main, kernel.stages[count + (count > 1):])
    rank = len(stage.sizes)
    inits = [initial_of(kernel, s) for s in kernel.stages[:count]]
    filter_places = [place_of(kernel, s.inputs[product.rhs.input], rank) for s in kernel.stages[:count]]
    image_place, output = place_of(kernel, image, rank), place_of(kernel, main.outputs[0], rank)
    if epilogue is None or image_place is None or output is None:
        return None
    if any(place is None for place in filter_places) or any(init is None for init in inits):
        return None
    roles = [kernel.values[access.value].role for access in (image, opening.filters)]
    if "temporary" in roles or any(p.dtype not in PLAIN_DTYPES for p in (image_place, output)):
        return None
    filters = [place for place in filter_places if place is not None]
    if guesses:
        seen = _guessed_geometry(with_extents(kernel, guesses), main, count, stored_place(epilogue) or output)
    else:
        seen = _geometry(kernel, opening, image_place, filters, stored_place(epilogue) or output)
    if seen is None:
        return None
    filter_count = stage.sizes[seen.filter_dim]
    if not isinstance(filter_count, int) or (seen.channel.dim >= 0 and stage.sizes[seen.channel.dim] != (
            seen.channel.count)):
        return None
    return Convolution(
        kernel, product, replace(image_place, offset=()), tuple(filters), tuple(i for i in inits if i is not None),
        output, tuple((Extent.of(stage.sizes[d]), d) for _, d in seen.outer), seen.filter_dim, filter_count,
        seen.channel.dim, seen.channel.count, seen.channel.step, seen.planes, seen.rows, seen.columns, image.padding,
        epilogue, main,
    )


def _siblings(kernel: Kernel, stage: Stage, product: Product) -> tuple[int, Stage]:
    """How many convolutions of one image the kernel begins with, and a stage for their sum; 0 if there are several
    whose results are not simply added."""
    alike = 1
    for other in kernel.stages[1:]:
        if match_product(other) is None or not other.reductions:
            break
        same = other.sizes == stage.sizes and other.inputs[product.lhs.input] == stage.inputs[product.lhs.input]
        if not same or other.body != stage.body:
            return 0, stage
        alike += 1
    if alike == 1:
        return 1, stage
    if alike != 2 or len(kernel.stages) < 3:
        return 0, stage
    total = kernel.stages[2]
    values = [s.outputs[0].value for s in kernel.stages[:2]]
    added = total.body[:1]
    sums = (
        len(total.body) >= 1 and added[0].op in ("arith.addf", "arith.addi") and len(total.inputs) == 2
        and sorted(a.value for a in total.inputs) == sorted(values) and sorted(added[0].operands) == [0, 1]
        and len(total.body) == 1 and total.yields == (len(total.inputs) + 1,)
    )
    if not sums or any(kernel.values[value].role != "temporary" for value in values):
        return 0, stage
    if any(a.map != total.outputs[0].map for a in total.inputs) or len(total.outputs) != 1:
        return 0, stage
    output = replace(stage.outputs[0], value=total.outputs[0].value)
    return 2, replace(stage, outputs=(output,))


@dataclass(frozen=True)
class _Channel:
    """The dimension of an image's channels (-1 for one channel) and their stride in memory."""

    dim: int = -1
    count: int = 1
    step: int = 1


@dataclass(frozen=True)
class _Dimensions:
    """A convolution's dimensions: those outside of rows and columns, filters, channels, and windows."""

    outer: list[tuple[Extent, int]]
    filter_dim: int
    channel: _Channel
    planes: tuple[Window, ...]
    rows: Window
    columns: Window


def _geometry(
    kernel: Kernel, opening: Windows, image_place: StridedAccess, filters: list[StridedAccess], stored: StridedAccess
) -> _Dimensions | None:
    """The dimensions of a convolution whose result is stored at `stored`."""
    stage = opening.stage
    axes = _image_axes(kernel, stage, opening.image)
    if axes is None:
        return None
    outer, windows, channel = axes
    filter_dim = _filter_dim(opening)
    reduced = {d for d in stage.reductions if stage.sizes[d] != 1}
    if filter_dim < 0 or reduced != {d for d in [channel.dim, *(w.kernel for w in windows)] if d >= 0}:
        return None
    if not windows:
        return None
    windows = sorted(windows, key=lambda w: -w.step)
    if len(windows) == 1:
        windows = _plane_of(outer, windows[0], image_place, filters, stored)
        outer = [(size, d) for size, d in outer if d not in [w.out for w in windows]]
    *planes, rows, columns = windows
    outer += [(Extent(plane.size), plane.out) for plane in planes if plane.out >= 0]
    return _Dimensions(outer, filter_dim, channel, tuple(planes), rows, columns)


def _guessed_geometry(kernel: Kernel, main: Stage, count: int, stored: StridedAccess) -> _Dimensions | None:
    """The dimensions of the convolution of which `kernel` has known extents; `main` and `stored` are those of the
    original, which begins with `count` convolutions."""
    opening = read_windows(kernel.stages[0])
    if opening is None:
        return None
    rank = len(main.sizes)
    image = place_of(kernel, opening.image, rank)
    filters = [
        place_of(kernel, stage.inputs[opening.dims.product.rhs.input], rank) for stage in kernel.stages[:count]
    ]
    accesses = [access for stage in kernel.stages for access in stage.outputs if access.value == stored.value]
    to = place_of(kernel, accesses[-1], rank)
    if image is None or to is None:
        return None
    return _geometry(kernel, opening, image, [place for place in filters if place is not None], to)


def _image_axes(
    kernel: Kernel, stage: Stage, image: Access
) -> tuple[list[tuple[Extent, int]], list[Window], _Channel] | None:
    """The image's axes: those without a window, the windows, and the channels."""
    axes = image_axes(kernel, stage, image)
    outer = [(Extent.of(walk.size), walk.dim) for axis in axes.points for walk in axis.outs]
    channel = _Channel()
    slid = list(axes.windows)
    # with several, the channels are those side by side, or else the farthest apart; the others are windows at one place
    for axis in sorted(axes.summed, key=lambda one: (one.stride.known != 1, -(one.stride.known or 0))):
        (walk,) = axis.taps
        if not isinstance(walk.size, int) or axis.stride.known is None:
            return None
        if channel.dim < 0:
            channel = _Channel(walk.dim, walk.size, axis.stride.known)
        else:
            slid.append(axis)
    windows = forward_windows(slid)
    return None if windows is None else (outer, windows, channel)


def forward_windows(axes: Sequence[Axis]) -> list[Window] | None:
    """`axes` by numbers; None where one cannot be, or is walked backwards."""
    found = [axis.window for axis in axes]
    windows = [window for window in found if window is not None and window.is_forward]
    return windows if len(windows) == len(axes) else None


def _filter_dim(opening: Windows) -> int:
    """The one parallel dimension besides those of the image, of known extent; -1 where there is none such."""
    found = [*opening.dims.n, *opening.dims.broadcast]
    return found[0] if len(found) == 1 and isinstance(opening.stage.sizes[found[0]], int) else -1


def _plane_of(
    outer: Sequence[tuple[Extent, int]], window: Window, image: StridedAccess, filters: Sequence[StridedAccess],
    stored: StridedAccess,
) -> list[Window]:
    """Rows and columns with the only `window`: the dimension next to it in the image and in the result is read through
    a window of one tap; without such a dimension the rows are one."""
    along = stored.strides[window.out].known if window.out >= 0 else None
    found: list[Window] = []
    for size, d in outer:
        step, to = image.strides[d].known, stored.strides[d].known
        if along is None or size.known is None or step is None or to is None:
            continue
        if any(place.strides[d] != Extent(0) for place in filters):
            continue
        if step <= window.step * window.image and to <= along * window.size:
            found.append(Window(d, -1, size.known, 1, 1, 1, 0, size.known, step))
    if not found:
        return [SINGLE, window]
    nearest = min(found, key=lambda one: one.step)
    return sorted([window, nearest], key=lambda one: -one.step)


def pixels_are_flat(c: Convolution) -> bool:
    """Whether every access of the result's space treats output rows and columns as one dimension, along which the
    result is contiguous."""
    column, row = c.columns.out, c.rows.out
    if column < 0 or c.stored.strides[column] != ONE:
        return False
    if row < 0:
        return True
    return all(p.strides[row] == p.strides[column] * c.columns.size for p in [c.stored, *c.places])
