"""The class `planes`: code for reductions over windows of planes (`planes.py`).

Scratch memory has [plane of the window][image row][residue of the column][column / stride]. Columns and rows outside
the image are written as padding, so that tiles need no tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.copies import guarded
from motet.compiler.codegen.cpu.conv.emitter import each_panel, external_bytes, task_loop
from motet.compiler.codegen.cpu.conv.planes import Planes, check, choose, held, match
from motet.compiler.codegen.cpu.conv.shuffles import separated
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant, from_storage, to_storage, widen
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, PartialVector, TileFrame, task_function
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import PlanesSchedule
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_UNROLLED = 8  # vectors of a copied row


def emit(c: Planes, schedule: PlanesSchedule, target: CpuTarget) -> KernelCode | None:
    """Generate code for a reduction over windows by `schedule`; None if the body has an operation without code."""
    try:
        return _PlaneEmitter(c, schedule).run()
    except Unsupported:
        return None


CLASS = KernelClass(PlanesSchedule, match, choose, check, emit)


@dataclass(frozen=True)
class _Task:
    """A task at outer coordinates `at`: rows of the result from `first` on, with the copied `image` and the `reduced`
    columns in scratch memory."""

    at: list[Index]
    first: Index
    image: ir.Value
    reduced: ir.Value


@dataclass(frozen=True)
class _Tile:
    """`rows` rows from `row` on, `lanes` columns from `column` on."""

    row: Index
    column: Index
    rows: int
    lanes: list[PartialVector]


@dataclass(frozen=True)
class _Columns:
    """Columns of a window in one row of scratch memory: `count` of them, `by` taps apart from `first` on, in the part
    of residue `residue`, `step` elements apart from element `begin` on."""

    first: int
    by: int
    count: int
    residue: int
    begin: int
    step: int


class _PlaneEmitter:
    def __init__(self, c: Planes, plan: PlanesSchedule) -> None:
        self.c = c
        self.plan = plan
        self.module = ir.Module(c.kernel.name)
        self.element = MEMORY_TYPES[c.image.dtype]
        self.sum_element = MEMORY_TYPES[c.combiner.accumulator]
        self.pitch = c.pitch(plan.lanes)
        self.line = self.pitch * c.columns.stride  # of one copied row
        self.width = -(-c.columns.size // plan.lanes) * plan.lanes  # of one row of reduced columns
        self.lines = c.rows.span(plan.block)
        self.is_wider = c.combiner.accumulator != c.combiner.dtype

    def run(self) -> KernelCode:
        c, plan = self.c, self.plan
        f = task_function(self.module, c.kernel)
        phase = task_loop(f, c.outer, len(c.main.sizes), c.rows.size // plan.block, 1, self._task)
        outer = math.prod(size.known or 1 for size, _ in c.outer)
        return KernelCode(
            "planes", str(self.module), (phase,), sum(c.scratch(plan.block, plan.lanes)),
            flops=(2 if c.others else 1) * c.terms * outer, bytes=external_bytes(c.kernel),
        )

    def _task(self, f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
        c, plan = self.c, self.plan
        reduced = f.at(scratch, c.scratch(plan.block, plan.lanes)[0], MEMORY_TYPES["i8"])
        task = _Task(at, f.imul(block, plan.block), scratch, reduced)
        self._copy(f, task)
        if c.is_separable:
            self._each_vector(f, c.depth * self.lines, 4, lambda line, column, count: self._reduce_columns(
                f, task, line, column, count))
        tiles = -(-plan.block // plan.rows)

        def some_rows(t: Index, _: list[ir.Value]) -> None:
            # The last tile begins earlier if the rows are not a multiple of a tile's.
            row = f.iadd(task.first, f.imin(f.imul(t, plan.rows), plan.block - plan.rows))
            each_panel(f, c.columns.size, plan, None, lambda column, lanes: self._tile(
                f, task, _Tile(row, column, plan.rows, lanes)))

        f.loop(0, tiles, 1, some_rows)

    # -- the image in scratch memory -------------------------------------------------------------

    def _copy(self, f: TileFrame, task: _Task) -> None:
        """Copy all image rows that the task reads."""
        c = self.c

        def plane(taps: list[Index], number: Index, _: list[ir.Value]) -> list[ir.Value]:
            base: Index = 0
            places: list[tuple[Index, Index]] = []
            for dim in [dim for _, dim in c.outer if dim not in [window.out for window in c.deep]]:
                base = f.iadd(base, f.imul(f.extent(c.image.strides[dim]), task.at[dim]))
            for window, tap in zip(c.deep, taps, strict=True):
                here = f.imul(task.at[window.out], window.stride) if window.out >= 0 else 0
                here = f.isub(f.iadd(here, f.imul(tap, window.dilation)), window.low)
                base = f.iadd(base, f.imul(here, window.step))
                places.append((window.image, here))

            def line(j: Index, _: list[ir.Value]) -> None:
                y = f.isub(f.iadd(f.imul(task.first, c.rows.stride), j), c.rows.low)
                source = f.at(f.pointer(c.image.value), f.iadd(base, f.imul(y, c.rows.step)), self.element)
                target = f.at(task.image, f.imul(f.iadd(f.imul(number, self.lines), j), self.line), self.element)
                guarded(f, c.padding, [*places, (c.rows.image, y)],
                        lambda: self._copy_line(f, source, target), lambda: self._pad_line(f, target))

            return f.loop(0, self.lines, 1, line)

        self._each_plane(f, plane)

    def _each_plane(
        self, f: TileFrame, visit: Callable[[list[Index], Index, list[ir.Value]], list[ir.Value]],
        values: Sequence[ir.Value] = (),
    ) -> list[ir.Value]:
        """`values` after `visit` with the taps of the outer windows, and the number of the plane, for each plane of a
        window."""
        def level(taps: list[Index], number: Index, values: list[ir.Value]) -> list[ir.Value]:
            if len(taps) == len(self.c.deep):
                return visit(taps, number, values)
            count = self.c.deep[len(taps)].taps
            return f.loop(0, count, 1, lambda t, inner: level(
                [*taps, t], f.iadd(f.imul(number, count), t), inner), values)

        return level([], 0, list(values))

    def _pad_line(self, f: TileFrame, target: ir.Value) -> None:
        padding = self._padding(f)
        f.loop(0, self.line, self.plan.lanes, lambda i, _: f.store_vector(
            padding, f.at(target, i, self.element), self.element))

    def _padding(self, f: TileFrame) -> ir.Value:
        dtype = self.c.image.dtype
        return to_storage(f, constant(dtype, self.c.padding or 0, self.plan.lanes), dtype)

    def _copy_line(self, f: TileFrame, source: ir.Value, target: ir.Value) -> None:
        """Copy one row, columns that are a stride apart to neighbouring elements."""
        c, lanes = self.c, self.plan.lanes
        stride = c.columns.stride
        blocks = self.pitch // lanes
        inside = [
            b for b in range(blocks)
            if b * lanes * stride >= c.columns.low and (b + 1) * lanes * stride - c.columns.low <= c.columns.image
        ]
        runs = [(b, b + 1) for b in range(blocks)]
        if len(inside) > _UNROLLED:
            runs = [*runs[: inside[0]], (inside[0], inside[-1] + 1), *runs[inside[-1] + 1 :]]

        def block(number: Index, first: int) -> None:
            vectors = [
                self._read(f, source, f.isub(f.imul(f.iadd(f.imul(number, stride), m), lanes), c.columns.low),
                           (first * stride + m) * lanes - c.columns.low)
                for m in range(stride)
            ]
            for residue, vector in enumerate(separated(f, vectors)):
                place = f.iadd(residue * self.pitch, f.imul(number, lanes))
                f.store_vector(vector, f.at(target, place, self.element), self.element)

        for begin, end in runs:
            if end - begin == 1:
                block(begin, begin)
            else:
                f.loop(begin, end, 1, lambda b, _, begin=begin: block(b, begin))

    def _read(self, f: TileFrame, source: ir.Value, offset: Index, known: int) -> ir.Value:
        """The vector of the row from `offset` on, where all vectors of a run are inside the image or `known` is the
        offset; padding where the image has no element."""
        lanes, image = self.plan.lanes, self.c.columns.image
        there = [0 <= known + lane < image for lane in range(lanes)]
        if all(there):
            return f.load_vector(f.at(source, offset, self.element), self.element, lanes)
        padding = self._padding(f)
        if not any(there):
            return padding
        mask = ir.Constant(ir.VectorType(ir.IntType(1), lanes), [int(one) for one in there])
        loaded = f.masked_load(f.at(source, offset, self.element), self.element, lanes, mask)
        return f.select(mask, loaded, padding) if self.c.padding else loaded

    # -- the window ------------------------------------------------------------------------------

    def _parts(self) -> list[_Columns]:
        """The columns of the window, by the residue of their distance from the first modulo the stride."""
        w = self.c.columns
        common = math.gcd(w.stride, w.dilation)
        by = w.stride // common
        parts: list[_Columns] = []
        for first in range(min(by, w.taps)):
            begin, residue = divmod(first * w.dilation, w.stride)
            parts.append(_Columns(first, by, -(-(w.taps - first) // by), residue, begin, w.dilation // common))
        return parts

    def _reduce_columns(self, f: TileFrame, task: _Task, line: Index, column: Index, count: int) -> None:
        """Reduce the columns of the window at one row, `count` vectors from `column` on."""
        lanes = self.plan.lanes
        sums: list[ir.Value] = []
        for part in self._parts():
            base = f.iadd(f.imul(line, self.line), f.iadd(part.residue * self.pitch + part.begin, column))

            def terms(t: Index, base: Index = base, step: int = part.step) -> list[ir.Value]:
                places = [f.iadd(f.iadd(base, f.imul(t, step)), v * lanes) for v in range(count)]
                return [self._term(f, self._image(f, task, place)) for place in places]

            def add(t: Index, carried: list[ir.Value], terms: Callable[[Index], list[ir.Value]] = terms
                    ) -> list[ir.Value]:
                return [combine(f, self.c.combiner, a, b) for a, b in zip(carried, terms(t), strict=True)]

            first = terms(0)
            sums = [combine(f, self.c.combiner, a, b) for a, b in zip(sums, first, strict=True)] if sums else first
            sums = f.loop(1, part.count, 1, add, sums)
        for v, value in enumerate(sums):
            place = f.at(task.reduced, f.iadd(f.imul(line, self.width), f.iadd(column, v * lanes)), self.sum_element)
            f.store_vector(to_storage(f, value, self.c.combiner.accumulator), place, self.sum_element)

    def _each_vector(
        self, f: TileFrame, lines: int, most: int, visit: Callable[[Index, Index, int], None]
    ) -> None:
        """`visit` with the line, the column, and a number of vectors, for all vectors of so many lines."""
        lanes = self.plan.lanes
        vectors = self.width // lanes
        whole, rest = divmod(vectors, most)

        def line(number: Index, _: list[ir.Value]) -> None:
            f.loop(0, whole, 1, lambda t, _: visit(number, f.imul(t, most * lanes), most))
            if rest:
                visit(number, whole * most * lanes, rest)

        f.loop(0, lines, 1, line)

    def _image(self, f: TileFrame, task: _Task, place: Index) -> ir.Value:
        raw = f.load_vector(f.at(task.image, place, self.element), self.element, self.plan.lanes)
        return from_storage(f, raw, self.c.image.dtype)

    def _term(self, f: TileFrame, image: ir.Value) -> ir.Value:
        """The term of an image vector, in the accumulator's type, where there are no other inputs."""
        c = self.c
        inputs = len(c.main.inputs) + len(c.main.outputs)
        values = evaluate(f, c.main.body, inputs, {c.number: image}, None, [c.combiner.term])
        return widen(f, widened(f, c.combiner, values[c.combiner.term]), self.plan.lanes)

    # -- tiles -----------------------------------------------------------------------------------

    def _tile(self, f: TileFrame, task: _Task, tile: _Tile) -> None:
        c = self.c
        here = list(task.at)
        here[c.rows.out], here[c.columns.out] = tile.row, tile.column
        views = Views(f, c.places, here, c.rows.out, c.columns.out)
        sums = [self._initial(f, views, r, v, lane) for r in range(tile.rows) for v, lane in enumerate(tile.lanes)]
        sums = self._planes(f, task, tile, here, sums)
        for number, value in enumerate(sums):
            r, v = divmod(number, len(tile.lanes))
            result = narrowed(f, c.combiner, value) if self.is_wider else value
            finish(f, c.epilogue, views, result, r, v * self.plan.lanes, tile.lanes[v])

    def _initial(self, f: TileFrame, views: Views, row: int, vector: int, lanes: PartialVector) -> ir.Value:
        c = self.c
        dtype = c.output.dtype
        if isinstance(c.init, StridedAccess):
            value = from_storage(f, views.read(c.init, row, vector * self.plan.lanes, lanes), c.init.dtype)
        else:
            value = constant(dtype, c.init, lanes.lanes)
        return widened(f, c.combiner, value) if self.is_wider else value

    def _planes(
        self, f: TileFrame, task: _Task, tile: _Tile, here: list[Index], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums after all planes of the window."""
        c = self.c
        line = f.imul(f.isub(tile.row, task.first), c.rows.stride)

        def plane(taps: list[Index], number: Index, values: list[ir.Value]) -> list[ir.Value]:
            at = list(here)
            for window, tap in zip(c.deep, taps, strict=True):
                at[window.kernel] = tap
            return self._plane(f, task, tile, f.iadd(f.imul(number, self.lines), line), at, values)

        return self._each_plane(f, plane, sums)

    def _plane(
        self, f: TileFrame, task: _Task, tile: _Tile, line: Index, here: list[Index], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums after one plane of the window, whose first row is `line` of scratch memory."""
        c = self.c
        if c.is_separable:
            return self._reduced_rows(f, task, tile, line, sums)
        most = held(c) or c.rows.taps
        for begin in range(0, c.rows.taps, most):
            taps = range(begin, min(begin + most, c.rows.taps))
            for part in self._parts():

                def column(t: Index, values: list[ir.Value], part: _Columns = part, taps: range = taps
                           ) -> list[ir.Value]:
                    at = list(here)
                    at[c.columns.kernel] = f.iadd(part.first, f.imul(t, part.by))
                    place = f.iadd(part.residue * self.pitch + part.begin, f.imul(t, part.step))
                    place = f.iadd(f.iadd(f.imul(line, self.line), place), tile.column)
                    return self._products(f, task, replace(tile, column=place), taps, at, values)

                sums = f.loop(0, part.count, 1, column, sums)
        return sums

    def _products(
        self, f: TileFrame, task: _Task, tile: _Tile, taps: range, at: list[Index], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums after some rows of one column of the window. Each image vector is read once, from element
        `tile.column` of scratch memory on."""
        c, width = self.c, len(tile.lanes)
        others: dict[int, dict[int, ir.Value]] = {}
        users: dict[int, list[tuple[int, int]]] = {}
        for i in taps:
            at[c.rows.kernel] = i
            others[i] = {
                number: from_storage(f, f.load_vector(f.address(place, at), MEMORY_TYPES[place.dtype], 1), place.dtype)
                for number, place in c.others
            }
            for r in range(tile.rows):
                users.setdefault(r * c.rows.stride + i * c.rows.dilation, []).append((r, i))
        result = list(sums)
        for line, uses in sorted(users.items()):
            for v in range(width):
                image = self._image(f, task, f.iadd(tile.column, line * self.line + v * self.plan.lanes))
                for r, i in uses:
                    result[r * width + v] = self._added(f, {**others[i], c.number: image}, result[r * width + v])
        return result

    def _added(self, f: TileFrame, values: dict[int, ir.Value], running: ir.Value) -> ir.Value:
        c = self.c
        inputs = len(c.main.inputs)
        wanted = c.combiner.term if self.is_wider else c.main.yields[0]
        known = {**values, inputs: running}
        made = evaluate(f, c.main.body, inputs + 1, known, None, [wanted])[wanted]
        return combine(f, c.combiner, running, widened(f, c.combiner, made)) if self.is_wider else made

    def _reduced_rows(
        self, f: TileFrame, task: _Task, tile: _Tile, line: Index, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums after the rows of the window, whose columns are reduced."""
        result = list(sums)
        for v in range(len(tile.lanes)):
            base = f.iadd(f.iadd(f.imul(line, self.width), tile.column), v * self.plan.lanes)

            def at(there: int, base: Index = base) -> ir.Value:
                place = f.at(task.reduced, f.iadd(base, there * self.width), self.sum_element)
                return from_storage(
                    f, f.load_vector(place, self.sum_element, self.plan.lanes), self.c.combiner.accumulator)

            for r, value in enumerate(self._windows_of(f, tile.rows, at)):
                number = r * len(tile.lanes) + v
                result[number] = combine(f, self.c.combiner, result[number], value)
        return result

    def _windows_of(self, f: TileFrame, rows: int, at: Callable[[int], ir.Value]) -> list[ir.Value]:
        """The lines `at` of each of `rows` windows combined. Neighbouring windows share the lines that all of them
        have; those before and after are combined from these outwards."""
        w = self.c.rows

        def add(a: ir.Value, b: ir.Value) -> ir.Value:
            return combine(f, self.c.combiner, a, b)

        if w.stride != 1 or w.dilation != 1 or w.taps < rows:
            return [reduce(add, [at(r * w.stride + i * w.dilation) for i in range(w.taps)]) for r in range(rows)]
        shared = reduce(add, map(at, range(rows - 1, w.taps)))
        after = list(accumulate(map(at, range(w.taps, w.taps + rows - 1)), add))
        before = list(accumulate(map(at, range(rows - 2, -1, -1)), add))[::-1]
        ends = [before[r : r + 1] + after[max(0, r - 1) : r] for r in range(rows)]
        return [reduce(add, own, shared) for own in ends]
