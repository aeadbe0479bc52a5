"""Plans all stages over the same rows as one launch, with one or a few rows per program.

If a row fits in the registers of a block, it is read once, and every stage runs on it there. Otherwise the program
iterates over the row in passes: one for all reductions that are independent of each other, and one for the results. The
inputs of the passes are kept in registers, in their storage types, if they fit, so that a long row is also read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import gathered
from motet.compiler.codegen.gpu.gemm import contraction
from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart, reads
from motet.compiler.codegen.gpu.tasks import Loop, ceiling, power_of_two, total
from motet.compiler.kernels.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.kernels.rows import Rows, translated
from motet.compiler.kernels.rows import match_rows as match_stages
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

_ROW = 16384  # elements of a row up to which a block holds it in registers
_TILE = 2048  # elements per program if rows are shorter
_CHUNK = 1024  # elements of a row per iteration of a pass
_LONG_CHUNK = 8192  # of a long row with several passes: few blocks at a time, whose rows stay in the second-level cache
_KEPT_WARPS = 16  # of a block that keeps a long row
_KEPT_BYTES = 256  # of a long row that each thread keeps, half of its registers
_VECTOR = 16  # bytes of one access
_LINE = 128  # bytes of a line of the first-level cache
_SECTOR = 32  # bytes that an access brings from memory
_HELD = 32768  # elements of columns that a program holds in registers
_SHORT_ROW = 256  # elements
_SHORT_TILE = 512  # elements of short rows of a program
_MANY = 64  # programs for each processor from which on these are twice as many
_FEW_ELEMENTS = 256  # of a warp
_ELEMENTS = 1024
_FAST = 8192  # of these, if there are programs enough for all SMs
_FEW = 64  # elements up to which a reduction of windows is a loop for every point
_SERIAL = 8  # the same, of rows across memory: two rounds of reads under way together
_LANE = 512  # rows
_WIDE = 64  # rows across memory that are read side by side

Strides = dict[int, Extent]


@dataclass(frozen=True)
class RowsLaunch:
    """`rows`, and the accesses that store the values read outside the launch."""

    rows: Rows
    stored: dict[int, StridedAccess]
    launch: LaunchPart


@dataclass(frozen=True)
class RowTile:
    """A tile of `height` rows and `width` of their elements. `whole` means that a tile covers a row, or that threads
    keep all they read of a longer row; otherwise rows are read in passes."""

    height: int
    width: int
    whole: bool
    warps: int
    stages: int
    label: str = ""


@dataclass(frozen=True)
class RowsPlan:
    """Rows and their possible tiles, the preferred one first. The rows of a tile are neighbours along the loops `lane`,
    the fastest last; the program's number selects the point of the other loops over rows."""

    found: RowsLaunch
    tiles: tuple[RowTile, ...]
    family: str
    lane: tuple[int, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """The loops over rows that are not in `lane`."""
        return tuple(number for number in range(len(self.found.rows.outer)) if number not in self.lane)

    def along(self, loops: Sequence[int]) -> list[Loop]:
        """Some of the loops over rows, with their extents."""
        return [(self.found.rows.outer[number], number) for number in loops]

    def tasks(self, tile: RowTile) -> Expr:
        """The number of programs."""
        return product((total(self.along(self.others)).expression, ceiling(total(self.along(self.lane)), tile.height)))


class RowLaunches(LaunchClass[RowsLaunch, RowsPlan, FormT]):
    name = "rows"
    rank = 5

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        counts = range(len(stages), 0, -1)
        count = next((count for count in counts if match_rows(kernel, stages[:count]) is not None), 0)
        return _with_whole_parts(stages, count)

    def match(self, launch: LaunchPart, target: GpuTarget) -> RowsLaunch | None:
        found = match_rows(launch.kernel, launch.stages)
        return None if found is None else RowsLaunch(found, stored_rows(found, launch), launch)

    def plan(self, found: RowsLaunch, target: GpuTarget) -> RowsPlan:
        return RowsPlan(found, _tiles(found.rows, target), target.family, _lane(found.rows))


def _with_whole_parts(stages: Sequence[Stage], count: int) -> int:
    """`count`, or fewer if the next stage writes another part of a result of these, as in concatenations: without those
    that compute what this part is made of, which are one launch with it."""
    written = {access.value for stage in stages[:count] for access in stage.outputs}
    if count == len(stages) or not any(access.value in written for access in stages[count].outputs):
        return count
    least = count
    while least and reads(stages[least : count + 1]) & {access.value for access in stages[least - 1].outputs}:
        least -= 1
    return least or count


def match_rows(kernel: Kernel, stages: Sequence[Stage]) -> Rows | None:
    if any(contraction.takes(kernel, stage) for stage in stages):
        return None
    found = match_stages(kernel, stages)
    return found if found is not None and suits(found) and _gathers_for_rows(found) else None


def _gathers_for_rows(rows: Rows) -> bool:
    """Whether all places that are computed are those of rows, in tensors that the launch does not write."""
    written = {access.value for stage in rows.stages for access in stage.outputs}
    tables = [gathered(stage).values() for stage in rows.stages]
    return not any(table and wide for table, wide in zip(tables, rows.wide, strict=True)) and not any(
        written & {*table} for table in tables
    )


def stored_rows(found: Rows, launch: LaunchPart) -> dict[int, StridedAccess]:
    """The accesses by which a launch stores the values that are read outside it."""
    return {
        access.value: found.place(access, s) for s, stage in enumerate(launch.stages) for access in stage.outputs
        if launch.is_stored(access.value)
    }


def suits(rows: Rows) -> bool:
    """Whether tiles along rows are faster than a loop for every point; false for windows and the shortest rows
    across memory."""
    if rows.length.known is None or rows.length.factor > _FEW:
        return True
    if any(is_windowed(access) for stage in rows.stages for access in stage.inputs):
        return False
    return len(rows.stages) > 1 or lies_along(rows) or rows.length.factor > _SERIAL


def lies_along(rows: Rows) -> bool:
    """Whether rows are contiguous in most of the memory read."""
    (along, _), (across, _) = _heaviest(rows)
    return along >= across


def leaves_idle(rows: Rows, target: GpuTarget) -> bool:
    """Whether long rows keep at most half of the SMs busy, which read them in passes, or in runs below a line."""
    if rows.length.known is None or rows.count.known is None:
        return False
    height, width = _shape(rows, target)
    if width >= rows.length.factor or 2 * -(-rows.count.factor // height) > target.processors:
        return False
    return not _piece(rows) or _run(rows) < _LINE


def _run(rows: Rows) -> int:
    """The bytes of a row that lie together, in the input in which these are the most."""
    inner = range(len(rows.outer), len(rows.outer) + len(rows.inner))
    longest = 0
    for s, access in kept_reads(rows):
        strides = {number: stride.factor for number, stride in _strides(rows, s, access).items() if number in inner}
        run = 1
        for number in sorted(strides, key=lambda number: strides[number]):
            run *= rows.inner[number - len(rows.outer)].factor if strides[number] == run else 1
        longest = max(longest, run * item_bytes(rows.kernel.values[access.value].dtype))
    return longest


def _heaviest(rows: Rows) -> tuple[tuple[int, Strides], tuple[int, Strides]]:
    """Of the tensors read along rows, the largest that is contiguous along rows and the largest that is contiguous
    across them: its weight, 0 if there is none, and its strides by loop."""
    along: tuple[int, Strides] = (0, {})
    across: tuple[int, Strides] = (0, {})
    for s, stage in enumerate(rows.stages):
        for access in stage.inputs if rows.wide[s] else ():
            strides = _strides(rows, s, access)
            fastest = next((number for number, stride in strides.items() if stride == ONE), None)
            if fastest is None or max(strides) < len(rows.outer):
                continue
            extent = [*rows.outer, *rows.inner][fastest].known or _ROW
            weight = len(strides) * _ROW + min(extent, _ROW - 1)  # the largest tensors count most, then long lines
            if fastest >= len(rows.outer):
                along = max(along, (weight, strides), key=lambda each: each[0])
            else:
                across = max(across, (weight, strides), key=lambda each: each[0])
    return along, across


def _strides(rows: Rows, s: int, access: Access) -> Strides:
    """The strides of an access of stage `s`, by loop, without those of 0."""
    places = zip(rows.dims[s], rows.place(access, s).strides, strict=True)
    return {number: stride for number, stride in places if number is not None and stride != ZERO}


def _lane(rows: Rows) -> tuple[int, ...]:
    """The loops over rows along which tiles lie. If rows lie across memory, these are the fastest in memory, as many as
    have enough rows together that the last tile of few wastes little: loops by number, the fastest last."""
    every = tuple(range(len(rows.outer)))
    if lies_along(rows) or any(size.known is None for size in rows.outer):
        return every
    strides = _heaviest(rows)[1][1]
    slowest_first = sorted(every, key=lambda number: _distance(strides.get(number)), reverse=True)
    chosen: list[int] = []
    for number in reversed(slowest_first):
        if total([(rows.outer[each], each) for each in chosen]).factor < _LANE:
            chosen.insert(0, number)
    return tuple(chosen)


def _distance(stride: Extent | None) -> tuple[int, int]:
    """A stride as a sort key; None is the largest one."""
    return (len(stride.symbols), abs(stride.factor)) if stride is not None else (99, 0)


def _line(rows: Rows) -> int:
    """How many of the widest elements that are read one access to memory brings."""
    widest = max(item_bytes(rows.kernel.values[a.value].dtype) for stage in rows.stages for a in stage.inputs)
    return max(1, _SECTOR // widest)


def _tiles(rows: Rows, target: GpuTarget) -> tuple[RowTile, ...]:
    height, width = _shape(rows, target)
    whole = rows.length.known is not None and width >= rows.length.factor
    piece = 0 if whole else _piece(rows)
    most, share = (16, _share(rows, height, target)) if whole else (8, 256)
    warps = max(1, min(most, height * width // share))
    if _is_short(rows):  # a warp has about four rows
        warps = max(1, min(4, height // 4))
    if width == _LONG_CHUNK and not whole:
        warps = 16
    last = RowTile(height, width, whole, power_of_two(warps), 1 if whole else 2, "passes" * bool(piece))
    return (RowTile(1, piece, True, _KEPT_WARPS, 1, "kept"), last) if piece else (last,)


def _share(rows: Rows, height: int, target: GpuTarget) -> int:
    """The elements of a tile for each warp: few where other programs do not hide its waiting."""
    programs = -(-(rows.count.known or 1 << 20) // height)
    return _FEW_ELEMENTS if programs < 2 * target.processors else _ELEMENTS


def _is_short(rows: Rows) -> bool:
    length = rows.length.known
    return length is not None and power_of_two(length) <= _SHORT_ROW and lies_along(rows)


def _piece(rows: Rows) -> int:
    """The elements of a long row that the threads of a block hold at a time if they keep what several passes read; 0 if
    that does not fit in registers, or only one pass reads it."""
    length = rows.length.known
    kept = kept_reads(rows)
    if length is None or _passes(rows) < 2 or not kept or not lies_along(rows):
        return 0
    sizes = [item_bytes(rows.kernel.values[access.value].dtype) for _, access in kept]
    threads = 32 * _KEPT_WARPS
    width = threads * _VECTOR // max(sizes)
    fits = sum(sizes) * width * -(-length // width) <= threads * _KEPT_BYTES
    return width if fits else 0


def _passes(rows: Rows) -> int:
    """The maximum number of passes over a row."""
    return sum(map(bool, rows.reduces)) + any(w and not r for w, r in zip(rows.wide, rows.reduces, strict=True))


def kept_reads(rows: Rows) -> list[tuple[int, Access]]:
    """The inputs that reductions read along rows, as stages and accesses, each access once."""
    producer = {access.value: s for s, stage in enumerate(rows.stages) for access in stage.outputs}
    todo = [s for s, reduces in enumerate(rows.reduces) if reduces]
    stages = set(todo)
    while todo:
        for access in rows.stages[todo.pop()].inputs:
            s = producer.get(access.value)
            if s is not None and s not in stages:
                stages.add(s)
                todo.append(s)
    inner = range(len(rows.outer), len(rows.outer) + len(rows.inner))
    found: dict[tuple[int, str], tuple[int, Access]] = {}
    for s in sorted(stages):
        for access in rows.stages[s].inputs:
            if access.value in producer or not any(number in inner for number in _strides(rows, s, access)):
                continue
            found.setdefault((access.value, repr(translated(rows, s, access))), (s, access))
    return list(found.values())


def _shape(rows: Rows, target: GpuTarget) -> tuple[int, int]:
    """The number of rows of a program, and of elements of a row per tile."""
    length = rows.length.known
    count = rows.count.known or 1 << 20
    if not lies_along(rows):
        many = _passes(rows) == 1 and count >= 2 * _WIDE * target.processors  # whole lines are then read faster
        if length is not None and holds(rows) and not many:
            return _columns(rows, power_of_two(length), target)
        height = _height(rows, _WIDE, 16, target)
        return height, max(1, min(_TILE // height, power_of_two(length or _CHUNK)))
    if length is None or power_of_two(length) > _ROW:
        return 1, _LONG_CHUNK if length is not None and _passes(rows) > 1 else _CHUNK * 2
    width, tile = power_of_two(length), _TILE
    if _is_short(rows):
        tile = _SHORT_TILE if count * width <= _SHORT_TILE * _MANY * target.processors else 2 * _SHORT_TILE
    height = max(1, min(tile // width, power_of_two(count)))
    while height > 1 and -(-count // height) < target.processors:
        height //= 2
    return height, width


def holds(rows: Rows) -> bool:
    """Whether a program that reads rows across memory has whole rows in its registers, at least a sector of each line:
    all its reads are under way at once, and each element is read once."""
    length = rows.length.known
    most = _HELD if _passes(rows) > 1 else _FAST
    return length is not None and _line(rows) * power_of_two(length) <= most


def _columns(rows: Rows, width: int, target: GpuTarget) -> tuple[int, int]:
    """The shape of a tile of whole rows that lie across memory: a sector of each line or more, half a sector if the
    registers of a block do not hold more; small if nothing is held for a second pass."""
    line = _line(rows) if _line(rows) * width <= _ROW else max(1, _line(rows) // 2)
    most = min(_FAST // width, max(64 if _passes(rows) > 1 else 16, _TILE // width))
    return _height(rows, most, line, target), width


def _height(rows: Rows, most: int, least: int, target: GpuTarget) -> int:
    """The rows of a tile across memory: at most `most`, fewer if SMs would be idle, but at least `least`."""
    lane = _lane(rows)
    size = total([(rows.outer[number], number) for number in lane]).known or 1 << 20
    others = total([(size, number) for number, size in enumerate(rows.outer) if number not in lane]).factor
    height = min(max(least, most), power_of_two(size))
    while height > least and others * -(-size // height) < target.processors:
        height //= 2
    return height
