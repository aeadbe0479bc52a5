"""Copies of whole images as [outer loop][plane][row][column][channel], which other classes read in place.

A phase before the convolution copies the image once for all tasks, to a workspace. Padding is copied where the
convolution cannot omit it: if it is not zero, if channels are few, if it makes many kinds of tiles, or if extents are
dynamic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.artifact.expressions import apply, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.copies import Imaged, RowCopies, guarded
from motet.compiler.codegen.cpu.conv.slides import Slide, number
from motet.compiler.codegen.cpu.emit.builder import PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame, task_function
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.product import Product
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess, product_of

_LINE_COLUMNS = 512


@dataclass(frozen=True)
class PreparedImage:
    """The copy of the image of `source`, which includes the padding if `pads`. `slides` are the windows over the image.
    A task copies one row if `by_rows`, as copies with padding need, else at most `_LINE_COLUMNS` of neighbouring
    rows."""

    source: Imaged
    slides: tuple[Slide, ...]
    pads: bool
    by_rows: bool

    @staticmethod
    def of(c: Imaged, pads: bool, by_rows: bool) -> PreparedImage:
        """The copy of an image that has known extents along windows."""
        return PreparedImage(c, tuple(map(Slide.of, c.windows)), pads, by_rows)

    @property
    def outer(self) -> tuple[tuple[Extent, int], ...]:
        """The loops outside of windows along which images differ."""
        c, moving = self.source, {slide.window.out for slide in self.slides}
        return tuple((size, d) for size, d in c.outer if d not in moving and c.image.strides[d] != ZERO)

    @property
    def copied(self) -> tuple[Slide, ...]:
        """The windows over the copy."""
        result: list[Slide] = []
        guess = step = self.source.channels
        running: Expr = step
        for slide in reversed(self.slides):
            w, extent = slide.window, slide.image
            if self.pads:
                w, extent = replace(w, image=w.reach, low=0), slide.reach
            result.insert(0, Slide(replace(w, step=guess), slide.size, extent, running))
            guess *= w.image
            running = apply("*", running, extent)
        return tuple(result)

    @property
    def strides(self) -> dict[int, Expr]:
        """The strides of the copy along the loops of `outer` and the results of windows."""
        copied = self.copied
        strides = {s.window.out: apply("*", s.step, s.window.stride) for s in copied if s.window.out >= 0}
        running = apply("*", copied[0].step, copied[0].image)
        for size, dim in reversed(self.outer):
            strides[dim] = running
            running = apply("*", running, size.expression)
        return strides

    @property
    def product(self) -> Product:
        """The product of elements of the copy, which are widened."""
        return replace(self.source.product, lhs=replace(self.source.product.lhs, casts=()))

    @property
    def image(self) -> StridedAccess:
        return replace(self.source.image, dtype=self.source.product.dtype)

    def bytes(self, slack: int) -> Expr:
        """The size of the copy, and of `slack` elements that may be read after it."""
        item = item_bytes(self.source.product.dtype)
        sizes = (*(slide.image for slide in self.copied), *(size.expression for size, _ in self.outer))
        return apply("+", product((self.source.channels * item, *sizes)), slack * item)


def slides_of(c: Imaged, copy: PreparedImage | None) -> tuple[Slide, ...]:
    """The windows of `c` over its image, or over the `copy` that it reads."""
    return tuple(map(Slide.of, c.windows)) if copy is None else copy.copied


def image_at(f: TileFrame, c: Imaged, copy: PreparedImage | None, at: Sequence[Index]) -> ir.Value:
    """The address of the image of `c`, or of its `copy`, at outer coordinates `at`, channel 0, row 0, column 0."""
    if copy is None:
        return f.address(c.image, at)
    offset: Index = 0
    for dim, stride in copy.strides.items():
        offset = f.iadd(offset, f.imul(number(f, stride), at[dim]))
    return f.at(workspace(f), offset, MEMORY_TYPES[c.image.dtype])


def workspace(f: TileFrame) -> ir.Value:
    """The address of the copy."""
    with f.goto_entry_block():
        return f.load(f.at(f.arguments[0], len(f.kernel.externals), PTR), typ=PTR, align=8)


def with_copy(
    module: ir.Module, copy: PreparedImage | None, lanes: int, phase: Phase, slack: int = 0
) -> tuple[tuple[Phase, ...], tuple[Expr, ...]]:
    """The phases and workspaces of a convolution whose tasks are `phase`, and which reads up to `slack` elements after
    the copy of its image, if there is one."""
    if copy is None:
        return (phase,), ()
    return (_CopyPhase(copy, lanes).emit(module), phase), (copy.bytes(slack),)


class _CopyPhase:
    """The phase that copies the image."""

    def __init__(self, copy: PreparedImage, lanes: int) -> None:
        self.copy = copy
        self.rows = RowCopies(copy.source, lanes)
        # Rows that are neighbours in memory are one line.
        slides, inner = copy.slides, 1
        while not copy.by_rows and inner < len(slides) and slides[-inner - 1].step == (
            apply("*", slides[-inner].step, slides[-inner].image)
        ):
            inner += 1
        self.axes = list(zip(slides, copy.copied, strict=True))[: len(slides) - inner]
        self.columns = product(slide.image for slide in copy.copied[len(self.axes) :])
        self.piece, self.pieces = self.columns, 1
        if isinstance(self.columns, int) and not copy.by_rows and self.columns > _LINE_COLUMNS:
            self.piece = _LINE_COLUMNS // lanes * lanes
            self.pieces = -(-self.columns // self.piece)

    def emit(self, module: ir.Module) -> Phase:
        kernel = self.copy.source.kernel
        f = task_function(module, kernel, f"{kernel.name}_copy")
        f.loop(f.arguments[2], f.arguments[3], 1, lambda index, _: self._line(f, index))
        f.ret_void()
        sizes = (self.pieces, *(copied.image for _, copied in self.axes), product_of(self.copy.outer).expression)
        return Phase(f.function.name, product(sizes))

    def _line(self, f: TileFrame, index: Index) -> None:
        """Copy line `index`, counted in pieces over all images."""
        copy, c = self.copy, self.copy.source
        columns, each = number(f, self.columns), number(f, self.piece)
        piece, line = f.irem(index, self.pieces), f.idiv(index, self.pieces)
        rest = line
        offset: Index = f.imul(piece, f.imul(each, c.columns.step))
        places: list[tuple[Index, Index]] = []
        for slide, copied in reversed(self.axes):
            extent = number(f, copied.image)
            at = f.isub(f.irem(rest, extent), slide.window.low if copy.pads else 0)
            rest = f.idiv(rest, extent)
            offset = f.iadd(offset, f.imul(at, number(f, slide.step)))
            places.append((number(f, slide.image), at))
        for size, dim in reversed(copy.outer):
            offset = f.iadd(offset, f.imul(f.extent(c.image.strides[dim]), f.irem(rest, f.extent(size))))
            rest = f.idiv(rest, f.extent(size))
        begin = f.iadd(f.imul(line, f.imul(columns, c.channels)), f.imul(piece, f.imul(each, c.channels)))
        target = f.at(workspace(f), begin, self.rows.element)
        source = f.at(f.pointer(c.image.value), offset, self.rows.image_element)
        if copy.pads:
            guarded(f, c.padding, places, lambda: self.rows.padded_row(f, copy.slides[-1], source, target),
                              lambda: self.rows.fill_run(f, target, f.imul(columns, c.channels)))
            return
        last = f.isub(columns, f.imul(each, self.pieces - 1))
        if self.pieces == 1 or last == each:
            self.rows.copy_columns(f, source, target, last)
            return
        with f.if_else(f.icmp_signed("<", f.index(piece), f.index(self.pieces - 1))) as (then, otherwise):
            with then:
                self.rows.copy_columns(f, source, target, each)
            with otherwise:
                self.rows.copy_columns(f, source, target, last)
