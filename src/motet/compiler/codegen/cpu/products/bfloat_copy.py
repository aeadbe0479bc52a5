"""The phase that copies the image of a convolution, padded and with channels inside (see `bfloat_image.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I16, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.products.bfloat_image import CopiedAxis, CopiedImage
from motet.compiler.codegen.cpu.products.instructions import BFLOATS
from motet.compiler.codegen.cpu.products.space import LineSpace
from motet.compiler.codegen.cpu.products.squares import PackedLines, packing_function
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import Extent

_TASK_NUMBERS = 8 << 10


@dataclass(frozen=True)
class ImageCopy:
    """Emits the phase that copies `image`."""

    space: LineSpace
    image: CopiedImage

    def emit(self) -> Phase:
        """The phase that copies the image; a task copies some lines along the last axis."""
        s, image = self.space, self.image
        name = f"{s.kernel.name}_copy"
        f = task_function(s.module, s.kernel, name)
        *lines, pixels = image.axes
        width = pixels.size
        assert isinstance(width, int)
        each = max(1, _TASK_NUMBERS // (width * image.padded))
        total: Expr = product(_size(axis).expression for axis in lines)
        count: Index = 1
        for axis in lines:
            count = f.imul(count, f.extent(_size(axis)))

        def task(index: Index, _: list[ir.Value]) -> None:
            begin = f.imul(index, each)
            f.loop(begin, f.imin(f.iadd(begin, each), count), 1, lambda line, _: self._line(f, line))

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, ceildiv(total, each))

    def _line(self, f: TileFrame, line: Index) -> None:
        """Copy the pixels of line `line`, counted over all axes but the last: zeros, those that exist, zeros."""
        s, image = self.space, self.image
        *lines, pixels = image.axes
        assert isinstance(pixels.size, int) and isinstance(pixels.extent, int)
        target = f.at(s.memory(f, s.image_workspace), f.imul(line, pixels.size * image.padded), I16)
        first, last = max(pixels.low, 0), min(pixels.low + pixels.size, pixels.extent)
        left = first - pixels.low
        source: Index = f.imul(f.extent(pixels.stride), first)
        inside: ir.Value | None = None
        rest = line
        for axis in reversed(lines):
            place = f.iadd(f.irem(rest, f.extent(_size(axis))), axis.low)
            rest = f.idiv(rest, f.extent(_size(axis)))
            source = f.iadd(source, f.imul(f.extent(axis.stride), place))
            for test in _tests(f, axis, place):
                inside = test if inside is None else f.and_(inside, test)
        if first >= last:
            self._zeros(f, target, pixels.size)
            return
        if inside is None:
            self._pixels(f, (left, last - first), source, target)
            return
        with f.if_else(inside) as (then, otherwise):
            with then:
                self._pixels(f, (left, last - first), source, target)
            with otherwise:
                self._zeros(f, target, pixels.size)

    def _pixels(self, f: TileFrame, place: tuple[int, int], source: Index, target: ir.Value) -> None:
        """Copy `place[1]` pixels after `place[0]` zeros."""
        s, image = self.space, self.image
        pixels = image.axes[-1]
        left, count = place
        assert isinstance(pixels.size, int)
        self._zeros(f, target, left)
        end = left + count
        self._zeros(f, f.at(target, end * image.padded, I16), pixels.size - end)

        def lines(g: TileFrame) -> PackedLines:
            return PackedLines(g.extent(pixels.stride), g.extent(image.channel_stride), False, exact=True)

        name = f"{s.kernel.name}.copy"
        function = s.module.globals.get(name) or packing_function(s.module, s.kernel, name, BFLOATS, lines)
        at = f.at(f.pointer(image.value), source, I16)
        to = f.at(target, left * image.padded, I16)
        f.call(function, [*f.arguments[:2], at, to, *map(f.index, (count, image.channels, image.padded))])

    def _zeros(self, f: TileFrame, target: ir.Value, pixels: int) -> None:
        if not pixels:
            return

        def write(g: TileFrame) -> None:
            target, count = g.arguments[2:4]
            zero = ir.Constant(ir.VectorType(I16, BFLOATS.depth), None)
            g.loop(0, count, BFLOATS.depth, lambda i, _: g.store_vector(zero, g.at(target, i, I16), I16))

        self.space.call(f, "zeros", (target, pixels * self.image.padded), write)


def _size(axis: CopiedAxis) -> Extent:
    return Extent.of(axis.size)


def _tests(f: TileFrame, axis: CopiedAxis, place: Index) -> list[ir.Value]:
    """The conditions under which position `place` of `axis` exists, without those that always hold."""
    tests: list[ir.Value] = []
    if axis.low < 0:
        tests.append(f.icmp_signed(">=", f.index(place), f.index(0)))
    if isinstance(axis.size, int) and isinstance(axis.extent, int) and axis.low + axis.size > axis.extent:
        tests.append(f.icmp_signed("<", f.index(place), f.index(axis.extent)))
    return tests
