"""Depthwise convolutions with channels-last results along axes of which some have dynamic extents.

They are computed as `depthwise.py` computes others, but of a copy of the image with its padding, so that the columns of
a row do not differ. A row is computed in tiles of a few numbers of pixels, the largest first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.expressions import product
from motet.compiler.codegen.cpu.conv.depthwise import DepthwiseEmitter, NearPixels
from motet.compiler.codegen.cpu.conv.depthwise_plan import MOST_TAPS, Depthwise, read_depthwise
from motet.compiler.codegen.cpu.conv.depthwise_plan import check as check_depthwise
from motet.compiler.codegen.cpu.conv.depthwise_plan import choose as choose_depthwise
from motet.compiler.codegen.cpu.conv.dynamic_copy import PaddedCopy, slide_of
from motet.compiler.codegen.cpu.conv.dynamic_plan import guesses_of
from motet.compiler.codegen.cpu.conv.emitter import external_bytes
from motet.compiler.codegen.cpu.conv.prepared import workspace
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame, task_function
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import DepthwiseSchedule, DynamicDepthwiseSchedule, Reason
from motet.compiler.kernels.strides import ZERO
from motet.compiler.kernels.windows import read_axes, read_windows
from motet.compiler.targets.cpu import CpuTarget


@dataclass(frozen=True)
class DynamicDepthwise:
    """A depthwise convolution `c`, in whose windows dynamic extents are guesses, of `copy`."""

    c: Depthwise
    copy: PaddedCopy


def match(kernel: Kernel, target: CpuTarget) -> DynamicDepthwise | None:
    """Read `kernel` as a depthwise convolution along dynamic axes; None if it is not one, or if its window has too many
    columns."""
    if not kernel.symbols or not kernel.stages:
        return None
    c, opening = read_depthwise(kernel, guesses_of(kernel)), read_windows(kernel.stages[0])
    if c is None or opening is None or c.columns.taps > MOST_TAPS:
        return None
    axes = read_axes(kernel, opening.stage, opening.image)
    slides = tuple(slide_of(window, kernel, axes) for window in (c.rows, c.columns))
    if slides[1].step.known != c.columns.step or all(s.size.known and s.image.known for s in slides):
        return None
    copied = tuple((size, d) for size, d in c.outer if c.image.strides[d] != ZERO)
    return DynamicDepthwise(c, PaddedCopy(kernel, c, slides, c.image.strides[c.channel_dim], copied))


def choose(d: DynamicDepthwise, target: CpuTarget) -> DynamicDepthwiseSchedule:
    """The register tile of a convolution of known extents."""
    found = choose_depthwise(d.c, target)
    return DynamicDepthwiseSchedule(found.lanes, found.vectors, found.pixels)


def check(d: DynamicDepthwise, schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `d` on `target`; an empty list if it is."""
    return check_depthwise(d.c, _alike(d, schedule), target)


def emit(d: DynamicDepthwise, schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution along dynamic axes by `schedule`."""
    return _DynamicDepthwise(d, _alike(d, schedule)).run()


CLASS = KernelClass(DynamicDepthwiseSchedule, match, choose, check, emit)


def _alike(d: DynamicDepthwise, s: DynamicDepthwiseSchedule) -> DepthwiseSchedule:
    """The schedule of a convolution of known extents whose tasks are single rows with all channels."""
    return DepthwiseSchedule(s.lanes, s.vectors, s.pixels, 1, -(-d.c.channels // max(1, s.lanes * s.vectors)))


class _DynamicDepthwise(DepthwiseEmitter):
    def __init__(self, d: DynamicDepthwise, plan: DepthwiseSchedule) -> None:
        super().__init__(d.c.of_copy(True), plan, [], True)
        self.copy = d.copy

    def run(self) -> KernelCode:
        c = self.c
        phases = self.copy.phase(self.module, self.plan.lanes), self._rows()
        known = math.prod(size.known or 1 for size, _ in (*c.outer,))
        return KernelCode(
            "depthwise", str(self.module), phases, workspaces=(self.copy.bytes(0),),
            packings={} if c.packing is None else {c.filters.value: c.packing},
            flops=2 * c.channels * c.rows.taps * c.columns.taps * known, bytes=external_bytes(c.kernel),
        )

    def row_step(self, f: TileFrame) -> Index:
        return self.copy.steps(f)[0][0]

    def _rows(self) -> Phase:
        """The phase that computes the result; a task has one row."""
        c = self.c
        f = task_function(self.module, c.kernel)
        rows = self.copy.slides[0].size

        def task(index: Index, _: list[ir.Value]) -> None:
            at: list[Index] = [0] * len(c.main.sizes)
            row, rest = f.irem(index, f.extent(rows)), f.idiv(index, f.extent(rows))
            for size, dim in reversed(c.outer):
                at[dim], rest = f.irem(rest, f.extent(size)), f.idiv(rest, f.extent(size))
            number: Index = 0
            for size, dim in self.copy.outer:
                number = f.iadd(f.imul(number, f.extent(size)), at[dim])
            offset = f.imul(number, self.copy.steps(f)[1])
            self._row(f, f.at(workspace(f), offset, MEMORY_TYPES[c.image.dtype]), at, row)

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(c.kernel.name, product([rows.expression, *(size.expression for size, _ in c.outer)]))

    def _row(self, f: TileFrame, image: ir.Value, at: list[Index], row: Index) -> None:
        c = self.c
        taps = tuple(range(c.columns.taps))
        count, done, pixels = f.extent(self.copy.slides[1].size), f.index(0), self.plan.pixels
        while pixels:
            end = f.iadd(done, f.imul(f.idiv(f.isub(count, done), pixels), pixels))

            def tile(column: Index, _: list[ir.Value], pixels: int = pixels) -> None:
                here = NearPixels(image, at, row, column, pixels, taps, (0, c.rows.taps))
                self.panels(f, 0, self.panel_count, lambda channel, lanes: self.tile(f, here, channel, lanes))

            f.loop(done, end, pixels, tile)
            done, pixels = f.index(end), pixels // 2
