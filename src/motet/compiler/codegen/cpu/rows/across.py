"""Groups of stages over short rows, with vectors across neighbouring rows.

    softmax of 16 rows of 5:    x[0 … 15, 0 … 3], x[0 … 15, 4]  →  5 vectors  →  a vector of maxima, 5 of exponents …

Tiles of rows are transposed in registers when they are read and written. Reductions have one accumulator per row and no
sums of lanes, and no vector has lanes beyond the end of a row. Arguments that several passes read, and values that
later passes read, are kept in scratch memory, column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import (
    Frame,
    Lanes,
    StridedNest,
    index_values,
    load_stored,
    load_values,
    result_bytes,
    store_values,
)
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import constant, from_storage, storage_type, to_storage, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.rows.bands import transposed_pieces, transposed_squares
from motet.compiler.codegen.cpu.rows.grouping import RowGroup, combiners_of, is_sequential
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.reduction import Reduction
from motet.compiler.kernels.schedule import LoopPhase
from motet.compiler.kernels.strides import ONE, ZERO, StridedAccess

_PIECE = 16  # bytes of a piece of a row that is transposed
_LINE = 64
_FAR = 1 << 20  # bytes from which on a value is assumed not to be cached
_LONG = 4 << 10  # bytes of a block from which on the next one is prefetched, else the second next
_NEAR = 16 << 10  # bytes that are prefetched to the first-level cache
_CHAINS = 2  # accumulators of a reduction that do not wait for each other


def emit_across(
    module: ir.Module, symbol: str, kernel: Kernel, found: RowGroup, workspaces: Mapping[int, int], phase: LoopPhase,
    scales: bool,
) -> Expr:
    """Define `symbol`, the phase that runs the group; returns its number of tasks."""
    f = Frame(module, symbol, kernel, workspaces, {})
    f.scales = scales
    rows, lanes = found.extents[:-1], phase.lanes
    division = Division(rows[:-1], rows[-1], phase.strip, phase.grain)
    memory, _ = columns_in_scratch(found, lanes)

    def strip(indices: list[Index], first: Index, end: Index) -> None:
        def block(i: Index, active: Index | None) -> None:
            _RowBlock(f, found, [*indices, i], Lanes(len(rows) - 1, lanes, active), memory).run()

        whole = f.isub(end, f.irem(f.isub(end, first), lanes))
        f.loop(first, whole, lanes, lambda i, _: block(i, None))
        f.loop(whole, end, lanes, lambda i, _: block(i, f.isub(end, i)))

    division.loop(f, strip)
    f.finish()
    return division.tasks


def columns_in_scratch(found: RowGroup, lanes: int) -> tuple[dict[StridedAccess | int, int], int]:
    """The places in scratch memory, in bytes, of temporaries and of arguments that several passes read; and its
    size."""
    passes: dict[StridedAccess, set[int]] = {}
    kept: dict[StridedAccess | int, int] = {}
    for number, members in enumerate(found.passes):
        for nest in (found.nests[s] for s in members if found.wide[s]):
            kept |= {o.value: item_bytes(o.dtype) for o in nest.outputs if o.value in found.kept}
            for operand in nest.inputs:
                if operand.value not in found.private and _is_skewed(operand):
                    passes.setdefault(operand, set()).add(number)
    made = {operand.value for nest in found.nests for operand in nest.outputs}
    kept |= {o: item_bytes(o.dtype) for o, numbers in passes.items() if len(numbers) > 1 and o.value not in made}
    places: dict[StridedAccess | int, int] = {}
    size = 0
    for key, item in kept.items():
        places[key] = size
        size += -(-found.extents[-1].factor * lanes * item // _LINE) * _LINE
    return places, size


def _is_skewed(operand: StridedAccess) -> bool:
    """Whether an operand of a wide nest is contiguous along rows and not across them."""
    return operand.strides[-1] == ONE and operand.strides[-2] not in (ZERO, ONE)


@dataclass
class _RowBlock:
    """Emits neighbouring rows, from that at `indices` on. `scalars` holds values with one element per row. `written`
    are the arguments that are in scratch memory already."""

    f: Frame
    group: RowGroup
    indices: list[Index]
    lanes: Lanes
    memory: Mapping[StridedAccess | int, int]
    scalars: dict[int, Value] = field(default_factory=dict[int, Value])
    written: set[StridedAccess] = field(default_factory=set[StridedAccess])

    def run(self) -> None:
        for members in self.group.passes:
            nests = [self.group.nests[s] for s in members]
            if self.group.wide[members[0]]:
                _ColumnPass(self, nests).run()
            else:
                self.alone(nests[0])

    def alone(self, nest: StridedNest) -> None:
        """Emit a stage with one point per row."""
        known = {k: self.value(operand, self.indices) for k, operand in enumerate(nest.inputs)}
        values = self.evaluated(nest, known, self.initial(nest), self.indices, nest.stage.yields)
        for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
            self.keep(operand, values[position])

    def value(self, operand: StridedAccess, point: Sequence[Index]) -> Value:
        known = self.scalars.get(operand.value)
        return load_values(self.f, operand, point, self.lanes) if known is None else known

    def initial(self, nest: StridedNest) -> list[Value]:
        point = [*self.indices, 0][: len(nest.sizes)]
        return [
            load_values(self.f, init, point, self.lanes) if isinstance(init, StridedAccess)
            else constant(output.dtype, 0 if init is None else init)
            for init, output in zip(nest.inits, nest.outputs, strict=True)
        ]  # fmt: skip

    def evaluated(
        self, nest: StridedNest, known: Mapping[int, Value], running: Sequence[Value], point: Sequence[Index],
        wanted: Sequence[int],
    ) -> dict[int, Value]:
        values = {**known, **{len(nest.inputs) + k: value for k, value in enumerate(running)}}

        def index(d: int) -> Value:
            return index_values(self.f, point[nest.dims[d]], self.lanes, nest.dims[d])

        return evaluate(self.f, nest.body, len(nest.inputs) + len(nest.outputs), values, index, wanted)

    def keep(self, operand: StridedAccess, value: Value) -> None:
        """Keep a value with one element per row: for later stages, and in memory if it is read elsewhere."""
        self.scalars[operand.value] = widen(self.f, value, self.lanes.count)
        if operand.value not in self.group.private:
            point = [*self.indices, 0][: len(operand.strides)]
            store_values(self.f, self.scalars[operand.value], operand, point, self.lanes)

    # -- memory ----------------------------------------------------------------------------------

    def row(self, lane: int) -> Index:
        """The number of a lane's row; for lanes that do not exist, the first one's."""
        f, active = self.f, self.lanes.active
        at: Index = lane
        if active is not None and lane:
            at = f.select(f.icmp_signed("<", f.index(lane), f.index(active)), f.index(lane), f.index(0))
        return f.iadd(self.indices[-1], at)

    def scratch(self, key: StridedAccess | int, dtype: str, column: Index) -> Value:
        f, step = self.f, self.lanes.count * item_bytes(dtype)
        return f.at(f.arguments[4], f.iadd(self.memory[key], f.imul(column, step)), I8)

    def prefetch(self, operand: StridedAccess, first: Index, count: int) -> None:
        """Prefetch following rows of a large operand, as many bytes as `count` columns of these have, if rows are
        neighbours."""
        f, length = self.f, self.group.extents[-1].factor
        size = result_bytes(f.kernel, operand.value).known
        if operand.strides[-2].known != length or (size is not None and size < _FAR):
            return
        item = item_bytes(operand.dtype) * self.lanes.count
        blocks = 1 if length * item >= _LONG else 2
        base = f.address(operand, [*self.indices[:-1], f.iadd(self.indices[-1], blocks * self.lanes.count), 0])
        for at in range(0, count * item, _LINE):
            f.prefetch(f.at(base, f.iadd(f.imul(first, item), at), I8), length * item <= _NEAR)

    def read_tile(self, operand: StridedAccess, first: Index, width: int, count: int) -> list[Value]:
        """`count` columns of a skewed operand from `first` on, as stored; all `width` columns of a tile are read if
        rows are that long."""
        f, length = self.f, self.group.extents[-1].factor
        short = length < width
        start = first if short or count == width else length - width
        piece = min(width, _PIECE // item_bytes(operand.dtype))
        result: list[Value] = []
        for begin in range(0, count if short else width, piece):
            active = count - begin if short and count - begin < piece else None
            lanes = Lanes(len(self.indices), piece, active)
            points = [[*self.indices[:-1], self.row(lane), f.iadd(start, begin)] for lane in range(self.lanes.count)]
            result += transposed_pieces(f, [load_stored(f, operand, point, lanes) for point in points], piece)
        return result[:count] if short else result[width - count :]

    def write_tile(self, operand: StridedAccess, columns: Sequence[Value], first: Index, width: int) -> None:
        """Write stored values of neighbouring columns from `first` on. The first row is written last: lanes that do not
        exist write to it before."""
        f, kind = self.f, storage_type(operand.dtype)
        piece = min(width, _PIECE // item_bytes(operand.dtype))
        for begin in range(0, len(columns), piece):
            part = list(columns[begin : begin + piece])
            count = len(part)
            part += [ir.Constant(part[0].type, ir.Undefined)] * (piece - count)
            squares = transposed_squares(f, part)
            for lane in reversed(range(self.lanes.count)):
                from_lane = lane // piece * piece
                pick = ir.Constant(ir.VectorType(I32, piece), list(range(from_lane, from_lane + piece)))
                square = squares[lane % piece]
                stored = f.shuffle_vector(square, square, pick) if self.lanes.count > 1 else square
                address = f.address(operand, [*self.indices[:-1], self.row(lane), f.iadd(first, begin)])
                if count == piece:
                    f.store_vector(stored, address, kind)
                else:
                    f.masked_store(stored, address, kind, piece, f.lane_mask(count, piece))


@dataclass(frozen=True)
class _Accumulator:
    """An accumulator of a pass, in `chains` parts: output `output` of the nest `nest`. `found` is None if the order of
    its terms matters."""

    nest: int
    output: int
    found: Reduction | None
    chains: int


@dataclass
class _ColumnPass:
    """Emits stages that run column by column together."""

    block: _RowBlock
    nests: Sequence[StridedNest]

    def __post_init__(self) -> None:
        f, block = self.block.f, self.block
        self.made = {operand.value for nest in self.nests for operand in nest.outputs}
        self.slots: list[_Accumulator] = []
        carried: list[Value] = []
        for number, nest in enumerate(self.nests):
            if nest.kinds[-1] != "reduction":
                continue
            ordered = is_sequential(nest)
            for output, (found, start) in enumerate(zip(combiners_of(nest), block.initial(nest), strict=True)):
                chosen = None if ordered else found
                self.slots.append(_Accumulator(number, output, chosen, 1 if chosen is None else _CHAINS))
                value = start if chosen is None else constant(chosen.accumulator, chosen.identity)
                carried += [widen(f, value, block.lanes.count)] * self.slots[-1].chains
        self.begin = carried
        self.uniform = [
            {k: block.value(operand, [*block.indices, 0]) for k, operand in enumerate(nest.inputs)
             if operand.strides[-1] == ZERO and operand.value not in self.made}
            for nest in self.nests
        ]  # fmt: skip
        items = [item_bytes(o.dtype) for nest in self.nests for o in (*nest.inputs, *nest.outputs) if _is_skewed(o)]
        self.width = min(block.lanes.count, max((_PIECE // item for item in items), default=1))

    def run(self) -> None:
        length = self.block.group.extents[-1].factor
        rest = length % self.width
        end = self.block.f.loop(
            0, length - rest, self.width, lambda j, values: self.tile(j, self.width, values), self.begin
        )
        if rest:
            end = self.tile(length - rest, rest, end)
        self.block.written |= {o for o in self.tiled() if o in self.block.memory}
        self.finish(end)

    def tiled(self) -> list[StridedAccess]:
        """The operands that are read by tiles from memory."""
        block = self.block
        operands = dict.fromkeys(operand for nest in self.nests for operand in nest.inputs)
        return [
            o for o in operands
            if _is_skewed(o) and o.value not in block.group.private | self.made and o not in block.written
        ]  # fmt: skip

    def tile(self, first: Index, count: int, carried: list[Value]) -> list[Value]:
        """Emit `count` columns from `first` on."""
        block = self.block
        tiled = self.tiled()
        for operand in (*tiled, *(o for nest in self.nests for o in nest.outputs if _is_skewed(o))):
            if operand.value not in block.group.private:
                block.prefetch(operand, first, count)
        read = {operand: block.read_tile(operand, first, self.width, count) for operand in tiled}
        results: dict[StridedAccess, list[Value]] = {}
        for step in range(count):
            at = block.f.iadd(first, step)
            fresh: dict[int, Value] = {}
            for operand, columns in read.items():
                if operand in block.memory:
                    self.to_scratch(operand, operand.dtype, at, columns[step])
            stored = {operand: columns[step] for operand, columns in read.items()}
            for number in range(len(self.nests)):
                carried = self.column(number, at, step, stored, fresh, results, carried)
        for operand, columns in results.items():
            block.write_tile(operand, columns, first, self.width)
        return carried

    # Parameters: the state of the tile's columns.
    def column(
        self, number: int, at: Index, step: int, stored: Mapping[StridedAccess, Value], fresh: dict[int, Value],
        results: dict[StridedAccess, list[Value]], carried: list[Value],
    ) -> list[Value]:
        """Emit one stage at column `at`, the tile's `step`-th; returns the accumulators."""
        block, nest = self.block, self.nests[number]
        point = [*block.indices, at]
        known = dict(self.uniform[number])
        for k, operand in enumerate(nest.inputs):
            if k not in known:
                known[k] = self.read(operand, point, stored, fresh)
        if nest.kinds[-1] == "reduction":
            return self.reduced(number, known, point, step, carried)
        values = block.evaluated(nest, known, block.initial(nest), point, nest.stage.yields)
        for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
            value = fresh[operand.value] = widen(block.f, values[position], block.lanes.count)
            if operand.value in block.memory:
                self.to_scratch(operand.value, operand.dtype, at, to_storage(block.f, value, operand.dtype))
            if operand.value in block.group.private:
                continue
            if _is_skewed(operand):
                results.setdefault(operand, []).append(to_storage(block.f, value, operand.dtype))
            else:
                store_values(block.f, value, operand, point, block.lanes)
        return carried

    def read(
        self, operand: StridedAccess, point: Sequence[Index], stored: Mapping[StridedAccess, Value],
        fresh: Mapping[int, Value],
    ) -> Value:
        block = self.block
        if operand.value in fresh:
            return fresh[operand.value]
        if operand in stored:
            return from_storage(block.f, stored[operand], operand.dtype)
        key = operand if operand in block.memory else operand.value
        if key in block.memory:
            address = block.scratch(key, operand.dtype, point[-1])
            kind = storage_type(operand.dtype)
            return from_storage(block.f, block.f.load_vector(address, kind, block.lanes.count), operand.dtype)
        return block.value(operand, point)

    def to_scratch(self, key: StridedAccess | int, dtype: str, at: Index, stored: Value) -> None:
        block = self.block
        block.f.store_vector(stored, block.scratch(key, dtype, at), storage_type(dtype))

    def reduced(
        self, number: int, known: Mapping[int, Value], point: Sequence[Index], step: int, carried: Sequence[Value]
    ) -> list[Value]:
        """The accumulators after a column of the reduction `number`."""
        block, nest, after = self.block, self.nests[number], list(carried)
        mine = [(position, slot) for position, slot in self.placed() if slot.nest == number]
        running = [carried[position] for position, slot in mine if slot.found is None]
        wanted = [slot.found.term if slot.found else nest.stage.yields[slot.output] for _, slot in mine]
        values = block.evaluated(nest, known, running, point, wanted)
        for (position, slot), want in zip(mine, wanted, strict=True):
            if slot.found is None:
                after[position] = widen(block.f, values[want], block.lanes.count)
                continue
            chain = position + step % slot.chains
            term = widened(block.f, slot.found, values[want])
            after[chain] = combine(block.f, slot.found, carried[chain], widen(block.f, term, block.lanes.count))
        return after

    def placed(self) -> list[tuple[int, _Accumulator]]:
        """The accumulators, each with the place of its first part among the loop-carried values."""
        starts = accumulate((slot.chains for slot in self.slots), initial=0)
        return list(zip(starts, self.slots, strict=False))

    def finish(self, carried: Sequence[Value]) -> None:
        """Combine the parts of the accumulators with the initial values, and keep the results."""
        f, block = self.block.f, self.block
        for position, slot in self.placed():
            nest, found = self.nests[slot.nest], slot.found
            total = carried[position]
            if found is not None:
                for part in carried[position + 1 : position + slot.chains]:
                    total = combine(f, found, total, part)
                start = widened(f, found, block.initial(nest)[slot.output])
                total = narrowed(f, found, combine(f, found, start, total))
            block.keep(nest.outputs[slot.output], total)
