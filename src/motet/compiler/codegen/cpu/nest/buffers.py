"""Results accumulated in scratch memory, and stored when the iteration of their loop ends.

    loops i, k, j, k#64, i#4, j#32 of a product, C buffered at i    →    rows of sums in scratch, in f32 if C is f16
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.nest.copies import CopyLayout, LocalCopy, copy_plan, covers, depth_of
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestPoint
from motet.compiler.codegen.cpu.nest.plan import NestPlan
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, item_bytes
from motet.compiler.kernels.schedule import NestCopy
from motet.compiler.kernels.strides import Extent, StridedAccess, memory_strides
from motet.compiler.targets.cpu import CpuTarget

_FIRST = 1 << 17  # the number of the first buffer


@dataclass(frozen=True)
class ResultBuffer:
    """The elements of a result that an iteration at `depth` computes: `local.plan` stores them."""

    local: LocalCopy

    @property
    def depth(self) -> int:
        return self.local.depth

    @property
    def number(self) -> int:
        return self.local.number

    @property
    def bytes(self) -> int:
        return self.local.bytes

    @property
    def plan(self) -> NestPlan:
        return self.local.plan

    def write(self, f: NestFrame, point: NestPoint, loops: Callable[[NestPlan, NestPoint], None]) -> None:
        """Begin the buffer at `point`."""
        f.origins[self.number] = f.origins[self.number + 1] = self.local.origin(f, self.local.region(f, point))

    def store(self, f: NestFrame, point: NestPoint, loops: Callable[[NestPlan, NestPoint], None]) -> None:
        """Store the buffer's elements; `loops` writes a nest."""
        self.write(f, point, loops)
        loops(self.plan, self.local.region(f, point))


def buffer_layout(kernel: Kernel, plan: NestPlan, access: Access, copy: NestCopy) -> CopyLayout | None:
    """The layout of a buffer, in the order of the result in memory; None if its size is not known, or if neighbours
    along an axis are not computed together."""
    cover = covers(plan, depth_of(plan, copy.at))
    value = kernel.values[access.value]
    sizes: list[int] = []
    for entry, size in zip(access.map, value.shape, strict=True):
        known = 1 if size == 1 else None if entry.single is None else cover[entry.single]
        if known is None:
            return None
        sizes.append(known)
    return CopyLayout(
        tuple((axis, "whole") for axis in value.order), tuple(sizes[axis] for axis in value.order), {}, copy.padding
    )


def with_buffers(kernel: Kernel, plan: NestPlan, target: CpuTarget) -> tuple[NestPlan, list[ResultBuffer]]:
    """`plan` with buffered results in scratch memory, in the type of their sums, and the buffers."""
    made: list[ResultBuffer] = []
    for copy, value in plan.buffers:
        outputs = kernel.stages[plan.stage].outputs
        output = next(n for n, each in enumerate(outputs) if each.value == value)
        layout = buffer_layout(kernel, plan, outputs[output], copy)
        if layout is None:
            raise ValueError("a buffer whose size is not known")
        buffer = _buffer(kernel, plan, output, layout, depth_of(plan, copy.at), target)
        made.append(buffer)
        strides = [0] * len(plan.nest.sizes)
        for entry, stride in zip(outputs[output].map, layout.axis_strides(len(outputs[output].map)), strict=True):
            if entry.single is not None:
                strides[entry.single] += stride
        dtype = plan.reductions[output].accumulator if plan.reductions else kernel.values[value].dtype
        place = StridedAccess(buffer.number, dtype, (), tuple(map(Extent, strides)))
        places = list(plan.nest.outputs)
        places[output] = place
        plan = replace(plan, nest=replace(plan.nest, outputs=tuple(places)))
    return plan, made


def _buffer(
    kernel: Kernel, plan: NestPlan, output: int, layout: CopyLayout, depth: int, target: CpuTarget
) -> ResultBuffer:
    access = kernel.stages[plan.stage].outputs[output]
    value = kernel.values[access.value]
    wide = plan.reductions[output].accumulator if plan.reductions else value.dtype
    number = _FIRST + 2 * output
    strides = tuple(map(Extent, layout.axis_strides(len(access.map))))
    source = StridedAccess(number + 1, wide, (), strides)
    result = StridedAccess(access.value, value.dtype, (), memory_strides(value))
    storing = copy_plan(layout, source, result, wide, target)
    if wide != value.dtype:
        stage = replace(storing.nest.stage, body=(Scalar("arith.truncf", (0,), value.dtype),), yields=(2,))
        storing = replace(storing, nest=replace(storing.nest, stage=stage))
    taken = layout.elements * item_bytes(wide)
    return ResultBuffer(LocalCopy(output, depth, number, layout, access.map, storing, taken, False))
