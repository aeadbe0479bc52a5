"""A small library of schedules: functions over primitives, for any extents, by the registers of a CPU level.

    gemm(s, target)           i, j parallel; j#64 i#8: a register tile of sums; k around it; the right operand packed
    conv(s, target)           the same with the window around it
    rows(s, target)           tasks of rows, vectors along them
    reduction(s, target)      vectors along a sum whose results are few

They are examples to copy as well: each uses nothing but primitives.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.kernels.kernel import ITEM_BITS, Stage
from motet.compiler.kernels.nest_dependences import dependences
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import ScheduleError
from motet.lab.language.primitives import Cursor, LoopSchedule

_TASK_ROWS = 64  # rows of a product that one task computes with one packed panel
_ACCUMULATORS = 4  # vectors of partial sums, which hide the latency of additions
_LONG = 4096  # elements of a task along one dimension


@dataclass(frozen=True)
class RegisterTile:
    """Sums of a product in registers: `rows` by `vectors` vectors of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int


def register_tile(target: CpuTarget, bits: int) -> RegisterTile:
    """The tile of elements of `bits` bits that leaves registers for a row of one operand and an element of the other,
    with the most multiply-adds for each load."""
    registers = max(4, target.vector_registers)
    found: list[tuple[float, int, int]] = []
    for vectors in range(1, 5):
        rows = (registers - 1 - vectors) // vectors
        if rows >= 1:
            found.append((rows * vectors / (rows + vectors), rows, vectors))
    _, rows, vectors = max(found)
    return RegisterTile(rows, vectors, max(2, target.lanes(bits)))


def gemm(s: LoopSchedule, target: CpuTarget) -> None:
    """Schedules the main stage, a sum of products, by register tiles: tasks of blocks of rows and columns, with the
    operand that vectors run along packed for each task."""
    stage = s.kernel.stages[s.main]
    columns = _contiguous(s)
    if columns is None or not stage.reductions:
        raise ScheduleError("gemm", "the main stage", "it has no sum, or no contiguous dimension", "a product")
    d = s.dim(columns)
    rows = _rows(s, d)
    tile = register_tile(target, _bits(s))
    width = min(tile.vectors * tile.lanes, _power_above(stage.sizes[d]))
    s.distribute(*(each for each in s.loops() if stage.iterators[s.dim(each)] == "parallel"))
    blocked = rows is not None and isinstance(size := stage.sizes[s.dim(rows)], int) and size > _TASK_ROWS
    block = s.tile({rows: _TASK_ROWS})[0] if rows is not None and blocked else None
    if rows is not None:
        sums = [each for each in s.loops() if s.dim(each) in stage.reductions]
        if block is not None:
            s.interchange(block, *sums)
        s.unroll(s.tile({rows: tile.rows})[0])
    s.vectorize(s.tile({columns: width})[0])
    if block is not None:
        tasks = [each for each in s.loops() if stage.iterators[s.dim(each)] == "parallel" and "#" not in s.label(each)]
        _pack(s, stage, d, tasks[-1])


def conv(s: LoopSchedule, target: CpuTarget) -> None:
    """Schedules the main stage, a convolution of any layout, as `gemm` does: pixels are rows, the window and the
    channels are around the tile of sums."""
    gemm(s, target)


def rows(s: LoopSchedule, target: CpuTarget) -> None:
    """Schedules the main stage by tasks of its outermost dimension, and vectors along the contiguous one."""
    columns = _contiguous(s)
    if columns is None:
        raise ScheduleError("rows", "the main stage", "no dimension is contiguous in the result", "rows of elements")
    order = s.loops()
    first = order[0]
    if first == columns and len(order) == 1:
        s.tile({columns: _LONG})
    if _is_free(s, first):
        s.parallelize(first)
    s.vectorize(s.tile({columns: 2 * max(2, target.lanes(_bits(s)))})[0])


def reduction(s: LoopSchedule, target: CpuTarget) -> None:
    """Schedules the main stage, a reduction along what is contiguous in its operand, by vectors of partial results."""
    stage = s.kernel.stages[s.main]
    access = stage.inputs[0] if stage.inputs else None
    order = s.kernel.values[access.value].order if access is not None else ()
    along = [stage.along(access.map[axis]) for axis in order] if access is not None else []
    last = along[-1] if along else None
    if last is None or last not in stage.reductions:
        raise ScheduleError("reduction", "the main stage", "no sum runs along contiguous elements", "rows")
    inner = next(each for each in s.loops() if s.dim(each) == last)
    if _is_free(s, s.loops()[0]):
        s.parallelize(s.loops()[0])
    s.interchange(*(each for each in s.loops() if each != inner), inner)
    s.vectorize(s.tile({inner: _ACCUMULATORS * max(2, target.lanes(_bits(s)))})[0])


def _bits(s: LoopSchedule) -> int:
    output = s.kernel.stages[s.main].outputs[0]
    return max(8, ITEM_BITS[s.kernel.values[output.value].dtype])


def _is_free(s: LoopSchedule, loop: Cursor) -> bool:
    """Whether the iterations of `loop` do not depend on each other."""
    return not any(s.dim(loop) in each.carried for each in dependences(s.kernel, s.main))


def _contiguous(s: LoopSchedule) -> Cursor | None:
    """The parallel loop along which elements of the result are contiguous."""
    stage = s.kernel.stages[s.main]
    output = stage.outputs[0]
    for axis in reversed(s.kernel.values[output.value].order):
        d = stage.along(output.map[axis])
        if d is not None and stage.sizes[d] != 1:
            loop = next(each for each in s.loops() if s.dim(each) == d)
            return loop if _is_free(s, loop) else None
    return None


def _rows(s: LoopSchedule, columns: int) -> Cursor | None:
    """The longest parallel loop whose iterations share the operand that vectors are loaded from."""
    stage = s.kernel.stages[s.main]
    vectors = [access.dims for access in stage.inputs if columns in access.dims]
    shared = [
        each for each in s.loops() if stage.iterators[s.dim(each)] == "parallel" and s.dim(each) != columns
        and not any(s.dim(each) in dims for dims in vectors) and stage.sizes[s.dim(each)] != 1
    ]
    sizes = {each: stage.sizes[s.dim(each)] for each in shared}
    return max(shared, key=lambda each: size if isinstance(size := sizes[each], int) else _LONG, default=None)


def _pack(s: LoopSchedule, stage: Stage, columns: int, at: Cursor) -> None:
    """Packs the operand that vectors are loaded from at `at`, unless it is read through windows."""
    for number, access in enumerate(stage.inputs):
        if columns in access.dims and all(len(entry.dims) <= 1 for entry in access.map) and access.padding is None:
            s.pack(s.operand(number), at)
            return


def _power_above(size: int | str) -> int:
    return 1 << 30 if isinstance(size, str) else max(2, 1 << (size - 1).bit_length())
