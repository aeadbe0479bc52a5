"""Products of one shape whose results meet element by element, as one launch.

    a·b + c·d               one sum after the other, each rounded as the program says, then what they meet in
    silu(x·w) * (x·u)       both sums at once, as they have a factor in common, which is read once

A launch is saved, and what would be written between the products, and read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.epilogue import Epilogue, Step, match_epilogue
from motet.compiler.codegen.cpu.extents import Extent, Place
from motet.compiler.codegen.joined import ProductShape
from motet.compiler.codegen.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.codegen.triton import contraction
from motet.compiler.codegen.triton.loops import Task, ceiling, power_of_two, total
from motet.compiler.codegen.triton.products import (
    Contraction,
    factor_of,
    multiply,
    tile_of,
    times,
    whole,
)
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.scalars import SHORT_FLOATS, carried_type, from_storage, to_storage
from motet.compiler.codegen.triton.tiles import Problem, Tile, choose_tiles, stored_as
from motet.compiler.codegen.triton.writer import Coordinate, Source, Writer, is_windowed, source_of
from motet.compiler.targets.gpu import GpuTarget

_MOST = 3  # products
_FORMS = 6
_GUESS = 1024  # a dynamic extent
_LEAST_SIDE = 16  # of a tile
_SMALL = 0  # products of numbers, up to which a launch less pays


@dataclass(frozen=True)
class Joined:
    """`products` in the order of the program; `task` is the last one's, with what is done to all results. `together`
    says that they read one factor in common, and are as long."""

    products: tuple[Contraction, ...]
    task: Task
    together: bool

    @property
    def values(self) -> list[int]:
        """What the products make."""
        return [c.task.stage.outputs[0].value for c in self.products]


# -- matching --------------------------------------------------------------------------------------


def ordered(kernel: Kernel) -> Kernel:
    """`kernel` with the stages first that need no product's result, then the products, where there are several."""
    products = [stage for stage in kernel.stages if _is_product(kernel, stage)]
    if len(products) < 2:
        return kernel
    later: set[int] = set()
    first: list[Stage] = []
    rest: list[Stage] = []
    for stage in kernel.stages:
        depends = bool(_read(stage) & later)
        if depends or stage in products:
            later |= {access.value for access in stage.outputs}
        if stage not in products:
            (rest if depends else first).append(stage)
        elif any(access.value in later for access in stage.inputs):
            return kernel
    return replace(kernel, stages=(*first, *products, *rest))


def _is_product(kernel: Kernel, stage: Stage) -> bool:
    return contraction.takes(kernel, stage) and not any(map(is_windowed, stage.inputs))


def _read(stage: Stage) -> set[int]:
    return {access.value for access in (*stage.inputs, *(i for i in stage.inits if isinstance(i, Access)))}


def matched(kernel: Kernel, stages: Sequence[Stage], seen: Kernel) -> tuple[list[Stage], Epilogue] | None:
    """The products that `stages` begin with, several, and what is done to their results; None where they are anything
    else. `seen` is the kernel as they see it."""
    products: list[Stage] = []
    while len(products) < len(stages) and _is_product(kernel, stages[len(products)]):
        products.append(stages[len(products)])
    if not 2 <= len(products) <= _MOST:
        return None
    main, others = products[-1], products[:-1]
    result, shape = kernel.values[main.outputs[0].value], _written(main)
    if shape is None:
        return None
    for stage in others:
        value = kernel.values[stage.outputs[0].value]
        if (value.shape, value.order) != (result.shape, result.order) or _written(stage) != shape:
            return None
    beside = [stage.outputs[0].value for stage in others]
    epilogue = match_epilogue(seen, main, stages[len(products) :], beside)
    return None if epilogue is None else (products, epilogue)


def _written(stage: Stage) -> list[object] | None:
    """The extents along which the one result is written, None where that is not plainly element by element."""
    found: list[object] = []
    for entry in stage.outputs[0].map:
        if entry.single is None and (entry.constant or not entry.is_constant):
            return None
        found.append(1 if entry.single is None else stage.sizes[entry.single])
    return found


