"""windows: convolutions that sum few products for each point, such as those of the first layer; siblings together.

    y[n, f, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[f, c, i, j],  and another one added

Matrix units would idle: what takes time is writing the result. A program has a line of points, reads all that their
windows hold once, into registers, and goes over the filters: each is a few numbers that all points share. Several
convolutions of the same points, and what follows them, are done for one filter before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.rows import stored_rows
from motet.compiler.codegen.gpu.tasks import Loop, total
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.rows import Rows, match_rows
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess
from motet.compiler.kernels.windows import is_windowed, read_windows
from motet.compiler.targets.gpu import GpuTarget

_READS = 18  # elements of the image kept in registers per point
_FEW_READS = 9
WARPS = 4
_WAVES = 4  # minimum number of programs per SM
UNROLLED = 4  # filters unrolled


@dataclass(frozen=True)
class RowWindows:
    """`rows` whose reductions are convolutions; `points` are the loops that images are read along, `filters` those
    along filters. `images` are what the windows of stages are of."""

    rows: Rows
    points: tuple[Loop, ...]
    filters: tuple[Loop, ...]
    images: Mapping[int, Access]
    reads: int


@dataclass(frozen=True)
class WindowsLaunch:
    """`windows`, and where the values are stored that others read."""

    windows: RowWindows
    stored: dict[int, StridedAccess]
    launch: LaunchPart


@dataclass(frozen=True)
class WindowTile:
    """`points` of a program, which goes over `share` filters, `UNROLLED` at a time, with `WARPS` warps."""

    points: int
    share: int


@dataclass(frozen=True)
class WindowsPlan:
    """Convolutions, and the tiles to choose from, the preferred one first."""

    found: WindowsLaunch
    tiles: tuple[WindowTile, ...]


class WindowLaunches(LaunchClass[WindowsLaunch, WindowsPlan, FormT]):
    name = "windows"
    rank = 3

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        counts = range(len(stages), 0, -1)
        return next((count for count in counts if match(kernel, stages[:count]) is not None), 0)

    def match(self, launch: LaunchPart, target: GpuTarget) -> WindowsLaunch | None:
        found = match(launch.kernel, launch.stages)
        return None if found is None else WindowsLaunch(found, stored_rows(found.rows, launch), launch)

    def plan(self, found: WindowsLaunch, target: GpuTarget) -> WindowsPlan:
        windows = found.windows
        each = 8 if windows.reads <= _FEW_READS else 4
        blocks = (32 * WARPS * count for count in (each, each // 2))
        points, filters = total(windows.points), total(windows.filters)
        return WindowsPlan(found, tuple(WindowTile(block, _share(points, filters, block, target)) for block in blocks))


def match(kernel: Kernel, stages: Sequence[Stage]) -> RowWindows | None:
    """Read `stages` as sibling convolutions over the same points and filters, with element-wise stages on their
    results."""
    reducing = {s: read_windows(stage) for s, stage in enumerate(stages) if stage.reductions}
    opened = {s: each for s, each in reducing.items() if each is not None and is_windowed(each.image)}
    if not reducing or len(opened) != len(reducing):
        return None
    found = match_rows(kernel, stages)
    if found is None or found.length.known is None:
        return None
    if any(wide and not reduces for wide, reduces in zip(found.wide, found.reduces, strict=True)):
        return None
    images = {s: each.image for s, each in opened.items()}
    along_images = set[int]().union(*(_outer(found, s, image) for s, image in images.items()))
    along_filters = set[int]().union(*(_outer(found, s, each.filters) for s, each in opened.items()))
    outer = range(len(found.outer))
    if along_images & along_filters or any(number not in along_images | along_filters for number in outer):
        return None
    reads = len(set(images.values())) * found.length.factor
    if reads > _READS or not along_filters:
        return None
    last = [found.place(access, s) for s, stage in enumerate(stages) for access in stage.outputs][-1]
    dims = found.dims[-1]
    if not any(last.strides[d] == ONE and number in along_images for d, number in enumerate(dims)):
        return None
    points, filters = ([(found.outer[n], n) for n in outer if n in part] for part in (along_images, along_filters))

    def distance(loop: Loop) -> tuple[int, int]:
        stride = next((last.strides[d] for d, number in enumerate(dims) if number == loop[1]), ZERO)
        return len(stride.symbols), stride.factor

    ordered = tuple(sorted(points, key=distance, reverse=True))
    return RowWindows(found, ordered, tuple(sorted(filters, key=distance, reverse=True)), images, reads)


def _outer(found: Rows, s: int, access: Access) -> set[int]:
    """The outer loops that stage `s` reads `access` along."""
    numbers = {found.dims[s][d] for d in access.dims}
    return {number for number in numbers if number is not None and number < len(found.outer)}


def _share(points: Extent, filters: Extent, block: int, target: GpuTarget) -> int:
    """The number of filters per program: all, unless SMs would be idle."""
    count = filters.known or 64
    blocks = -(-(points.known or 1 << 20) // block)
    while count > UNROLLED and blocks * -(-(filters.known or 64) // count) < _WAVES * target.processors:
        count = -(-count // 2)
    return count
