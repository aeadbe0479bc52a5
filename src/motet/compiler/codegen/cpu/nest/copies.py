"""Copies of operands in scratch memory, in the order in which the loops inside read them.

    loops j, k, i#8, j#48; B packed at j    →  for each step of j, k rows of 48 elements
    B packed around all loops               →  panels of k rows of 48 elements, one for each step of j

An axis whose elements are read in two places of the order is split into blocks. Elements outside of a padded tensor are
copied as its padding. A constant is brought to the order of the whole nest when compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from motet.compiler.codegen.cpu.emit.addressing import Frame, StridedNest
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestPoint
from motet.compiler.codegen.cpu.nest.plan import NestPlan, ScheduledLoop, Span, lanes_of
from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, item_bytes, row_major
from motet.compiler.kernels.schedule import NestCopy
from motet.compiler.kernels.strides import Bound, Extent, StridedAccess, memory_strides
from motet.compiler.targets.cpu import CpuTarget

Part = Literal["whole", "outer", "block"]
_VECTORS = 8  # vectors of a copied row that are one iteration


@dataclass(frozen=True)
class CopyLayout:
    """The parts of axes, outermost first, and their extents. `blocks` are the elements of a block of a split axis."""

    order: tuple[tuple[int, Part], ...]
    sizes: tuple[int, ...]
    blocks: dict[int, int]
    padding: int = 0

    @property
    def strides(self) -> dict[tuple[int, Part], int]:
        """The elements between neighbours of each part."""
        result: dict[tuple[int, Part], int] = {}
        running = 1
        for n, (part, size) in enumerate(reversed(list(zip(self.order, self.sizes, strict=True)))):
            result[part] = running
            running = running * size + (self.padding if n == 0 else 0)
        return result

    @property
    def elements(self) -> int:
        return max((self.strides[part] * size for part, size in zip(self.order, self.sizes, strict=True)), default=1)

    def axis_strides(self, rank: int) -> tuple[int, ...]:
        """For each axis, the stride of its elements, in a block if it is split."""
        strides = self.strides
        return tuple(strides.get((axis, "whole"), strides.get((axis, "block"), 0)) for axis in range(rank))


@dataclass(frozen=True)
class LocalCopy:
    """Input `operand` of a stage, copied to scratch when `depth` loops have been entered. It is value `number` for the
    stage, over its dimensions, and the next one for `plan`, a nest over the axes. `entries` are where axes begin.
    If it `keeps` a copy, the next task uses that which begins at the same elements."""

    operand: int
    depth: int
    number: int
    layout: CopyLayout
    entries: tuple[Affine, ...]
    plan: NestPlan
    bytes: int
    keeps: bool

    def region(self, f: Frame, point: NestPoint) -> NestPoint:
        """The part of the operand that the loops inside `point` read."""
        bases: list[Index] = []
        lefts: list[Index] = []
        for entry, span in zip(self.entries, self.plan.spans, strict=True):
            base: Index = entry.constant
            left: Index = 1
            for dim, coefficient in entry.terms:
                last = f.imul(coefficient, f.isub(point.left[dim], 1))
                base = f.iadd(base, f.imul(coefficient, point.base[dim]))
                base, left = (f.iadd(base, last), f.isub(left, last)) if coefficient < 0 else (base, f.iadd(left, last))
            bases.append(base)
            lefts.append(min(left, span.known or 0) if isinstance(left, int) else left)
        return NestPoint(tuple(bases), tuple(self._unless_empty(f, point, left) for left in lefts))

    def _unless_empty(self, f: Frame, point: NestPoint, left: Index) -> Index:
        """`left`, or 0 if a loop inside has no iterations."""
        for dim in sorted({dim for entry in self.entries for dim in entry.dims}):
            size = point.left[dim]
            if not isinstance(size, int):
                left = f.select(f.icmp_signed("<", f.index(0), size), f.index(left), f.index(0))
            elif not size:
                return 0
        return left

    def write(self, f: NestFrame, point: NestPoint, loops: Callable[[NestPlan, NestPoint], None]) -> None:
        """Write the copy for the loops inside `point`; `loops` writes a nest."""
        region = self.region(f, point)
        f.origins[self.number] = f.origins[self.number + 1] = self.origin(f, region)
        if self.keeps:
            f.kept(self.number, region, lambda: loops(self.plan, region))
        else:
            loops(self.plan, region)

    def origin(self, f: Frame, region: NestPoint) -> Index:
        """The offset, in the whole operand laid out like the copy, of the copy's first element."""
        strides = self.layout.strides
        result: Index = 0
        for axis, base in enumerate(region.base):
            if axis in self.layout.blocks:
                blocks = f.idiv(base, self.layout.blocks[axis])
                result = f.iadd(result, f.imul(blocks, strides[axis, "outer"]))
            elif (axis, "whole") in strides:
                result = f.iadd(result, f.imul(base, strides[axis, "whole"]))
        return result


