"""Convolutions along axes of which some have dynamic extents, as `channels.py` and `depthwise.py` compute others.

The image is copied with its padding, so that tiles have no edges to distinguish. Vectors along filters have tiles of a
few heights: the last one of a task has the least that covers its pixels, and computes pixels past the end, from memory
after the copy, that it does not store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.artifact.expressions import apply, ceildiv
from motet.compiler.codegen.cpu.conv import depthwise_plan
from motet.compiler.codegen.cpu.conv.channels import Channels, PixelRow
from motet.compiler.codegen.cpu.conv.depthwise import DepthwiseEmitter
from motet.compiler.codegen.cpu.conv.depthwise_plan import Depthwise
from motet.compiler.codegen.cpu.conv.direct_plan import Run, form_of
from motet.compiler.codegen.cpu.conv.plan import check_tile, filter_packing, lanes_of, multiplies_panels
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.conv.slides import Slide, number
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, register_tile
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import (
    DepthwiseSchedule,
    DirectSchedule,
    DynamicConvolutionSchedule,
    DynamicDepthwiseSchedule,
    Reason,
    in_range,
)
from motet.compiler.kernels.windows import SINGLE, Axis, Window, read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_FIRST_GUESS = 53  # the extent of the first symbol in plans; those of others are larger, and different
_TASK_FLOPS = 1_500_000  # multiply-adds, about ten microseconds of one core


Read = TypeVar("Read", Convolution, Depthwise)


@dataclass(frozen=True)
class Dynamic(Generic[Read]):
    """A convolution `c`, in whose windows and channel step dynamic extents are guesses, of `copy`."""

    c: Read
    copy: PreparedImage


# -- matching ------------------------------------------------------------------------------------


def match(kernel: Kernel, target: CpuTarget) -> Dynamic[Convolution] | None:
    """Read `kernel` as a convolution of constant filters, along axes of which some are dynamic; None if it is not one,
    or if it reads each element of the image only once per filter."""
    c = match_convolution(kernel, _guesses_of(kernel)) if kernel.symbols else None
    if c is None or not multiplies_panels(c) or (c.padding is None and all(window.taps == 1 for window in c.windows)):
        return None
    return _of_copy(c)


def match_depthwise(kernel: Kernel, target: CpuTarget) -> Dynamic[Depthwise] | None:
    """Read `kernel` as a depthwise convolution along dynamic axes; None if it is not one, or if its window has too many
    columns."""
    c = depthwise_plan.read_depthwise(kernel, _guesses_of(kernel)) if kernel.symbols else None
    if c is None or c.columns.taps > depthwise_plan.MOST_TAPS:
        return None
    return _of_copy(c)


def _guesses_of(kernel: Kernel) -> dict[str, int]:
    """Different extents for all symbols of `kernel`, for plans."""
    return {symbol: _FIRST_GUESS + 2 * number for number, symbol in enumerate(kernel.symbols)}


def _of_copy(c: Read) -> Dynamic[Read] | None:
    """`c`, in whose windows extents are guesses, of a copy of the image with its padding; None if all of them are
    known, or if the stride of columns is not."""
    opening = read_windows(c.kernel.stages[0])
    if opening is None:
        return None
    axes = read_axes(c.kernel, opening.stage, opening.image)
    axis_of = {walk.dim: axis for axis in axes for walk in (*axis.outs, *axis.taps)}
    slides = tuple(_slide_of(window, c.kernel, axis_of) for window in c.windows)
    if slides[-1].step != c.columns.step or all(isinstance(s.size, int) and isinstance(s.image, int) for s in slides):
        return None
    return Dynamic(c, PreparedImage(c, slides, pads=True, by_rows=True))


def _slide_of(window: Window, kernel: Kernel, axis_of: Mapping[int, Axis]) -> Slide:
    """`window`, whose extents are guesses, with those of the image's axes, which `axis_of` has by dimension."""
    if window is SINGLE:
        return Slide.of(window)
    axis = axis_of[window.out if window.out >= 0 else window.kernel]
    size = kernel.stages[0].sizes[window.out] if window.out >= 0 else 1
    return Slide(window, size, axis.extent, axis.stride.expression)


# -- schedules -----------------------------------------------------------------------------------