def match(
    kernel: Kernel, launch: Sequence[Stage], seen: Kernel, read: set[int], buffers: tuple[int, ...], symbol: str,
    about: str, target: GpuTarget,
) -> Joined | None:
    """`launch` as products that meet; `read` are the values that later launches read."""
    found = matched(kernel, launch, seen)
    if found is None:
        return None
    stages, epilogue = found
    main = stages[-1]
    stored: dict[int, Place] = {}
    for stage in stages:
        value = stage.outputs[0].value
        if kernel.values[value].role == "result" or value in read:
            stored[value] = source_of(kernel, Access(value, main.outputs[0].map), main.sizes).place
    stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    task = Task(kernel, main, epilogue, stored, buffers, symbol, about)
    products: list[Contraction] = []
    for stage in stages:
        own = {access.value: source_of(kernel, access, stage.sizes).place for access in stage.outputs}
        c = contraction.match(task if stage is main else Task(kernel, stage, None, own, buffers, symbol, about), target)
        if c is None:
            return None
        products.append(c)
    last = products[-1]
    for c in products:
        if any(total(a) != total(b) for a, b in ((c.m, last.m), (c.n, last.n), (c.batch, last.batch))):
            return None
    return Joined(tuple(products), task, _share(kernel, products))


def _share(kernel: Kernel, products: Sequence[Contraction]) -> bool:
    """Whether all read one factor in the same way."""
    first = products[0]
    for c in products[1:]:
        if total(c.k) != total(first.k) or (c.factor, c.sum) != (first.factor, first.sum):
            return False
    lefts, rights = ({(c.left if side else c.right).place.value for c in products} for side in (True, False))
    return len(lefts) == 1 or len(rights) == 1


# -- whether it pays -------------------------------------------------------------------------------


def pays(products: Sequence[ProductShape], target: GpuTarget) -> bool:
    """Whether one launch is expected to be faster than several."""
    if len(products) > _MOST:
        return False
    first = products[0]
    m, n = (size or _GUESS for size in (first.m, first.n))
    if min(m, n, *(shape.k or _GUESS for shape in products)) < _LEAST_SIDE // 2:
        return False
    return (first.batch or 1) * m * n * sum(shape.k or _GUESS for shape in products) <= _SMALL


# -- forms -----------------------------------------------------------------------------------------


def emit(j: Joined, target: GpuTarget) -> tuple[Form, ...]:
    """The best first. Raises `Unsupported`."""
    return tuple(_form(j, tile) for tile in _tiles(j, target))


def _tiles(j: Joined, target: GpuTarget) -> list[Tile]:
    """Those of one product that is as much work: as long as all together, or, where they share a factor, as wide."""
    last = j.products[-1]
    m, n, batch = (total(loops).known or _GUESS for loops in (last.m, last.n, last.batch))
    depth = [total(c.k).known or _GUESS for c in j.products]
    factor = max((c.factor for c in j.products), key=lambda each: item_bytes(stored_as(each)))
    if not j.together:
        tiles = choose_tiles(Problem(m, n, sum(depth), batch, factor, False), target, _FORMS)
        least = max(32, power_of_two(min(depth)))
        return [replace(tile, k=min(tile.k, least)) for tile in tiles]
    count = 1 << (len(j.products) - 1).bit_length()
    tiles = choose_tiles(Problem(m, n * count, depth[0], batch, factor, False), target, 2 * _FORMS)
    narrow = [replace(tile, n=tile.n // count) for tile in tiles if tile.n // count >= _LEAST_SIDE]
    return narrow[:_FORMS]


def _form(j: Joined, tile: Tile) -> Form:
    """Tiles whose parts every thread loads."""
    last, task = j.products[-1], j.task
    w = Writer(task.kernel, task.buffers, (tile.m, tile.n))
    batch, pm, pn = tile_of(w, last, tile)
    row = w.define("m", f"{pm} * {tile.m} + {w.range(0)}")
    column = w.define("n", f"{pn} * {tile.n} + {w.range(1)}")
    masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, total(last.m), tile.m), (1, column, total(last.n), tile.n))
        if count.known is None or count.factor % block
    }
    points: list[dict[int, Coordinate]] = []
    for c in j.products:
        at = dict(batch) if c is last else _moved(batch, last, c)
        at |= w.decompose(Coordinate(row, frozenset({0})), c.m) if c.m else {}
        at |= w.decompose(Coordinate(column, frozenset({1})), c.n) if c.n else {}
        points.append(at)
    sums = _at_once if j.together else _in_turn
    made, steps = sums(w, j, tile, points, masks)
    value = made.pop(j.values[-1])
    w.finish(Epilogue(j.values[-1], None, tuple(steps)), value, points[-1], task.stored, made)
    tasks = times(times(ceiling(total(last.m), tile.m), ceiling(total(last.n), tile.n)), total(last.batch).expression)
    label = f"{len(j.products)} products {'at once' if j.together else 'in turn'} {tile.label}"
    return Form(w.module(task.symbol, task.about), tasks, tile.warps, tile.stages, label)


def _moved(batch: dict[int, Coordinate], source: Contraction, to: Contraction) -> dict[int, Coordinate]:
    """The coordinates of one product's batch as another's: both lie as their results do."""
    return {own: batch[dim] for (_, dim), (_, own) in zip(source.batch, to.batch, strict=True)}


