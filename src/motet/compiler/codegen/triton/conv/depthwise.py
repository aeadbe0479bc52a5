"""Depthwise as Triton programs: a thread goes over the lines of the image that its patch needs, reads every element
once, and adds it to all points whose windows have it, in the order of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.conv.depthwise import WARPS, DepthwiseLaunch, DepthwisePlan, Patch, size_of
from motet.compiler.codegen.gpu.tasks import Loop, ceiling, total
from motet.compiler.codegen.triton.rows.reductions import combine, narrowed
from motet.compiler.codegen.triton.text.program import Form, FormTile
from motet.compiler.codegen.triton.text.scalars import constant
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import Access
from motet.compiler.kernels.strides import Bound, Extent, StridedAccess


def emit(plan: DepthwisePlan) -> tuple[Form, ...]:
    """Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(_form(plan.found, patch) for patch in plan.patches)


def _form(found: DepthwiseLaunch, patch: Patch) -> Form:
    task = found.task
    loops = _loops(found, patch)
    points = 32 * WARPS * patch.each
    w = Writer(task.kernel, task.buffers, (points,))
    count = total(loops)
    point = w.define("o", f"{w.program()} * {points} + {w.range(0)}")
    if count.known is None or count.factor % points:
        w.masks[0] = w.define("m", f"{point} < {w.extent(count)}")
    at = w.decompose(Coordinate(point, frozenset({0})), loops)
    for dim, step in ((found.windows.row, patch.rows), (found.windows.column, patch.columns)):
        if dim is not None and step > 1:
            at[dim] = Coordinate(w.define("i", f"{at[dim].text} * {step}"), frozenset({0}))
    tasks: Expr = ceiling(count, points)
    _Patches(found, patch, w, at).write()
    sides = ((found.windows.row, patch.rows), (found.windows.column, patch.columns), (loops[-1][1], patch.each))
    tiles = tuple(FormTile((dim,), size, "thread") for dim, size in sides if dim is not None)
    return Form(w.module(task.symbol, task.about), tasks, WARPS, label=patch.label, tiles=tiles)


