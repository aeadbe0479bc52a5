"""Parts common to convolutions along filters and along pixels: tasks, the begin and end of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce

from llvmlite import ir

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage, slides_of, with_copy
from motet.compiler.codegen.cpu.conv.slides import Slide, known_part, number
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import constant
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    narrow,
    task_function,
    transpose,
    widen,
)
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import Kernel, Packing, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import ConvolutionSchedule, DepthwiseSchedule, DirectSchedule, PlanesSchedule
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess


def task_loop(
    f: TileFrame, outer: Sequence[tuple[Extent, int]], rank: int, blocks: Expr, splits: int,
    task: Callable[[TileFrame, list[Index], Index, Index, ir.Value], None], inner: Sequence[tuple[Extent, int]] = (),
) -> Phase:
    """Ends the kernel's function with the loop over its tasks: `task` emits block and split at coordinates in the loops
    `outer` and `inner`, of `rank` dimensions. Blocks vary fastest, then the `inner` loops, then splits."""
    begin, end, scratch = f.arguments[2:]
    count = number(f, blocks)

    def one(index: Index, _: list[ir.Value]) -> None:
        block, rest = f.irem(index, count), f.idiv(index, count)
        at: list[Index] = [0] * rank
        for size, dim in reversed(inner):
            at[dim], rest = f.irem(rest, f.extent(size)), f.idiv(rest, f.extent(size))
        split, rest = f.irem(rest, splits), f.idiv(rest, splits)
        for position, (size, dim) in enumerate(reversed(outer)):
            last = position == len(outer) - 1
            at[dim] = rest if last else f.irem(rest, f.extent(size))
            rest = rest if last else f.idiv(rest, f.extent(size))
        task(f, at, block, split, scratch)

    f.loop(begin, end, 1, one)
    f.ret_void()
    return Phase(f.kernel.name, product((blocks, splits, *(size.expression for size, _ in (*inner, *outer)))))


def external_bytes(kernel: Kernel) -> int:
    """Bytes of everything outside, once; dynamic extents count as 1."""
    values = [kernel.values[i] for i in kernel.externals]
    return sum(known_part(value.shape) * item_bytes(value.dtype) for value in values)


def vectors_of(count: int, lanes: int) -> list[PartialVector]:
    """Vectors of `lanes` for `count` elements, the last of which may be partial."""
    return [PartialVector(lanes, count - at if count - at < lanes else None) for at in range(0, count, lanes)]


def each_panel(
    f: TileFrame, count: int, plan: DepthwiseSchedule | PlanesSchedule, part: tuple[Index, Index] | None,
    tile: Callable[[Index, list[PartialVector]], None],
) -> None:
    """Emit `tile` for the first element and the vectors of each panel of `count` elements, or of those of number
    `[part)`. An incomplete last panel is emitted separately."""
    width = plan.lanes * plan.vectors
    whole, left = divmod(count, width)
    begin, end = part or (0, whole + 1)
    f.loop(begin, f.imin(end, whole), 1, lambda p, _: tile(f.imul(p, width), vectors_of(width, plan.lanes)))
    if left:
        with nullcontext() if isinstance(end, int) else f.if_then(f.icmp_signed(">", end, f.index(whole))):
            tile(whole * width, vectors_of(left, plan.lanes))


def initial_value(
    f: TileFrame, views: Views, init: StridedAccess | float | int, dtype: str, at: tuple[Index, Index],
    lanes: PartialVector,
) -> ir.Value:
    """The initial sums in `dtype` at a row and column of `views`."""
    if isinstance(init, StridedAccess):
        return widen(f, views.read(init, *at, lanes), init.dtype, (), dtype)
    return constant(dtype, init, lanes.lanes)


class Emitter:
    """Base of convolution emitters: the task loop, and the begin and end of tiles."""

    slack = 0  # elements that may be read after the copy of the image

    def __init__(
        self, c: Convolution, plan: ConvolutionSchedule | DirectSchedule, packing: Packing | None, panels: int,
        panel_count: int, copy: PreparedImage | None = None,
    ) -> None:
        """A task has `panels` of `panel_count` panels of filters. With `copy`, the image is in the workspace."""
        self.c = c
        self.plan = plan
        self.packing = packing
        self.panels, self.panel_count = panels, panel_count
        self.module = ir.Module(c.kernel.name)
        self.element = MEMORY_TYPES[c.product.dtype]
        self.image_element = MEMORY_TYPES[c.image.dtype]
        self.copy = copy
        self.slides = slides_of(c, copy)
        self.blocks: Expr = ceildiv(self.slides[-2].size, plan.block)

    def scratch_elements(self) -> int:
        return 0

    def emit_task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        raise NotImplementedError

    def run(self) -> KernelCode:
        c, kernel = self.c, self.c.kernel
        f = task_function(self.module, kernel)
        moving = [plane.out for plane in c.planes]
        inner, outer = ([loop for loop in c.outer if (loop[1] in moving) == moves] for moves in (True, False))
        splits = -(-self.panel_count // self.panels)
        phase = task_loop(f, outer, len(c.main.sizes), self.blocks, splits, self.emit_task, inner)
        sizes = (*(size.expression for size, _ in c.outer), *(slide.size for slide in self.slides[-2:]))
        flops = 2 * known_part(sizes) * c.filter_count * c.depth * len(c.filters)
        packings = {p.value: self.packing for p in c.filters} if self.packing is not None else {}
        phases, workspaces = with_copy(self.module, self.copy, self.plan.lanes, phase, self.slack)
        return KernelCode(
            "convolution", str(self.module), phases, self.scratch_elements() * item_bytes(c.product.dtype), workspaces,
            packings, flops, external_bytes(kernel),
        )

    # -- tiles -----------------------------------------------------------------------------------

    def place_in_space(self, outer: Sequence[ir.Value], column: Index, row: Index, w: Index) -> list[Index]:
        """The coordinates, one for each dimension of the convolution's iteration space."""
        c = self.c
        at: list[Index] = [0] * len(c.main.sizes)
        for value, (_, dim) in zip(outer, c.outer, strict=True):
            at[dim] = value
        at[c.filter_dim] = column
        for window, coordinate in ((c.rows, row), (c.columns, w)):
            if window.out >= 0:
                at[window.out] = coordinate
        return at

    def begin_tile(
        self, f: TileFrame, views: Views, height: int, lanes: Sequence[PartialVector], present: Index | None = None
    ) -> list[ir.Value]:
        """The initial sums of a tile of which the first `present` pixels exist (None: all)."""
        rows: list[Index] = list(range(height))
        column = self.c.columns.out
        inits = [init for init in self.c.inits if isinstance(init, StridedAccess)]
        if present is not None and column >= 0 and any(init.strides[column] != ZERO for init in inits):
            rows[1:] = [f.imin(row, f.isub(present, 1)) for row in rows[1:]]
        return [self.initial(f, views, row, v * self.plan.lanes, lane) for row in rows for v, lane in enumerate(lanes)]

    def finish_tile(
        self, f: TileFrame, views: Views, height: int, lanes: Sequence[PartialVector],
        read: Callable[[int, int], ir.Value], present: Index | None = None,
    ) -> None:
        """Run the epilogue on the sums `read(row, vector)` of a tile, of which the first `present` rows exist (None:
        all). The first one always does: vectors that all rows share are read with it."""
        for row in range(height):
            all_exist = present is None or row == 0
            with nullcontext() if all_exist else f.if_then(f.icmp_signed("<", f.index(row), f.index(present))):
                for v, lane in enumerate(lanes):
                    value = narrow(f, read(row, v), self.c.output.dtype)
                    finish(f, self.c.epilogue, views, value, row, v * self.plan.lanes, lane)

    def finish_across(
        self, f: TileFrame, views: Views, height: int, lanes: Sequence[PartialVector],
        read: Callable[[int, int], ir.Value], present: Index | None = None,
    ) -> None:
        """Run the epilogue on a tile of `height` pixels whose sums, `read(pixel, vector)`, run along filters, and whose
        results are contiguous along pixels, of which the first `present` exist (None: all). `views` have filters as
        rows. Squares are transposed in registers."""
        c, n = self.c, self.plan.lanes
        kind = ir.VectorType(self.element, n)
        with f.goto_entry_block():
            square = f.alloca(kind, n)

        def column(i: Index, first: Index, begin: int, pixels: PartialVector) -> None:
            value = narrow(f, f.load_vector(f.at(square, f.imul(i, n), self.element), self.element, n), c.output.dtype)
            finish(f, c.epilogue, views, value, f.iadd(first, i), begin, pixels)

        for begin in range(0, height, n):
            count = min(n, height - begin)
            pixels = PartialVector(n, count if count < n else None)
            if present is not None:
                pixels = PartialVector(n, f.isub(present, begin))
            for v, lane in enumerate(lanes):
                sums = [read(begin + i, v) for i in range(count)] + [ir.Constant(kind, ir.Undefined)] * (n - count)
                for i, value in enumerate(transpose(f, sums)):
                    f.store_vector(value, f.at(square, i * n, self.element), self.element)
                body = partial(column, first=v * n, begin=begin, pixels=pixels)
                f.loop(0, n if lane.count is None else lane.count, 1, lambda i, _, body=body: body(i))

    def initial(self, f: TileFrame, views: Views, row: Index, column: Index, lanes: PartialVector) -> ir.Value:
        """The initial value of the sums at (`row`, `column`)."""
        c = self.c
        values = [initial_value(f, views, init, c.product.dtype, (row, column), lanes) for init in c.inits]
        return reduce(f.fadd if c.product.is_float else f.add, values)


def window_rows(f: TileFrame, slide: Slide, padded: bool, row: Index) -> tuple[Index, Index]:
    """The range of window rows that meet the image for output row `row`; may be empty."""
    w = slide.window
    if not padded:
        return 0, w.taps
    top = f.isub(f.imul(row, w.stride), w.low)
    above = _at_least_zero(f, f.isub(0, top))
    below = _at_least_zero(f, f.isub(number(f, slide.image), top))
    low = f.idiv(f.iadd(above, w.dilation - 1), w.dilation)
    high = f.imin(w.taps, f.idiv(f.iadd(below, w.dilation - 1), w.dilation))
    return low, high


def _at_least_zero(f: TileFrame, value: Index) -> Index:
    if isinstance(value, int):
        return max(0, value)
    return f.select(f.icmp_signed(">", value, f.index(0)), value, f.index(0))