def _parted(j: Joined) -> tuple[list[list[Step]], list[Step]]:
    """The stages that need one product's result alone, for each of them but the last, and all others."""
    own: list[list[Step]] = [[] for _ in j.products]
    rest: list[Step] = []
    of = {value: {number} for number, value in enumerate(j.values)}
    for step in j.task.epilogue.steps if j.task.epilogue is not None else ():
        needed = set[int]().union(*(of[value] for value in step.known if value is not None))
        of |= {output: needed for output, _ in step.writes}
        (own[min(needed)] if len(needed) == 1 and max(needed) + 1 < len(j.products) else rest).append(step)
    return own, rest


def _in_turn(
    w: Writer, j: Joined, tile: Tile, points: Sequence[dict[int, Coordinate]], masks: dict[int, str]
) -> tuple[dict[int, str], Sequence[Step]]:
    """The results of all products, carried, and what is still to be done to them. What is made of one of them alone is
    made at once, and kept as it would be in memory until the last is there."""
    kept: dict[int, tuple[str, str]] = {}
    own, rest = _parted(j)
    later = {value for step in rest for value in step.known if value is not None}
    later |= {c.task.inits[0].place.value for c in j.products if isinstance(c.task.inits[0], Source)}
    value = ""
    for number, (c, at) in enumerate(zip(j.products, points, strict=True)):
        acc = f"acc{number}"
        w.line(f"{acc} = tl.zeros(({tile.m}, {tile.n}), {carried_type(c.sum)})")
        begin = _open_loop(w, c, tile)
        w.remembered = {}
        left = factor_of(w, c, c.left, (tile.m, tile.k), 1, at, _only(masks, 0), begin)
        right = factor_of(w, c, c.right, (tile.k, tile.n), 0, at, _only(masks, 1), begin)
        multiply(w, c, left, right, acc)
        w.level -= bool(begin)
        w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
        before = {value: from_storage(name, dtype) for value, (name, dtype) in kept.items()}
        value = whole(w, c, acc, at, before)
        if c is j.products[-1]:
            break
        made = w.finish(Epilogue(j.values[number], None, tuple(own[number])), value, points[-1], j.task.stored)
        for other in made.keys() & later:
            dtype = c.task.kernel.values[other].dtype
            narrow = dtype in SHORT_FLOATS
            kept[other] = w.define("y", to_storage(f"({made[other]})", dtype)) if narrow else made[other], dtype
    carried = {other: w.define("x", from_storage(name, dtype)) for other, (name, dtype) in kept.items()}
    return carried | {j.values[-1]: value}, rest


def _at_once(
    w: Writer, j: Joined, tile: Tile, points: Sequence[dict[int, Coordinate]], masks: dict[int, str]
) -> tuple[dict[int, str], Sequence[Step]]:
    """The results of all products, carried, and what is to be done to them; what they share is read once."""
    for number, c in enumerate(j.products):
        w.line(f"acc{number} = tl.zeros(({tile.m}, {tile.n}), {carried_type(c.sum)})")
    begin = _open_loop(w, j.products[0], tile)
    w.remembered = {}
    read: dict[tuple[Place, int], str] = {}
    for number, (c, at) in enumerate(zip(j.products, points, strict=True)):
        sides: list[str] = []
        for axis, source, shape in ((1, c.left, (tile.m, tile.k)), (0, c.right, (tile.k, tile.n))):
            key = source.place, axis
            if key not in read:
                read[key] = factor_of(w, c, source, shape, axis, at, _only(masks, 1 - axis), begin)
            sides.append(read[key])
        multiply(w, c, sides[0], sides[1], f"acc{number}")
    w.level -= bool(begin)
    w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
    made: dict[int, str] = {}
    for number, (c, at) in enumerate(zip(j.products, points, strict=True)):
        value = j.values[number]
        made[value] = whole(w, c, f"acc{number}", at, made)
        if value in j.task.stored and c is not j.products[-1]:
            w.write(j.task.stored[value], points[-1], made[value])
    return made, j.task.epilogue.steps if j.task.epilogue is not None else ()


def _only(masks: dict[int, str], axis: int) -> dict[int, str | None]:
    return {axis: masks.get(axis)}


def _open_loop(w: Writer, c: Contraction, tile: Tile) -> str:
    """Begin the loop along the sum, where it takes several turns; what its coordinates begin with."""
    depth: Extent = total(c.k)
    if depth.known is not None and depth.factor <= tile.k:
        return ""
    w.line(f"for k in range(0, {w.extent(depth)}, {tile.k}):")
    w.level += 1
    return "k + "
