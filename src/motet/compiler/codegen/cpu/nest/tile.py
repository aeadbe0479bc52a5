"""Writes a register tile: the copies and vectors of a stage's body inside the innermost loop, and the loops of
reductions around them, whose sums stay in registers.

A tile that is incomplete is written in parts of known sizes: copies by powers of two, and elements of vectors by whole
vectors and a masked one. Elements that several copies read are loaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.compiler.codegen.cpu.emit.addressing import (
    Frame,
    Lanes,
    StridedNest,
    index_values,
    load_values,
    store_values,
)
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import F16, Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import constant, widen
from motet.compiler.codegen.cpu.emit.float_lanes import scalar_type
from motet.compiler.codegen.cpu.nest.frames import NestPoint, Values, divided, interior, shifted
from motet.compiler.codegen.cpu.nest.plan import NestEpilogue, NestPlan, ScheduledLoop
from motet.compiler.codegen.cpu.rows.row_reduction import Gathering, gathering
from motet.compiler.kernels.strides import ZERO, StridedAccess

_MOST_UNROLLED = 8  # iterations of the innermost loop of a reduction
_OPERATIONS = 448  # of one iteration of that loop


@dataclass(frozen=True)
class _BodyCopy:
    """A copy of the body at `offsets` from the tile's point; `active` lanes of its vector exist (None: all)."""

    offsets: dict[int, int]
    active: Index | None

    def only(self, dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.offsets.get(d, 0) for d in dims)


