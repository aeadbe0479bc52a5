"""Reads and schedules convolutions of images whose extents are known at run time."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.cpu.conv.dynamic_copy import PaddedCopy, slide_of
from motet.compiler.codegen.cpu.conv.plan import along_filters, filter_packing, lanes_of
from motet.compiler.codegen.cpu.gemm.microkernel import register_tile
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.schedule import DynamicConvolutionSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, ZERO
from motet.compiler.kernels.windows import read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget

_FIRST_GUESS = 53  # the extent of the first symbol in plans; those of others are larger, and different
_TASK_FLOPS = 1_500_000  # multiply-adds, about ten microseconds of one core


@dataclass(frozen=True)
class DynamicConvolution:
    """A convolution `c`, in whose windows and channel step dynamic extents are guesses, of `copy`."""

    c: Convolution
    copy: PaddedCopy


def match(kernel: Kernel, target: CpuTarget) -> DynamicConvolution | None:
    """Read `kernel` as a convolution of constant filters, along axes of which some are dynamic; None if it is not one,
    or if it reads each element of the image only once per filter."""
    if not kernel.symbols or not kernel.stages:
        return None
    c, opening = match_convolution(kernel, guesses_of(kernel)), read_windows(kernel.stages[0])
    if c is None or opening is None or any(kernel.values[p.value].role != "constant" for p in c.filters):
        return None
    if c.padding is None and all(window.taps == 1 for window in c.windows):
        return None
    if not along_filters(c) and (c.columns.out < 0 or c.stored.strides[c.columns.out] != ONE):
        return None
    axes = read_axes(kernel, opening.stage, opening.image)
    slides = tuple(slide_of(window, kernel, axes) for window in c.windows)
    steps = [axis.stride for axis in axes for walk in axis.taps if walk.dim == c.channel_dim]
    if slides[-1].step.known != c.columns.step or all(s.size.known and s.image.known for s in slides):
        return None
    moving = {window.out for window in c.windows}
    copied = tuple((size, d) for size, d in c.outer if d not in moving and c.image.strides[d] != ZERO)
    return DynamicConvolution(c, PaddedCopy(kernel, c, slides, steps[0] if steps else ONE, copied))


def guesses_of(kernel: Kernel) -> dict[str, int]:
    """Different extents for all symbols of `kernel`, for plans."""
    return {symbol: _FIRST_GUESS + 2 * number for number, symbol in enumerate(kernel.symbols)}


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
    """The heights of tiles that have code, from the largest, `most`, on: each is about two thirds of the one before. As
    rows of images often have seven pixels times a power of two, seven is one of them."""
    found = [most]
    while found[-1] > 1:
        found.append(min(found[-1] - 1, -(-found[-1] * 2 // 3)) if found[-1] > 4 else found[-1] // 2)
    return sorted({*found, *({7} if most > 7 else ())}, reverse=True)
