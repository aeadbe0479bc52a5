"""Legality checks for schedules of contractions, and what they share with those of other products."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.gemm.plan import lanes_of, packing_of, scratch_layout
from motet.compiler.codegen.cpu.gemm.space import Cut
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.schedule import (
    BlockProductSchedule,
    ContractionSchedule,
    Reason,
    in_range,
    lanes_reason,
)
from motet.compiler.kernels.strides import ONE, product_of
from motet.compiler.targets.cpu import CpuTarget

MOST = 1 << 20  # bound of fields that are otherwise limited by scratch memory alone
_MOST_SCRATCH = 256 << 20  # bytes of one thread
_MOST_AHEAD = 64  # cache lines, each a prefetch instruction in the innermost loop
_MOST_UNROLLED = 1024  # multiply-adds
_MOST_PACKED = 4096  # columns of a panel, the last of which is padded to its width


def check(c: Contraction, schedule: ContractionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    reasons = [*vector_tile(c, schedule, target), *grid(c, schedule)]
    reasons += in_range("unroll", schedule.unroll, 1, _MOST_UNROLLED)
    reasons += in_range("ahead", schedule.ahead, 0, _MOST_AHEAD)
    if reasons:
        return reasons  # the checks below divide by these
    reasons = [*_right(c, schedule), *_panels(c, schedule), *_depth(c, schedule)]
    return reasons or scratch(schedule, scratch_layout(c, schedule)[-1])


def vector_tile(
    c: Contraction, s: ContractionSchedule | BlockProductSchedule, target: CpuTarget
) -> Iterator[Reason]:
    """Check that the sums of a tile of vectors fit in registers."""
    yield from lanes_reason(s.lanes, lanes_of(c, target))
    yield from in_range("vectors", s.vectors, 1, target.vector_registers)
    yield from rows(s, s.vectors, target)


def rows(s: Cut, registers: int, target: CpuTarget) -> list[Reason]:
    """Check that the sums of a tile fit in registers, those of a row in `registers`."""
    most = target.vector_registers
    return in_range("rows", s.rows, 1, max(1, most // max(1, registers)), f"{most} vector registers")


def grid(c: Contraction, s: Cut) -> Iterator[Reason]:
    """Check that tasks divide the result, and that blocks of K have a size."""
    if s.rows < 1 or s.width < 1:
        return
    m, n, outer = (c.m[0] if c.m else ONE).known, c.n[0].known, product_of(c.outer).known
    yield from in_range("tile_rows", s.tile_rows, 1, MOST if m is None else max(1, -(-m // s.rows)))
    yield from in_range("panels", s.panels, 1, MOST if n is None else max(1, -(-n // s.width)))
    yield from in_range("group", s.group, 1, MOST if outer is None else max(1, outer))
    if s.depth_block is not None:
        yield from in_range("depth_block", s.depth_block, 1, MOST)


def scratch(s: Cut, size: int) -> list[Reason]:
    """Check that the scratch memory of a thread, of `size` bytes, is within the limit."""
    if size <= _MOST_SCRATCH:
        return []
    text = f"smaller blocks: scratch memory of a thread would take {size} bytes, at most {_MOST_SCRATCH}"
    return [Reason("tile_rows", s.tile_rows, text)]


def _right(c: Contraction, s: ContractionSchedule) -> Iterator[Reason]:
    """Check that the right operand can be read by `b_mode`."""
    single = len(c.depth) == 1 and c.depth[0][1] >= 0
    inner = c.depth[-1][1]
    if s.packed_columns and s.b_mode != "packed":
        yield Reason("packed_columns", s.packed_columns, "0, without b_mode=packed")
    elif s.packed_columns % s.width or not 0 <= s.packed_columns <= _MOST_PACKED:
        text = f"0, or a multiple of {s.width}, the columns of a tile, of at most {_MOST_PACKED}"
        yield Reason("packed_columns", s.packed_columns, text)
    elif s.b_mode == "packed":
        if c.kernel.values[c.b.value].role != "constant":
            yield Reason("b_mode", s.b_mode, "scratch, place or along_k: the right operand is no constant")
        elif packing_of(c, s.packed_width) is None:
            text = f"another one: the constant does not divide into panels of {s.packed_width}"
            yield Reason("b_mode", s.b_mode, text)
    if s.b_mode == "place" and c.b.strides[c.column] != ONE:
        yield Reason("b_mode", s.b_mode, "packed, scratch or along_k: columns of the right operand are not contiguous")
    elif s.b_mode == "scratch" and s.depth_block is None and product_of(c.depth).known is None:
        yield Reason("depth_block", s.depth_block, f"1 to {MOST}: a panel of unknown depth has no size")
    elif s.b_mode == "along_k":
        contiguous = single and c.b.strides[inner] == ONE and c.a.strides[inner] == ONE
        known = None not in (c.n[0].known, c.depth[0][0].known, (c.m[0] if c.m else ONE).known)
        if not (contiguous and known):
            yield Reason("b_mode", s.b_mode, "packed, scratch or place: K of both operands is not one"
                         " contiguous dimension, or an extent is dynamic")
        for field, value in (("depth_block", s.depth_block), ("pack_a", s.pack_a or None)):
            if value is not None:
                yield Reason(field, value, "none with b_mode=along_k")


def _panels(c: Contraction, s: ContractionSchedule) -> Iterator[Reason]:
    """Check the fields for panels that tasks keep or share, and for prefetching the next panel."""
    for field, given in (("keeps", s.keeps), ("shared", s.shared)):
        if given and (s.b_mode != "scratch" or c.outer):
            yield Reason(field, True, "false: only panels with b_mode=scratch are kept or shared, of a product that has"
                         " no outer dimensions")
    if s.keeps and s.shared:
        yield Reason("keeps", True, "false with shared")
    if s.keeps and (s.panels != 1 or s.depth_block is not None):
        yield Reason("keeps", True, "false: it needs panels=1 and no depth_block")
    depth, n = product_of(c.depth).known, c.n[0].known
    if s.shared:
        if len(c.depth) != 1 or c.depth[0][1] < 0 or depth is None or n is None:
            yield Reason("shared", True, "false: K is not one dimension, or an extent is dynamic")
            return
        yield from in_range("pack_panels", s.pack_panels, 1, max(1, -(-n // s.width)))
        yield from in_range("pack_steps", s.pack_steps, 1, max(1, -(-depth // s.lanes) * s.lanes))
    elif (s.pack_panels, s.pack_steps) != (1, 0):
        yield Reason("pack_panels", s.pack_panels, "1, and pack_steps=0, without shared")
    if s.ahead and not (s.b_mode == "packed" or s.shared):
        yield Reason("ahead", s.ahead, "0: only packed and shared panels follow one another in memory")


def _depth(c: Contraction, s: ContractionSchedule) -> Iterator[Reason]:
    """Check that K can be blocked and the left operand packed."""
    if s.depth_block is not None and len(c.depth) != 1:
        yield Reason("depth_block", s.depth_block, "null: K is not one dimension")
    if s.ahead and len(c.depth) != 1:
        yield Reason("ahead", s.ahead, "0: K is not one dimension")
    if s.pack_a and (c.m is None or len(c.depth) != 1 or c.depth[0][1] < 0):
        yield Reason("pack_a", True, "false: the left operand has no rows, or its K is not one dimension")
    elif s.pack_a and s.depth_block is None and c.depth[0][0].known is None:
        yield Reason("pack_a", True, "false: a block of unknown depth has no size")
