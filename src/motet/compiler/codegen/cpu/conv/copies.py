"""Copies rows of images: along columns, or with columns and channels transposed to channels-last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.shuffles import alternating
from motet.compiler.codegen.cpu.conv.slides import Slide, number
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import constant
from motet.compiler.codegen.cpu.emit.strided_loads import interleaved
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    read_vector,
    transpose,
    widen,
    write_vector,
)
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.product import Product
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess
from motet.compiler.kernels.windows import Window

_MOST_INTERLEAVED = 8  # channels that shuffles interleave; the number of shuffles grows with its square
_MOST_SKIPPED = 8  # a step of columns up to which whole vectors are loaded and shuffled


class Imaged(Protocol):
    """What copies need to know of a convolution: the `windows` over its image, the last of them along `columns`, the
    `channels`, and the loops outside of these."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def product(self) -> Product: ...
    @property
    def image(self) -> StridedAccess: ...
    @property
    def outer(self) -> tuple[tuple[Extent, int], ...]: ...
    @property
    def windows(self) -> tuple[Window, ...]: ...
    @property
    def columns(self) -> Window: ...
    @property
    def channels(self) -> int: ...
    @property
    def channel_dim(self) -> int: ...
    @property
    def padding(self) -> float | int | None: ...


def guarded(
    f: TileFrame, padding: float | int | None, places: Sequence[tuple[Index, Index]], inside: Callable[[], None],
    outside: Callable[[], None],
) -> None:
    """Emit `inside` where each position of `places` is below the extent before it and not negative, and `outside` in
    the padding, if there is any."""
    if padding is None or not places:
        inside()
        return
    extent, at = places[0]
    exists = f.and_(*(f.icmp_signed(op, f.index(at), f.index(limit)) for op, limit in ((">=", 0), ("<", extent))))
    with f.if_else(exists) as (then, otherwise):
        with then:
            guarded(f, padding, places[1:], inside, outside)
        with otherwise:
            outside()


