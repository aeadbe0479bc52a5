"""Writes the loops of a nest around its register tiles: tasks, then the loops outside.

A tile with loops of reductions is a function, so that tiles of the same sizes share code wherever loops leave them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from motet.artifact.expressions import ceildiv, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.nest.buffers import ResultBuffer
from motet.compiler.codegen.cpu.nest.copies import LocalCopy
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestPoint, Values, divided, whole_domain
from motet.compiler.codegen.cpu.nest.fusion import LocalProducer
from motet.compiler.codegen.cpu.nest.microkernels import write_microkernel
from motet.compiler.codegen.cpu.nest.plan import NestPlan, ScheduledLoop
from motet.compiler.codegen.cpu.nest.tile import TileWriter

_COPIES = 16  # of loops, for what their steps leave; more, and loops have sizes that are not known instead


class LoopNestWriter:
    """Writes `plan` in the function of `f`, with copies of operands where their loops have been entered."""

    def __init__(
        self, f: NestFrame, plan: NestPlan, copies: Sequence[LocalCopy | LocalProducer | ResultBuffer] = ()
    ) -> None:
        self.f = f
        self.plan = plan
        self.copies = copies
        self.functions: dict[object, NestFrame] = {}

    def tasks(self) -> Expr:
        """The number of tasks."""
        counts = [ceildiv(self._expression(n), loop.step) for n, loop in enumerate(self.plan.tasks)]
        return product(counts)

    def _expression(self, number: int) -> Expr:
        """The elements that task loop `number` covers."""
        loop = self.plan.tasks[number]
        around = next((other for other in reversed(self.plan.tasks[:number]) if other.dim == loop.dim), None)
        return self.plan.spans[loop.dim].expression if around is None else around.step

    def run(self) -> None:
        """Write the tasks of the phase."""
        f = self.f
        begin, end = f.arguments[2:4]
        f.loop(begin, end, 1, lambda i, _: self._task(i))

    def _task(self, number: Index) -> None:
        f, plan = self.f, self.plan
        point = whole_domain(f, plan)
        counts: list[Index] = []
        for n, loop in enumerate(plan.tasks):
            around = next((other for other in reversed(plan.tasks[:n]) if other.dim == loop.dim), None)
            cover = point.left[loop.dim] if around is None else around.step
            counts.append(f.idiv(f.iadd(cover, loop.step - 1), loop.step))
        steps: list[Index] = []
        for count in reversed(counts[1:]):
            steps.append(f.irem(number, count))
            number = f.idiv(number, count)
        self._enter([*([number] if counts else []), *reversed(steps)], 0, point)

    def _enter(self, steps: list[Index], depth: int, point: NestPoint) -> None:
        """Write the nest in iteration `steps` of the task loops, `depth` of which have been entered."""
        f, plan = self.f, self.plan
        if depth == len(steps):
            self._nest(point)
            return
        loop = plan.tasks[depth]
        offset = f.imul(steps[depth], loop.step)
        left, base = point.left[loop.dim], f.iadd(point.base[loop.dim], offset)

        def inside(elements: Index) -> None:
            self._enter(steps, depth + 1, point.moved(loop.dim, base, elements))

        if loop.step == 1 or (isinstance(left, int) and left % loop.step == 0):
            inside(loop.step)
            return
        whole = f.icmp_signed("<=", f.index(f.iadd(offset, loop.step)), f.index(left))
        rest = left % loop.step if isinstance(left, int) else f.imax(0, f.isub(left, offset))
        f.branches(whole, lambda: inside(loop.step), lambda: inside(rest))

    def _nest(self, point: NestPoint) -> None:
        """Write the loops inside tasks, or only initial values if a reduction has no terms."""
        around = {loop.dim for loop in self.plan.outer}
        empty: Any = None
        for d in self.plan.reduced:
            left = point.left[d]
            if d not in around or (isinstance(left, int) and left):
                continue
            test = self.f.icmp_signed("==", self.f.index(left), self.f.index(0))
            empty = test if empty is None else self.f.or_(empty, test)
        if empty is None:
            self.loops(0, point)
            return
        buffers = [copy for copy in self.copies if isinstance(copy, ResultBuffer)]
        initial = LoopNestWriter(self.f, self.plan.without_reductions(), buffers)
        self.f.branches(empty, lambda: initial.loops(0, point), lambda: self.loops(0, point))

    def _copy(self, f: NestFrame, entered: int, point: NestPoint) -> None:
        """Write the copies that are made when `entered` loops have been entered."""
        for copy in self.copies:
            if copy.depth == entered:
                copy.write(f, point, lambda plan, region: LoopNestWriter(f, plan).loops(0, region))

    def loops(self, depth: int, point: NestPoint) -> None:
        """Write the loops outside the tile from `depth` on, and the tile."""
        f, entered = self.f, len(self.plan.tasks) + depth
        self._copy(f, entered, point)
        self._inside(depth, point)
        for copy in self.copies:
            if isinstance(copy, ResultBuffer) and copy.depth == entered:
                copy.store(f, point, lambda plan, region: LoopNestWriter(f, plan).loops(0, region))

    def _inside(self, depth: int, point: NestPoint) -> None:
        f, plan = self.f, self.plan
        if depth == len(plan.outer):
            self._tile(point)
            return
        loop = plan.outer[depth]
        left, base = point.left[loop.dim], point.base[loop.dim]

        def body(offset: Index, elements: Index, _: Values) -> Values:
            self.loops(depth + 1, point.moved(loop.dim, f.iadd(base, offset), elements))
            return []

        if loop.kind == "unroll" and isinstance(left, int):
            for offset in range(0, left, loop.step):
                body(offset, min(loop.step, left - offset), [])
        elif self._shared(loop) and not (isinstance(left, int) and left % loop.step == 0):
            f.loop(0, left, loop.step, lambda i, _: body(i, f.imin(loop.step, f.isub(left, i)), []))
        else:
            divided(f, left, loop.step, body, [])

    def _shared(self, loop: ScheduledLoop) -> bool:
        """Whether whole steps of `loop` and the rest share code, because a separate rest would be much code."""
        cut = [other for other in self.plan.outer if other.step > 1]
        return 1 << len(cut) > _COPIES and any(
            other is not loop and other.dim == loop.dim for other in itertools.dropwhile(lambda o: o is not loop, cut)
        )

    def _read_copies(self, f: NestFrame) -> list[int]:
        """The copies outside of the tile's function that it reads."""
        inside = [copy for copy in self.copies if copy.depth > len(self.plan.tasks) + len(self.plan.outer)]
        operands = [each for nest in (self.plan, *(copy.plan for copy in inside)) for each in nest.nest.operands]
        made = {copy.number for copy in inside} | {copy.number + 1 for copy in inside}
        return sorted({each.value for each in operands if each.value in f.origins} - made)

    def _tile(self, point: NestPoint) -> None:
        """Write the tile at `point`, with its loops of reductions, in line or as a function."""
        f, plan = self.f, self.plan
        if plan.micro is not None:
            write_microkernel(f, plan, point, lambda rest, at: LoopNestWriter(f, rest).loops(0, at))
            return
        if not plan.carried:
            TileWriter(f, plan, lambda *_: None).write(point)
            return
        made = self._read_copies(f)
        fixed = tuple(
            each if isinstance(each, int) and d in plan.reduced else None for d, each in enumerate(point.base)
        )
        known = tuple(each if isinstance(each, int) else None for each in point.left)
        given = [*(b for b, k in zip(point.base, fixed, strict=True) if k is None),
                 *(b for b, k in zip(point.left, known, strict=True) if k is None)]
        given += [f.origins[number] for number in made]
        if (fixed, known) not in self.functions:
            inner = f.inner([I64] * len(given))
            self.functions[fixed, known] = inner
            arguments = iter(inner.more)
            base = tuple(next(arguments) if each is None else each for each in fixed)
            left = tuple(next(arguments) if each is None else each for each in known)
            inner.origins.update(zip(made, arguments, strict=True))
            TileWriter(inner, plan, lambda entered, at: self._copy(inner, entered, at)).write(NestPoint(base, left))
            inner.finish()
        f.call(self.functions[fixed, known].function, [*f.arguments[:5], *(f.index(each) for each in given)])