@dataclass(frozen=True)
class Copies:
    """A plan that reads `locals` where operands are copied, and constants in the layout of `packings`. `blocks` are for
    each value read in blocks the elements of a block along a dimension, and the stride of blocks."""

    plan: NestPlan
    locals: tuple[LocalCopy, ...]
    packings: dict[int, Packing]
    blocks: dict[int, dict[int, tuple[int, int]]]


def depth_of(plan: NestPlan, label: str) -> int:
    """How many loops have been entered in an iteration of the loop `label`, at least those of tasks."""
    labels = [loop.label for loop in plan.loops]
    return max(len(plan.tasks), labels.index(label) + 1)


def copies_of(kernel: Kernel, plan: NestPlan, target: CpuTarget, may_pack: bool) -> Copies:
    """The copies that `plan` makes. `may_pack`: constants that only one stage reads may change their layout."""
    found = Copies(plan, (), {}, {})
    accesses = kernel.stages[plan.stage].inputs
    for copy, value in plan.packs:
        for operand, access in enumerate(accesses):
            if access.value != value:
                continue
            packed = None
            once = sum(each.value == value for stage in kernel.stages for each in _reads(stage)) == 1
            if may_pack and once and kernel.values[value].role == "constant" and not copy.padding:
                packed = _packed(kernel, found.plan, operand, access)
            if packed is None:
                found = _with_local(found, _local(kernel, plan, operand, copy, target), kernel)
            else:
                layout, packing = packed
                found = replace(found, packings=found.packings | {value: packing})
                found = _replaced(found, operand, access, layout, value)
    return found


def _reads(stage: Stage) -> list[Access]:
    return [*stage.inputs, *(init for init in stage.inits if isinstance(init, Access))]


def _with_local(found: Copies, local: LocalCopy, kernel: Kernel) -> Copies:
    access = kernel.stages[found.plan.stage].inputs[local.operand]
    strides = local.layout.strides
    blocks = {axis: (size, strides[axis, "outer"]) for axis, size in local.layout.blocks.items()}
    found = replace(found, locals=(*found.locals, local), blocks=found.blocks | {local.number + 1: blocks})
    return _replaced(found, local.operand, access, local.layout, local.number)


def _replaced(found: Copies, operand: int, access: Access, layout: CopyLayout, value: int) -> Copies:
    """`found` with `operand` read from `value`, in `layout`."""
    nest, blocks = found.plan.nest, dict[int, tuple[int, int]]()
    strides = [0] * len(nest.sizes)
    offset = 0
    for axis, (entry, stride) in enumerate(zip(access.map, layout.axis_strides(len(access.map)), strict=True)):
        offset += entry.constant * stride
        for dim, coefficient in entry.terms:
            strides[dim] += coefficient * stride
        if axis in layout.blocks:
            blocks[entry.dims[0]] = (layout.blocks[axis], layout.strides[axis, "outer"])
    place = StridedAccess(
        value, nest.inputs[operand].dtype, (Extent(offset),) if offset else (), tuple(map(Extent, strides))
    )
    inputs = (*nest.inputs[:operand], place, *nest.inputs[operand + 1 :])
    plan = replace(found.plan, nest=replace(nest, inputs=inputs))
    return replace(found, plan=plan, blocks=found.blocks | ({value: blocks} if blocks else {}))


# -- layouts -------------------------------------------------------------------------------------------


def covers(plan: NestPlan, depth: int) -> list[int | None]:
    """The elements of each dimension that the loops after the first `depth` cover; None if not known."""
    result: list[int | None] = [span.known for span in plan.spans]
    for loop in plan.loops[:depth]:
        result[loop.dim] = loop.step
    return result


