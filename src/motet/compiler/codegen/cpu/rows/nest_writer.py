"""Writes the points of a nest: vectors along one dimension, reductions inside, one accumulator per point.

Large results are written past the caches. `bands.py` transposes inputs that are contiguous along another dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.cpu.emit.addressing import (
    STREAM,
    Frame,
    Lanes,
    StridedNest,
    index_values,
    load_values,
    result_bytes,
    store_values,
)
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import constant, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.reduction import Reduction, match_reduction
from motet.compiler.kernels.strides import ONE, ZERO, Bound, StridedAccess

Step = Callable[[Sequence[Index], list[Value]], list[Value]]
_UNROLLED = 16  # points of a reduction that are unrolled


@dataclass
class NestWriter:
    """Writes the points of a nest, `vectors` vectors of `lanes` along dimension `along` per iteration."""

    f: Frame
    nest: StridedNest
    along: int | None
    lanes: int
    vectors: int

    def __post_init__(self) -> None:
        self.reductions = self.nest.dims_of("reduction")
        self.count = len(self.nest.inputs) + len(self.nest.outputs)
        self.streaming = False
        self.may_stream = self._may_stream()
        self.gathers = [self._gather(k) for k in range(len(self.nest.outputs))]

    def _gather(self, output: int) -> Reduction | None:
        """The combiner of `output`, if its accumulator is wider than the output."""
        found = match_reduction(self.nest.stage, output) if self.reductions else None
        return found if found is not None and found.accumulator != found.dtype else None

    # -- results written past the caches -----------------------------------------------------------

    def streamed(self, write: Callable[[], None]) -> None:
        """Emit `write()`, with stores past the caches if results are large and aligned to whole vectors."""
        f = self.f
        if not self.may_stream:
            write()
            return

        def stream() -> None:
            self.streaming = True
            write()
            self.streaming = False

        f.branches(self._suits_streams(), stream, write)

    def finish(self) -> None:
        """Call at the end of the function."""
        if self.may_stream:
            self.f.fence("seq_cst")  # not ordered with the stores that signal the end of the task

    def _may_stream(self) -> bool:
        """Whether stores past the caches may pay: vectors stay aligned if the results are, the nest does not read them,
        and they are large, or of unknown size and cheap, since code for both cases is twice the code."""
        for operand in self.nest.outputs:
            size = result_bytes(self.f.kernel, operand.value).known
            steps = [*operand.offset, *(s for d, s in enumerate(operand.strides) if d != self.along)]
            if item_bytes(operand.dtype) * self.lanes < 16:
                return False
            if self.reductions if size is None else size < STREAM:
                return False
            if self.along is None or operand.strides[self.along] != ONE:
                return False
            if any(step.known is None or step.known % self.lanes for step in steps):
                return False
        written = {operand.value for operand in self.nest.outputs}
        return not any(access.value in written for stage in self.f.kernel.stages for access in stage.inputs)

    def _suits_streams(self) -> Value:
        f = self.f
        bits: Value = f.index(0)
        test: Value = None
        for operand in self.nest.outputs:
            bits = f.or_(bits, f.ptrtoint(f.pointer(operand.value), I64))
            size = result_bytes(f.kernel, operand.value)
            if size.known is None:
                large = f.icmp_signed(">=", f.index(f.extent(size)), f.index(STREAM))
                test = large if test is None else f.and_(test, large)
        aligned = f.icmp_unsigned("==", f.and_(bits, f.index(63)), f.index(0))
        return aligned if test is None else f.and_(aligned, test)

    # -- rows ------------------------------------------------------------------------------------

    def row(self, at: Sequence[Index], first: Index, end: Index) -> None:
        """Write all points at `at` with the vector dimension in `[first, end)`."""
        f = self.f
        if self.along is None:
            self.block(at, {}, 0, 1, None)
            return
        known = self.uniform(at)
        for vectors in (self.vectors, 1):
            step = vectors * self.lanes
            span = f.isub(end, first)
            middle = f.isub(end, f.irem(span, step))
            f.loop(first, middle, step, lambda i, _, n=vectors: self.block(at, known, i, n, None))
            first = middle
        if self.lanes > 1:
            f.loop(first, end, self.lanes, lambda i, _: self.block(at, known, i, 1, f.isub(end, i)))

    def uniform(self, at: Sequence[Index]) -> dict[int, Value]:
        """The body values that are constant along a row."""
        if self.reductions or self.along is None:
            return {}
        known = {
            k: load_values(self.f, operand, at, Lanes(None, 1))
            for k, operand in enumerate(self.nest.inputs)
            if operand.strides[self.along] == ZERO and not operand.bounds
        }
        return evaluate(self.f, self.nest.body, self.count, known, None, self.nest.stage.yields)

    def block(
        self, at: Sequence[Index], known: dict[int, Value], start: Index, vectors: int, active: Index | None
    ) -> None:
        """Write `vectors` vectors from `start`; `active` is the number of points of a single last vector that exist."""
        f, nest = self.f, self.nest
        points: list[list[Index]] = []
        for u in range(vectors):
            point = list(at)
            if self.along is not None:
                point[self.along] = f.iadd(start, u * self.lanes)
            points.append(point)
        lanes = Lanes(self.along, self.lanes, active)
        if any(operand.bounds for operand in nest.inputs):
            interior = self.interior(points[0], vectors, active)
            results = f.branches(
                interior,
                lambda: self.compute(points, lanes, known, False),
                lambda: self.compute(points, lanes, known, True),
            )
        else:
            results = self.compute(points, lanes, known, False)
        for u, point in enumerate(points):
            for k, operand in enumerate(nest.outputs):
                store_values(f, results[u * len(nest.outputs) + k], operand, point, lanes, self.streaming)

    def interior(self, point: Sequence[Index], vectors: int, active: Index | None) -> Value:
        """Whether all reads of a block are in bounds."""
        f = self.f
        spans: list[Index] = [0] * len(self.nest.sizes)
        for d in self.reductions:
            spans[d] = f.isub(f.extent(self.nest.sizes[d]), 1)
        if self.along is not None:
            spans[self.along] = f.isub(vectors * self.lanes if active is None else active, 1)
        result: Value = None
        for bound in (bound for operand in self.nest.inputs for bound in operand.bounds):
            test = _range_inside(f, bound, point, spans)
            result = test if result is None else f.and_(result, test)
        return result

    # -- values ----------------------------------------------------------------------------------

    def compute(
        self, points: Sequence[list[Index]], lanes: Lanes, known: dict[int, Value], checked: bool
    ) -> list[Value]:
        """The outputs' values, in compute types, for every vector of points in order."""
        f = self.f
        running = [value for point in points for value in self.initial(point, lanes)]
        result = self.reduce_points(points, lanes, known, running, checked)
        narrow: list[Value] = []
        for position, value in enumerate(result):
            gather = self.gathers[position % len(self.nest.outputs)]
            narrow.append(narrowed(f, gather, value) if gather is not None else value)
        return narrow

    def reduce_points(
        self, points: Sequence[list[Index]], lanes: Lanes, known: dict[int, Value], running: list[Value], checked: bool
    ) -> list[Value]:
        """The accumulators of every vector of points after all points of the reduction dimensions; `running` are the
        initial ones."""

        def step(indices: Sequence[Index], values: list[Value]) -> list[Value]:
            result: list[Value] = []
            for u, point in enumerate(points):
                here = list(point)
                for d, i in zip(self.reductions, indices, strict=True):
                    here[d] = i
                width = len(self.nest.outputs)
                result += self.once(here, lanes, known, values[u * width : (u + 1) * width], checked)
            return result

        return self.reduce(step, running)

    def reduce(self, step: Step, running: list[Value]) -> list[Value]:
        """Apply `step` to all points of the reduction dimensions, unrolled if they are few."""
        f = self.f
        sizes = [self.nest.sizes[d] for d in self.reductions]
        total = 1
        for size in sizes:
            total *= guess(size)
        if all(size.known is not None for size in sizes) and total <= _UNROLLED:
            for indices in itertools.product(*(range(size.factor) for size in sizes)):
                running = step(indices, running)
            return running

        def level(depth: int, indices: list[Index], values: list[Value]) -> list[Value]:
            if depth == len(sizes):
                return step(indices, values)
            return f.loop(
                0, f.extent(sizes[depth]), 1, lambda i, inner: level(depth + 1, [*indices, i], inner), values
            )

        return level(0, [], running)

    def initial(self, point: Sequence[Index], lanes: Lanes) -> list[Value]:
        result: list[Value] = []
        for k, init in enumerate(self.nest.inits):
            dtype = self.nest.outputs[k].dtype
            if init is None:
                value: Value = constant(dtype, 0)
            elif isinstance(init, StridedAccess):
                value = load_values(self.f, init, point, lanes)
            else:
                value = constant(dtype, init)
            gather = self.gathers[k]
            if gather is not None:
                value = widened(self.f, gather, value)
            result.append(widen(self.f, value, lanes.count))
        return result

    def once(
        self,
        point: Sequence[Index],
        lanes: Lanes,
        known: dict[int, Value],
        running: Sequence[Value],
        checked: bool,
    ) -> list[Value]:
        """Evaluate the body once."""
        f, nest = self.f, self.nest
        values = dict(known)
        for k, operand in enumerate(nest.inputs):
            if k not in values:
                values[k] = load_values(f, operand, point, lanes, checked)
        values = self.evaluated(point, lanes, values, running)
        result: list[Value] = []
        for k, position in enumerate(nest.stage.yields):
            gather = self.gathers[k]
            if gather is None:
                result.append(widen(f, values[position], lanes.count))
            else:
                result.append(combine(f, gather, running[k], widened(f, gather, values[gather.term])))
        return result

    def evaluated(
        self, point: Sequence[Index], lanes: Lanes, values: dict[int, Value], running: Sequence[Value]
    ) -> dict[int, Value]:
        nest = self.nest
        wanted = [
            position if gather is None else gather.term
            for position, gather in zip(nest.stage.yields, self.gathers, strict=True)
        ]
        for k, value in enumerate(running):
            values[len(nest.inputs) + k] = value

        def index(d: int) -> Value:
            return index_values(self.f, point[nest.dims[d]], lanes, nest.dims[d])

        return evaluate(self.f, nest.body, self.count, values, index, wanted)


def _range_inside(f: Frame, bound: Bound, point: Sequence[Index], spans: Sequence[Index]) -> Value:
    low: Index = bound.entry.constant
    high: Index = 0
    for dim, c in bound.entry.terms:
        low = f.iadd(low, f.imul(c, point[dim]))
        if c > 0:
            high = f.iadd(high, f.imul(c, spans[dim]))
        else:
            low = f.iadd(low, f.imul(c, spans[dim]))
            high = f.iadd(high, f.imul(-c, spans[dim]))
    inside = f.icmp_signed(">=", f.index(low), f.index(0))
    return f.and_(inside, f.icmp_signed("<", f.index(f.iadd(low, high)), f.index(f.extent(bound.extent))))
