"""Writes stages point by point as Triton programs. A reduction is a loop in the program."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import gathered
from motet.compiler.codegen.gpu.loops import LineTile, LoopsPlan, SquareTile
from motet.compiler.codegen.gpu.tasks import Loop, LoopTask, ceiling, total
from motet.compiler.codegen.triton.rows.reductions import combine
from motet.compiler.codegen.triton.text.program import Form, FormTile, tile_along
from motet.compiler.codegen.triton.text.scalars import constant, rounded
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer, output_dtypes
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import StridedAccess


def emit(plan: LoopsPlan) -> tuple[Form, ...]:
    """The programs of `plan`. Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(_line(plan, tile) if isinstance(tile, LineTile) else _square(plan, tile) for tile in plan.tiles)


def _line(plan: LoopsPlan, tile: LineTile) -> Form:
    task = plan.task
    count = total(plan.parallel)
    w = Writer(task.kernel, task.buffers, (tile.points,))
    w.exact_quotients = True
    program = w.program()
    point = w.define("o", f"{program} * {tile.points} + {w.range(0)}")
    at = w.decompose(Coordinate(point, frozenset({0})), plan.parallel) if plan.parallel else {}
    is_ragged = count.known is None or count.factor % tile.points
    if is_ragged and tile.apart:
        w.line(f"if {program} < {w.extent(count)} // {tile.points}:")
        w.level += 1
        _points(w, task, at, plan.reduction)
        w.remembered = {}
        w.level -= 1
        w.line("else:")
        w.level += 1
    if is_ragged:
        w.masks[0] = w.define("m", f"{point} < {w.extent(count)}")
    _points(w, task, at, plan.reduction)
    return Form(w.module(task.symbol, task.about), ceiling(count, tile.points), tile.warps, label=tile.label,
                tiles=(tile_along(plan.parallel, tile.points),))


def _square(plan: LoopsPlan, tile: SquareTile) -> Form:
    """A program for one square: vectors along its sides; the program number selects the point of the other loops."""
    task, across, sides, inner = plan.task, tile.across, tile.sides, plan.parallel[-1]
    outer = [loop for loop in plan.parallel if loop not in (inner, across)]
    w = Writer(task.kernel, task.buffers, sides)
    w.exact_quotients = True
    counts: list[Expr] = []
    rest = w.program()
    at: dict[int, Coordinate] = {}
    for axis, (size, dim) in reversed(list(enumerate((across, inner)))):
        blocks = f"tl.cdiv({w.extent(size)}, {sides[axis]})" if size.known is None else str(ceiling(size, sides[axis]))
        counts.append(ceiling(size, sides[axis]))
        point = w.define("o", f"({rest} % {blocks}) * {sides[axis]} + {w.range(axis)}")
        rest = w.define("q", f"{rest} // {blocks}")
        if size.known is None or size.factor % sides[axis]:
            w.masks[axis] = w.define("m", f"{point} < {w.extent(size)}")
        at[dim] = Coordinate(point, frozenset({axis}))
    at |= w.decompose(Coordinate(rest), outer) if outer else {}
    _points(w, task, at, ())
    tasks = product((total(outer).expression, *counts))
    return Form(w.module(task.symbol, task.about), tasks, tile.warps, label=tile.label,
                tiles=tuple(FormTile((dim,), size) for (_, dim), size in zip((across, inner), sides, strict=True)))


def _points(w: Writer, task: LoopTask, at: dict[int, Coordinate], reduction: Sequence[Loop]) -> None:
    stage = task.stage
    dtypes = output_dtypes(task.kernel, stage)
    if not stage.reductions:
        running = [_initial(w, init, dtype, at) for init, dtype in zip(task.inits, dtypes, strict=True)]
        made = _evaluate(w, task, running, at)
    else:
        made = _reduce(w, task, dtypes, at, reduction)
    if task.epilogue is not None:
        w.finish(task.epilogue, made[0], at, task.stored)
        return
    for access, value in zip(stage.outputs, made, strict=True):
        if access.value in task.stored:
            w.write(task.stored[access.value], at, value)


def _initial(w: Writer, init: StridedAccess | float | int | None, dtype: str, at: dict[int, Coordinate]) -> str | None:
    if isinstance(init, StridedAccess):
        return w.read(init, at)
    return None if init is None else constant(init, dtype)


def _evaluate(
    w: Writer, task: LoopTask, running: Sequence[str | None], at: dict[int, Coordinate], found: Sequence[Reduction] = ()
) -> list[str]:
    """The values that the body yields at a point. With combiners, their operation uses the accumulator's type."""
    stage = task.stage
    tables = gathered(stage)
    operands = [None if position in tables else w.read(source, at) for position, source in enumerate(task.sources)]
    dtypes = [task.kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)]
    if not found:
        names = w.body(stage.body, [*operands, *running], dtypes, at, tables=tables, sizes=stage.sizes)
        return [names[k] for k in stage.yields]
    skip = frozenset(each.last - len(dtypes) for each in found)
    names = w.body(stage.body, [*operands, *running], dtypes, at, skip, tables, stage.sizes)
    return [w.define("x", combine(each, str(running[k]), names[each.term])) for k, each in enumerate(found)]


def _reduce(
    w: Writer, task: LoopTask, dtypes: Sequence[str], at: dict[int, Coordinate], reduction: Sequence[Loop]
) -> list[str]:
    """Write nested loops of a reduction, with accumulators carried from iteration to iteration."""
    found = match_reductions(task.stage) or ()
    state: list[str] = []
    for init, dtype in zip(task.inits, dtypes, strict=True):
        first = _initial(w, init, dtype, at) or constant(0, dtype)
        state.append(w.define("r", w.spread(first, dtype)))
    level = w.level
    for size, dim in reduction:
        at[dim] = Coordinate(f"k{dim}")
        w.line(f"for k{dim} in range({w.extent(size)}):")
        w.level += 1
        w.remembered = {}
    made = _evaluate(w, task, state, at, found)
    fresh = [w.define("n", w.spread(value, dtype)) for value, dtype in zip(made, dtypes, strict=True)]
    for name, value in zip(state, fresh, strict=True):
        w.line(f"{name} = {value}")
    w.level = level
    w.remembered = {}
    for _, dim in reduction:
        del at[dim]
    return [
        w.define("x", rounded(name, dtype)) if found else name for name, dtype in zip(state, dtypes, strict=True)
    ]
