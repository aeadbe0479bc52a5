"""Row kernels: stages over the same rows, with reductions along the contiguous dimension.

Softmax, normalisations, norms, sums and extremes of rows, and chains of element-wise stages. A task is a block of rows.
A row may consist of segments, such as the channels of a group: vectors run along each, and accumulators continue from
one to the next. A row is processed in *passes*: one loop runs all stages that do not depend on each other's reductions,
so that softmax is three passes (maximum; exponential and sum; scaling). Reductions have several accumulators. Values
that later passes of a row read again stay in scratch memory, or in the memory of the result. Large results are written
past the caches, and while a pass computes, the next row is prefetched: rows in memory then take the larger of the time
to compute and the time to load, instead of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.artifact.schema import Expr
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
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.gemm.microkernel import LINE
from motet.compiler.codegen.cpu.rows import skipped_points
from motet.compiler.codegen.cpu.rows.grouping import RowGroup, combiners_of, group, is_sequential
from motet.compiler.codegen.cpu.rows.plan import choose_rows, row_extents
from motet.compiler.codegen.cpu.rows.row_memory import asked_ahead, line_shift, streamed_results
from motet.compiler.codegen.cpu.rows.row_reduction import gathering
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import LoopPhase
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_FIRST = 16 << 10  # bytes of a row up to which it is prefetched to the first-level cache


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for a kernel that is one row group with a reduction and vectors along its rows; None for any other."""
    try:
        found = group(kernel, range(len(kernel.stages)), target)
        if found is None or not found.reduces or found.across:
            return None
        if any(v.role == "temporary" and i not in found.private for i, v in enumerate(kernel.values)):
            return None
        module = ir.Module(kernel.name)
        phase = choose_rows(found, len(kernel.stages), target)
        tasks = emit_group(module, kernel.name, kernel, target, found, {}, phase)
    except Unsupported:
        return None
    return KernelCode("rows", str(module), (Phase(kernel.name, tasks),), found.scratch)


def emit_group(
    module: ir.Module,
    symbol: str,
    kernel: Kernel,
    target: CpuTarget,
    found: RowGroup,
    workspaces: Mapping[int, int],
    phase: LoopPhase,
) -> Expr:
    """Define `symbol`, the phase that runs the group; returns its number of tasks."""
    f = Frame(module, symbol, kernel, workspaces, found.offsets)
    f.scales = target.scales
    lanes = phase.lanes
    streamed = streamed_results(kernel, found, lanes)
    ahead = asked_ahead(kernel, found)
    head = line_shift(f, found, lanes, [operand for each in ahead.values() for operand in each])
    division = Division(row_extents(found)[0], found.extents[-1], phase.strip, phase.grain)

    def row(indices: list[Index], first: Index, end: Index) -> None:
        writer = _RowEmitter(f, found, indices, lanes, head, {})
        for number, members in enumerate(found.passes):
            if found.wide[members[0]]:
                writer.run(members, first, end, streamed.get(number, ()), ahead.get(number, ()))
            else:
                writer.alone(members[0])

    division.loop(f, row)
    if streamed:
        f.fence("seq_cst")  # non-temporal stores are not ordered with the stores that signal the end of the task
    f.finish()
    return division.tasks


