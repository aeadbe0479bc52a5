"""depthwise: reductions over windows of one tensor at a time, with a filter for each channel or none (poolings).

    y[n, c, h, w] = sum over i, j of x[n, c, h + i, w + j] * k[c, i, j]

What takes time is moving data, first of all between the first-level cache and registers: windows of neighbours
overlap. So a thread makes a patch of `rows` × `columns` points, for as many channels (or pixels, where these lie side
by side) as one access moves. It goes over the lines of the image that the patch needs, reads every element once, and
adds it to all points whose windows have it, in the order of the window. Tall windows are a loop in the program, for
patches of one row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.accesses import gathered, source_of
from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.tasks import LoopTask, task_of
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, item_bytes, row_major
from motet.compiler.kernels.strides import ONE, StridedAccess
from motet.compiler.kernels.windows import WindowReduction, read_window_reduction
from motet.compiler.targets.gpu import GpuTarget

WARPS = 4
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


@dataclass(frozen=True)
class DepthwisePlan:
    """A reduction over windows, and the patches to choose from, the preferred one first; of `WARPS` warps."""

    found: DepthwiseLaunch
    patches: tuple[Patch, ...]


class DepthwiseLaunches(LaunchClass[DepthwiseLaunch, DepthwisePlan, FormT]):
    name = "depthwise"
    rank = 4

    def match(self, launch: LaunchPart, target: GpuTarget) -> DepthwiseLaunch | None:
        windows = match(launch.kernel, launch.stages[0])
        task = task_of(launch)
        if windows is None or task.epilogue is None or not task.stored:
            return None
        return DepthwiseLaunch(task, windows)

    def plan(self, found: DepthwiseLaunch, target: GpuTarget) -> DepthwisePlan:
        def idle(patch: Patch) -> int:
            """How many SMs have no program."""
            return max(0, target.processors - _programs(found, patch))

        return DepthwisePlan(found, tuple(sorted(_patches(found), key=idle)))


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
    values = tuple(
        replace(value, order=orders[i]) if i in orders else value for i, value in enumerate(kernel.values)
    )
    packings = {
        i: Packing(order, (1,) * len(order), tuple(range(2 * len(order)))) for i, order in orders.items()
    }
    return replace(kernel, values=values), packings


def _programs(found: DepthwiseLaunch, patch: Patch) -> int:
    """How many programs there are with this patch; many if the extents are dynamic."""
    stage, steps = found.windows.stage, {found.windows.row: patch.rows, found.windows.column: patch.columns}
    kept = [d for d, iterator in enumerate(stage.iterators) if iterator != "reduction"]
    if any(not isinstance(stage.sizes[d], int) for d in kept):
        return 1 << 30
    points = math.prod(-(-size_of(found.windows, d) // steps.get(d, 1)) for d in kept)
    return points // (32 * WARPS * patch.each)


def _patches(found: DepthwiseLaunch) -> list[Patch]:
    """Patches for the shapes, best first."""
    windows = found.windows
    image = windows.stage.inputs[windows.image]
    item = max(item_bytes(dtype) for dtype in (found.task.kernel.values[image.value].dtype, found.place.dtype))
    last = found.is_channels_last
    turns = last and places_of(windows) > _UNROLLED
    shapes = [(1, 8), (1, 4)] if turns else [(4, 2), (2, 4), (1, 4)] if last else [(8, 1), (4, 1), (4, 2), (2, 1)]
    if last and places_of(windows) <= _FEW:
        shapes = [(2, 4), (4, 2), (1, 4)]
    if windows.row is None:  # columns that lie side by side in memory are for neighbouring threads
        shapes = [(1, max(rows, columns)) for rows, columns in shapes] if last else []
    shapes.append((1, 1))
    sides = size_of(windows, windows.row), size_of(windows, windows.column)
    return list(dict.fromkeys(
        Patch(min(rows, sides[0]), min(columns, sides[1]), each, turns)
        for rows, columns in shapes for each in ((4, 2, 8) if last and item <= 2 else (2, 1))
    ))
