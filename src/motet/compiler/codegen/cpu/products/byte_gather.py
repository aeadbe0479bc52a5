"""Gathers the lines of a convolution of bytes: what the window of each point sees of the image (see `byte_image.py`).

A line is copied in runs of contiguous bytes: all taps of the last axis with their channels where these are inside the
image and side by side, else one tap at a time. Each task gathers the lines of its register tiles in scratch memory,
where they stay in the second-level cache. An image with contiguous pixels is first transposed to a workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.expressions import apply
from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.space import Range
from motet.compiler.codegen.cpu.products.byte_image import ByteImage, ImageAxis
from motet.compiler.codegen.cpu.products.instructions import BLOCK, BYTES, LINES
from motet.compiler.codegen.cpu.products.space import LineSpace
from motet.compiler.codegen.cpu.products.squares import DEPTH, SQUARE, PackedLines, packing_function
from motet.compiler.kernels.kernel_code import Phase

_LONGEST_RUN = 256  # bytes copied by straight-line code
_VECTOR = 64


@dataclass(frozen=True)
class ByteGather:
    """Emits the functions that gather lines of `image`, and the phase that transposes it."""

    space: LineSpace
    image: ByteImage

    # -- the image -----------------------------------------------------------------------------------

    def transpose_phase(self) -> Phase | None:
        """The phase that stores the image channels-last: tasks of 64 pixels."""
        s, what = self.space, self.image.transposed
        if what is None:
            return None
        name = f"{s.kernel.name}_image"
        f = task_function(s.module, s.kernel, name)
        groups = -(-what.pixels // LINES)
        padded = -(-what.channels // DEPTH) * DEPTH
        direct = padded == what.channels and what.pixels % BLOCK == 0  # lines are written sixteen at a time
        pack = packing_function(
            s.module, s.kernel, f"{s.kernel.name}.transpose", BYTES,
            lambda _: PackedLines(1, what.pixels, False, True),
        )

        def task(index: Index, _: list[ir.Value]) -> None:
            matrix, first = f.idiv(index, groups), f.imul(f.irem(index, groups), LINES)
            source = f.iadd(f.imul(matrix, what.pixels * what.channels), first)
            target = f.iadd(f.imul(matrix, what.pixels * what.channels), f.imul(first, what.channels))
            to = f.at(s.memory(f, s.image_workspace), target, I8)
            left = f.imin(f.isub(what.pixels, first), LINES)
            lines = to if direct else f.at(f.arguments[4], SQUARE, I8)
            sizes = [f.index(value) for value in (left, what.channels, padded)]
            at = f.at(f.pointer(self.image.value), source, I8)
            f.call(pack, [*f.arguments[:2], at, lines, lines, f.arguments[4], *sizes])
            if not direct:
                f.loop(0, left, 1, lambda i, _: copy_run(
                    f, f.at(lines, f.imul(i, padded), I8), f.at(to, f.imul(i, what.channels), I8), what.channels))

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, apply("*", what.count.expression, groups))

    # -- lines ---------------------------------------------------------------------------------------

    def gathered(self, f: TileFrame, at: Sequence[Index], first: Index, count: Index) -> ir.Value:
        """Gather lines `first` to `first + count` at outer coordinates `at` in scratch memory, in the order in which
        the register tiles read them; returns their address."""
        s, base = self.space, f.arguments[4]
        target = f.at(base, s.scratch_lines, I8)
        outer = [at[dim] for _, dim in s.c.outer]
        if not s.repacks:
            s.call(f, "gather", (target, first, count, *outer), self._write_gather)
            return target
        raw, square = f.at(base, s.scratch_raw, I8), f.at(base, s.scratch_square, I8)
        pack = self._packing()
        padded = s.padded_depth(f)
        scale = s.how.a_scale if self.image.is_a else 1

        def some(line: Index, _: list[ir.Value]) -> None:
            here = f.imin(f.isub(count, line), LINES)
            s.call(f, "gather", (raw, f.iadd(first, line), here, *outer), self._write_gather)
            to = f.at(target, f.imul(f.imul(line, padded), scale), I8)
            sums = f.at(f.at(base, s.scratch_sums, I8), line, I32) if s.row_sums else to
            numbers = [f.index(value) for value in (here, padded, padded)]
            f.call(pack, [*f.arguments[:2], raw, to, sums, square, *numbers])

        f.loop(0, count, LINES, some)
        return target

    def gathered_rows(self, f: TileFrame, at: list[Index], tiles: Range) -> ir.Value:
        """Where row 0 of A would be, if all rows were gathered like those of the register tiles `tiles`."""
        s = self.space
        first, end = s.first_row(f, tiles[0]), f.imin(s.row(f, tiles[1]), f.extent(s.m))
        lines = self.gathered(f, at, first, f.isub(end, first))
        return f.at(lines, f.isub(0, f.imul(first, s.a_row(f))), I8)

    def gathered_columns(self, f: TileFrame, at: list[Index], p: Index) -> ir.Value:
        """The columns of B of panel `p`, gathered."""
        s = self.space
        first = f.imul(p, s.plan.width)
        return self.gathered(f, at, first, f.imin(f.isub(f.extent(s.n), first), s.plan.width))

    def _packing(self) -> ir.Function:
        """The function that packs gathered lines as the register tiles read them."""
        s, how = self.space, self.space.how
        name = f"{s.kernel.name}.pack_lines"

        def lines(f: TileFrame) -> PackedLines:
            line = s.padded_depth(f)
            if not self.image.is_a:
                return PackedLines(line, 1, True, how.b_unsigned)
            return PackedLines(line, 1, False, how.a_unsigned, how.flips_a, how.a_scale > 1, s.row_sums)

        return s.module.globals.get(name) or packing_function(s.module, s.kernel, name, BYTES, lines)

    def _write_gather(self, f: TileFrame) -> None:
        """Emit the function `(buffers, sizes, target, first, count, outer…)` that gathers lines one after the other."""
        s, image = self.space, self.image
        target, first, count = f.arguments[2:5]
        source = f.pointer(image.value) if image.transposed is None else s.memory(f, s.image_workspace)
        points: dict[int, Index] = {dim: f.arguments[5 + i] for i, (_, dim) in enumerate(s.c.outer)}

        def line(i: Index, _: list[ir.Value]) -> None:
            rest: Index = f.iadd(first, i)
            here = dict(points)
            for size, dim in reversed(image.lines[1:]):
                here[dim] = f.irem(rest, f.extent(size))
                rest = f.idiv(rest, f.extent(size))
            here[image.lines[0][1]] = rest
            begins = [f.isub(f.imul(here.get(axis.dim, 0), axis.by), axis.low) for axis in image.axes]
            to = f.at(target, f.imul(i, s.padded_depth(f)), I8)
            _GatheredLine(f, image, source, begins).copy(0, 0, to, None)
            known = image.depth
            fill_run(f, f.at(to, known, I8), -known % DEPTH, 0)

        f.loop(0, count, 1, line)


class _GatheredLine:
    """Emits the copy of one line: loops over the taps of each axis, the last two as runs."""

    def __init__(self, f: TileFrame, image: ByteImage, source: ir.Value, begins: Sequence[Index]) -> None:
        self.f, self.image, self.source, self.begins = f, image, source, begins
        self.runs: list[int] = []  # the bytes of one step of each axis's taps
        size = image.channels
        for axis in reversed(image.axes):
            self.runs.insert(0, size)
            size *= axis.taps

    def copy(self, number: int, offset: Index, to: ir.Value, inside: ir.Value | None) -> None:
        """Copy the taps of axes from `number` on, at `offset` of the image. `inside` is whether the position on earlier
        axes is inside the image, None if it always is."""
        f, image = self.f, self.image
        if number == len(image.axes):
            self._run(offset, to, image.channels, inside)
            return
        axis = image.axes[number]
        last = number == len(image.axes) - 1
        if last and axis.taps > 1 and axis.dilation == 1 and axis.stride.known == image.channels:
            self._row(axis, number, offset, to, inside)
            return

        def tap(t: Index, _: list[ir.Value]) -> None:
            self._tap(axis, number, (offset, to, inside), t)

        if axis.taps == 1:
            tap(0, [])
        else:
            f.loop(0, axis.taps, 1, tap)

    def _tap(self, axis: ImageAxis, number: int, at: tuple[Index, ir.Value, ir.Value | None], t: Index) -> None:
        f = self.f
        offset, to, inside = at
        place = f.iadd(self.begins[number], f.imul(t, axis.dilation))
        if axis.checked:
            inside = self._both(inside, f.icmp_unsigned("<", f.index(place), f.index(f.extent(axis.extent))))
        there = f.iadd(offset, f.imul(place, f.extent(axis.stride)))
        self.copy(number + 1, there, f.at(to, f.imul(t, self.runs[number]), I8), inside)

    def _row(self, axis: ImageAxis, number: int, offset: Index, to: ir.Value, inside: ir.Value | None) -> None:
        """Copy the taps of the last axis, which are side by side: at once if all are inside."""
        f, begin = self.f, self.begins[number]
        whole = axis.taps * self.image.channels
        there = f.iadd(offset, f.imul(begin, self.image.channels))
        if not axis.checked:
            self._run(there, to, whole, inside)
            return
        room = f.isub(f.extent(axis.extent), axis.taps)
        all_inside = f.and_(
            f.icmp_signed(">=", f.index(begin), f.index(0)), f.icmp_signed("<=", f.index(begin), f.index(room))
        )
        with f.if_else(self._both(inside, all_inside)) as (plain, border):
            with plain:
                self._run(there, to, whole, None)
            with border:
                f.loop(0, axis.taps, 1, lambda t, _: self._tap(axis, number, (offset, to, inside), t))

    def _run(self, offset: Index, to: ir.Value, count: int, inside: ir.Value | None) -> None:
        f = self.f
        source = f.at(self.source, offset, I8)
        if inside is None:
            copy_run(f, source, to, count)
            return
        with f.if_else(inside) as (then, otherwise):
            with then:
                copy_run(f, source, to, count)
            with otherwise:
                fill_run(f, to, count, self.image.padding)

    def _both(self, left: ir.Value | None, right: ir.Value) -> ir.Value:
        return right if left is None else self.f.and_(left, right)


def copy_run(f: TileFrame, source: ir.Value, target: ir.Value, count: int) -> None:
    """Copy `count` bytes with vectors, of which the last two may overlap."""
    def piece(offset: Index, size: int) -> None:
        f.store_vector(f.load_vector(f.at(source, offset, I8), I8, size), f.at(target, offset, I8), I8)

    _pieces(f, count, piece)


def fill_run(f: TileFrame, target: ir.Value, count: int, number: int) -> None:
    """Set `count` bytes to `number`."""
    def piece(offset: Index, size: int) -> None:
        kind = ir.VectorType(I8, size) if size > 1 else I8
        value = ir.Constant(kind, [number] * size) if size > 1 else ir.Constant(kind, number)
        f.store_vector(value, f.at(target, offset, I8), I8)

    _pieces(f, count, piece)


def _pieces(f: TileFrame, count: int, piece: Callable[[Index, int], None]) -> None:
    """Call `piece(offset, size)` for vectors that cover `count` bytes."""
    whole = count // _VECTOR * _VECTOR
    if whole > _LONGEST_RUN:
        f.loop(0, whole, _VECTOR, lambda offset, _: piece(offset, _VECTOR))
    else:
        for offset in range(0, whole, _VECTOR):
            piece(offset, _VECTOR)
    rest = count - whole
    if not rest:
        return
    if whole:
        piece(count - _VECTOR, _VECTOR)
        return
    size = 1 << (rest.bit_length() - 1)
    piece(0, size)
    if rest != size:
        piece(rest - size, size)
