"""Convolutions along axes of which some have dynamic extents, as `channels.py` computes them, of a copy of the image.

The image is copied with its padding, so that tiles have no edges to distinguish. Tiles of a few heights have code: the
last one of a task has the least that covers its pixels, and computes pixels past the end, from memory after the copy,
that it does not store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import apply, ceildiv
from motet.compiler.codegen.cpu.conv.channels import Channels, PixelRow
from motet.compiler.codegen.cpu.conv.copies import Imaged
from motet.compiler.codegen.cpu.conv.direct_plan import Run, form_of
from motet.compiler.codegen.cpu.conv.plan import along_filters, filter_packing, lanes_of
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage, copied_loops
from motet.compiler.codegen.cpu.conv.slides import Slide, number
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, register_tile
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import DirectSchedule, DynamicConvolutionSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, Extent
from motet.compiler.kernels.windows import SINGLE, Axis, Window, read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_FIRST_GUESS = 53  # the extent of the first symbol in plans; those of others are larger, and different
_TASK_FLOPS = 1_500_000  # multiply-adds, about ten microseconds of one core


@dataclass(frozen=True)
class DynamicConvolution:
    """A convolution `c`, in whose windows and channel step dynamic extents are guesses, of `copy`."""

    c: Convolution
    copy: PreparedImage


def match(kernel: Kernel, target: CpuTarget) -> DynamicConvolution | None:
    """Read `kernel` as a convolution of constant filters, along axes of which some are dynamic; None if it is not one,
    or if it reads each element of the image only once per filter."""
    if not kernel.symbols or not kernel.stages:
        return None
    c = match_convolution(kernel, guesses_of(kernel))
    if c is None or any(kernel.values[p.value].role != "constant" for p in c.filters):
        return None
    if c.padding is None and all(window.taps == 1 for window in c.windows):
        return None
    if not along_filters(c) and (c.columns.out < 0 or c.stored.strides[c.columns.out] != ONE):
        return None
    copy = padded_copy(c, c.image.strides[c.channel_dim] if c.channel_dim >= 0 else ONE)
    return None if copy is None else DynamicConvolution(c, copy)


def guesses_of(kernel: Kernel) -> dict[str, int]:
    """Different extents for all symbols of `kernel`, for plans."""
    return {symbol: _FIRST_GUESS + 2 * number for number, symbol in enumerate(kernel.symbols)}


def padded_copy(c: Imaged, channel_step: Extent) -> PreparedImage | None:
    """The copy of an image with its padding, where extents in the windows of `c` are guesses; None if all of them are
    known, or if the stride of columns is not."""
    opening = read_windows(c.kernel.stages[0])
    if opening is None:
        return None
    axes = read_axes(c.kernel, opening.stage, opening.image)
    slides = tuple(_slide_of(window, c.kernel, axes) for window in c.windows)
    if slides[-1].step != c.columns.step or all(isinstance(s.size, int) and isinstance(s.image, int) for s in slides):
        return None
    return PreparedImage(c, slides, channel_step, copied_loops(c), True, True)


def _slide_of(window: Window, kernel: Kernel, axes: Sequence[Axis]) -> Slide:
    """`window`, whose extents are guesses, with those of the image's `axes`."""
    if window is SINGLE:
        return Slide.of(window)
    for axis in axes:
        if any(walk.dim in (window.out, window.kernel) for walk in (*axis.outs, *axis.taps)):
            size = kernel.stages[0].sizes[window.out] if window.out >= 0 else 1
            return Slide(window, size, axis.extent, axis.stride.expression)
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


def emit(d: DynamicConvolution, schedule: DynamicConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution along dynamic axes by `schedule`."""
    return _Dynamic(d, schedule).run()


CLASS = KernelClass(DynamicConvolutionSchedule, match, choose, check, emit)


class _Dynamic(Channels):
    """Emits tasks of single rows, or pieces of them, in tiles of a few heights."""

    exceeds = True

    def __init__(self, d: DynamicConvolution, plan: DynamicConvolutionSchedule) -> None:
        alike = DirectSchedule(plan.lanes, plan.tile_rows, plan.vectors, 1)
        super().__init__(form_of(d.c, d.copy), alike, copy=d.copy)
        self.clips, self.bounds = d.c.padding == 0, d.copy.slides
        self.pixels = plan.tiles * plan.tile_rows  # of one piece
        self.pieces = ceildiv(self.slides[-1].size, self.pixels)
        self.blocks = apply("*", self.slides[-2].size, self.pieces)
        heights = _heights_of(plan.tile_rows)
        self.runs = [Run(0, 0, height, ((0, height),) * d.c.columns.taps) for height in heights]

    def slack(self) -> int:
        return self.plan.tile_rows * self.c.columns.stride * self.c.channels

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