@dataclass
class _RowEmitter:
    """Emits one row. `head` elements precede the first aligned vector. `scalars` holds values of the whole row, in
    compute types: results of stages without the row's dimensions, or that reduce them. `segment` is the position of the
    segment that is being emitted, if rows have several."""

    f: Frame
    group: RowGroup
    indices: list[Index]
    lanes: int
    head: Index
    scalars: dict[int, Value]
    segment: tuple[Index, ...] = ()

    def alone(self, s: int) -> None:
        """Emit a stage with one point per row."""
        nest = self.group.nests[s]
        lanes = Lanes(None, 1)
        known = {k: self.read(operand, self.indices, lanes, {}) for k, operand in enumerate(nest.inputs)}
        values = self.evaluated(nest, known, self.initial(nest), self.indices, lanes, nest.stage.yields)
        for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
            self.keep(operand, values[position])

    def run(
        self,
        members: Sequence[int],
        first: Index,
        end: Index,
        streamed: Sequence[StridedAccess],
        ahead: Sequence[StridedAccess],
    ) -> None:
        """Emit one pass over the row's elements `[first, end)`; `streamed` may be written past the caches, `ahead` is
        prefetched for the next row."""
        if not streamed:
            self.over(members, first, end, ahead, False)
            return
        self.f.branches(
            self.suits_streams(streamed, first, end),
            lambda: self.over(members, first, end, ahead, True),
            lambda: self.over(members, first, end, ahead, False),
        )

    def suits_streams(self, operands: Sequence[StridedAccess], first: Index, end: Index) -> Value:
        """Whether the rows of `operands` begin and end at cache lines, and are part of a large array."""
        f = self.f
        result: Value = None
        for operand in operands:
            length = f.imul(f.isub(end, first), item_bytes(operand.dtype))
            bits = f.or_(f.ptrtoint(f.address(operand, [*self.indices, first]), I64), f.index(length))
            test: Value = f.icmp_unsigned("==", f.and_(bits, f.index(LINE - 1)), f.index(0))
            size = result_bytes(f.kernel, operand.value)
            if size.known is None:
                test = f.and_(test, f.icmp_signed(">=", f.index(f.extent(size)), f.index(STREAM)))
            result = test if result is None else f.and_(result, test)
        return result

    def following(self) -> list[Index]:
        """The indices of the next row by the innermost row index; at its end, those of the same row."""
        f, nest = self.f, self.group.nests[self.group.wide.index(True)]
        last = f.isub(f.extent(nest.sizes[-2]), 1)
        return [*self.indices[:-1], f.imin(f.iadd(self.indices[-1], 1), last)]

    def over(
        self, members: Sequence[int], first: Index, end: Index, ahead: Sequence[StridedAccess], streaming: bool
    ) -> None:
        nests = [self.group.nests[s] for s in members]
        sequential = any(is_sequential(nest) for nest in nests)
        step = _Step(
            self, nests, [], 1 if sequential else self.lanes, streaming, ahead, self.following() if ahead else []
        )
        heavy = any(scalar.op.startswith("math.") for nest in nests for scalar in nest.body)
        vectors = 1 if sequential else 2 if heavy else 4
        span = self.in_order if sequential else self.by_vectors

        def one_segment(carried: list[Value]) -> list[Value]:
            step.known = [self.uniform(nest) for nest in nests]
            return span(step, vectors, first, end, carried)

        carried = self.by_segments(one_segment, row_extents(self.group)[1], step.begin(vectors))
        width = len(carried) // vectors
        step.end([carried[u * width : (u + 1) * width] for u in range(vectors)])

    def by_segments(
        self, emit: Callable[[list[Value]], list[Value]], extents: Sequence[Extent], carried: list[Value]
    ) -> list[Value]:
        """Emit a row's segments in order; `emit` takes the values that a segment begins with and returns the next's."""
        if not extents:
            return emit(carried)
        outside = self.segment

        def each(i: Index, values: list[Value]) -> list[Value]:
            self.segment = (*outside, i)
            return self.by_segments(emit, extents[1:], values)

        result = self.f.loop(0, self.f.extent(extents[0]), 1, each, carried)
        self.segment = outside
        return result

    def in_order(self, step: _Step, vectors: int, first: Index, end: Index, carried: list[Value]) -> list[Value]:
        """Emit the elements `[first, end)` of a segment one after the other; blocks that change nothing are skipped."""
        f = self.f

        def points(begin: Index, stop: Index, values: list[Value]) -> list[Value]:
            return f.loop(begin, stop, 1, lambda j, values: step(j, vectors, None, values), values)

        if self.lanes == 1 or not all(skipped_points.may_skip(nest) for nest in step.nests):
            return points(first, end, carried)
        size = skipped_points.VECTORS * self.lanes

        def block(j: Index, values: list[Value]) -> list[Value]:
            starts = [f.iadd(j, u * self.lanes) for u in range(skipped_points.VECTORS)]
            may_change = skipped_points.any_set(f, [step.changed(at, values) for at in starts])
            return f.branches(may_change, lambda: points(j, f.iadd(j, size), values), lambda: values)

        middle = f.isub(end, f.irem(f.isub(end, first), size))
        return points(middle, end, f.loop(first, middle, size, block, carried))

    def by_vectors(self, step: _Step, vectors: int, first: Index, end: Index, carried: list[Value]) -> list[Value]:
        """Emit the elements `[first, end)` of a segment, `vectors` vectors per iteration."""
        f, lanes = self.f, step.lanes
        width = len(carried) // vectors
        size = vectors * lanes
        if not step.streaming and isinstance(self.head, ir.Value):
            begin = f.imin(f.iadd(first, self.head), end)
            one = f.loop(first, begin, lanes, lambda j, values: step(j, 1, f.isub(begin, j), values), carried[:width])
            first, carried = begin, [*one, *carried[width:]]
        middle = f.isub(end, f.irem(f.isub(end, first), size))
        carried = f.loop(first, middle, size, lambda j, values: step(j, vectors, None, values), carried)
        one, rest = carried[:width], carried[width:]
        last = f.isub(end, f.irem(f.isub(end, middle), lanes))
        one = f.loop(middle, last, lanes, lambda j, values: step(j, 1, None, values), one)
        if lanes > 1:
            one = f.loop(last, end, lanes, lambda j, values: step(j, 1, f.isub(end, j), values), one)
        return [*one, *rest]

    # -- values ----------------------------------------------------------------------------------

    def read(
        self, operand: StridedAccess, point: Sequence[Index], lanes: Lanes, fresh: Mapping[int, Value]
    ) -> Value:
        if operand.value in fresh:
            return fresh[operand.value]
        if operand.value in self.scalars:
            return self.scalars[operand.value]
        place = self.group.places.get(operand.value)
        if place is not None:
            operand = replace(place, dtype=operand.dtype)
        return load_values(self.f, operand, point, lanes)

    def start(self) -> list[Index]:
        """The indices of the row's first element."""
        return [*self.indices, *[0] * self.group.inner]

    def initial(self, nest: StridedNest) -> list[Value]:
        """The initial values of the outputs, one scalar each; not for outputs that have the row's dimension."""
        values: list[Value] = []
        for init, output in zip(nest.inits, nest.outputs, strict=True):
            if isinstance(init, StridedAccess):
                values.append(load_values(self.f, init, self.start()[: len(nest.sizes)], Lanes(None, 1)))
            else:
                values.append(constant(output.dtype, 0 if init is None else init))
        return values

    def uniform(self, nest: StridedNest) -> dict[int, Value]:
        """The body values that are constant along the row, or along the segment."""
        point = [*self.indices, *self.segment, 0]
        known = {
            k: self.read(operand, point, Lanes(None, 1), {})
            for k, operand in enumerate(nest.inputs)
            if operand.strides[-1] == ZERO
        }
        count = len(nest.inputs) + len(nest.outputs)
        return evaluate(self.f, nest.body, count, known, None, self.wanted(nest))

    def wanted(self, nest: StridedNest) -> list[int]:
        if nest.kinds[-1:] == ("parallel",) or is_sequential(nest):
            return list(nest.stage.yields)
        return [found.term for found in combiners_of(nest) if found is not None]

    def evaluated(
        self,
        nest: StridedNest,
        known: Mapping[int, Value],
        running: Sequence[Value],
        point: Sequence[Index],
        lanes: Lanes,
        wanted: Sequence[int],
    ) -> dict[int, Value]:
        values = {**known, **{len(nest.inputs) + k: value for k, value in enumerate(running)}}

        def index(d: int) -> Value:
            return index_values(self.f, point[nest.dims[d]], lanes, nest.dims[d])

        return evaluate(self.f, nest.body, len(nest.inputs) + len(nest.outputs), values, index, wanted)

    def keep(self, operand: StridedAccess, value: Value) -> None:
        """Keep a value of the whole row: for later stages, and in memory if it is read elsewhere."""
        self.scalars[operand.value] = value
        if operand.value not in self.group.private:
            store_values(self.f, value, operand, self.start()[: len(operand.strides)], Lanes(None, 1))