class RowCopies:
    """Emits copies of rows of a convolution's image, widened to the product's dtype, in vectors of `lanes`
    elements."""

    def __init__(self, c: Imaged, lanes: int) -> None:
        self.c = c
        self.lanes = lanes
        self.channel_step = c.image.strides[c.channel_dim] if c.channel_dim >= 0 else ONE
        self.element = MEMORY_TYPES[c.product.dtype]
        self.image_element = MEMORY_TYPES[c.image.dtype]

    def copy_run(self, f: TileFrame, source: ir.Value, step: int, target: ir.Value, to: int, count: Index) -> None:
        """`target[i * to] = source[i * step]`, widened, for `count` elements."""

        def vector(i: Index, width: PartialVector) -> None:
            value = self._read(f, f.at(source, f.imul(i, step), self.image_element), step, width)
            write_vector(f, value, f.at(target, f.imul(i, to), self.element), self.c.product.dtype, to, width)

        self._vectors(f, count, vector)

    def _vectors(self, f: TileFrame, count: Index, emit: Callable[[Index, PartialVector], None]) -> None:
        """Emit `emit` for the vectors of `count` elements, the last of which may be partial."""
        whole = f.imul(f.idiv(count, self.lanes), self.lanes)
        f.loop(0, whole, self.lanes, lambda i, _: emit(i, PartialVector(self.lanes)))
        if isinstance(count, int) and count == whole:
            return
        rest = PartialVector(self.lanes, f.isub(count, whole))
        if isinstance(count, int):
            emit(whole, rest)
            return
        with f.if_then(f.icmp_signed(">", count, f.index(whole))):
            emit(whole, rest)

    def fill_run(self, f: TileFrame, target: ir.Value, count: Index) -> None:
        """Write `count` elements of padding."""
        value = constant(self.c.product.dtype, self.c.padding or 0, self.lanes)
        self._vectors(f, count, lambda i, width: write_vector(
            f, value, f.at(target, i, self.element), self.c.product.dtype, 1, width))

    def padded_row(self, f: TileFrame, columns: Slide, source: ir.Value, target: ir.Value) -> None:
        """Copy the image row at `source` as [column][channel], with the columns of padding."""
        channels, reach = self.c.channels, number(f, columns.reach)
        low = f.imin(columns.window.low, reach)
        high = f.imin(reach, f.iadd(columns.window.low, number(f, columns.image)))
        self.fill_run(f, target, f.imul(low, channels))
        self.copy_columns(f, source, f.at(target, f.imul(low, channels), self.element), f.isub(high, low))
        rest = f.imul(f.isub(reach, high), channels)
        self.fill_run(f, f.at(target, f.imul(high, channels), self.element), rest)

    def copy_columns(self, f: TileFrame, source: ir.Value, target: ir.Value, count: Index) -> None:
        """Copy `count` columns of an image row as [column][channel]."""
        c = self.c
        if isinstance(count, int) and count <= 0:
            return
        if c.channels == 1:
            self.copy_run(f, source, c.columns.step, target, 1, count)
        elif self.channel_step == ONE and c.columns.step == c.channels:
            self.copy_run(f, source, 1, target, 1, f.imul(count, c.channels))
        elif self.channel_step == ONE:
            def column(w: Index, _: list[ir.Value]) -> None:
                at = f.at(source, f.imul(w, c.columns.step), self.image_element)
                self.copy_run(f, at, 1, f.at(target, f.imul(w, c.channels), self.element), 1, c.channels)

            f.loop(0, count, 1, column)
        elif c.columns.step == 1 and c.channels <= _MOST_INTERLEAVED:
            self._interleave(f, source, target, count)
        elif c.columns.step == 1:
            self._transpose(f, source, target, count)
        else:
            def channel(k: Index, _: list[ir.Value]) -> None:
                at = f.at(source, f.imul(k, f.extent(self.channel_step)), self.image_element)
                self.copy_run(f, at, c.columns.step, f.at(target, k, self.element), c.channels, count)

            f.loop(0, c.channels, 1, channel)

    def _read(self, f: TileFrame, address: ir.Value, step: int, width: PartialVector) -> ir.Value:
        c = self.c
        present = width.lanes if width.count is None else width.count
        if 1 < step <= _MOST_SKIPPED and isinstance(present, int):
            raw = interleaved(f, address, self.image_element, present, step, width.lanes)
        else:
            raw = read_vector(f, address, c.image.dtype, step, width)
        return widen(f, raw, c.image.dtype, c.product.lhs.casts, c.product.dtype)

    def _transpose(self, f: TileFrame, source: ir.Value, target: ir.Value, count: Index) -> None:
        """Transpose channels that are stored as separate planes to [column][channel], in squares."""
        c, lanes = self.c, self.lanes
        step = f.extent(self.channel_step)

        def square(k: Index, channels: int, i: Index, across: PartialVector) -> None:
            down = PartialVector(lanes, channels if channels < lanes else None)
            vectors = [
                self._read(f, f.at(source, f.iadd(f.imul(f.iadd(k, each), step), i), self.image_element), 1, across)
                for each in range(channels)
            ]
            missing = ir.Constant(vectors[0].type, ir.Undefined)
            columns = lanes if across.count is None else across.count
            for each, value in enumerate(transpose(f, vectors + [missing] * (lanes - channels))):
                to = f.at(target, f.iadd(f.imul(f.iadd(i, each), c.channels), k), self.element)
                if not isinstance(columns, int):
                    with f.if_then(f.icmp_signed("<", f.index(each), columns)):
                        write_vector(f, value, to, c.product.dtype, 1, down)
                elif each < columns:
                    write_vector(f, value, to, c.product.dtype, 1, down)

        def some(k: Index, channels: int) -> None:
            self._vectors(f, count, lambda i, across: square(k, channels, i, across))

        whole = c.channels // lanes * lanes
        f.loop(0, whole, lanes, lambda k, _: some(k, lanes))
        if c.channels > whole:
            some(whole, c.channels - whole)

    def _interleave(self, f: TileFrame, source: ir.Value, target: ir.Value, count: Index) -> None:
        """Transpose a few channels, stored as separate planes, to [column][channel] by shuffles of whole vectors."""
        c, lanes = self.c, self.lanes
        step = f.extent(self.channel_step)

        def some(i: Index, width: PartialVector) -> None:
            vectors = [
                self._read(f, f.at(source, f.iadd(f.imul(k, step), i), self.image_element), 1, width)
                for k in range(c.channels)
            ]
            present = lanes if width.count is None else width.count
            for part, value in enumerate(alternating(f, vectors)):
                left = f.isub(f.imul(present, c.channels), part * lanes)
                if isinstance(left, int) and left <= 0:
                    break
                rest = PartialVector(lanes, None if isinstance(left, int) and left >= lanes else left)
                to = f.at(target, f.iadd(f.imul(i, c.channels), part * lanes), self.element)
                write_vector(f, value, to, c.product.dtype, 1, rest)

        self._vectors(f, count, some)
