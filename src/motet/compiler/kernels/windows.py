"""Reads the sliding windows of convolutions, poolings and stencils from accesses, along any number of axes.

    x[n, 2*h + 3*i - 1, w + j, c]    over n, h, w, which are parallel, and i, j, c, which are reduced
        axis 0: a point n            axis 2: a window of taps j, at w
        axis 3: summed along c       axis 1: a window of taps i, 3 apart, at h by steps of 2, from -1 on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.kernels.contraction import ContractionDims, read_contraction
from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import Extent, memory_strides


@dataclass(frozen=True)
class Walk:
    """A dimension of a stage, of extent `size`, that moves along an axis by `by` elements per step."""

    dim: int
    size: Size
    by: int


@dataclass(frozen=True)
class Axis:
    """Axis `number` of a tensor as a stage reads it: element `sum(by * index) - low`, where `outs` are the parallel
    dimensions and `taps` the reduced ones. Elements are `stride` apart in memory."""

    number: int
    extent: Size
    stride: Extent
    low: int
    outs: tuple[Walk, ...]
    taps: tuple[Walk, ...]

    @property
    def slides(self) -> bool:
        """Whether the axis is read through a sliding window."""
        return bool(self.outs and self.taps)

    @property
    def plain(self) -> Walk | None:
        """The dimension, if it is the only one and moves by one element from the first on; else None."""
        walks = (*self.outs, *self.taps)
        return walks[0] if len(walks) == 1 and walks[0].by == 1 and not self.low else None

    @property
    def is_fixed(self) -> bool:
        """Whether all points read its first element."""
        return not (self.outs or self.taps or self.low)

    @property
    def window(self) -> Window | None:
        """The axis as a `Window`; None if several dimensions of a kind move along it, or if an extent or stride is
        dynamic."""
        if len(self.outs) > 1 or len(self.taps) > 1 or self.stride.known is None or not isinstance(self.extent, int):
            return None
        out, tap = (part[0] if part else Walk(-1, 1, 1) for part in (self.outs, self.taps))
        if not isinstance(out.size, int) or not isinstance(tap.size, int):
            return None
        return Window(
            out.dim, tap.dim, out.size, tap.size, out.by, tap.by, self.low, self.extent, self.stride.known
        )


@dataclass(frozen=True)
class Window:
    """One spatial axis: output `out` (extent `size`) at image positions `out * stride + k * dilation - low`."""

    out: int  # a dimension of the stage, or -1
    kernel: int  # the stage's dimension of the window, or -1
    size: int
    taps: int
    stride: int
    dilation: int
    low: int
    image: int  # the image's extent
    step: int  # the image's stride in memory

    @property
    def reach(self) -> int:
        """The number of image positions that `size` outputs read."""
        return self.span(self.size)

    @property
    def is_forward(self) -> bool:
        """Whether positions grow with both dimensions, from one that is not after the image's first."""
        return self.stride > 0 and self.dilation > 0 and self.low >= 0

    def span(self, outputs: int) -> int:
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1


SINGLE = Window(-1, -1, 1, 1, 1, 1, 0, 1, 0)  # an axis of one element


@dataclass(frozen=True)
class ImageAxes:
    """The axes of a tensor that is read through windows: `points`, along which each point of a parallel dimension reads
    one element; `summed`, which are reduced from end to end; and `windows`, all others. Axes of which only the first
    element is read are omitted."""

    points: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    windows: tuple[Axis, ...]


@dataclass(frozen=True)
class Windows:
    """Sums of products of an image, read through sliding windows, and filters. The image is the left operand of `dims`:
    the batch are groups (or the channels of a depthwise convolution), M the image's other points
    and the outputs of windows, N filters, K channels and taps."""

    stage: Stage
    dims: ContractionDims
    image: Access
    filters: Access