class TileWriter:
    """Writes tiles of `plan` in the function of `f`. `enter` is called with the number of loops entered, and the point,
    in loops of reductions."""

    def __init__(self, f: Frame, plan: NestPlan, enter: Callable[[int, NestPoint], None]) -> None:
        self.f = f
        self.plan = plan
        self.enter = enter
        self.nest = plan.nest
        self.parallel = [d for d in range(len(plan.spans)) if d not in plan.reduced]
        self.gathers: list[Gathering] = []
        if plan.reduces_lanes:
            self.gathers = [gathering(found, plan.lanes) for found in plan.reductions]
        self.width = 1  # vectors of a reduction, each with separate sums
        if plan.reduces_lanes and plan.vector is not None:
            self.width = -(-(plan.cover(self._vector_loops(), plan.vector) or plan.lanes) // plan.lanes)

    def _vector_loops(self) -> list[ScheduledLoop]:
        return [loop for loop in self.plan.tile if loop.kind == "vector"]

    # -- parts of known sizes ------------------------------------------------------------------------

    def write(self, point: NestPoint) -> None:
        """Write the tile at `point`."""
        tiled = dict.fromkeys(loop.dim for loop in self.plan.tile if loop.dim in self.parallel)
        self._parts(list(tiled), point)

    def _parts(self, dims: Sequence[int], point: NestPoint) -> None:
        f = self.f
        if not dims:
            self._part(point)
            return
        dim, rest = dims[0], dims[1:]
        left, base = point.left[dim], point.base[dim]
        if isinstance(left, int):
            if left:
                self._parts(rest, point)
            return
        begin: Index = 0
        for size in self._sizes(dim):
            end = f.isub(left, f.irem(f.isub(left, begin), size))
            f.loop(begin, end, size, lambda i, _, n=size: self._parts(rest, point.moved(dim, f.iadd(base, i), n)))
            begin = end
        if dim == self.plan.vector and self.plan.lanes > 1:
            lanes = self.plan.lanes

            def masked(i: Index, _: object) -> None:
                at = point.moved(dim, f.iadd(base, i), lanes)
                self._parts(rest, replace(at, active=f.isub(left, i)))

            f.loop(begin, left, lanes, masked)

    def _sizes(self, dim: int) -> list[int]:
        """The sizes of the parts of an incomplete tile along `dim`."""
        if dim == self.plan.vector:
            return [self.plan.lanes]
        cover = self.plan.cover(self.plan.tile, dim) or 1
        return [1 << bit for bit in reversed(range(max(1, (cover - 1).bit_length())))]

    def _part(self, point: NestPoint) -> None:
        f = self.f
        parallel = [loop for loop in self.plan.tile if loop.dim in self.parallel]
        slots = list(self._copies(point, parallel))
        if any(operand.bounds for operand in self.nest.inputs):
            spans = [self._span(point, d) for d in range(len(point.base))]
            results = f.branches(
                interior(f, self.nest, point.base, spans),
                lambda: self._results(point, slots, False),
                lambda: self._results(point, slots, True),
            )
        else:
            results = self._results(point, slots, False)
        outputs = len(self.nest.outputs)
        for number, slot in enumerate(slots):
            values = results[number * outputs : (number + 1) * outputs]
            if self.plan.stored:
                self._store(point, slot, self.nest, values)
            known = {each.value: value for each, value in zip(self.nest.outputs, values, strict=True)}
            for epilogue in self.plan.epilogues:
                self._epilogue(point, slot, epilogue, known)

    def _span(self, point: NestPoint, dim: int) -> Index:
        return point.active if dim == self.plan.vector and point.active is not None else point.left[dim]

    def _epilogue(self, point: NestPoint, slot: _BodyCopy, epilogue: NestEpilogue, known: dict[int, Any]) -> None:
        """Compute an epilogue on the results `known`, to which it adds its own."""
        f, nest, lanes = self.f, epilogue.nest, self._lanes(slot)
        values: dict[int, Any] = {}
        for k, operand in enumerate(nest.inputs):
            if k in epilogue.registers:
                values[k] = known[epilogue.registers[k]]
            else:
                values[k] = load_values(f, shifted(operand, slot.offsets), point.base, lanes)
        for k, (init, output) in enumerate(zip(nest.inits, nest.outputs, strict=True), start=len(nest.inputs)):
            if isinstance(init, StridedAccess):
                values[k] = load_values(f, shifted(init, slot.offsets), point.base, lanes)
            else:
                values[k] = constant(output.dtype, 0 if init is None else init)

        def index(dim: int) -> Any:
            mine = nest.dims[dim]
            if mine < 0:  # of extent 1
                return f.index(0)
            return index_values(f, f.iadd(point.base[mine], slot.offsets.get(mine, 0)), lanes, mine)

        count = len(nest.inputs) + len(nest.outputs)
        done = evaluate(f, nest.body, count, values, index, nest.stage.yields)
        results = [widen(f, done[position], lanes.count) for position in nest.stage.yields]
        if epilogue.stored:
            self._store(point, slot, nest, results)
        known.update((each.value, value) for each, value in zip(nest.outputs, results, strict=True))

    def _store(self, point: NestPoint, slot: _BodyCopy, nest: StridedNest, values: Values) -> None:
        for operand, value in zip(nest.outputs, values, strict=True):
            store_values(self.f, value, shifted(operand, slot.offsets), point.base, self._lanes(slot))

    def _lanes(self, slot: _BodyCopy) -> Lanes:
        """The lanes of results in `slot`."""
        vector = self.plan.vector
        if vector is None or self.plan.reduces_lanes or self.plan.lanes == 1:
            return Lanes(None, 1)
        return Lanes(vector, self.plan.lanes, slot.active)

    def _copies(self, point: NestPoint, tile: Sequence[ScheduledLoop]) -> Iterator[_BodyCopy]:
        """The copies of the body by the loops `tile`, in order, along which the tile's sizes are known."""

        def inside(
            loops: Sequence[ScheduledLoop], left: dict[int, int], offsets: dict[int, int], active: Index | None
        ) -> Iterator[_BodyCopy]:
            if not loops:
                yield _BodyCopy(offsets, active)
                return
            loop = loops[0]
            lanes = self.plan.lanes if loop.kind == "vector" else None
            if lanes is None and loop.dim == self.plan.vector and point.active is not None:
                yield from inside(loops[1:], left, offsets, active)
                return
            for offset in range(0, left[loop.dim], lanes or loop.step):
                here = left[loop.dim] - offset
                if lanes is not None:
                    active = point.active if point.active is not None else here if here < lanes else None
                at = offsets | {loop.dim: offsets.get(loop.dim, 0) + offset}
                yield from inside(loops[1:], left | {loop.dim: min(lanes or loop.step, here)}, at, active)

        yield from inside(tile, {d: left for d, left in enumerate(point.left) if isinstance(left, int)}, {}, None)

    # -- values --------------------------------------------------------------------------------------

    def _results(self, point: NestPoint, slots: Sequence[_BodyCopy], checked: bool) -> Values:
        """The outputs at each of `slots`, in the types computed with."""
        initial = [value for slot in slots for value in self._initial(point, slot)]
        if self.plan.empty:
            return self._narrowed(initial)
        start = initial
        if self.gathers:
            start = [part for _ in range(len(slots) * self.width) for each in self.gathers for part in each.start()]
        sums = self._reduced(0, point, slots, start, checked)
        if self.gathers:
            sums = self._across(slots, sums, initial)
        return self._narrowed(sums)

    def _narrowed(self, sums: Values) -> Values:
        """Sums in the types of the outputs."""
        found = self.plan.reductions if self.plan.reduced else ()
        result = list(sums)
        for n, value in enumerate(sums):
            output = n % len(self.nest.outputs)
            if found and self.nest.outputs[output].dtype == found[output].dtype:  # else in a buffer of sums
                result[n] = narrowed(self.f, found[output], value)
        return result

    def _across(self, slots: Sequence[_BodyCopy], sums: Values, initial: Values) -> Values:
        """The sums of lanes, combined with the initial values."""
        totals: Values = []
        for number in range(len(slots)):
            parts = [self._sums_at(sums, number * self.width + n) for n in range(self.width)]
            for output, each in enumerate(self.gathers):
                total = each.total(self.f, [part[output] for part in parts])
                before = initial[number * len(self.gathers) + output]
                totals.append(combine(self.f, self.plan.reductions[output], before, total))
        return totals

    def _sums_at(self, sums: Values, number: int) -> list[Values]:
        """The running values of each output in accumulator `number`."""
        widths = [each.width for each in self.gathers] or [1] * len(self.nest.outputs)
        begin = number * sum(widths)
        result: list[Values] = []
        for width in widths:
            result.append(sums[begin : begin + width])
            begin += width
        return result

    def _initial(self, point: NestPoint, slot: _BodyCopy) -> Values:
        """The outputs before the terms of this tile: what earlier ones summed, or the initial values."""
        f = self.f
        begin = [self._passed(point, d) for d in self.plan.partial]

        def first() -> Values:
            return [self._start(output, point, slot) for output in range(len(self.nest.outputs))]

        def later() -> Values:
            lanes = self._lanes(slot)
            found = [load_values(f, shifted(each, slot.offsets), point.base, lanes) for each in self.nest.outputs]
            return [self._widened(n, widen(f, value, lanes.count)) for n, value in enumerate(found)]

        if any(isinstance(each, int) and each for each in begin):
            return later()
        test: Any = None
        for each in begin:
            if not isinstance(each, int):
                zero = f.icmp_signed("==", each, f.index(0))
                test = zero if test is None else f.and_(test, zero)
        return first() if test is None else f.branches(test, first, later)

    def _passed(self, point: NestPoint, dim: int) -> Index:
        """The elements of reduction `dim` that the results have already, 0 for none."""
        base, split = point.base[dim], self.plan.split
        return self.f.irem(base, split[1]) if split is not None and split[0] == dim else base

    def _start(self, output: int, point: NestPoint, slot: _BodyCopy) -> Any:
        init, dtype = self.nest.inits[output], self.nest.outputs[output].dtype
        if self.plan.reductions:
            dtype = self.plan.reductions[output].dtype
        lanes = self._lanes(slot)
        if isinstance(init, StridedAccess):
            value: Any = load_values(self.f, shifted(init, slot.offsets), point.base, lanes)
        else:
            value = constant(dtype, 0 if init is None else init)
        return self._widened(output, widen(self.f, value, lanes.count))

    def _widened(self, output: int, value: Any) -> Any:
        """A value of an output in the type of its sums."""
        found = self.plan.reductions if self.plan.reduced else ()
        short = found and scalar_type(value.type) == F16
        return widened(self.f, found[output], value) if short else value

    # -- reductions ----------------------------------------------------------------------------------

    def _reduced(
        self, depth: int, point: NestPoint, slots: Sequence[_BodyCopy], sums: Values, checked: bool
    ) -> Values:
        """The sums after the loops of reductions from `depth` on."""
        if depth == len(self.plan.carried):
            tiled = dict.fromkeys(loop.dim for loop in self.plan.tile if loop.dim in self.plan.reduced)
            return self._steps(list(tiled), point, slots, sums, checked)
        loop = self.plan.carried[depth]

        def body(offset: Index, left: Index, values: Values) -> Values:
            at = point.moved(loop.dim, self.f.iadd(point.base[loop.dim], offset), left)
            self.enter(len(self.plan.tasks) + len(self.plan.outer) + depth + 1, at)
            return self._reduced(depth + 1, at, slots, values, checked)

        left, unrolled = point.left[loop.dim], self._unrolled(depth, len(slots))
        if unrolled == 1 or (isinstance(left, int) and left < unrolled * loop.step):
            return divided(self.f, left, loop.step, body, sums)
        step = unrolled * loop.step
        whole = self.f.isub(left, self.f.irem(left, step))

        def several(offset: Index, values: Values) -> Values:
            for number in range(unrolled):
                values = body(self.f.iadd(offset, number * loop.step), loop.step, values)
            return values

        sums = self.f.loop(0, whole, step, several, sums)

        def rest(offset: Index, elements: Index, values: Values) -> Values:
            return body(self.f.iadd(whole, offset), elements, values)

        return divided(self.f, self.f.isub(left, whole), loop.step, rest, sums)

    def _unrolled(self, depth: int, slots: int) -> int:
        """The iterations of the loop of reductions `depth` that are one: several of the innermost loop if it is
        short."""
        if depth != len(self.plan.carried) - 1:
            return 1
        terms = slots
        for loop in self.plan.tile:
            if loop.dim in self.plan.reduced:
                step = self.plan.lanes if loop.kind == "vector" else loop.step
                terms *= -(-(self.plan.cover([loop], loop.dim) or 1) // step)
        operations = max(1, terms * len(self.nest.stage.body))
        return max(1, min(_MOST_UNROLLED, 1 << (_OPERATIONS // operations).bit_length() >> 1))

    def _steps(
        self, dims: Sequence[int], point: NestPoint, slots: Sequence[_BodyCopy], sums: Values, checked: bool
    ) -> Values:
        """The sums after the terms in the tile, whose sizes along the reductions `dims` may not be known."""
        f = self.f
        if not dims:
            return self._terms(point, slots, sums, checked)
        dim, rest = dims[0], dims[1:]
        left, base = point.left[dim], point.base[dim]
        if isinstance(left, int):
            return self._steps(rest, point, slots, sums, checked)
        size = self.plan.lanes if dim == self.plan.vector else 1
        whole = left if size == 1 else f.isub(left, f.irem(left, size))

        def step(i: Index, values: Values) -> Values:
            return self._steps(rest, point.moved(dim, f.iadd(base, i), size), slots, values, checked)

        def masked(i: Index, values: Values) -> Values:
            at = replace(point.moved(dim, f.iadd(base, i), size), active=f.isub(left, i))
            return self._steps(rest, at, slots, values, checked)

        sums = f.loop(0, whole, size, step, sums)
        return sums if size == 1 else f.loop(whole, left, size, masked, sums)

    def _terms(
        self, point: NestPoint, slots: Sequence[_BodyCopy], sums: Values, checked: bool
    ) -> Values:
        """The sums, or results, after the body's copies at `point`."""
        running = list(sums)
        width = len(self._sums_at(sums, 0)) if not self.gathers else sum(each.width for each in self.gathers)
        loaded: dict[object, Any] = {}
        vector = self.plan.vector
        numbers = {slot.only(self.parallel): n * self.width for n, slot in enumerate(slots)}
        for copy in self._copies(point, self.plan.tile):
            number = numbers[copy.only(self.parallel)]
            if self.gathers and vector is not None:
                number += copy.offsets[vector] // self.plan.lanes % self.width
            before = self._sums_at(running, number)
            after = self._once(point, copy, before, loaded, checked)
            running[number * width : (number + 1) * width] = [part for each in after for part in each]
        return running

    def _once(
        self, point: NestPoint, copy: _BodyCopy, running: list[Values], loaded: dict[object, Any], checked: bool
    ) -> list[Values]:
        """The outputs' running values after one copy of the body. `loaded` are inputs that other copies read."""
        f, plan = self.f, self.plan
        lanes = Lanes(plan.vector if plan.lanes > 1 else None, plan.lanes, copy.active)
        values: dict[int, Any] = {}
        for k, operand in enumerate(self.nest.inputs):
            bounded = {d for bound in operand.bounds for d in bound.entry.dims}
            moving = [d for d in copy.offsets if operand.strides[d] != ZERO or d in bounded]
            key = (k, copy.only(moving), copy.active if plan.vector in moving else None)
            if key not in loaded:
                loaded[key] = load_values(f, shifted(operand, copy.offsets), point.base, lanes, checked)
            values[k] = loaded[key]
        reductions = plan.reductions if plan.reduced else ()
        for k, parts in enumerate(running):
            values[len(self.nest.inputs) + k] = parts[0]

        def index(dim: int) -> Any:
            return index_values(f, f.iadd(point.base[dim], copy.offsets.get(dim, 0)), lanes, dim)

        stage = self.nest.stage
        wanted = [found.term for found in reductions] or stage.yields
        count = len(self.nest.inputs) + len(self.nest.outputs)
        done = evaluate(f, stage.body, count, values, index, wanted)
        if not reductions:
            return [[widen(f, done[position], lanes.count)] for position in stage.yields]
        result: list[Values] = []
        for k, found in enumerate(reductions):
            term = widen(f, widened(f, found, done[found.term]), lanes.count)
            if self.gathers:
                if copy.active is not None:
                    nothing = constant(found.accumulator, found.identity, lanes.count)
                    term = f.select(f.lane_mask(copy.active, lanes.count), term, nothing)
                result.append(self.gathers[k].add(f, [running[k]], [term])[0])
            else:
                result.append([combine(f, found, running[k][0], term)])
        return result
