"""Copies of images of dynamic extents, with their padding, as [outer loop][plane][row][column][channel]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from motet.artifact.expressions import apply, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.copies import Imaged, RowCopies
from motet.compiler.codegen.cpu.conv.prepared import workspace
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import ONE, ZERO, Extent
from motet.compiler.kernels.windows import SINGLE, Axis, Window


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


def slide_of(window: Window, kernel: Kernel, axes: tuple[Axis, ...]) -> Slide:
    """`window`, whose extents are guesses, with those of the image's `axes`."""
    if window is SINGLE:
        return Slide(window, ONE, ONE, ZERO)
    for axis in axes:
        if any(walk.dim in (window.out, window.kernel) for walk in (*axis.outs, *axis.taps)):
            size = kernel.stages[0].sizes[window.out] if window.out >= 0 else 1
            return Slide(window, Extent.of(size), Extent.of(axis.extent), axis.stride)
    raise AssertionError(f"{kernel.name}: a window along no axis of the image")


@dataclass(frozen=True)
class PaddedCopy:
    """The copy that a convolution reads. In `source` dynamic extents are guesses; `slides` are its windows, and
    `channel_step` the stride of its channels, as they are at run time. `outer` are the loops along which images
    differ."""

    kernel: Kernel
    source: Imaged
    slides: tuple[Slide, ...]
    channel_step: Extent
    outer: tuple[tuple[Extent, int], ...]

    def bytes(self, slack: int) -> Expr:
        """The size of the copy, and of `slack` elements that may be read after it."""
        sizes = [self.source.channels, *(size.expression for size, _ in self.outer), *(s.reach for s in self.slides)]
        return apply("*", apply("+", product(sizes), slack), item_bytes(self.source.product.dtype))

    def reach(self, f: TileFrame, slide: Slide) -> Index:
        last = f.imul(f.isub(f.extent(slide.size), 1), slide.window.stride)
        return f.imax(f.iadd(last, slide.window.span(1)), 0)

    def steps(self, f: TileFrame) -> tuple[list[Index], Index]:
        """The strides of the copy along its windows, and the number of its elements for one iteration of the loops
        along which images differ."""
        steps: list[Index] = []
        step: Index = self.source.channels
        for slide in reversed(self.slides):
            steps.insert(0, step)
            step = f.imul(step, self.reach(f, slide))
        return steps, step

    def phase(self, module: ir.Module, lanes: int) -> Phase:
        """The phase that copies the image; a task copies one row."""
        c = self.source
        name = f"{self.kernel.name}_copy"
        f = task_function(module, self.kernel, name)
        copier = RowCopies(c, lanes, self.channel_step)
        lines = self.slides[:-1]

        def task(index: Index, _: list[ir.Value]) -> None:
            rest = index
            source: Index = 0
            places: list[tuple[Slide, Index]] = []
            for slide in reversed(lines):
                reach = self.reach(f, slide)
                at = f.isub(f.irem(rest, reach), slide.window.low)
                rest = f.idiv(rest, reach)
                source = f.iadd(source, f.imul(at, f.extent(slide.step)))
                places.append((slide, at))
            for size, dim in reversed(self.outer):
                source = f.iadd(source, f.imul(f.extent(c.image.strides[dim]), f.irem(rest, f.extent(size))))
                rest = f.idiv(rest, f.extent(size))
            pitch = f.imul(self.reach(f, self.slides[-1]), c.channels)
            target = f.at(workspace(f), f.imul(index, pitch), copier.element)
            image = f.at(f.pointer(c.image.value), source, copier.image_element)
            self._line(f, copier, places, image, target)

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, product(
            [*(slide.reach for slide in lines), *(size.expression for size, _ in self.outer)]))

    # Parameters: what is copied from where to where.
    def _line(
        self, f: TileFrame, copier: RowCopies, places: Sequence[tuple[Slide, Index]], source: ir.Value, target: ir.Value
    ) -> None:
        """Copy the image row at `source`, which exists if all `places` are in the image, with its padding."""
        c, columns = self.source, self.slides[-1]
        reach = self.reach(f, columns)
        low = f.imin(c.columns.low, reach)
        high = f.imin(reach, f.iadd(c.columns.low, f.extent(columns.image)))

        def inside() -> None:
            copier.fill_run(f, target, f.imul(low, c.channels))
            copier.copy_columns(f, source, f.at(target, f.imul(low, c.channels), copier.element), f.isub(high, low))
            rest = f.at(target, f.imul(high, c.channels), copier.element)
            copier.fill_run(f, rest, f.imul(f.isub(reach, high), c.channels))

        tests = [
            f.icmp_signed(op, f.index(at), f.index(limit))
            for slide, at in places for op, limit in ((">=", 0), ("<", f.extent(slide.image)))
        ]
        if c.padding is None or not tests:
            inside()
            return
        with f.if_else(reduce(f.and_, tests)) as (then, otherwise):
            with then:
                inside()
            with otherwise:
                copier.fill_run(f, target, f.imul(reach, c.channels))