def layout_of(plan: NestPlan, access: Access, depth: int, padding: int) -> CopyLayout | None:
    """The layout of a copy for the loops after the first `depth`; None if its size is not known."""
    cover, inside = covers(plan, depth), plan.loops[depth:]
    extents: list[int] = []
    for entry in access.map:
        extent = 1
        for dim, coefficient in entry.terms:
            size = cover[dim]
            if size is None:
                return None
            extent += abs(coefficient) * max(0, size - 1)
        extents.append(extent)
    sequence: list[int] = []
    for loop in inside:
        for axis, entry in enumerate(access.map):
            if loop.dim in entry.dims and sequence[-1:] != [axis]:
                sequence.append(axis)
    sequence = [*(axis for axis in range(len(extents)) if axis not in sequence), *sequence]
    blocks = {axis: block for axis in set(sequence) if (block := _block(plan, access, axis, depth, sequence))}
    order: list[tuple[int, Part]] = []
    for n, axis in enumerate(sequence):
        if axis not in sequence[n + 1 :]:
            order.append((axis, "block" if axis in blocks else "whole"))
        elif axis in blocks and axis not in sequence[:n]:
            order.append((axis, "outer"))
    sizes: list[int] = []
    for axis, part in order:
        block = blocks.get(axis, 1)
        sizes.append(block if part == "block" else -(-extents[axis] // block))
    return CopyLayout(tuple(order), tuple(sizes), blocks, padding)


def _block(plan: NestPlan, access: Access, axis: int, depth: int, sequence: Sequence[int]) -> int | None:
    """The elements of a block of an axis that is read in two places of the order; None for one that is not split."""
    entry = access.map[axis]
    users = sum(entry.single is not None and entry.single in other.dims for other in access.map)
    if sequence.count(axis) < 2 or entry.single is None or users != 1:
        return None
    dim, inside = entry.single, plan.loops[depth:]
    mine = {loop.dim for loop in inside} & {d for other in access.map for d in other.dims}
    last = max(n for n, loop in enumerate(inside) if loop.dim == dim)
    while any(loop.dim == dim for loop in inside[:last]):
        before = max((n for n, loop in enumerate(inside[:last]) if loop.dim in mine), default=-1)
        if before < 0 or inside[before].dim != dim:
            break
        last = before
    block = inside[last].span
    if block is None or plan.spans[dim].begin % block or (plan.cover(plan.tile, dim) or block + 1) > block:
        return None  # copies of the body are at known distances from the first one
    around = [loop for n, loop in enumerate(plan.loops) if loop.dim == dim and n < depth + last]
    return None if any(loop.step % block for loop in around) else block


# -- copies when the kernel runs -----------------------------------------------------------------------


def _local(kernel: Kernel, plan: NestPlan, operand: int, copy: NestCopy, target: CpuTarget) -> LocalCopy:
    access = kernel.stages[plan.stage].inputs[operand]
    depth = depth_of(plan, copy.at)
    layout = layout_of(plan, access, depth, copy.padding)
    if layout is None:
        raise ValueError("a copy whose size is not known")
    value = kernel.values[access.value]
    number = len(kernel.values) + 2 * operand
    memory = memory_strides(value)
    rank = len(access.map)
    bounds = tuple(Bound(Affine.dim(a), Extent.of(size)) for a, size in enumerate(value.shape))
    padding = plan.nest.inputs[operand].padding
    source = StridedAccess(access.value, value.dtype, (), memory, bounds if padding is not None else (), padding)
    made = StridedAccess(number + 1, value.dtype, (), tuple(map(Extent, layout.axis_strides(rank))))
    copying = copy_plan(layout, source, made, value.dtype, target)
    keeps = depth == len(plan.tasks) and any(loop.dim not in access.dims for loop in plan.tasks)
    taken = layout.elements * item_bytes(value.dtype)
    return LocalCopy(operand, depth, number, layout, access.map, copying, taken, keeps)


def copy_plan(
    layout: CopyLayout, source: StridedAccess, made: StridedAccess, dtype: str, target: CpuTarget
) -> NestPlan:
    """The nest that copies `source` to `made`, by vectors along the innermost part of an axis."""
    rank = len(source.strides)
    extents = [1] * rank
    for (axis, _), size in zip(layout.order, layout.sizes, strict=True):
        extents[axis] *= size
    maps = identity_map(rank)
    stage = Stage(tuple(extents), ("parallel",) * rank, (Access(0, maps),), (Access(1, maps),), (None,), (), (0,))
    nest = StridedNest(
        stage, tuple(map(Extent, extents)), stage.iterators, (source,), (made,), (None,), row_major(rank)
    )
    outer: list[ScheduledLoop] = []
    tile: list[ScheduledLoop] = []
    lanes, vector = 1, None
    for n, ((axis, part), size) in enumerate(zip(layout.order, layout.sizes, strict=True)):
        span = layout.blocks[axis] if part == "block" else None
        step = layout.blocks[axis] if part == "outer" else 1
        if n == len(layout.order) - 1:
            lanes, vector = lanes_of(size, target.lanes(8 * item_bytes(dtype))), axis
            if size > _VECTORS * lanes:
                outer.append(ScheduledLoop(axis, span, lanes, "sequential", ""))
                span = lanes
            tile.append(ScheduledLoop(axis, span, 1, "vector", ""))
        else:
            outer.append(ScheduledLoop(axis, span, step, "sequential", ""))
    return NestPlan(
        0, nest, tuple(Span(Extent(size)) for size in extents), (), tuple(outer), (), tuple(tile), vector, lanes, ()
    )


# -- constants, when compiling -------------------------------------------------------------------------


def _packed(kernel: Kernel, plan: NestPlan, operand: int, access: Access) -> tuple[CopyLayout, Packing] | None:
    """The layout of a constant for the whole nest; None if its elements are not read one for one."""
    shape = kernel.values[access.value].shape
    dims = [entry.single for entry in access.map]
    if any(dim is None for dim in dims) or len(set(dims)) < len(dims) or plan.nest.inputs[operand].bounds:
        return None
    layout = layout_of(plan, access, 0, 0)
    whole = all(size == plan.spans[dim or 0].known for size, dim in zip(shape, dims, strict=True))
    if layout is None or not whole or 0 in shape:
        return None
    blocks = tuple(layout.blocks.get(axis, 1) for axis in range(len(shape)))
    split = [2 * axis + (part == "block") for axis, part in layout.order]
    split += [n for n in range(2 * len(shape)) if n not in split]
    return layout, Packing(row_major(len(shape)), blocks, tuple(split))
