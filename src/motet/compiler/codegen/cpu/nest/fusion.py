"""Stages without a nest: consumers computed on the registers of a tile, and producers computed for an iteration.

    product, then bias and relu at its innermost loop outside the tile    →  three stages, one store of each element
    softmax: maximum, exponentials and sum at loop i of the quotients     →  rows that stay in the cache

A producer is computed to scratch memory, for the elements that the loops inside read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.emit.addressing import StridedNest
from motet.compiler.codegen.cpu.emit.addressing import nest_of as strided_nest
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.nest.buffers import ResultBuffer
from motet.compiler.codegen.cpu.nest.copies import LocalCopy, covers, depth_of
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestPoint
from motet.compiler.codegen.cpu.nest.plan import (
    NestEpilogue,
    NestPlan,
    ScheduledLoop,
    Span,
    lanes_of,
    widest,
)
from motet.compiler.codegen.cpu.rows.grouping import multiplied
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.schedule import NestFusion, NestSchedule
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_VECTORS = 4  # of an iteration of a producer; half of them for functions, which take many registers
_ALIGNMENT = 64
_FIRST = 1 << 16  # the number of the first value that a producer leaves in scratch


class CannotFuse(Exception):
    """A stage cannot be computed at a loop; the text says what could."""


def hosts_of(kernel: Kernel, schedule: NestSchedule) -> dict[int, list[NestFusion]]:
    """The stages fused into each nest, in order: that of a stage whose results they read, or that reads theirs. Raises
    `CannotFuse`."""
    labels = {each.stage: [loop.label for loop in each.nest.loops] for each in schedule.nests}
    hosts: dict[int, list[NestFusion]] = {stage: [] for stage in labels}
    place = {stage: stage for stage in labels}
    waiting = sorted(schedule.fused, key=lambda each: each.stage)
    while waiting:
        found = next(
            ((each, host) for each in waiting for near in _neighbours(kernel, each.stage)
             if (host := place.get(near)) is not None and each.at in labels[host]),
            None,
        )
        if found is None:
            stage, at = waiting[0].stage, waiting[0].at
            raise CannotFuse(f"a loop {at} around a stage that reads or writes a value of stage {stage}")
        each, host = found
        waiting.remove(each)
        place[each.stage] = host
        hosts[host] = sorted([*hosts[host], each], key=lambda fusion: fusion.stage)
    _check_order(kernel, place)
    return hosts


def _neighbours(kernel: Kernel, stage: int) -> list[int]:
    """The stages that write what `stage` reads, the last one first, then those that read what it writes."""
    reads = {access.value for access in kernel.stages[stage].inputs}
    writes = {access.value for access in kernel.stages[stage].outputs}
    others = range(len(kernel.stages))
    before = [s for s in others if reads & {access.value for access in kernel.stages[s].outputs}]
    behind = [s for s in others if writes & {access.value for access in kernel.stages[s].inputs}]
    return [*reversed(before), *behind]


def _check_order(kernel: Kernel, place: dict[int, int]) -> None:
    """Check that each stage runs after those that write what it reads; nests run in the order of their stages."""
    writers: dict[int, int] = {}
    for number, stage in enumerate(kernel.stages):
        for output in stage.outputs:
            if writers.setdefault(output.value, number) != number and any(s != h for s, h in place.items()):
                raise CannotFuse("no fusions: several stages write to one value")
    for number, stage in enumerate(kernel.stages):
        inits = [init for init in stage.inits if isinstance(init, Access)]
        for access in (*stage.inputs, *inits):
            writer = writers.get(access.value)
            if writer is None or writer == number:
                continue
            local = writer < place[writer]
            if place[writer] > place[number] or (place[writer] != place[number] and local):
                raise CannotFuse(f"stage {number} with or behind stage {writer}, which writes what it reads")
            if place[writer] == place[number] and ((local and number > place[number]) or access in inits):
                raise CannotFuse(f"a nest for stage {number}: it reads what stage {writer} leaves in scratch memory")


# -- consumers -----------------------------------------------------------------------------------------


def with_epilogues(kernel: Kernel, plan: NestPlan, fused: Sequence[NestFusion]) -> NestPlan:
    """`plan` with the consumers among `fused` computed on its tiles. Raises `CannotFuse`."""
    consumers = [each for each in fused if each.stage > plan.stage]
    if not consumers:
        return plan
    if plan.buffers:
        raise CannotFuse("no buffers: consumers read registers")
    if plan.micro is not None:
        raise CannotFuse(f"a nest for stage {consumers[0].stage}: the results of a microkernel are in memory")
    around = len(plan.tasks) + len(plan.outer)
    inside = [loop.label for loop in plan.loops[around:]]
    for each in consumers:
        if depth_of(plan, each.at) != around or plan.partial:
            last = plan.loops[around - 1].label if around else "around it"
            text = f"stage {each.stage} at loop {last}" if not plan.partial else "loops of reductions inside all others"
            raise CannotFuse(f"{text}: only {', '.join(inside) or 'its body'} may be inside of it")
    stages = [plan.stage, *(each.stage for each in consumers)]
    elsewhere = {
        access.value for number, stage in enumerate(kernel.stages) if number not in stages
        for access in (*stage.inputs, *(init for init in stage.inits if isinstance(init, Access)))
    }

    def stored(stage: int) -> bool:
        values = [access.value for access in kernel.stages[stage].outputs]
        return any(kernel.values[value].role != "temporary" or value in elsewhere for value in values)

    host = kernel.stages[plan.stage]
    known: dict[int, dict[int, int]] = {each.value: _axes(host, each) for each in host.outputs}
    epilogues: list[NestEpilogue] = []
    for each in consumers:
        epilogue, dims = _epilogue(kernel, plan, each.stage, known, stored(each.stage))
        epilogues.append(epilogue)
        for output in kernel.stages[each.stage].outputs:
            axes = _axes(kernel.stages[each.stage], output)
            known[output.value] = {axis: dims[dim] for axis, dim in axes.items()}
    return replace(plan, epilogues=tuple(epilogues), stored=stored(plan.stage))


def _axes(stage: Stage, access: Access) -> dict[int, int]:
    """The dimension that each axis of `access` walks along, without axes of extent 1."""
    found = {axis: entry.single for axis, entry in enumerate(access.map)}
    return {axis: dim for axis, dim in found.items() if dim is not None and stage.sizes[dim] != 1}


def _epilogue(
    kernel: Kernel, plan: NestPlan, number: int, known: dict[int, dict[int, int]], stored: bool
) -> tuple[NestEpilogue, dict[int, int]]:
    """Stage `number` over the dimensions of the tile's stage, and which of these each dimension of it became. `known`
    are the dimensions along the axes of the values in registers."""
    stage, host = kernel.stages[number], kernel.stages[plan.stage]
    refused = CannotFuse(f"a nest for stage {number}: it does not read stage {plan.stage} element by element")
    if stage.reductions:
        raise CannotFuse(f"a nest for stage {number}, a reduction: only element-wise stages read a tile's registers")
    dims: dict[int, int] = {}
    registers: dict[int, int] = {}
    for k, access in enumerate(stage.inputs):
        if access.value not in known:
            continue
        axes = _axes(stage, access)
        sizes = kernel.values[access.value].shape
        if access.padding is not None or any(axis not in axes and size != 1 for axis, size in enumerate(sizes)):
            raise refused
        for axis, dim in axes.items():
            there = known[access.value].get(axis)
            if there is None or dims.setdefault(dim, there) != there:
                raise refused
        registers[k] = access.value
    parallel = {d for d, kind in enumerate(host.iterators) if kind == "parallel" and host.sizes[d] != 1}
    mine = {d for d, size in enumerate(stage.sizes) if size != 1}
    if set(dims) != mine or set(dims.values()) != parallel or len(dims) != len(parallel):
        raise refused
    nest = strided_nest(kernel, stage)

    def over(operand: StridedAccess) -> StridedAccess:
        strides = [ZERO] * len(host.sizes)
        for dim, theirs in dims.items():
            strides[theirs] = operand.strides[dim]
        bounds = tuple(replace(bound, entry=bound.entry.renumber(dims)) for bound in operand.bounds)
        return replace(operand, strides=tuple(strides), bounds=bounds)

    moved = StridedNest(
        stage, plan.nest.sizes, plan.nest.kinds, tuple(map(over, nest.inputs)), tuple(map(over, nest.outputs)),
        tuple(over(init) if isinstance(init, StridedAccess) else init for init in nest.inits),
        tuple(dims.get(d, -1) for d in range(len(stage.sizes))),
    )
    if plan.vector is not None and plan.lanes > 1 and not plan.reduces_lanes:
        moved = multiplied(moved, plan.vector)
    return NestEpilogue(moved, registers, stored), dims


# -- producers -----------------------------------------------------------------------------------------

Box = tuple[Affine | None, ...]  # where each axis begins, over the dimensions of the nest; None: all of it


@dataclass(frozen=True)
class LocalProducer:
    """A stage computed to scratch, as value `number`, when `depth` loops have been entered: the elements `box` of its
    result, whose axes are the dimensions `axes` of `plan`."""

    depth: int
    number: int
    box: Box
    axes: tuple[int | None, ...]
    strides: tuple[int, ...]
    plan: NestPlan
    bytes: int

    def write(self, f: NestFrame, point: NestPoint, loops: Callable[[NestPlan, NestPoint], None]) -> None:
        """Write the stage for the loops inside `point`; `loops` writes a nest."""
        base: list[Index] = [0] * len(self.plan.spans)
        left: list[Index] = [span.known or 0 for span in self.plan.spans]
        origin: Index = 0
        for entry, dim, stride in zip(self.box, self.axes, self.strides, strict=True):
            if entry is None:
                continue
            first: Index = entry.constant
            for host, _ in entry.terms:
                first = f.iadd(first, point.base[host])
            origin = f.iadd(origin, f.imul(first, stride))
            if dim is not None:
                base[dim] = first
                left[dim] = point.left[entry.dims[0]] if entry.terms else 1
        f.origins[self.number] = origin
        loops(self.plan, NestPoint(tuple(base), tuple(left)))


def scratch_of(copies: Sequence[LocalCopy | LocalProducer | ResultBuffer]) -> tuple[dict[int, int], int]:
    """The offsets of copies in scratch memory, by their numbers, and the bytes that they take."""
    offsets: dict[int, int] = {}
    end = 0
    for copy in copies:
        offsets[copy.number] = offsets[copy.number + 1] = end
        end += -(-copy.bytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, end


def with_producers(
    kernel: Kernel, plan: NestPlan, fused: Sequence[NestFusion], target: CpuTarget
) -> tuple[NestPlan, list[LocalProducer]]:
    """`plan` reading the producers among `fused` from scratch, and these in order. Raises `CannotFuse`."""
    producers = sorted((each for each in fused if each.stage < plan.stage), key=lambda each: -each.stage)
    made: list[LocalProducer] = []
    stages: dict[int, int] = {}
    boxes: dict[int, Box] = {}  # the part of each stage's domain that is computed, by dimension
    for each in producers:
        stage = kernel.stages[each.stage]
        if len(stage.outputs) != 1:
            raise CannotFuse(f"a nest for stage {each.stage}, which has several results")
        value = stage.outputs[0].value
        depth = depth_of(plan, each.at)
        if depth > len(plan.loops) - len(plan.tile) or kernel.values[value].role != "temporary":
            raise CannotFuse(f"a nest for stage {each.stage}, or a loop that is not copies or vectors")
        box = _box(kernel, plan, value, depth, boxes)
        axes = tuple(entry.single for entry in stage.outputs[0].map)
        if any(dim is None and size != 1 for dim, size in zip(axes, kernel.values[value].shape, strict=True)):
            raise CannotFuse(f"a nest for stage {each.stage}, which writes some elements only")
        domain: list[Affine | None] = [None] * len(stage.sizes)
        for dim, entry in zip(axes, box, strict=True):
            if dim is not None:
                domain[dim] = entry
        readers = [stages[other.number] for other in made if other.depth < depth]
        if any(access.value == value for reader in readers for access in kernel.stages[reader].inputs):
            raise CannotFuse(f"stage {each.stage} at the loop of the stages that read it, or around it")
        boxes[each.stage] = tuple(domain)
        producer = _producer(kernel, plan, each.stage, depth, box, target)
        stages[producer.number] = each.stage
        made.append(producer)
        plan = replace(plan, nest=_reading(plan.nest, value, producer))
        for n, other in enumerate(made):
            made[n] = replace(other, plan=replace(other.plan, nest=_reading(other.plan.nest, value, producer)))
    return plan, made[::-1]


def _box(kernel: Kernel, plan: NestPlan, value: int, depth: int, boxes: dict[int, Box]) -> Box:
    """The elements of `value` that an iteration reads. Raises `CannotFuse` unless all readers read the same ones."""
    cover = covers(plan, depth)
    whole = {d for d in range(len(plan.spans)) if all(loop.dim != d for loop in plan.loops[:depth])}
    host: Box = tuple(None if d in whole else Affine.dim(d) for d in range(len(cover)))
    found: set[Box] = set()
    for number, stage in enumerate(kernel.stages):
        around = host if number == plan.stage else boxes.get(number)
        for access in (each for each in stage.inputs if each.value == value):
            if around is None or access.padding is not None:
                raise CannotFuse(f"a nest for the stage that writes what stage {number} reads")
            entries: list[Affine | None] = []
            for entry, size in zip(access.map, kernel.values[value].shape, strict=True):
                if size == 1:
                    entries.append(None)
                elif entry.single is None or stage.sizes[entry.single] != size:
                    raise CannotFuse(f"a nest for the stage whose result stage {number} reads by windows or strides")
                else:
                    entries.append(around[entry.single])
            found.add(tuple(entries))
    if len(found) != 1:
        raise CannotFuse("a nest for a stage of which several stages read different parts")
    return found.pop()


def _producer(
    kernel: Kernel, plan: NestPlan, number: int, depth: int, box: Box, target: CpuTarget
) -> LocalProducer:
    stage = kernel.stages[number]
    access = stage.outputs[0]
    value = kernel.values[access.value]
    cover = covers(plan, depth)
    sizes: list[int] = []
    for entry, size in zip(box, value.shape, strict=True):
        known = size if entry is None else cover[entry.dims[0]]
        if not isinstance(known, int):
            raise CannotFuse(f"a nest for stage {number}, of whose result the extents in an iteration are not known")
        sizes.append(known)
    strides = [0] * len(sizes)
    running = 1
    for axis in reversed(value.order):
        strides[axis] = running
        running *= max(1, sizes[axis])
    axes = tuple(entry.single for entry in access.map)
    nest = strided_nest(kernel, stage)
    if any(size.known is None for size in nest.sizes):
        raise CannotFuse(f"a nest for stage {number}, whose extents are not known")
    moved = [ZERO] * len(nest.sizes)
    for axis, dim in enumerate(axes):
        if dim is not None:
            moved[dim] = Extent(strides[axis])
    output = StridedAccess(_FIRST + 2 * number, value.dtype, (), tuple(moved))
    nest = replace(nest, outputs=(output,))
    domain = [size.factor for size in nest.sizes]
    for dim, size in zip(axes, sizes, strict=True):
        if dim is not None:
            domain[dim] = size
    made = _default_plan(kernel, number, nest, domain, target)
    number = _FIRST + 2 * number
    return LocalProducer(depth, number, box, axes, tuple(strides), made, running * item_bytes(value.dtype))


def _default_plan(
    kernel: Kernel, number: int, nest: StridedNest, sizes: Sequence[int], target: CpuTarget
) -> NestPlan:
    """A nest over `sizes` with vectors along the contiguous dimension of most operands, and reductions inside."""
    stage = kernel.stages[number]
    found = match_reductions(stage) or []
    dims = [d for d in range(len(nest.sizes)) if stage.iterators[d] == "parallel" or found]
    suited = {d: sum(each.strides[d] == ONE for each in nest.operands) for d in dims if sizes[d] != 1}
    vector = max(suited, key=lambda d: suited[d], default=None)
    if vector is not None and not suited[vector]:
        vector = None
    vectors = _VECTORS // 2 if any(scalar.op.startswith("math.") for scalar in stage.body) else _VECTORS
    lanes = 1 if vector is None else lanes_of(sizes[vector], target.lanes(widest(kernel, number)))
    outer = [ScheduledLoop(d, None, 1, "sequential", "") for d in dims if d != vector and d not in stage.reductions]
    carried = [ScheduledLoop(d, None, 1, "sequential", "") for d in stage.reductions if d != vector]
    tile: list[ScheduledLoop] = []
    if vector is not None:
        strip = ScheduledLoop(vector, None, vectors * lanes, "sequential", "")
        (carried if vector in stage.reductions else outer).append(strip)
        tile.append(ScheduledLoop(vector, vectors * lanes, 1, "vector", ""))
    if vector is not None and not stage.reductions:
        nest = multiplied(nest, vector)
    spans = tuple(Span(Extent(size)) for size in sizes)
    return NestPlan(
        number, nest, spans, (), tuple(outer), tuple(carried), tuple(tile), vector, lanes, tuple(found)
    )


def _reading(nest: StridedNest, value: int, producer: LocalProducer) -> StridedNest:
    """`nest` with `value` read where `producer` leaves it."""
    inputs: list[StridedAccess] = []
    for operand, access in zip(nest.inputs, nest.stage.inputs, strict=True):
        if access.value != value or operand.value != value:
            inputs.append(operand)
            continue
        strides = [ZERO] * len(nest.sizes)
        for entry, stride in zip(access.map, producer.strides, strict=True):
            if entry.single is not None:
                strides[entry.single] = Extent(stride)
        inputs.append(StridedAccess(producer.number, operand.dtype, (), tuple(strides)))
    return replace(nest, inputs=tuple(inputs))
