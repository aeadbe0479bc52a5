"""The class `loops`: a stage point by point. Element-wise work, data movement, and reductions in loop order.

A tile is a range of contiguous points of the result, or, if a tensor is read across memory (a transpose), a square of
points, so that both sides access whole lines. Reduction dimensions are loops in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.triton.rows.reductions import combine
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import constant, rounded
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer, gathered, output_dtypes, source_of
from motet.compiler.kernels.epilogue import Epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, merge
from motet.compiler.targets.gpu import GpuTarget

Loop = tuple[Extent, int]
_POINTS = 1024
_SHORT_POINTS = 2048  # of results of at most 16 bits: two accesses of 16 bytes for each thread
_SQUARE = 64
_SHORT_SQUARE = 128  # of at most 16 bits: lines of 256 bytes
_REDUCING_POINTS = 128


@dataclass(frozen=True)
class LoopTask:
    """One launch: a stage, its epilogue, the accesses by which results are stored, and the arguments."""

    kernel: Kernel
    stage: Stage
    epilogue: Epilogue | None
    stored: dict[int, StridedAccess]
    buffers: tuple[int, ...]
    symbol: str
    about: str

    @property
    def sources(self) -> list[StridedAccess]:
        return [source_of(self.kernel, access, self.stage.sizes) for access in self.stage.inputs]

    @property
    def inits(self) -> list[StridedAccess | float | int | None]:
        return [
            source_of(self.kernel, init, self.stage.sizes) if isinstance(init, Access) else init
            for init in self.stage.inits
        ]

    @property
    def places(self) -> list[StridedAccess]:
        """All accesses of the launch."""
        found = list(self.sources)
        found += [init for init in self.inits if isinstance(init, StridedAccess)]
        found += self.stored.values()
        return found + (self.epilogue.places if self.epilogue else [])

    def frozen(self) -> frozenset[int]:
        """Dimensions that must not be merged: those of padded accesses, and those whose index bodies use."""
        found = {int(op.value or 0) for op in self.stage.body if op.op == "linalg.index"}
        for source in (*self.sources, *(init for init in self.inits if isinstance(init, StridedAccess))):
            for bound in source.bounds:
                found |= {d for d, coefficient in enumerate(bound.entry.coefficients) if coefficient}
        return frozenset(found)

    def merged(self, dims: Sequence[int]) -> list[Loop]:
        """Loops along `dims`, merged where all accesses allow it."""
        return merge([Extent.of(size) for size in self.stage.sizes], dims, self.places, self.frozen())

    def by_memory(self, loops: Sequence[Loop], places: Sequence[StridedAccess]) -> tuple[Loop, ...]:
        """`loops` in the order of the first of `places` that depends on them, the fastest in memory last."""
        return tuple(sorted(loops, key=lambda loop: _stride_rank(places, loop[1]), reverse=True))

    def loops(self, kind: str) -> tuple[Loop, ...]:
        """The loops of one kind, merged; the fastest in memory last."""
        found = self.merged([d for d, iterator in enumerate(self.stage.iterators) if iterator == kind])
        places = list(self.stored.values()) if kind == "parallel" else list(self.sources)
        return self.by_memory(found, places)


def _stride_rank(places: Sequence[StridedAccess], dim: int) -> tuple[int, int]:
    """The stride along `dim` of the first of `places` that depends on it, as a sort key."""
    for place in places:
        stride = place.strides[dim]
        if stride != ZERO:
            return len(stride.symbols), abs(stride.factor)
    return (99, 0)


def emit(task: LoopTask, target: GpuTarget) -> tuple[Form, ...]:
    """Forms for any stage. Raises `Unsupported` for operations without code."""
    parallel = task.loops("parallel")
    reduction = task.loops("reduction")
    across = _across(task, parallel)
    if across is not None and not reduction:
        return (_square(task, parallel, across, target),)
    if reduction:
        return (_line(task, parallel, reduction, _REDUCING_POINTS),)
    count = total(parallel).known or 0
    short = all(item_bytes(place.dtype) <= 2 for place in task.stored.values())
    if not short or count < _SHORT_POINTS * target.processors:
        return (_line(task, parallel, reduction, _POINTS),)
    forms = {points: _line(task, parallel, reduction, points) for points in (_SHORT_POINTS, _POINTS)}
    return tuple(replace(form, label=f"{points} points") for points, form in forms.items())  # if registers spill


def _across(task: LoopTask, parallel: Sequence[Loop]) -> Loop | None:
    """The loop along which a large input is contiguous, if it is not the result's."""
    if len(parallel) < 2 or not task.stored:
        return None
    inner = parallel[-1][1]
    for source in task.sources:
        strides = source.strides
        if strides[inner] in (ZERO, ONE):
            continue
        for loop in parallel[:-1]:
            if strides[loop[1]] == ONE and (loop[0].known is None or loop[0].factor >= 8):
                return loop
    return None


def ceiling(count: Extent, block: int) -> Expr:
    """The number of blocks of `block` that cover `count`."""
    return ceildiv(count.expression, block)


def total(loops: Sequence[Loop]) -> Extent:
    result = ONE
    for size, _ in loops:
        result = result * size
    return result


def power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def _line(task: LoopTask, parallel: Sequence[Loop], reduction: Sequence[Loop], most: int) -> Form:
    """A form with at most `most` points per program."""
    count = total(parallel)
    block = most if count.known is None else min(most, power_of_two(count.factor))
    w = Writer(task.kernel, task.buffers, (block,))
    w.exact_quotients = True
    point = w.define("o", f"{w.program()} * {block} + {w.range(0)}")
    if count.known is None or count.factor % block:
        w.masks[0] = w.define("m", f"{point} < {w.extent(count)}")
    at = w.decompose(Coordinate(point, frozenset({0})), parallel) if parallel else {}
    _points(w, task, at, reduction)
    return Form(w.module(task.symbol, task.about), ceiling(count, block), max(1, min(4, block // 32)))


def _side(task: LoopTask, parallel: Sequence[Loop], target: GpuTarget) -> int:
    """The side of a square tile: large enough for long lines, small enough that all SMs have tiles."""
    widest = max(item_bytes(place.dtype) for place in task.places)
    if widest > 4:
        return _SQUARE // 2
    points = total(parallel).known or 0
    return _SHORT_SQUARE if widest <= 2 and points >= 4 * _SHORT_SQUARE**2 * target.processors else _SQUARE


def _square(task: LoopTask, parallel: Sequence[Loop], across: Loop, target: GpuTarget) -> Form:
    """A form with tiles along `across` and along the result's fastest loop; other loops are the program's index."""
    inner = parallel[-1]
    outer = [loop for loop in parallel if loop not in (inner, across)]
    side = _side(task, parallel, target)
    sides = [side if size.known is None else min(side, power_of_two(size.factor)) for size, _ in (across, inner)]
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
    points = sides[0] * sides[1]
    return Form(w.module(task.symbol, task.about), tasks, 8 if points > _SQUARE**2 else max(1, min(4, points // 256)))


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
