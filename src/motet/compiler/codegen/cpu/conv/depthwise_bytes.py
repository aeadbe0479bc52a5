"""Depthwise convolutions of bytes in channels-last images, summed exactly in 32 bits.

    sum over taps of (x - zero of x) * (w - zero of w)            one filter for each channel, any signs

Two kinds of arithmetic:

    dots      `vpdpbusd` multiplies four taps of a window's column at once. The bytes of four rows and sixteen channels
              are interleaved once for all results whose windows have this column; filters have this order when
              compiling. Rows outside the image are read from a line of the zero point in scratch memory, so that the
              correction for the zero point, which is the sum of a filter's taps times it, is the same for all results.
    floats    bytes minus their zero point are converted in registers, and sums are exact in f32: they stay below 2²⁴

Tiles, segments and tasks are those of `depthwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.conv import depthwise_plan
from motet.compiler.codegen.cpu.conv.depthwise import DepthwiseEmitter, NearPixels
from motet.compiler.codegen.cpu.conv.depthwise_plan import Depthwise
from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, read_vector
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.products.byte_reading import plain_stage, read_factors
from motet.compiler.codegen.cpu.products.product import Factor
from motet.compiler.kernels.kernel import Kernel, Packing
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.product import Operand, Product
from motet.compiler.kernels.schedule import DepthwiseSchedule, Reason
from motet.compiler.kernels.windows import Window, read_windows
from motet.compiler.targets.cpu import CpuTarget

_LANES = 16  # channels of a register of sums
_QUAD = 4  # taps that one lane multiplies
_EXACT = 1 << 24  # the largest integer up to which f32 has all integers


@dataclass(frozen=True)
class DepthwiseBytes:
    """A depthwise convolution `c` of the bytes `image` and `filters`, with their zero points."""

    c: Depthwise
    image: Factor
    filters: Factor
    image_zero: int
    filter_zero: int

    @property
    def groups(self) -> int:
        """Groups of four taps in a column of the window."""
        return -(-self.c.rows.taps // _QUAD)


def match(kernel: Kernel, target: CpuTarget) -> DepthwiseBytes | None:
    """Read `kernel` as a depthwise convolution of bytes whose image is padded by its zero point; None if it is not."""
    stage = kernel.stages[0] if kernel.stages else None
    factors = None if stage is None else read_factors(kernel, stage)
    zeros = [factor.zero for factor in factors or () if isinstance(factor.zero, int)]
    if stage is None or factors is None or len(zeros) < len(factors):
        return None
    plain = plain_stage(stage, factors)
    opening = read_windows(plain)
    if opening is None:
        return None
    own = opening.dims.product.lhs.input
    image, filters = factors[own], factors[1 - own]
    padding = plain.inputs[own].padding
    if padding is not None and (int(padding) - zeros[own]) % 256:
        return None
    if padding is not None:
        inputs = tuple(replace(each, padding=0) if i == own else each for i, each in enumerate(plain.inputs))
        plain = replace(plain, inputs=inputs)
    found = depthwise_plan.match(replace(kernel, stages=(plain, *kernel.stages[1:])), target)
    if found is None or found.output.dtype != "i32" or found.copy is not None:
        return None
    made = DepthwiseBytes(found, image, filters, zeros[own], zeros[1 - own])
    return made if _dots(made, target) or _is_exact(made) else None


def takes(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether `target`'s dot products make `kernel` faster than the instructions of a level without them."""
    found = match(kernel, target) if target.has("avx512vnni") else None
    return found is not None and _dots(found, target)


def _dots(found: DepthwiseBytes, target: CpuTarget) -> bool:
    c = found.c
    return (
        target.has("avx512vnni") and c.packing is not None and c.rows.taps > 1
        and not found.filters.unsigned and found.filter_zero == 0
    )


def _is_exact(found: DepthwiseBytes) -> bool:
    """Whether the sums are exact in f32."""
    taps = found.c.rows.taps * found.c.columns.taps
    return isinstance(found.c.init, int) and abs(found.c.init) + taps * 383 * 383 < _EXACT


def choose(found: DepthwiseBytes, target: CpuTarget) -> DepthwiseSchedule:
    return depthwise_plan.choose(found.c, target)