@dataclass(frozen=True)
class WindowReduction:
    """A reduction over the windows of one input: a pooling, or a convolution of single channels. `windows` are the axes
    of input `image` that slide, outermost in memory first; their taps, one per axis, are the reduced dimensions."""

    stage: Stage
    combiner: Reduction
    image: int
    windows: tuple[Axis, ...]

    @property
    def row(self) -> int | None:
        """The dimension along the second to last window; None if there is only one window."""
        return self.windows[-2].outs[0].dim if len(self.windows) > 1 else None

    @property
    def column(self) -> int:
        """The dimension along the last window."""
        return self.windows[-1].outs[0].dim

    @property
    def down(self) -> int | None:
        """The dimension of the taps at `row`."""
        return self.windows[-2].taps[0].dim if len(self.windows) > 1 else None

    @property
    def along(self) -> int:
        """The dimension of the taps at `column`."""
        return self.windows[-1].taps[0].dim


def is_windowed(access: Access) -> bool:
    """Whether an axis is read along two dimensions at once, as convolutions and poolings do."""
    return any(len(entry.dims) > 1 for entry in access.map)


def read_axes(kernel: Kernel, stage: Stage, access: Access, units: bool = False) -> tuple[Axis, ...]:
    """The axes of the tensor that `access` of `stage` reads. Dimensions of extent 1 are omitted unless
    `units`."""
    value = kernel.values[access.value]
    found: list[Axis] = []
    for number, (entry, stride) in enumerate(zip(access.map, memory_strides(value), strict=True)):
        walks = [Walk(d, stage.sizes[d], c) for d, c in entry.terms if units or stage.sizes[d] != 1]
        outs, taps = (
            tuple(walk for walk in walks if stage.iterators[walk.dim] == kind) for kind in ("parallel", "reduction")
        )
        found.append(Axis(number, value.shape[number], stride, -entry.constant, outs, taps))
    return tuple(found)


def image_axes(kernel: Kernel, stage: Stage, image: Access) -> ImageAxes:
    """The axes of an image by kind. An axis that is padded, or not read to its end, is a window of one tap."""
    points: list[Axis] = []
    summed: list[Axis] = []
    windows: list[Axis] = []
    for axis in read_axes(kernel, stage, image):
        if axis.is_fixed:
            continue
        plain = axis.plain
        if plain is None or (image.padding is not None and plain.size != axis.extent):
            windows.append(axis)
        else:
            (points if axis.outs else summed).append(axis)
    return ImageAxes(tuple(points), tuple(summed), tuple(windows))


def read_windows(stage: Stage) -> Windows | None:
    """`stage` as a sum of products over windows; None if it is something else."""
    dims = read_contraction(stage)
    if dims is None:
        return None
    if not _is_image(stage.inputs[dims.product.lhs.input]):
        dims = dims.swapped
    image, filters = stage.inputs[dims.product.lhs.input], stage.inputs[dims.product.rhs.input]
    return Windows(stage, dims, image, filters) if _is_image(image) and not _is_image(filters) else None


def read_window_reduction(kernel: Kernel, stage: Stage) -> WindowReduction | None:
    """`stage` as a reduction over windows of one input; None if it is something else."""
    combiners = match_reductions(stage)
    images = [number for number, access in enumerate(stage.inputs) if is_windowed(access)]
    if not combiners or len(combiners) != 1 or len(images) != 1 or not stage.reductions:
        return None
    access = stage.inputs[images[0]]
    axes = read_axes(kernel, stage, access, units=True)
    ordered = [axes[number] for number in kernel.values[access.value].order if axes[number].taps]
    windows = [axis for axis in ordered if axis.outs or any(walk.size != 1 for walk in axis.taps)]
    if any(len(axis.taps) != 1 or len(axis.outs) != 1 for axis in windows):
        return None
    if set(_taps(windows)) != {d for d in stage.reductions if stage.sizes[d] != 1 or d in _taps(windows)}:
        return None
    return WindowReduction(stage, combiners[0], images[0], tuple(windows))


def _taps(windows: Sequence[Axis]) -> list[int]:
    return sorted(walk.dim for axis in windows for walk in axis.taps)


def _is_image(access: Access) -> bool:
    """Whether `access` has windows, steps or padding, unlike a plain operand."""
    return access.padding is not None or is_windowed(access) or any(
        any(c > 1 for _, c in entry.terms) for entry in access.map
    )
