"""Legality checks for convolution schedules."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.conv.plan import along_filters, copies_image, filter_packing, lanes_of, pixel_copies
from motet.compiler.kernels.convolution import Convolution
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import ConvolutionSchedule, DirectSchedule, Reason, in_range, lanes_reason
from motet.compiler.targets.cpu import CpuTarget

_MOST_SCRATCH = 256 << 20  # bytes of one thread


def check_tile(
    c: Convolution, s: ConvolutionSchedule | DirectSchedule, target: CpuTarget
) -> Iterator[Reason]:
    """Check that the sums of a register tile fit in registers and that tasks divide the output rows."""
    registers = target.vector_registers
    yield from lanes_reason(s.lanes, lanes_of(c, target))
    yield from in_range("vectors", s.vectors, 1, registers)
    most = max(1, registers // max(1, s.vectors))
    yield from in_range("tile_rows", s.tile_rows, 1, most, f"{registers} vector registers")
    if s.block < 1 or c.rows.size % s.block:
        yield Reason("block", s.block, f"a divisor of {c.rows.size}, the rows of the result")


def check_scratch(c: Convolution, field: str, value: object, elements: int) -> list[Reason]:
    """Check that `elements` of scratch memory, as determined by `field`, are within the limit."""
    size = elements * item_bytes(c.product.dtype)
    if size <= _MOST_SCRATCH:
        return []
    text = f"another: scratch memory of a thread would take {size} bytes, at most {_MOST_SCRATCH}"
    return [Reason(field, value, text)]


def check(c: Convolution, schedule: ConvolutionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s = schedule
    if reasons := list(check_tile(c, s, target)):
        return reasons
    rows = c.rows.span(s.block)
    if along_filters(c):
        if filter_packing(c, s.width) is None:
            return [Reason("class", "convolution", "another class: the filters cannot be divided into panels")]
        panels, elements = -(-c.filter_count // s.width), rows * c.columns.reach * c.channels if copies_image(c) else 0
    else:
        panels, elements = -(-c.filter_count // s.tile_rows), rows * c.columns.size * c.channels * pixel_copies(c)
    return [*in_range("panels", s.panels, 1, panels), *check_scratch(c, "block", s.block, elements)]
