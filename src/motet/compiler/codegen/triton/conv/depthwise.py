"""Depthwise convolutions and poolings: reductions over windows of one tensor, with a filter per channel or none.

    y[n, c, h, w] = sum over i, j of x[n, c, h + i, w + j] * k[c, i, j]

Data movement limits the speed, above all between the first-level cache and registers, since neighbouring windows
overlap. A thread therefore computes a patch of `rows` × `columns` points, for as many channels (or pixels, if these are
contiguous) as one access loads. It iterates over the image rows that the patch needs, loads every element once, and
adds it to all points whose windows contain it, in the order of the window. Tall windows are a loop in the program, for
patches of one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import gathered, source_of
from motet.compiler.codegen.gpu.tasks import Loop, LoopTask, ceiling, total
from motet.compiler.codegen.triton.rows.reductions import combine, narrowed
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import constant
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, item_bytes, row_major
from motet.compiler.kernels.packing import reorder_constants
from motet.compiler.kernels.strides import ONE, Bound, Extent, StridedAccess
from motet.compiler.kernels.windows import WindowReduction, read_window_reduction
from motet.compiler.targets.gpu import GpuTarget

_WARPS = 4
_MOST = 121  # points of a window
_UNROLLED = 25  # points of a window up to which patches of several rows unroll it
_FEW = 9  # points of a window for which patches along rows are as fast


@dataclass(frozen=True)
class Patch:
    """A thread's patch of `rows` × `columns` points, for `each` contiguous neighbours; `turns` means that the rows of
    the window are a loop."""

    rows: int
    columns: int
    each: int
    turns: bool = False

    @property
    def label(self) -> str:
        """The form's label in tunings."""
        return f"patch {self.rows}x{self.columns}x{self.each}{' turns' if self.turns else ''}"


def match(kernel: Kernel, stage: Stage) -> WindowReduction | None:
    """`stage` as a reduction over windows of known extents, which are small."""
    found = read_window_reduction(kernel, stage)
    if found is None or gathered(stage) or any(op.op == "linalg.index" for op in stage.body):
        return None
    walked = [walk for axis in found.windows for walk in (*axis.outs, *axis.taps)]
    if any(not isinstance(walk.size, int) for walk in walked):
        return None
    place = source_of(kernel, stage.inputs[found.image], stage.sizes)
    small = places_of(found) <= _MOST
    return found if small and not any(place.strides[walk.dim].symbols for walk in walked) else None


def size_of(found: WindowReduction, dim: int | None) -> int:
    """The extent of a dimension of windows, 1 where there is none."""
    size = 1 if dim is None else found.stage.sizes[dim]
    return size if isinstance(size, int) else 0


def places_of(found: WindowReduction) -> int:
    """How many places a window has."""
    return math.prod(size_of(found, d) for d in found.stage.reductions)


def packed(kernel: Kernel) -> tuple[Kernel, dict[int, Packing]]:
    """`kernel` with the constant filters of channels-last images in the order of the window's points, channels last."""
    orders: dict[int, tuple[int, ...]] = {}
    for stage in kernel.stages:
        found = match(kernel, stage)
        if found is None or kernel.values[stage.outputs[0].value].order == row_major(len(stage.outputs[0].map)):
            continue
        for access in stage.inputs:
            value = kernel.values[access.value]
            uses = [each for other in kernel.stages for each in (*other.inputs, *other.inits)
                    if isinstance(each, Access) and each.value == access.value]
            if value.role != "constant" or len(uses) != 1:
                continue
            inside = [axis for axis, entry in enumerate(access.map) if entry.single in stage.reductions]
            order = (*inside, *(axis for axis in range(value.rank) if axis not in inside))
            if order != row_major(value.rank) and value.order == row_major(value.rank):
                orders[access.value] = order
    return reorder_constants(kernel, orders)


@dataclass(frozen=True)
class DepthwiseLaunch:
    """A launch of the reduction over windows `windows`."""

    task: LoopTask
    windows: WindowReduction

    @property
    def place(self) -> StridedAccess:
        """The access that stores the first result."""
        return next(iter(self.task.stored.values()))

    @property
    def is_channels_last(self) -> bool:
        return self.place.strides[self.windows.column] != ONE


def emit(task: LoopTask, target: GpuTarget) -> tuple[Form, ...]:
    """Forms of a reduction over windows; none if the stage is not one. Raises `Unsupported` for operations without
    code."""
    windows = match(task.kernel, task.stage)
    if windows is None or task.epilogue is None or not task.stored:
        return ()
    found = DepthwiseLaunch(task, windows)
    return tuple(_form(found, patch) for patch in _patches(found))


def _patches(found: DepthwiseLaunch) -> list[Patch]:
    """Patches for the shapes, best first."""
    windows = found.windows
    image = windows.stage.inputs[windows.image]
    item = max(item_bytes(dtype) for dtype in (found.task.kernel.values[image.value].dtype, found.place.dtype))
    last = found.is_channels_last
    turns = last and places_of(windows) > _UNROLLED
    shapes = [(1, 8), (1, 4)] if turns else [(4, 2), (2, 4), (1, 4)] if last else [(8, 1), (4, 1), (4, 2)]
    if last and places_of(windows) <= _FEW:
        shapes = [(2, 4), (4, 2), (1, 4)]
    if windows.row is None:
        shapes = [(1, max(rows, columns)) for rows, columns in shapes]
    sides = size_of(windows, windows.row), size_of(windows, windows.column)
    return list(dict.fromkeys(
        Patch(min(rows, sides[0]), min(columns, sides[1]), each, turns)
        for rows, columns in shapes for each in ((4, 2, 8) if last and item <= 2 else (2, 1))
    ))


# -- the program -----------------------------------------------------------------------------------


def _form(found: DepthwiseLaunch, patch: Patch) -> Form:
    task = found.task
    loops = _loops(found, patch)
    points = 32 * _WARPS * patch.each
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
    return Form(w.module(task.symbol, task.about), tasks, _WARPS, label=patch.label)


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
        factors = {d: factor for part in parts for d, factor in enumerate(part.coefficients) if factor}
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
            if entry in known or any(entry.coefficients[dim] for dim in beyond)
        )
        return replace(source, bounds=bounds, padding=0 if source.padding is None else source.padding)


def _moved(source: StridedAccess, steps: dict[int, int]) -> StridedAccess:
    """`source` shifted by `steps` along each dimension."""
    distance = sum(source.strides[dim].factor * step for dim, step in steps.items())
    offset = (*source.offset, Extent(distance)) if distance else source.offset
    bounds = tuple(
        Bound(replace(bound.entry, constant=bound.entry.constant + sum(
            bound.entry.coefficients[dim] * step for dim, step in steps.items()
        )), bound.extent) for bound in source.bounds
    )
    return replace(source, offset=offset, bounds=bounds)