def check(found: DepthwiseBytes, schedule: DepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    return depthwise_plan.check(found.c, schedule, target)


def emit(found: DepthwiseBytes, schedule: DepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution of bytes by `schedule`."""
    made = _DotSums(found, schedule) if _dots(found, target) else _FloatSums(found, schedule)
    return replace(made.run(), kind="integer depthwise")


CLASS = KernelClass(DepthwiseSchedule, match, choose, check, emit)


class _FloatSums(DepthwiseEmitter):
    """Sums in f32 of bytes that are converted as they are read."""

    def __init__(self, found: DepthwiseBytes, plan: DepthwiseSchedule) -> None:
        self.found = found
        own = found.c.product
        casts = {each.input: _to_float(found, each is own.lhs) for each in (own.lhs, own.rhs)}
        lhs, rhs = (Operand(each.input, casts[each.input]) for each in (own.lhs, own.rhs))
        super().__init__(replace(found.c, product=Product(lhs, rhs, "f32")), plan, None)

    def read(
        self, f: TileFrame, base: ir.Value, offset: Index, operand: Literal["image", "filters"], lanes: PartialVector
    ) -> ir.Value:
        value = super().read(f, base, offset, operand, lanes)
        zero = self.found.image_zero if operand == "image" else self.found.filter_zero
        return f.fsub(value, ir.Constant(value.type, [float(zero)] * lanes.lanes)) if zero else value

    def result(self, f: TileFrame, value: ir.Value) -> ir.Value:
        return f.fptosi(value, ir.VectorType(I32, value.type.count))


def _to_float(found: DepthwiseBytes, is_image: bool) -> tuple[str, ...]:
    factor = found.image if is_image else found.filters
    return ("arith.uitofp" if factor.unsigned else "arith.sitofp",)


class _DotSums(DepthwiseEmitter):
    """Dot products of four taps of a window's column."""

    def __init__(self, found: DepthwiseBytes, plan: DepthwiseSchedule) -> None:
        assert found.c.packing is not None
        self.found = found
        packing = _interleaved(found.c.packing, found.c.rows.kernel >= 0, found.c.columns.kernel >= 0)
        super().__init__(replace(found.c, packing=packing), plan, None)
        self.reads_outside = found.c.padding is not None and _leaves(found.c.rows)
        row = found.c.columns.image * found.c.columns.step
        self.scratch = -(-(row + 2 * _LANES * plan.vectors) // 64) * 64 if self.reads_outside else 0

    def run(self) -> KernelCode:
        return replace(super().run(), scratch=self.scratch)

    def begin(self, f: TileFrame, scratch: ir.Value) -> None:
        """Fill the line that stands for rows outside the image."""
        self.outside = scratch
        if self.reads_outside:
            line = ir.Constant(ir.VectorType(I8, 64), [self.found.image_zero % 256] * 64)
            f.loop(0, self.scratch, 64, lambda i, _: f.store_vector(line, f.at(scratch, i, I8), I8))

    def tile(self, f: TileFrame, pixels: NearPixels, channel: Index, lanes: list[PartialVector]) -> None:
        c, plan = self.c, self.plan
        views = self.views(f, pixels, channel)
        rows = self._rows(f, pixels, channel)
        groups, blocks = self.found.groups, -(-c.channels // _LANES)
        filters = f.at(f.pointer(c.filters.value), f.imul(channel, _QUAD), I8)

        def weights(tap: int, group: int, v: int) -> ir.Value:
            offset = ((tap * groups + group) * blocks + v) * _LANES * _QUAD
            return f.load_vector(f.at(filters, offset, I8), I8, _LANES * _QUAD)

        sums = self._first(f, views, pixels, lanes, weights)
        users: dict[int, list[tuple[int, int]]] = {}
        for t in range(pixels.count):
            for k in range(c.columns.taps):
                position = t * c.columns.stride + k * c.columns.dilation
                users.setdefault(position if k in pixels.taps else -1, []).append((t, k))
        for position in sorted(users):
            for v, lane in enumerate(lanes):
                for group in range(groups):
                    four = rows[group * _QUAD : (group + 1) * _QUAD]
                    where = position * c.columns.step + v * plan.lanes
                    column = self._outside() if position < 0 else self._column(f, four, where, lane)
                    for t, k in users[position]:
                        number = t * len(lanes) + v
                        sums[number] = _dot(f, sums[number], column, weights(k, group, v))
        for t in range(pixels.count):
            for v, lane in enumerate(lanes):
                finish(f, c.epilogue, views, sums[t * len(lanes) + v], t, v * plan.lanes, lane)

    def _first(
        self, f: TileFrame, views: Views, pixels: NearPixels, lanes: list[PartialVector],
        weights: Callable[[int, int, int], ir.Value],
    ) -> list[ir.Value]:
        """The initial sums, less the filters' sums times the image's zero point."""
        c = self.c
        firsts = [self.initial(f, views, t, v, lane) for t in range(pixels.count) for v, lane in enumerate(lanes)]
        if not self._zero:
            return firsts
        ones = ir.Constant(ir.VectorType(I8, _LANES * _QUAD), [1] * (_LANES * _QUAD))
        factor = ir.Constant(ir.VectorType(I32, _LANES), [self._zero] * _LANES)
        shifts: list[ir.Value] = []
        for v in range(len(lanes)):
            total: ir.Value = ir.Constant(ir.VectorType(I32, _LANES), None)
            for k in range(c.columns.taps):
                for group in range(self.found.groups):
                    total = _dot(f, total, ones, weights(k, group, v))
            shifts.append(f.mul(total, factor))
        return [f.sub(value, shifts[number % len(lanes)]) for number, value in enumerate(firsts)]

    @property
    def _zero(self) -> int:
        """The zero point of the image's bytes as unsigned numbers; the top bit of signed ones is flipped."""
        return self.found.image_zero + (0 if self.found.image.unsigned else 128)

    def _rows(self, f: TileFrame, pixels: NearPixels, channel: Index) -> list[ir.Value]:
        """The address of the window's first column in each of its rows."""
        c = self.c
        top = f.isub(f.imul(pixels.row, c.rows.stride), c.rows.low)
        left = f.iadd(f.imul(f.isub(f.imul(pixels.column, c.columns.stride), c.columns.low), c.columns.step), channel)
        rows: list[ir.Value] = []
        for k in range(c.rows.taps):
            row = f.iadd(top, k * c.rows.dilation)
            base = f.at(pixels.image, f.imul(row, c.rows.step), I8)
            if self.reads_outside:
                inside = f.icmp_unsigned("<", f.index(row), f.index(c.rows.image))
                base = f.select(inside, base, self.outside)
            rows.append(f.at(base, left, I8))
        return rows

    def _column(self, f: TileFrame, rows: list[ir.Value], offset: int, lane: PartialVector) -> ir.Value:
        """The bytes of up to four rows at `offset`, channel by channel."""
        parts = [read_vector(f, f.at(row, offset, I8), "i8", 1, lane) for row in rows]
        missing = ir.Constant(parts[0].type, ir.Undefined)
        parts += [missing] * (_QUAD - len(parts))
        pairs = [f.shuffle_vector(a, b, _numbers(range(2 * _LANES))) for a, b in (parts[:2], parts[2:])]
        four = f.bitcast(f.shuffle_vector(*pairs, _numbers(range(4 * _LANES))), ir.VectorType(I32, _LANES))
        # Words of four channels: those of one row first, then those of all rows next to each other, then their bytes.
        words = [row * _QUAD + word for word in range(_QUAD) for row in range(_QUAD)]
        joined = f.bitcast(f.shuffle_vector(four, four, _numbers(words)), ir.VectorType(I8, 4 * _LANES))
        places = [16 * word + 4 * row + channel for word in range(4) for channel in range(4) for row in range(4)]
        return self._unsigned(f, f.shuffle_vector(joined, joined, _numbers(places)))

    def _unsigned(self, f: TileFrame, value: ir.Value) -> ir.Value:
        if self.found.image.unsigned:
            return value
        return f.xor(value, ir.Constant(value.type, [0x80] * value.type.count))

    def _outside(self) -> ir.Value:
        return ir.Constant(ir.VectorType(I8, _LANES * _QUAD), [self._zero] * (_LANES * _QUAD))


def _numbers(lanes: range | list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))


def _dot(f: TileFrame, total: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
    return f.intrinsic("llvm.x86.avx512.vpdpbusd.512", total.type, [total, unsigned, signed])


def _leaves(rows: Window) -> bool:
    """Whether a window extends past the image's first or last row."""
    return rows.low > 0 or rows.reach - rows.low > rows.image


def _interleaved(packing: Packing, has_rows: bool, has_columns: bool) -> Packing:
    """Filters as [column][rows / 4][channels / 16][16][4], from a packing in the order rows, columns, channels."""
    *rest, channels = packing.permutation
    rest, rows, columns = _split(rest, has_rows, has_columns)
    axes = (*rest, *columns, *rows, channels)
    count = len(axes)
    blocks = (*(1,) * (count - 1 - len(rows)), *(_QUAD,) * len(rows), _LANES)
    outer, inner = range(0, 2 * count, 2), range(1, 2 * count, 2)
    order = (*outer, *inner[: count - 1 - len(rows)], inner[-1], *inner[count - 1 - len(rows) : count - 1])
    return Packing(axes, blocks, order)


def _split(axes: list[int], has_rows: bool, has_columns: bool) -> tuple[list[int], list[int], list[int]]:
    """Axes of extent 1, then those of rows and columns."""
    columns = [axes.pop()] if has_columns else []
    rows = [axes.pop()] if has_rows else []
    return axes, rows, columns
