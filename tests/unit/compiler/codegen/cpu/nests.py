"""Draws schedules of loop nests: any order of loops, tiles, tasks, vectors and copies."""

from __future__ import annotations

import random
from collections.abc import Sequence

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.schedule import Nest, NestCopy, NestFusion, NestLoop, NestRegion, NestSchedule, StageNest

TILES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 48, 64, 100)


def drawn_loops(rng: random.Random, dims: Sequence[str], parallel: Sequence[str]) -> list[NestLoop]:
    """Loops over `dims`, of which `parallel` may be tasks, in any order that keeps tiles inside."""
    loops: list[NestLoop] = []
    for dim in dims:
        tiles = sorted({rng.choice(TILES) for _ in range(rng.choice((0, 0, 1, 1, 2)))}, reverse=True)
        places = sorted(rng.randint(0, len(loops)) for _ in range(1 + len(tiles)))
        for tile, place in reversed(list(zip([None, *tiles], places, strict=True))):
            loops.insert(place, NestLoop(dim, tile))
    last = {loop.dim: number for number, loop in enumerate(loops)}
    if loops and rng.random() < 0.8:
        number = rng.choice(list(last.values()))
        loops[number] = NestLoop(loops[number].dim, loops[number].tile, vectorize=True)
    tasks = rng.random() < 0.6
    for number, loop in enumerate(loops):
        first = next(n for n, other in enumerate(loops) if other.dim == loop.dim)
        if loop.vectorize:
            continue
        if tasks and loop.dim in parallel and first == number and rng.random() < 0.5:
            loops[number] = NestLoop(loop.dim, loop.tile, parallel=True)
        elif rng.random() < 0.3:
            copies = 0 if loop.tile is not None and loop.tile <= 8 else rng.choice((1, 2, 3, 4))
            loops[number] = NestLoop(loop.dim, loop.tile, unroll=copies)
    reduced = [number for number, loop in enumerate(loops) if loop.dim not in parallel and loop.tile is None]
    if reduced and rng.random() < 0.25:
        number = rng.choice(reduced)
        loops[number] = NestLoop(loops[number].dim, split_reduction=True)
    if rng.random() < 0.9:
        loops.sort(key=lambda loop: not loop.is_task)
    if rng.random() < 0.7:
        loops.sort(key=lambda loop: loop.vectorize)
    return loops


def drawn_nest(
    rng: random.Random, dims: Sequence[str], parallel: Sequence[str], read: Sequence[str], written: Sequence[str]
) -> Nest:
    """A nest over `dims`, sometimes with regions of one of them, or with copies of what is `read` and `written`."""
    if dims and rng.random() < 0.15:
        dim = rng.choice(list(dims))
        parallel = parallel if rng.random() < 0.1 else ()
        cuts = sorted({0, *(rng.randint(1, 12) for _ in range(rng.randint(1, 2)))})
        regions = [
            NestRegion(dim, begin, end, Nest(drawn_loops(rng, dims, parallel)))
            for begin, end in zip(cuts, [*cuts[1:], None], strict=True)
        ]
        return Nest([], regions)
    loops = drawn_loops(rng, dims, parallel)
    last = max((n for n, loop in enumerate(loops) if loop.is_task), default=0) if rng.random() < 0.9 else 0
    inner = [loop.label for loop in loops[last:] if not loop.vectorize]
    packs = [
        NestCopy(value, rng.choice(inner), rng.choice((0, 0, 0, 1, 16)))
        for value in dict.fromkeys(read) if inner and rng.random() < 0.4
    ]
    buffers = [NestCopy(value, rng.choice(inner)) for value in written if inner and rng.random() < 0.3]
    return Nest(loops, packs=packs, buffers=buffers)


def drawn_schedule(rng: random.Random, kernel: Kernel) -> NestSchedule:
    """A schedule of `kernel` with a nest for each stage, legal or not."""
    names = loop_names(kernel)
    nests: list[StageNest] = []
    for number, stage in enumerate(kernel.stages):
        dims = names.dims[number]
        parallel = [dim for dim, kind in zip(dims, stage.iterators, strict=True) if kind == "parallel"]
        read = [names.values[access.value] for access in stage.inputs]
        written = [names.values[access.value] for access in stage.outputs]
        nests.append(StageNest(number, drawn_nest(rng, dims, parallel, read, written)))
    if len(nests) == 1 or rng.random() < 0.3:
        return NestSchedule(nests)
    host = rng.choice(nests)
    labels = [loop.label for loop in host.nest.loops] or ["i"]
    fused = [NestFusion(each.stage, rng.choice(labels)) for each in nests if each is not host and rng.random() < 0.7]
    alone = {each.stage for each in fused}
    return NestSchedule([each for each in nests if each.stage not in alone], fused)
