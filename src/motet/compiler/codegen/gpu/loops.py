"""Plans any stage with its epilogue point by point: element-wise operations, data movement, and reductions in the order
of their loops.

A tile is a contiguous part of the result or, if an input is contiguous along another loop (a transpose), a square of
points, so that both are accessed in whole lines. Where places are computed (a gather), it is a patch: what depends on
one of its sides is computed for this side only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.tasks import Loop, LoopTask, power_of_two, task_of, total, with_epilogue
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes
from motet.compiler.kernels.strides import ONE, ZERO
from motet.compiler.targets.gpu import GpuTarget

_POINTS = 512
_SHORT_POINTS = 1024  # of results of at most 16 bits: an access of 16 bytes for each thread
_MANY_POINTS = 2048  # of these, if there are many
_FEW_POINTS = 256  # where there are few in all; twice as many of at most 16 bits
_FEW, _MANY = 4, 16  # programs for each processor
_PATCH_POINTS = 1024
_VECTOR = 8  # elements of such an access
_SQUARE = 64
_SHORT_SIDE = 8  # points below which a side of a square is too short
_SHORT_SQUARE = 128  # of at most 16 bits: lines of 256 bytes
_REDUCING_POINTS = 128
_PATCHES = (32, 64, 128, 256, 512)  # widths of a patch


@dataclass(frozen=True)
class LineTile:
    """A tile of `points` contiguous points of the result. `apart` gives the last one code of its own: masks that end
    within a vector would divide the accesses of all others."""

    points: int
    warps: int
    label: str = ""
    apart: bool = False


@dataclass(frozen=True)
class SquareTile:
    """A tile of `sides[0]` points along `across`, the loop along which an input is contiguous or the second fastest,
    and `sides[1]` points along the result's fastest loop."""

    across: Loop
    sides: tuple[int, int]
    warps: int
    label: str = ""


@dataclass(frozen=True)
class LoopsPlan:
    """The plan of such a launch: the loops over its results, the fastest in memory last, the nested loops of its
    reduction, and the possible tiles, the preferred one first."""

    task: LoopTask
    parallel: tuple[Loop, ...]
    reduction: tuple[Loop, ...]
    tiles: tuple[LineTile | SquareTile, ...]


class LoopLaunches(LaunchClass[LoopTask, LoopsPlan, FormT]):
    name = "loops"
    rank = 6

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        return with_epilogue(kernel, stages)

    def match(self, launch: LaunchPart, target: GpuTarget) -> LoopTask:
        return task_of(launch)

    def plan(self, found: LoopTask, target: GpuTarget) -> LoopsPlan:
        parallel, reduction = found.loops("parallel"), found.loops("reduction")
        return LoopsPlan(found, parallel, reduction, _tiles(found, parallel, bool(reduction), target))


def _tiles(
    task: LoopTask, parallel: Sequence[Loop], reduces: bool, target: GpuTarget
) -> tuple[LineTile | SquareTile, ...]:
    across = _across(task, parallel)
    if across is not None and not reduces:
        return (_square(task, parallel, across, target),)
    if reduces:
        return (_line(parallel, _REDUCING_POINTS),)
    if task.gathers and len(parallel) > 1:
        return (_patch(parallel),)
    count = total(parallel)
    short = all(item_bytes(place.dtype) <= 2 for place in task.stored.values())
    apart = short and not task.gathers and (count.known is None or count.factor % _VECTOR != 0)
    if not short or (count.known or 0) < _MANY * _MANY_POINTS * target.processors:
        points, least = (_SHORT_POINTS, 2 * _FEW_POINTS) if short else (_POINTS, _FEW_POINTS)
        while count.known is not None and points > least and count.factor < _FEW * points * target.processors:
            points //= 2
        return (_line(parallel, points, apart=apart),)
    # the smaller tile in case registers do not suffice
    return tuple(_line(parallel, points, f"{points} points", apart) for points in (_MANY_POINTS, _SHORT_POINTS))


def _line(parallel: Sequence[Loop], most: int, label: str = "", apart: bool = False) -> LineTile:
    """A tile of at most `most` points."""
    count = total(parallel)
    points = most if count.known is None else min(most, power_of_two(count.factor))
    return LineTile(points, max(1, min(4, points // 32)), label, apart and points == most)


def _across(task: LoopTask, parallel: Sequence[Loop]) -> Loop | None:
    """The loop along which a large input is contiguous, if it is not the result's, and neither it nor what is inside of
    it is short: a line of the result then reads few lines of the input, which the first-level cache holds."""
    if len(parallel) < 2 or not task.stored:
        return None
    inner = parallel[-1][1]
    for source in task.sources:
        strides = source.strides
        if strides[inner] in (ZERO, ONE):
            continue
        for number, loop in enumerate(parallel[:-1], 1):
            if strides[loop[1]] == ONE and _is_long([loop]) and _is_long(parallel[number:]):
                return loop
    return None


def _is_long(loops: Sequence[Loop]) -> bool:
    size = total(loops)
    return size.known is None or size.factor >= _SHORT_SIDE


def _square(task: LoopTask, parallel: Sequence[Loop], across: Loop, target: GpuTarget) -> SquareTile:
    side = _side(task, parallel, target)
    first, second = (
        side if size.known is None else min(side, power_of_two(size.factor)) for size, _ in (across, parallel[-1])
    )
    points = first * second
    return SquareTile(across, (first, second), 8 if points > _SQUARE**2 else max(1, min(4, points // 256)))


def _patch(parallel: Sequence[Loop]) -> SquareTile:
    """A tile along the two fastest loops, long along the fastest, with few points beyond their ends."""
    across, inner = parallel[-2:]
    widths = {min(width, _whole(inner)) for width in _PATCHES}
    width = min(widths, key=lambda width: (_beyond(inner, width) * _beyond(across, _PATCH_POINTS // width), -width))
    height = min(_PATCH_POINTS // width, _whole(across))
    return SquareTile(across, (height, width), max(1, min(4, height * width // 256)))


def _beyond(loop: Loop, side: int) -> float:
    """How many times more points the sides of tiles cover than the loop has."""
    size = loop[0].known
    side = min(side, _whole(loop))
    return 1.0 if not size else -(-size // side) * side / size


def _whole(loop: Loop) -> int:
    """The side that covers a loop."""
    size = loop[0].known
    return _PATCH_POINTS if size is None else power_of_two(size)


def _side(task: LoopTask, parallel: Sequence[Loop], target: GpuTarget) -> int:
    """The side of a square tile: large enough for long lines, small enough that all SMs have tiles."""
    widest = max(item_bytes(place.dtype) for place in task.places)
    if widest > 4:
        return _SQUARE // 2
    points = total(parallel).known or 0
    return _SHORT_SQUARE if widest <= 2 and points >= 4 * _SHORT_SQUARE**2 * target.processors else _SQUARE
