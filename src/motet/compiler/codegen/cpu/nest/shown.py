"""Schedules of other classes as loop nests in the nearest form, from which a user or a search begins.

    contraction, 6 rows by 4 vectors of 16, 22 tiles, b_mode scratch    →    j, i, i#132, k, i#6, j#64; B packed at j

What a nest does not describe is left out: prefetches, instructions for products of short types, packing for all tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.codegen.cpu.nest.legality import check
from motet.compiler.kernels.contraction import read_contraction
from motet.compiler.kernels.kernel import Kernel, Size, Stage
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.schedule import (
    BfloatProductSchedule,
    BlockProductSchedule,
    ContractionSchedule,
    ConvolutionSchedule,
    DirectSchedule,
    IntegerProductSchedule,
    KernelSchedule,
    LoopsSchedule,
    Nest,
    NestCopy,
    NestFusion,
    NestLoop,
    NestSchedule,
    StageNest,
)
from motet.compiler.kernels.strides import memory_strides
from motet.compiler.targets.cpu import CpuTarget

_LONG = 64  # the extent that an unknown one is taken for


def nest_of(kernel: Kernel, schedule: KernelSchedule, target: CpuTarget) -> NestSchedule | None:
    """`schedule`, of any class, as a legal schedule of loop nests; None if there is none that is near."""
    if isinstance(schedule, NestSchedule):
        return schedule
    for found in _candidates(kernel, schedule, loop_names(kernel), target):
        if not check(kernel, found, target):
            return found
    return None


def _candidates(
    kernel: Kernel, schedule: KernelSchedule, names: LoopNames, target: CpuTarget
) -> Iterator[NestSchedule]:
    """Nests near `schedule`, the nearest first."""
    tiled = _tile_of(schedule)
    if tiled is not None and kernel.stages:
        product = _product_nest(kernel, names, tiled)
        for nest in product:
            if nest.loops:
                inner = next((loop.label for loop in reversed(nest.loops) if _is_outer(kernel, names, loop)), "")
                fused = [NestFusion(stage, inner) for stage in range(1, len(kernel.stages))]
                yield NestSchedule([StageNest(0, nest)], fused)
            rest = [StageNest(stage, _loops_of(kernel, stage, names, 0)) for stage in range(1, len(kernel.stages))]
            yield NestSchedule([StageNest(0, nest), *rest])
    lanes = schedule.phases[0].lanes if isinstance(schedule, LoopsSchedule) and schedule.phases else 0
    if isinstance(schedule, LoopsSchedule) and len(kernel.stages) > 1 and len(schedule.phases) == 1:
        last = len(kernel.stages) - 1
        nest = _loops_of(kernel, last, names, 4 * lanes)
        parallel = [loop.label for loop in nest.loops if loop.parallel]
        if parallel:
            yield NestSchedule([StageNest(last, nest)], [NestFusion(stage, parallel[-1]) for stage in range(last)])
    for width in (4 * lanes, 0):
        yield NestSchedule([
            StageNest(stage, _loops_of(kernel, stage, names, width)) for stage in range(len(kernel.stages))
        ])


@dataclass(frozen=True)
class _ProductTile:
    """The register tile of a product, and how many its tasks have along rows (0: all) and columns."""

    rows: int
    columns: int
    row_tiles: int
    panels: int
    depth: int | None
    packs: bool


def _tile_of(schedule: KernelSchedule) -> _ProductTile | None:
    if isinstance(schedule, ContractionSchedule):
        packs = schedule.b_mode in ("packed", "scratch")
        depth = schedule.depth_block
        return _ProductTile(schedule.rows, schedule.width, schedule.tile_rows, schedule.panels, depth, packs)
    if isinstance(schedule, (IntegerProductSchedule, BfloatProductSchedule, BlockProductSchedule)):
        rows, columns, depth = min(8, schedule.rows), min(48, schedule.width), schedule.depth_block
        return _ProductTile(rows, columns, schedule.tile_rows, schedule.panels, depth, True)
    if isinstance(schedule, DirectSchedule):
        return _ProductTile(schedule.tile_rows, schedule.width, 0, 1, schedule.depth_block, True)
    if isinstance(schedule, ConvolutionSchedule):
        return _ProductTile(schedule.tile_rows, schedule.width, 0, 1, None, False)
    return None


def _is_outer(kernel: Kernel, names: LoopNames, loop: NestLoop) -> bool:
    """Whether the loop is neither of a reduction nor a part of a register tile."""
    reduction = kernel.stages[0].iterators[names.dims[0].index(loop.dim)] == "reduction"
    return not (reduction or loop.vectorize or loop.unroll is not None)


def _product_nest(kernel: Kernel, names: LoopNames, tile: _ProductTile) -> Iterator[Nest]:
    """The nest of a product with register tiles along its contiguous dimension and the longest other one of rows."""
    stage, dims = kernel.stages[0], names.dims[0]
    roles = read_contraction(stage)
    if roles is None:
        return
    column = _contiguous(kernel, stage)
    if column not in (*roles.m, *roles.n):
        return
    if column in roles.m:
        roles = roles.swapped
    near = _output_order(kernel, stage)
    rows = [d for d in near if d in roles.m]
    row = rows[-1] if rows else None
    outer = [d for d in near if d not in (row, column) and stage.sizes[d] != 1]
    loops = [NestLoop(dims[d], parallel=True) for d in outer]
    loops += _column_loops(dims[column], stage.sizes[column], tile)
    if row is not None:
        loops += _row_loops(dims[row], stage.sizes[row], tile)
    depth = [d for d in range(len(stage.sizes)) if stage.iterators[d] == "reduction" and stage.sizes[d] != 1]
    blocked = tile.depth if len(depth) == 1 and tile.depth is not None else None
    if blocked is not None:
        loops.insert(len(outer) + 1, NestLoop(dims[depth[0]]))
    loops += [NestLoop(dims[d], blocked) for d in depth]
    if row is not None:
        loops.append(NestLoop(dims[row], tile.rows, unroll=0))
    loops.append(NestLoop(dims[column], tile.columns, vectorize=True))
    right = names.values[stage.inputs[roles.product.rhs.input].value]
    loops.sort(key=lambda loop: not loop.parallel)  # tasks are outermost
    outside = loops[: -2 if row is not None else -1]
    at = next(loop.label for loop in reversed(outside) if loop.dim == dims[column] or loop.parallel)
    if tile.packs:
        yield Nest(loops, packs=[NestCopy(right, at)])
    yield Nest(loops)


def _column_loops(name: str, size: Size, tile: _ProductTile) -> list[NestLoop]:
    panel = tile.columns * tile.panels
    if tile.panels > 1 and _exceeds(size, panel):
        return [NestLoop(name, parallel=True), NestLoop(name, panel)]
    return [NestLoop(name, parallel=True)]


def _row_loops(name: str, size: Size, tile: _ProductTile) -> list[NestLoop]:
    block = tile.rows * tile.row_tiles
    if tile.row_tiles > 1 and _exceeds(size, block):
        return [NestLoop(name, parallel=True), NestLoop(name, block)]
    return [NestLoop(name, parallel=tile.row_tiles == 1)]


def _exceeds(size: Size, tile: int) -> bool:
    return not isinstance(size, int) or size > tile


def _output_order(kernel: Kernel, stage: Stage) -> list[int]:
    """The parallel dimensions of a stage in the order of its first result in memory."""
    access = stage.outputs[0]
    found = [d for axis in kernel.values[access.value].order for d in access.map[axis].dims]
    found = list(dict.fromkeys(found))
    return [*(d for d, kind in enumerate(stage.iterators) if kind == "parallel" and d not in found), *found]


def _contiguous(kernel: Kernel, stage: Stage) -> int | None:
    """The parallel dimension along which the result is contiguous, extents of 1 left out."""
    return next((d for d in reversed(_output_order(kernel, stage)) if stage.sizes[d] != 1), None)


def _loops_of(kernel: Kernel, number: int, names: LoopNames, width: int) -> Nest:
    """A nest whose outer parallel dimensions are tasks and whose vectors, `width` elements each (0: none), run along
    what is contiguous."""
    stage, dims = kernel.stages[number], names.dims[number]
    parallel = [d for d in _output_order(kernel, stage) if stage.sizes[d] != 1]
    reductions = [d for d in stage.reductions if stage.sizes[d] != 1]
    vector = parallel[-1] if parallel and not reductions else _walked(kernel, stage, [*parallel, *reductions])
    order = [*sorted(parallel, key=lambda d: d == vector), *sorted(reductions, key=lambda d: d == vector)]
    tasks = [d for d in order if d in parallel and d != vector] or [d for d in order if d in parallel]
    loops = [NestLoop(dims[d], parallel=d in tasks) for d in order]
    if width and vector is not None:
        loops.append(NestLoop(dims[vector], width, vectorize=True))
    return Nest(loops)


def _walked(kernel: Kernel, stage: Stage, dims: list[int]) -> int | None:
    """The dimension along which the first input is contiguous."""
    for access in stage.inputs:
        strides = memory_strides(kernel.values[access.value])
        for entry, stride in zip(access.map, strides, strict=True):
            if stride.known == 1 and entry.single in dims:
                return entry.single
    return dims[-1] if dims else None