def _loops(found: DepthwiseLaunch, patch: Patch) -> tuple[Loop, ...]:
    """The loops over patches that the points of the tile enumerate."""
    stage = found.task.stage
    steps = {found.windows.row: patch.rows, found.windows.column: patch.columns}
    loops: list[Loop] = []
    for d, (size, iterator) in enumerate(zip(stage.sizes, stage.iterators, strict=True)):
        if iterator != "reduction" and (size != 1 or d in steps):
            loops.append((Extent.of(-(-size // steps.get(d, 1)) if isinstance(size, int) else size), d))
    return found.task.by_memory(loops, [found.place])


@dataclass
class _Patches:
    """Writes the computation of the patches of a tile, whose first points are at `at`."""

    found: DepthwiseLaunch
    patch: Patch
    w: Writer
    at: dict[int, Coordinate]

    def write(self) -> None:
        found, w = self.found.windows, self.w
        sums = {own: self._begin(own) for own in product(range(self.patch.rows), range(self.patch.columns))}
        if self.patch.turns and found.down is not None:
            w.line(f"for k in range({size_of(found, found.down)}):")
            w.level += 1
            w.remembered = {}
            self.at[found.down] = Coordinate("k")
            self._lines(sums, [0])
            w.level -= 1
            w.remembered = {}
            del self.at[found.down]
        else:
            self._lines(sums, range(size_of(found, found.down)))
        lanes = w.masks.get(0)
        for (row, column), name in sums.items():
            points = dict(self.at)
            conditions = [] if lanes is None else [lanes]
            for dim, step, side in ((found.row, row, self.patch.rows), (found.column, column, self.patch.columns)):
                if dim is None:
                    continue
                if step:
                    points[dim] = Coordinate(w.define("i", f"{self.at[dim].text} + {step}"), frozenset({0}))
                if size_of(found, dim) % side:
                    conditions.append(f"({points[dim].text} < {size_of(found, dim)})")
            if conditions:
                w.masks[0] = w.define("m", " & ".join(conditions))
            epilogue = self.found.task.epilogue
            if epilogue is not None:
                w.finish(epilogue, w.define("x", narrowed(found.combiner, name)), points, self.found.task.stored)

    def _begin(self, own: tuple[int, int]) -> str:
        task, w = self.found.task, self.w
        (init,) = task.inits
        dtype = task.kernel.values[task.stage.outputs[0].value].dtype
        if isinstance(init, StridedAccess):
            text = w.read(_moved(self._inside(init, task.stage.inits[0]), self._steps(own, (0, 0))), self.at)
        else:
            text = constant(0 if init is None else init, dtype)
        return w.define("r", w.spread(text, dtype))

    def _steps(
        self, own: tuple[int, int], place: tuple[int, int], rest: Sequence[tuple[int, int]] = ()
    ) -> dict[int, int]:
        """The offsets of a point of the patch, and of a point of the window, from the first ones, by dimension."""
        found = self.found.windows
        steps = {found.row: own[0], found.column: own[1], found.down: place[0], found.along: place[1], **dict(rest)}
        return {dim: step for dim, step in steps.items() if dim is not None and step}

    def _lines(self, sums: dict[tuple[int, int], str], downs: Sequence[int]) -> None:
        """Accumulate the window's rows `downs`, one image row after the other."""
        found = self.found.windows
        stage = found.stage
        parts = stage.inputs[found.image].map
        factors = {d: factor for part in parts for d, factor in part.terms}
        others = [d for d in stage.reductions if d not in (found.down, found.along)]
        pairs = [(row, down) for row in range(self.patch.rows) for down in downs]
        both = [dim for dim in (found.row, found.down) if dim is not None]
        pairs.sort(key=lambda pair: (sum(step * factors[dim] for dim, step in zip(both, pair, strict=False)), pair[1]))
        for rest in product(*(range(size_of(found, d)) for d in others)):
            for row, down in pairs:
                for along in range(size_of(found, found.along)):
                    for column in range(self.patch.columns):
                        steps = self._steps((row, column), (down, along), list(zip(others, rest, strict=True)))
                        self._add(sums, (row, column), steps)

    def _add(self, sums: dict[tuple[int, int], str], own: tuple[int, int], steps: dict[int, int]) -> None:
        task, combiner, w = self.found.task, self.found.windows.combiner, self.w
        operands = [
            w.read(_moved(self._inside(source, access), steps), self.at)
            for source, access in zip(task.sources, task.stage.inputs, strict=True)
        ]
        dtypes = [task.kernel.values[access.value].dtype for access in (*task.stage.inputs, *task.stage.outputs)]
        skip = frozenset({combiner.last - len(dtypes)})
        names = w.body(task.stage.body, [*operands, None], dtypes, self.at, skip)
        w.line(f"{sums[own]} = {combine(combiner, sums[own], names[combiner.term])}")

    def _inside(self, source: StridedAccess, access: Access | float | int | None) -> StridedAccess:
        """`source`, with bounds if patches extend beyond the last point."""
        found, w = self.found.windows, self.w
        sides = ((found.row, self.patch.rows), (found.column, self.patch.columns))
        beyond = {dim for dim, side in sides if dim is not None and size_of(found, dim) % side}
        if not isinstance(access, Access) or not beyond:
            return source
        known = {bound.entry for bound in source.bounds}
        bounds = tuple(
            Bound(entry, Extent.of(extent))
            for entry, extent in zip(access.map, w.kernel.values[access.value].shape, strict=True)
            if entry in known or beyond.intersection(entry.dims)
        )
        return replace(source, bounds=bounds, padding=0 if source.padding is None else source.padding)


def _moved(source: StridedAccess, steps: dict[int, int]) -> StridedAccess:
    """`source` shifted by `steps` along each dimension."""
    distance = sum(source.strides[dim].factor * step for dim, step in steps.items())
    offset = (*source.offset, Extent(distance)) if distance else source.offset
    bounds = tuple(
        Bound(bound.entry.plus(sum(bound.entry.coefficient(dim) * step for dim, step in steps.items())), bound.extent)
        for bound in source.bounds
    )
    return replace(source, offset=offset, bounds=bounds)
