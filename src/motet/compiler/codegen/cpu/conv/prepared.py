"""Copies of whole images as [outer loop][plane][row][column][channel], which `direct.py` reads in place.

A phase before the convolution copies the image once for all tasks, to a workspace. Padding is copied only where the
convolution cannot omit it: if it is not zero, if channels are few, or if it makes many kinds of tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.copies import RowCopies
from motet.compiler.codegen.cpu.emit.builder import PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame, task_function
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess, product_of
from motet.compiler.kernels.windows import Window

_LINE_COLUMNS = 512  # at most, of neighbouring rows, in a task that copies them


@dataclass(frozen=True)
class Prepared:
    """`source` as a convolution of a copy of its image: `c`. `outer` are the loops along which copies differ."""

    source: Convolution
    c: Convolution
    pads: bool
    outer: tuple[tuple[Extent, int], ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Planes, rows and columns of the copy."""
        return tuple(w.image for w in self.c.windows)

    @property
    def bytes(self) -> Expr:
        each = math.prod(self.extents) * self.c.channels * item_bytes(self.c.product.dtype)
        return product((each, *(size.expression for size, _ in self.outer)))


def prepare(c: Convolution, pads: bool) -> Prepared:
    """`c` with a copy of its image, which includes the padding if `pads`."""
    windows: list[Window] = []
    step = c.channels
    for w in reversed(c.windows):
        extent = w.reach if pads else w.image
        windows.insert(0, replace(w, image=extent, low=0 if pads else w.low, step=step))
        step *= extent
    strides = [ZERO] * len(c.main.sizes)
    moving = {w.out for w in windows}
    outer = tuple((size, d) for size, d in c.outer if d not in moving and c.image.strides[d] != ZERO)
    running = Extent(step)
    for size, d in reversed(outer):
        strides[d] = running
        running = running * size
    for w in windows:
        if w.out >= 0:
            strides[w.out] = Extent(w.stride * w.step)
    *planes, rows, columns = windows
    image = StridedAccess(c.image.value, c.product.dtype, (), tuple(strides))
    widened = replace(c.product, lhs=replace(c.product.lhs, casts=()))
    copied = replace(
        c, product=widened, image=image, channel_step=1, planes=tuple(planes), rows=rows, columns=columns,
        padding=None if pads else c.padding)
    return Prepared(c, copied, pads, outer)


def workspace(f: TileFrame) -> ir.Value:
    """The address of the copy."""
    with f.goto_entry_block():
        return f.load(f.at(f.arguments[0], len(f.kernel.externals), PTR), typ=PTR, align=8)


def copy_phase(module: ir.Module, p: Prepared, lanes: int) -> Phase:
    """The phase that copies the image; a task copies one row, or a part of neighbouring rows without padding."""
    return _CopyPhase(p, lanes).emit(module)


class _CopyPhase:
    def __init__(self, p: Prepared, lanes: int) -> None:
        self.p = p
        self.copies = RowCopies(p.source, lanes)
        # Rows that are neighbours in memory are one line.
        inner = 1
        windows = p.source.windows
        while not p.pads and inner < len(windows) and windows[-inner - 1].step == (
            windows[-inner].step * windows[-inner].image
        ):
            inner += 1
        self.axes = windows[: len(windows) - inner]
        self.extents = p.extents[: len(self.axes)]
        self.columns = math.prod(p.extents[len(self.axes) :])
        self.piece = self.columns
        if not p.pads and self.columns > _LINE_COLUMNS:
            self.piece = _LINE_COLUMNS // lanes * lanes
        self.pieces = -(-self.columns // self.piece)

    def emit(self, module: ir.Module) -> Phase:
        p, c = self.p, self.p.source
        name = f"{c.kernel.name}_copy"
        f = task_function(module, c.kernel, name)
        lines = math.prod(self.extents) * self.pieces

        def task(index: Index, _: list[ir.Value]) -> None:
            line, rest = f.irem(index, lines), f.idiv(index, lines)
            copy: Index = rest
            source: Index = 0
            for size, d in reversed(p.outer):
                source = f.iadd(source, f.imul(f.extent(c.image.strides[d]), f.irem(rest, f.extent(size))))
                rest = f.idiv(rest, f.extent(size))
            self._line(f, f.at(f.pointer(c.image.value), source, MEMORY_TYPES[c.image.dtype]), copy, line)

        f.loop(f.arguments[2], f.arguments[3], 1, task)
        f.ret_void()
        return Phase(name, product((lines, product_of(p.outer).expression)))

    def _line(self, f: TileFrame, image: ir.Value, copy: Index, line: Index) -> None:
        """Copy line `line` of copy `copy`, counted in pieces."""
        p, c = self.p, self.p.source
        piece, number = f.irem(line, self.pieces), f.idiv(line, self.pieces)
        begin = f.imul(f.iadd(f.imul(copy, math.prod(self.extents)), number), self.columns)
        begin = f.iadd(begin, f.imul(piece, self.piece))
        target = f.at(workspace(f), f.imul(begin, c.channels), self.copies.element)
        offset: Index = f.imul(piece, self.piece * c.columns.step)
        places: list[tuple[Window, Index]] = []
        for w, extent in zip(reversed(self.axes), reversed(self.extents), strict=True):
            at = f.isub(f.irem(number, extent), w.low if p.pads else 0)
            number = f.idiv(number, extent)
            offset = f.iadd(offset, f.imul(at, w.step))
            places.append((w, at))
        source = f.at(image, offset, self.copies.image_element)
        if p.pads:
            self.copies.guarded(f, places, lambda: self.copies.padded_row(f, source, target),
                                lambda: self.copies.fill_run(f, target, self.columns * c.channels))
            return
        last = self.columns - self.piece * (self.pieces - 1)
        if self.pieces == 1 or last == self.piece:
            self.copies.copy_columns(f, source, target, last)
            return
        with f.if_else(f.icmp_signed("<", f.index(piece), f.index(self.pieces - 1))) as (then, otherwise):
            with then:
                self.copies.copy_columns(f, source, target, self.piece)
            with otherwise:
                self.copies.copy_columns(f, source, target, last)