def choose(d: Dynamic[Convolution], target: CpuTarget) -> DynamicConvolutionSchedule | None:
    """Choose the largest register tile, and as many pixels per task as give it a useful size."""
    c = d.c
    lanes = lanes_of(c, target)
    height, vectors = register_tile(1 << 20, c.filter_count, lanes, target)
    if filter_packing(c, lanes * vectors) is None:
        return None
    tile_flops = c.depth * lanes * vectors * height * len(c.filters)
    return DynamicConvolutionSchedule(lanes, height, vectors, max(1, min(64, _TASK_FLOPS // tile_flops)))


def check(d: Dynamic[Convolution], schedule: DynamicConvolutionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `d` on `target`; an empty list if it is."""
    reasons = [*check_tile(d.c, _alike(schedule), target), *in_range("tiles", schedule.tiles, 1, 1 << 16)]
    if not reasons and filter_packing(d.c, schedule.width) is None:
        reasons.append(Reason("class", "dynamic", "another class: the filters cannot be divided into panels"))
    return reasons


def _alike(s: DynamicConvolutionSchedule) -> DirectSchedule:
    """The schedule of a convolution of known extents whose tasks are single rows."""
    return DirectSchedule(s.lanes, s.tile_rows, s.vectors, 1)


def choose_depthwise(d: Dynamic[Depthwise], target: CpuTarget) -> DynamicDepthwiseSchedule:
    """The register tile of a convolution of known extents."""
    found = depthwise_plan.choose(d.c, target)
    return DynamicDepthwiseSchedule(found.lanes, found.vectors, found.pixels)


def check_depthwise(d: Dynamic[Depthwise], schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `d` on `target`; an empty list if it is."""
    return depthwise_plan.check(d.c, _rows_of(d, schedule), target)


def _rows_of(d: Dynamic[Depthwise], s: DynamicDepthwiseSchedule) -> DepthwiseSchedule:
    """The schedule of a convolution of known extents whose tasks are single rows with all channels."""
    return DepthwiseSchedule(s.lanes, s.vectors, s.pixels, 1, -(-d.c.channels // max(1, s.lanes * s.vectors)))


# -- code ----------------------------------------------------------------------------------------


def emit(d: Dynamic[Convolution], schedule: DynamicConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution along dynamic axes by `schedule`."""
    return _DynamicChannels(d, schedule).run()


def emit_depthwise(d: Dynamic[Depthwise], schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution along dynamic axes by `schedule`."""
    return DepthwiseEmitter(d.c.of(d.copy), _rows_of(d, schedule), d.copy).run()


CLASS = KernelClass(DynamicConvolutionSchedule, match, choose, check, emit)
DEPTHWISE_CLASS = KernelClass(
    DynamicDepthwiseSchedule, match_depthwise, choose_depthwise, check_depthwise, emit_depthwise)


class _DynamicChannels(Channels):
    """Emits tasks of single rows, or pieces of them, in tiles of a few heights."""

    exceeds = True

    def __init__(self, d: Dynamic[Convolution], plan: DynamicConvolutionSchedule) -> None:
        super().__init__(form_of(d.c, d.copy), _alike(plan), copy=d.copy)
        self.clips, self.bounds = d.c.padding == 0, d.copy.slides
        self.slack = plan.tile_rows * self.c.columns.stride * self.c.channels
        self.pixels = plan.tiles * plan.tile_rows  # of one piece
        self.pieces = ceildiv(self.slides[-1].size, self.pixels)
        self.blocks = apply("*", self.slides[-2].size, self.pieces)
        heights = _heights_of(plan.tile_rows)
        self.runs = [Run(0, 0, height, ((0, height),) * d.c.columns.taps) for height in heights]

    def emit_line(self, f: TileFrame, line: PixelRow) -> None:
        """Compute the piece's pixels in tiles of the greatest height, and the rest in one of the least that covers
        it."""
        first = f.imul(line.task.piece, self.pixels)
        end = f.imin(number(f, self.slides[-1].size), f.iadd(first, self.pixels))
        most = self.runs[0].height
        whole = f.iadd(first, f.imul(f.idiv(f.isub(end, first), most), most))
        self._tiles(f, line, self.runs[0], first, whole)
        rest = f.isub(end, whole)

        def some(position: int) -> None:
            run, *lower = self.runs[position:]
            if not lower:
                self._tiles(f, line, run, whole, end)
                return
            with f.if_else(f.icmp_signed(">", f.index(rest), f.index(lower[0].height))) as (then, otherwise):
                with then:
                    self._tiles(f, line, run, whole, end)
                with otherwise:
                    some(position + 1)

        some(0)

    def _tiles(self, f: TileFrame, line: PixelRow, run: Run, first: Index, end: Index) -> None:
        def one(w: Index) -> None:
            present = f.imin(f.isub(end, w), run.height)
            self.call_tile(f, line, run, w, 0, f.index(present))

        f.loop(first, end, run.height, lambda w, _: one(w))


def _heights_of(most: int) -> list[int]:
    """The heights of tiles that have code, from the largest, `most`, on: each is about two thirds of the one before. As
    rows of images often have seven pixels times a power of two, seven is one of them."""
    found = [most]
    while found[-1] > 1:
        found.append(min(found[-1] - 1, -(-found[-1] * 2 // 3)) if found[-1] > 4 else found[-1] // 2)
    return sorted({*found, *({7} if most > 7 else ())}, reverse=True)