@dataclass
class _Step:
    """The body of a pass: all its stages at a few vectors of a row, with the accumulators as loop-carried values."""

    row: _RowEmitter
    nests: Sequence[StridedNest]
    known: list[dict[int, Value]]
    lanes: int
    streaming: bool
    ahead: Sequence[StridedAccess]
    following: list[Index]

    def __post_init__(self) -> None:
        reducing = [nest for nest in self.nests if nest.kinds[-1] == "reduction"]
        self.gatherings = [
            None if found is None or is_sequential(nest) else gathering(found, self.lanes)
            for nest in reducing
            for found in combiners_of(nest)
        ]

    def begin(self, vectors: int) -> list[Value]:
        """The initial accumulators, those of each vector together."""
        one: list[Value] = []
        initial = [value for nest in self.nests if nest.kinds[-1] == "reduction" for value in self.row.initial(nest)]
        for gather, value in zip(self.gatherings, initial, strict=True):
            one += [value] if gather is None else gather.start()
        return one * vectors

    def __call__(self, start: Index, vectors: int, active: Index | None, carried: list[Value]) -> list[Value]:
        f = self.row.f
        width = len(carried) // vectors
        parts = [carried[u * width : (u + 1) * width] for u in range(vectors)]
        if active is None:
            self.prefetch(start, vectors)
        terms = [self.once(f.iadd(start, u * self.lanes), active, part) for u, part in enumerate(parts)]
        position = 0
        for number, gather in enumerate(self.gatherings):
            if gather is None:
                parts[0][position] = terms[0][number]
                position += 1
                continue
            here = slice(position, position + gather.width)
            after = gather.add(f, [part[here] for part in parts], [each[number] for each in terms])
            for part, new in zip(parts, after, strict=True):
                if active is not None:
                    mask = f.lane_mask(active, self.lanes)
                    new = [f.select(mask, now, old) for now, old in zip(new, part[here], strict=True)]
                part[here] = new
            position += gather.width
        return [value for part in parts for value in part]

    def prefetch(self, start: Index, vectors: int) -> None:
        """Prefetch the next row's data at these vectors, cache line by cache line."""
        f = self.row.f
        for operand in self.ahead:
            item = item_bytes(operand.dtype)
            near = (self.nests[0].sizes[-1].known or 0) * item <= _FIRST
            for at in range(0, vectors * self.lanes, max(1, LINE // item)):
                f.prefetch(f.address(operand, [*self.following, f.iadd(start, at)]), near)

    def once(self, at: Index, active: Index | None, carried: Sequence[Value]) -> list[Value]:
        """Emit one vector: stores its results, and returns the terms of its reductions (for sequential reductions the
        new values, which depend on `carried`)."""
        row, f = self.row, self.row.f
        point = [*row.indices, *row.segment, at]
        lanes = Lanes(len(point) - 1, self.lanes, active)
        fresh: dict[int, Value] = {}
        result: list[Value] = []
        for nest, uniform in zip(self.nests, self.known, strict=True):
            known = dict(uniform)
            for k, operand in enumerate(nest.inputs):
                if k not in known:
                    known[k] = row.read(operand, point, lanes, fresh)
            if nest.kinds[-1] == "reduction":
                result += self.terms(nest, known, point, lanes, carried[len(result) :])
                continue
            running = self.running(nest, point, lanes)
            values = row.evaluated(nest, known, running, point, lanes, nest.stage.yields)
            for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
                fresh[operand.value] = values[position]
                place = row.group.places.get(operand.value, operand)
                if operand.value not in row.group.private or operand.value in row.group.kept:
                    streaming = self.streaming and operand.value not in row.group.private
                    store_values(f, values[position], place, point, lanes, streaming)
        return result

    def changed(self, at: Index, carried: Sequence[Value]) -> Value:
        """For each lane of the row's vector at `at`, whether it may change `carried`, the accumulators of sequential
        stages."""
        row = self.row
        point = [*row.indices, *row.segment, at]
        lanes = Lanes(len(point) - 1, row.lanes)
        result: Value = None
        position = 0
        for nest, uniform in zip(self.nests, self.known, strict=True):
            known = dict(uniform)
            for k, operand in enumerate(nest.inputs):
                if k not in known:
                    known[k] = row.read(operand, point, lanes, {})
            own = carried[position : position + len(nest.outputs)]
            position += len(nest.outputs)
            values = row.evaluated(nest, known, own, point, lanes, skipped_points.wanted(nest))
            flags = skipped_points.changed(row.f, nest, values, row.lanes)
            result = flags if result is None else row.f.or_(result, flags)
        return result

    def running(self, nest: StridedNest, point: Sequence[Index], lanes: Lanes) -> list[Value]:
        return [
            load_values(self.row.f, init, point, lanes)
            if isinstance(init, StridedAccess)
            else constant(output.dtype, 0 if init is None else init)
            for init, output in zip(nest.inits, nest.outputs, strict=True)
        ]

    def terms(
        self,
        nest: StridedNest,
        known: dict[int, Value],
        point: Sequence[Index],
        lanes: Lanes,
        carried: Sequence[Value],
    ) -> list[Value]:
        row, f = self.row, self.row.f
        if is_sequential(nest):
            values = row.evaluated(nest, known, carried[: len(nest.outputs)], point, lanes, nest.stage.yields)
            return [values[position] for position in nest.stage.yields]
        values = row.evaluated(nest, known, [], point, lanes, row.wanted(nest))
        combiners = [found for found in combiners_of(nest) if found is not None]
        return [widen(f, widened(f, found, values[found.term]), self.lanes) for found in combiners]

    def end(self, parts: Sequence[Sequence[Value]]) -> None:
        """Reduce the accumulators of all vectors to one value per output."""
        row, f = self.row, self.row.f
        position = 0
        gatherings = iter(self.gatherings)
        for nest in self.nests:
            if nest.kinds[-1] != "reduction":
                continue
            for output, start in zip(nest.outputs, row.initial(nest), strict=True):
                gather = next(gatherings)
                if gather is None:
                    row.keep(output, parts[0][position])
                    position += 1
                    continue
                found = gather.found
                mine = [part[position : position + gather.width] for part in parts]
                position += gather.width
                total = combine(f, found, widened(f, found, start), gather.total(f, mine))
                row.keep(output, narrowed(f, found, total))
