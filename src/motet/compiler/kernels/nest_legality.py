"""Whether a schedule of loop nests is legal for a kernel, whatever it comes from, on any target.

The rules are a table, checked in order; a rule may rely on those before it. Loops whose sizes do not divide are legal:
code generators mask the remainder. Code generators add reasons for what they have no code for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod

from motet.compiler.kernels.kernel import Access, Kernel, item_bytes
from motet.compiler.kernels.loop_names import stage_name
from motet.compiler.kernels.nest_fusion import fusion_reasons
from motet.compiler.kernels.nested_stage import NestedStage, NestLimits, NestPath, NestReason, nested_stages
from motet.compiler.kernels.schedule import Nest, NestSchedule

Rule = Callable[[NestedStage], Iterator[NestReason]]


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
            if loop.tile < 1:
                yield NestReason("tile", loop.label, "a size from 1", f"{loop.tile} is no size")
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
            if not loop.parallel:
                tasks = False
                continue
            d = nested.dims.index(loop.dim)
            legal = ", ".join(_outermost(nested, path)) or "none: every loop combines elements"
            for each in nested.dependences:
                if d in each.carried:
                    yield NestReason("parallelize", loop.label, f"one of {legal}", f"tasks would race: {each.why}")
            if position >= path.outside:
                why = "it is inside a part of a dimension"
                yield NestReason("parallelize", loop.label, "a loop around all parts", why)
            elif not tasks:
                around = next(other.label for other in path.loops if not other.parallel)
                yield NestReason("parallelize", loop.label, "tasks as the outermost loops",
                                 f"{around} around it is not parallel")
            if loop.vectorize or loop.unroll is not None or loop.tensorize:
                why = "its iterations are tasks, and cannot be lanes or copies as well"
                yield NestReason("parallelize", loop.label, "another tile of the dimension for those", why)


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
    for path in nested.paths:
        for loop in path.loops:
            if loop.tensorize:
                why = f"no microkernel {loop.tensorize} is known"
                yield NestReason("tensorize", loop.label, "a loop nest without it, by unroll and vectorize", why)


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
                elif copy.padding < 0:
                    yield NestReason(kind, copy.value, "padding from 0", f"padding is {copy.padding}")
                elif copy.at not in [loop.label for loop in nest.loops]:
                    labels = ", ".join(loop.label for loop in nest.loops) or "none"
                    yield NestReason(kind, copy.value, f"one of {labels}", f"the nest has no loop {copy.at}")


def _nests(nest: Nest) -> Iterator[Nest]:
    yield nest
    for region in nest.regions:
        yield from _nests(region.nest)


def _places(nested: NestedStage) -> Iterator[NestReason]:
    """Copies are of one task, outside of vectors, and fit the scratch memory."""
    for path in nested.paths:
        last_task = max((n for n, loop in enumerate(path.loops) if loop.parallel), default=0)
        body = next((n for n, loop in enumerate(path.loops) if loop.vectorize or loop.tensorize), len(path.loops))
        for nest in _nests(nested.nest):
            for copies, kind in ((nest.packs, "pack"), (nest.buffers, "buffer")):
                for copy in copies:
                    position = path.position(copy.at)
                    if position is None:
                        continue
                    if position < last_task:
                        yield NestReason(kind, copy.value, f"{path.loops[last_task].label} or a loop inside",
                                         f"tasks of {path.loops[last_task].label} would share the copy at {copy.at}")
                    elif position >= body:
                        yield NestReason(kind, copy.value, f"a loop outside of {path.loops[body].label}",
                                         f"one iteration of {copy.at} is a lane of a vector")
                    elif (found := _bytes(nested, path, position, copy.value, copy.padding)) > nested.limits.scratch:
                        yield NestReason(kind, copy.value, f"at most {nested.limits.scratch} bytes, at a loop inside",
                                         f"the copy at {copy.at} has {found} bytes")


def _bytes(nested: NestedStage, path: NestPath, position: int, value: str, padding: int) -> int:
    """The bytes of what one iteration of the loop at `position` accesses of `value`, dynamic extents as 1."""
    spans: dict[int, int] = {}
    for d, dim in enumerate(nested.dims):
        around = [n for n in range(position + 1) if path.loops[n].dim == dim]
        inside = [n for n in range(position + 1, len(path.loops)) if path.loops[n].dim == dim]
        spans[d] = path.step(around[-1]) if around else (nested.covered(path, inside[0]) or 1 if inside else 1)
    accesses: list[Access] = [*nested.stage.inputs, *nested.stage.outputs]
    most = 0
    for access in accesses:
        if nested.names.values[access.value] == value:
            widths = [1 + sum(abs(c) * (spans[d] - 1) for d, c in entry.terms) for entry in access.map]
            if widths:
                widths[-1] += padding
            most = max(most, prod(widths) * item_bytes(nested.kernel.values[access.value].dtype))
    return most


RULES: tuple[Rule, ...] = (
    _known, _regions, _covers, _tiles, _microkernels, _parallel, _order, _vectors, _copies_of_body, _copies, _places,
)
