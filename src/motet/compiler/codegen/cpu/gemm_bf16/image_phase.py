"""The phase that copies the image of a convolution, padded and with channels inside (see `windows.py`)."""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I16, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, shared_function, task_function
from motet.compiler.codegen.cpu.gemm_bf16.packing import BfloatLines, packing_function
from motet.compiler.codegen.cpu.gemm_bf16.space import BfloatSpace
from motet.compiler.codegen.cpu.gemm_bf16.tiles import DEPTH
from motet.compiler.codegen.cpu.gemm_bf16.windows import CopiedAxis, CopiedImage
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import Extent

_TASK_NUMBERS = 8 << 10


class BfloatImagePhase(BfloatSpace):
    """Emits the phase that copies the image."""

    def image_phase(self, image: CopiedImage) -> Phase:
        """The phase that copies `image`; a task copies some lines along the last axis."""
        name = f"{self.kernel.name}_copy"
        f = task_function(self.module, self.kernel, name)
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
            f.loop(begin, f.imin(f.iadd(begin, each), count), 1, lambda line, _: self._line(f, image, line))

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, ceildiv(total, each))

    def _line(self, f: TileFrame, image: CopiedImage, line: Index) -> None:
        """Copy the pixels of line `line`, counted over all axes but the last: zeros, those that exist, zeros."""
        *lines, pixels = image.axes
        assert isinstance(pixels.size, int) and isinstance(pixels.extent, int)
        target = f.at(self.memory(f, self.a_workspace), f.imul(line, pixels.size * image.padded), I16)
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
            self._zeros(f, image, target, pixels.size)
            return
        if inside is None:
            self._pixels(f, image, (left, last - first), source, target)
            return
        with f.if_else(inside) as (then, otherwise):
            with then:
                self._pixels(f, image, (left, last - first), source, target)
            with otherwise:
                self._zeros(f, image, target, pixels.size)

    def _pixels(
        self, f: TileFrame, image: CopiedImage, place: tuple[int, int], source: Index, target: ir.Value
    ) -> None:
        """Copy `place[1]` pixels after `place[0]` zeros."""
        pixels = image.axes[-1]
        left, count = place
        assert isinstance(pixels.size, int)
        self._zeros(f, image, target, left)
        end = left + count
        self._zeros(f, image, f.at(target, end * image.padded, I16), pixels.size - end)

        def lines(g: TileFrame) -> BfloatLines:
            return BfloatLines(g.extent(pixels.stride), g.extent(image.channel_stride), False, exact=True)

        function = self._copy_function(lines)
        at = f.at(f.pointer(image.value), source, I16)
        to = f.at(target, left * image.padded, I16)
        f.call(function, [*f.arguments[:2], at, to, *map(f.index, (count, image.channels, image.padded))])

    def _copy_function(self, lines: object) -> ir.Function:
        name = f"{self.kernel.name}.copy"
        found = self.module.globals.get(name)
        return found if found is not None else packing_function(self.module, self.kernel, name, lines)  # pyright: ignore[reportArgumentType]

    def _zeros(self, f: TileFrame, image: CopiedImage, target: ir.Value, pixels: int) -> None:
        if not pixels:
            return

        def write(g: TileFrame) -> None:
            zero = ir.Constant(ir.VectorType(I16, DEPTH), None)
            g.loop(0, g.arguments[3], DEPTH, lambda i, _: g.store_vector(zero, g.at(g.arguments[2], i, I16), I16))

        function = shared_function(self.module, f"{self.kernel.name}.zeros", [PTR] * 3 + [I64], self.kernel, write)
        f.call(function, [*f.arguments[:2], target, f.index(pixels * image.padded)])


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
