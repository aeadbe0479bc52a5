"""Whether a schedule of loop nests is legal for a kernel, whatever it comes from, on any target.

The rules are a table, checked in order; a rule may rely on those before it. Loops whose sizes do not divide are legal:
code generators mask the remainder. Code generators add reasons for what they have no code for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod

from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.loop_names import stage_name
from motet.compiler.kernels.microkernel import match_part, meaning_of
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nest_fusion import fusion_reasons
from motet.compiler.kernels.nested_stage import NestedStage, NestLimits, NestPath, NestReason, nested_stages
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.schedule import Nest, NestCopy, NestSchedule

Rule = Callable[[NestedStage], Iterator[NestReason]]

_MOST_TILE = 1 << 30  # elements
_MOST_PADDING = 4096  # elements of a row


def nest_reasons(kernel: Kernel, schedule: NestSchedule, limits: NestLimits | None = None) -> list[NestReason]:
    """Why `schedule` is not legal for `kernel`; empty if it is."""
    if reasons := list(_stages(kernel, schedule)):
        return reasons
    nested = nested_stages(kernel, schedule, limits or NestLimits())
    for rule in RULES:
        for each in nested:
            reasons += rule(each)
        if reasons:
            return list(dict.fromkeys(reasons))
    return list(fusion_reasons(kernel, schedule, nested))


def _stages(kernel: Kernel, schedule: NestSchedule) -> Iterator[NestReason]:
    count = len(kernel.stages)
    seen: list[int] = []
    for stage in [*(each.stage for each in schedule.nests), *(each.stage for each in schedule.fused)]:
        if not 0 <= stage < count:
            legal = f"one of {', '.join(map(stage_name, range(count)))}"
            yield NestReason("nest", stage_name(stage), legal, "the kernel has no such stage")
        elif stage in seen:
            yield NestReason("nest", stage_name(stage), "one nest, or one fusion", "it is scheduled twice")
        seen.append(stage)
    for stage in range(count):
        if stage not in seen:
            yield NestReason("nest", stage_name(stage), "a nest or a fusion for every stage", "it is not scheduled")
    numbers = [each.stage for each in schedule.nests]
    if numbers != sorted(numbers):
        yield NestReason("nest", stage_name(numbers[0]), "nests in the order of stages", "nests are in another order")


# -- loops -----------------------------------------------------------------------------------------


def _known(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        for name in [*(loop.dim for loop in path.loops), *(part.dim for part in path.parts)]:
            if name not in nested.dims:
                legal = f"one of {', '.join(nested.dims)}"
                yield NestReason("loop", name, legal, f"{stage_name(nested.number)} has no dimension {name}")


def _covers(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        for dim in nested.dims:
            sizes = [loop.tile for loop in path.loops if loop.dim == dim]
            if not sizes and nested.size(dim) != 1:
                yield NestReason("loop", dim, f"a loop {dim} over the whole dimension", "no loop runs over it")
            elif sizes and sizes[0] is not None:
                label = f"{dim}#{sizes[0]}"
                yield NestReason("tile", label, f"a loop {dim} outside", f"no loop over all of {dim} is around it")
            elif None in sizes[1:]:
                yield NestReason("loop", dim, "each loop once", "it is twice in one nest")


def _tiles(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        last: dict[str, int] = {}
        for loop in path.loops:
            if loop.tile is None:
                continue
            if not 1 <= loop.tile <= _MOST_TILE:
                yield NestReason("tile", loop.label, f"a size from 1 to {_MOST_TILE}", f"{loop.tile} is no size")
            elif loop.dim in last and loop.tile >= last[loop.dim]:
                why = f"the tile outside has {last[loop.dim]} elements"
                yield NestReason("tile", loop.label, f"a size less than {last[loop.dim]}", why)
            last[loop.dim] = loop.tile


def _regions(nested: NestedStage) -> Iterator[NestReason]:
    def visit(nest: Nest, around: frozenset[str]) -> Iterator[NestReason]:
        here = around | {loop.dim for loop in nest.loops}
        first = nest.regions[0].dim if nest.regions else ""
        size = nested.size(first) if first else None
        least = size if isinstance(size, int) else 1 << 62
        reached: int | None = 0
        for region in nest.regions:
            label = f"{region.dim}[{region.begin}:{'' if region.end is None else region.end}]"
            if region.dim != first:
                yield NestReason("split", label, f"parts of {first}", "parts of several dimensions follow each other")
            elif region.dim in here:
                why = f"a loop or a part of {region.dim} is around it"
                yield NestReason("split", label, "loops of a dimension inside its parts", why)
            elif region.begin != reached:
                why = "the part before has no end" if reached is None else f"the parts before end at {reached}"
                yield NestReason("split", label, f"parts without gaps, as {first}[0:8], {first}[8:]", why)
            elif region.begin >= (least if region.end is None else min(least, region.end)):
                yield NestReason("split", label, "an end after the beginning", "it has no elements")
            reached = region.end
            yield from visit(region.nest, here | {region.dim})
        if nest.regions and reached is not None and reached != size:
            why = f"the parts end at {reached}, and {first} has {size} elements"
            yield NestReason("split", first, f"a last part to {size}, or without an end", why)

    yield from visit(nested.nest, frozenset())


def _parallel(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        tasks = True
        for position, loop in enumerate(path.loops):
            if not loop.is_task:
                tasks = False
                continue
            primitive = "parallelize" if loop.parallel else "split_reduction"
            if loop.split_reduction:
                yield from _partial_results(nested, path, position)
            d = nested.dims.index(loop.dim)
            legal = ", ".join(_outermost(nested, path)) or "none: every loop combines elements"
            for each in nested.dependences:
                if d in each.carried and loop.parallel:
                    yield NestReason("parallelize", loop.label, f"one of {legal}", f"tasks would race: {each.why}")
            if position >= path.outside:
                why = "it is inside a part of a dimension"
                yield NestReason(primitive, loop.label, "a loop around all parts", why)
            elif not tasks:
                around = next(other.label for other in path.loops if not other.is_task)
                yield NestReason(primitive, loop.label, "tasks as the outermost loops",
                                 f"{around} around it is not {'a task' if loop.split_reduction else 'parallel'}")
            if loop.vectorize or loop.unroll is not None or loop.tensorize:
                why = "its iterations are tasks, and cannot be lanes or copies as well"
                yield NestReason(primitive, loop.label, "another tile of the dimension for those", why)


def _partial_results(nested: NestedStage, path: NestPath, position: int) -> Iterator[NestReason]:
    """Check that the iterations of the loop at `position` may leave partial results, which are combined later."""
    loop, stage = path.loops[position], nested.stage
    d = nested.dims.index(loop.dim)
    reductions = match_reductions(stage)
    several = [other.label for other in path.loops[:position] if other.split_reduction]
    if loop.parallel:
        yield NestReason("split_reduction", loop.label, "it without parallelize", "its iterations are tasks already")
    elif stage.iterators[d] != "reduction":
        names = ", ".join(nested.dims[each] for each in stage.reductions) or "none: the stage reduces nothing"
        yield NestReason("split_reduction", loop.label, f"one of {names}", "it is no reduction; parallelize it")
    elif reductions is None:
        why = next((each.why for each in nested.dependences if d in each.carried), "the order of its terms matters")
        yield NestReason("split_reduction", loop.label, "a reduction whose terms may be combined in any order", why)
    elif short := [each.dtype for each in reductions if each.accumulator != each.dtype]:
        why = f"partial results would be rounded to {short[0]}"
        yield NestReason("split_reduction", loop.label, "results of 32 or 64 bits", why)
    elif loop.tile is not None or several:
        why = f"it is a tile of {loop.dim}" if loop.tile is not None else f"{several[0]} is split already"
        yield NestReason("split_reduction", loop.label, "one loop over a whole reduction", why)
    elif (parts := nested.trips(path, position)) is None:
        yield NestReason("split_reduction", loop.label, "a dimension of known extent", "its extent is dynamic")
    else:
        sizes = [stage.sizes[n] for n, kind in enumerate(stage.iterators) if kind == "parallel"]
        elements = parts * prod(size for size in sizes if isinstance(size, int))
        taken = sum(elements * item_bytes(each.dtype) for each in reductions)
        if taken > nested.limits.partial:
            yield NestReason("split_reduction", loop.label, f"a larger tile of {loop.dim} inside it",
                             f"partial results take {taken} bytes, at most {nested.limits.partial}")


def _outermost(nested: NestedStage, path: NestPath) -> list[str]:
    """The loops that may be tasks."""
    carried = {d for each in nested.dependences for d in each.carried}
    return [loop.label for loop in path.loops[:path.outside]
            if nested.dims.index(loop.dim) not in carried and not loop.vectorize]


def _vectors(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        vectors = [n for n, loop in enumerate(path.loops) if loop.vectorize]
        for position in vectors:
            loop = path.loops[position]
            d = nested.dims.index(loop.dim)
            for each in nested.dependences:
                if each.ordered and d in each.carried:
                    yield NestReason("vectorize", loop.label, "a loop that carries no dependence", each.why)
            if position != vectors[0]:
                first = path.loops[vectors[0]].label
                yield NestReason("vectorize", loop.label, "one loop of vectors", f"{first} is vectorised already")
            inner = [each for each in path.loops[position + 1:] if each.unroll != 0]
            if inner:
                last = path.loops[-1].label
                why = f"{inner[0].label} inside of it is neither a copy nor a lane"
                yield NestReason("vectorize", loop.label, f"the innermost loop ({last}), or loops unrolled inside", why)
            if path.step(position) > 1:
                yield NestReason("vectorize", loop.label, f"the innermost loop of {loop.dim}",
                                 f"it steps by {path.step(position)} elements")
            if loop.unroll is not None or loop.tensorize:
                yield NestReason("vectorize", loop.label, "a larger tile, which is several vectors",
                                 "it is unrolled or tensorised as well")


def _copies_of_body(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        total = 1
        for position, loop in enumerate(path.loops):
            trips = nested.trips(path, position)
            if loop.unroll is not None and loop.unroll < 0:
                yield NestReason("unroll", loop.label, "a number from 1", f"{loop.unroll} is no number of copies")
            elif loop.unroll == 0 and trips is None:
                yield NestReason("unroll", loop.label, "a number of copies, or a tile",
                                 "the number of iterations is not known when compiling")
            elif loop.unroll is not None:
                total *= min(loop.unroll or trips or 1, trips or loop.unroll)
            elif loop.vectorize and trips is not None and loop.tile is not None:
                total *= max(1, trips // 16)
            if total > nested.limits.copies and (loop.unroll is not None or loop.vectorize):
                yield NestReason("unroll", loop.label, f"at most {nested.limits.copies} copies in all",
                                 f"the body would be there {total} times")
                break


def _order(nested: NestedStage) -> Iterator[NestReason]:
    for path in nested.paths:
        for each in nested.dependences:
            if not each.ordered:
                continue
            found = [nested.dims.index(loop.dim) for loop in path.loops]
            found = [d for d in found if d in each.carried]
            for before, after in pairwise(found):
                if before > after:
                    legal = f"loops of {' outside those of '.join(nested.dims[d] for d in each.carried)}"
                    yield NestReason("interchange", nested.dims[after], legal, each.why)


def _microkernels(nested: NestedStage) -> Iterator[NestReason]:
    known = {each.name: each for each in nested.microkernels}
    for path in nested.paths:
        marked = [n for n, loop in enumerate(path.loops) if loop.tensorize]
        for position in marked:
            loop = path.loops[position]
            kernel = known.get(loop.tensorize)
            if position != marked[0]:
                why = f"{path.loops[marked[0]].label} around it has a microkernel already"
                yield NestReason("tensorize", loop.label, "one microkernel", why)
            elif kernel is None:
                listed = ", ".join(known) or "none is given; --microkernel FILE gives one"
                why = f"no microkernel {loop.tensorize} is known"
                yield NestReason("tensorize", loop.label, f"one of {listed}" if known else listed, why)
            else:
                yield from _is_microkernel(nested, path, position, kernel)


def _is_microkernel(
    nested: NestedStage, path: NestPath, position: int, kernel: Microkernel
) -> Iterator[NestReason]:
    """Check that the loops from `position` on are those of the meaning of `kernel`."""
    loop = path.loops[position]
    try:
        meaning = meaning_of(kernel)
    except ValueError as error:
        yield NestReason("tensorize", loop.label, "a meaning that can be read", str(error))
        return
    if tasks := [other.label for other in path.loops[position:] if other.is_task]:
        why = f"{tasks[0]} inside of it is a task"
        yield NestReason("tensorize", loop.label, "a loop inside all tasks", why)
        return
    found = match_part(meaning, nested.stage, nested.dims, nested.part(path, position))
    if isinstance(found, str):
        expected = f"loops of {kernel.meaning}" + "".join(f", {d} = {size}" for d, size in kernel.sizes.items())
        yield NestReason("tensorize", loop.label, expected, found)
    elif meaning.accumulates and match_reductions(nested.stage) is None:
        yield NestReason("tensorize", loop.label, "a reduction whose terms may be combined in any order",
                         "the order of its terms matters")


# -- copies ----------------------------------------------------------------------------------------


def _copies(nested: NestedStage) -> Iterator[NestReason]:
    stage, values = nested.stage, nested.names.values
    read = {values[access.value] for access in stage.inputs}
    written = {values[access.value] for access in stage.outputs}
    tables = {values[stage.inputs[s.operands[0]].value] for s in stage.body if s.op == "tensor.extract"}
    for nest in _nests(nested.nest):
        for copies, kind, legal in ((nest.packs, "pack", read - written - tables), (nest.buffers, "buffer", written)):
            for number, copy in enumerate(copies):
                if copy.value not in legal:
                    what = "an operand alone" if kind == "pack" else "a result"
                    why = "the places it is read at depend on data" if copy.value in tables else f"it is not {what}"
                    yield NestReason(kind, copy.value, f"one of {', '.join(sorted(legal)) or 'none'}", why)
                elif copy.value in [other.value for other in copies[:number]]:
                    yield NestReason(kind, copy.value, "one copy of a value", "it has a copy already")
                elif not 0 <= copy.padding <= _MOST_PADDING:
                    yield NestReason(kind, copy.value, f"padding from 0 to {_MOST_PADDING}",
                                     f"padding is {copy.padding}")
                elif copy.at not in [loop.label for loop in nest.loops]:
                    labels = ", ".join(loop.label for loop in nest.loops) or "none"
                    yield NestReason(kind, copy.value, f"one of {labels}", f"the nest has no loop {copy.at}")


def _nests(nest: Nest) -> Iterator[Nest]:
    yield nest
    for region in nest.regions:
        yield from _nests(region.nest)


def _places(nested: NestedStage) -> Iterator[NestReason]:
    """Copies are of one task, outside of vectors, and fit the scratch memory together."""
    for path in nested.paths:
        last_task = max((n for n, loop in enumerate(path.loops) if loop.is_task), default=0)
        body = next((n for n, loop in enumerate(path.loops) if loop.vectorize or loop.tensorize), len(path.loops))
        taken = 0
        for kind, copy in _all_copies(nested.nest):
            position = path.position(copy.at)
            if position is None:
                continue
            if position < last_task:
                yield NestReason(kind, copy.value, f"{path.loops[last_task].label} or a loop inside",
                                 f"tasks of {path.loops[last_task].label} would share the copy at {copy.at}")
                continue
            if position >= body:
                yield NestReason(kind, copy.value, f"a loop outside of {path.loops[body].label}",
                                 f"one iteration of {copy.at} is a lane of a vector")
                continue
            found = _bytes(nested, path, position, kind, copy)
            taken += found
            if taken > nested.limits.scratch:
                others = f", and those before {taken - found}" if taken > found else ""
                yield NestReason(kind, copy.value, f"at most {nested.limits.scratch} bytes, at a loop inside",
                                 f"the copy at {copy.at} has {found} bytes{others}")


def _all_copies(nest: Nest) -> Iterator[tuple[str, NestCopy]]:
    for each in _nests(nest):
        yield from (("pack", copy) for copy in each.packs)
        yield from (("buffer", copy) for copy in each.buffers)


def _bytes(nested: NestedStage, path: NestPath, position: int, kind: str, copy: NestCopy) -> int:
    """The bytes of what one iteration of the loop at `position` accesses of the copied value, dynamic extents as 1."""
    spans: dict[int, int] = {}
    for d, dim in enumerate(nested.dims):
        around = [n for n in range(position + 1) if path.loops[n].dim == dim]
        inside = [n for n in range(position + 1, len(path.loops)) if path.loops[n].dim == dim]
        spans[d] = path.step(around[-1]) if around else (nested.covered(path, inside[0]) or 1 if inside else 1)
    total = 0
    for access in nested.stage.inputs if kind == "pack" else nested.stage.outputs:
        if nested.names.values[access.value] == copy.value:
            widths = [1 + sum(abs(c) * (spans[d] - 1) for d, c in entry.terms) for entry in access.map]
            if widths:
                widths[-1] += copy.padding
            total += prod(widths) * item_bytes(nested.kernel.values[access.value].dtype)
    return total


RULES: tuple[Rule, ...] = (
    _known, _regions, _covers, _tiles, _microkernels, _parallel, _order, _vectors, _copies_of_body, _copies, _places,
)
