"""Reads and schedules convolutions of images whose extents are known at run time."""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.expressions import apply, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.plan import along_filters, filter_packing, lanes_of
from motet.compiler.codegen.cpu.gemm.microkernel import register_tile
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.schedule import DynamicConvolutionSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, ZERO, Extent
from motet.compiler.kernels.windows import SINGLE, Axis, Window, read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_FIRST_GUESS = 53  # the extent of the first symbol in plans; those of others are larger, and different
_TASK_FLOPS = 1_500_000  # multiply-adds, about ten microseconds of one core


@dataclass(frozen=True)
class Slide:
    """A window of a convolution with its extents: `size` results are made of `image` elements, `step` apart."""

    window: Window
    size: Extent
    image: Extent
    step: Extent

    @property
    def reach(self) -> Expr:
        """The number of padded image positions that all results read."""
        last = apply("*", apply("-", self.size.expression, 1), self.window.stride)
        return apply("max", apply("+", last, self.window.span(1)), 0)


@dataclass(frozen=True)
class DynamicConvolution:
    """A convolution `c`, in whose windows and channel step dynamic extents are guesses; `slides` are its windows, and
    `channel_step` the stride of its channels, as they are at run time. `copied` are the loops along which the image
    differs, without those of windows."""

    c: Convolution
    slides: tuple[Slide, ...]
    channel_step: Extent
    copied: tuple[tuple[Extent, int], ...]

    def workspace(self, slack: int) -> Expr:
        """Bytes of the padded copy of the image, and of `slack` elements that tiles may read after it."""
        sizes = [self.c.channels, *(size.expression for size, _ in self.copied), *(s.reach for s in self.slides)]
        return apply("*", apply("+", product(sizes), slack), item_bytes(self.c.product.dtype))


def match(kernel: Kernel, target: CpuTarget) -> DynamicConvolution | None:
    """Read `kernel` as a convolution of constant filters, along axes of which some are dynamic; None if it is not one,
    or if it reads each element of the image only once per filter."""
    if not kernel.symbols or not kernel.stages:
        return None
    guesses = {symbol: _FIRST_GUESS + 2 * number for number, symbol in enumerate(kernel.symbols)}
    c, opening = match_convolution(kernel, guesses), read_windows(kernel.stages[0])
    if c is None or opening is None or any(kernel.values[p.value].role != "constant" for p in c.filters):
        return None
    if c.padding is None and all(window.taps == 1 for window in c.windows):
        return None
    if not along_filters(c) and (c.columns.out < 0 or c.stored.strides[c.columns.out] != ONE):
        return None
    axes = read_axes(kernel, opening.stage, opening.image)
    slides = tuple(_slide(window, kernel, axes) for window in c.windows)
    steps = [axis.stride for axis in axes for walk in axis.taps if walk.dim == c.channel_dim]
    if slides[-1].step.known != c.columns.step or all(s.size.known and s.image.known for s in slides):
        return None
    moving = {window.out for window in c.windows}
    copied = tuple((size, d) for size, d in c.outer if d not in moving and c.image.strides[d] != ZERO)
    return DynamicConvolution(c, slides, steps[0] if steps else ONE, copied)


def _slide(window: Window, kernel: Kernel, axes: tuple[Axis, ...]) -> Slide:
    if window is SINGLE:
        return Slide(window, ONE, ONE, ZERO)
    for axis in axes:
        if any(walk.dim in (window.out, window.kernel) for walk in (*axis.outs, *axis.taps)):
            size = kernel.stages[0].sizes[window.out] if window.out >= 0 else 1
            return Slide(window, Extent.of(size), Extent.of(axis.extent), axis.stride)
    raise AssertionError(f"{kernel.name}: a window along no axis of the image")


def choose(d: DynamicConvolution, target: CpuTarget) -> DynamicConvolutionSchedule | None:
    """Choose the largest register tile, and as many pixels per task as give it a useful size."""
    c = d.c
    lanes = lanes_of(c, target)
    height, vectors = register_tile(1 << 20, c.filter_count, lanes, target)
    if filter_packing(c, lanes * vectors) is None:
        return None
    tile_flops = c.depth * lanes * vectors * height * len(c.filters)
    return DynamicConvolutionSchedule(lanes, height, vectors, max(1, min(64, _TASK_FLOPS // tile_flops)))


def check(d: DynamicConvolution, schedule: DynamicConvolutionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `d` on `target`; an empty list if it is."""
    s, registers = schedule, target.vector_registers
    reasons = [
        *lanes_reason(s.lanes, lanes_of(d.c, target)),
        *in_range("vectors", s.vectors, 1, registers),
        *in_range("tile_rows", s.tile_rows, 1, max(1, registers // max(1, s.vectors)), f"{registers} vector registers"),
        *in_range("tiles", s.tiles, 1, 1 << 16),
    ]
    if not reasons and filter_packing(d.c, s.width) is None:
        reasons.append(Reason("class", "dynamic", "another class: the filters cannot be divided into panels"))
    return reasons


def heights_of(most: int) -> list[int]:
    """The heights of tiles that have code, from the largest, `most`, on: each is about two thirds of the one before."""
    found = [most]
    while found[-1] > 1:
        found.append(min(found[-1] - 1, -(-found[-1] * 2 // 3)) if found[-1] > 4 else found[-1] // 2)
    return found
