"""Reductions whose outermost loop is tasks: each task leaves partial results, which another phase combines.

    loops k (split), i, j, k#64 of a product    →    P[k / 64, i, j] += A[i, k] * B[k, j]        tasks along k
                                                     C[i, j] += P[p, i, j]

The number of parts depends on the extent and the step of the loop alone, so that results do not depend on threads.
Source: rfactor (Suriana, Adams and Kamil, "Parallel associative reductions in Halide", 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.nest.plan import FlatNest, NestPlan
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import ITEM_BITS, Access, Kernel, Scalar, Stage, Value, row_major
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.schedule import Nest, NestLoop, NestSchedule
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess, memory_strides

_BLOCK = 2048  # elements of a row that a task combines
_VECTOR_BITS = 2048  # of the elements of one iteration

Blocks = Mapping[int, Mapping[int, tuple[int, int | Extent]]]


@dataclass(frozen=True)
class PartialSums:
    """Stage `stage` of `kernel` leaves partial results of `step` iterations of dimension `dim` in `values`, one for
    each output; stage `combining` adds them. `dims` are the parallel dimensions of the stage in their order."""

    kernel: Kernel
    stage: int
    dim: int
    step: int
    dims: tuple[int, ...]
    values: tuple[int, ...]
    combining: int

    def blocks(self) -> Blocks:
        """How the partial results are stored, for the memory of a nest."""
        return {
            value: {self.dim: (self.step, memory_strides(self.kernel.values[value])[0])} for value in self.values
        }

    def plan(self, plan: NestPlan) -> NestPlan:
        """`plan`, of the stage, with partial results as its outputs."""
        outputs = list(plan.nest.outputs)
        for n, value in enumerate(self.values):
            strides = [ZERO] * len(plan.nest.sizes)
            for d, stride in zip(self.dims, memory_strides(self.kernel.values[value])[1:], strict=True):
                strides[d] = stride
            outputs[n] = StridedAccess(value, self.kernel.values[value].dtype, (), tuple(strides))
        inits = tuple(each.identity for each in plan.reductions)
        return replace(plan, nest=replace(plan.nest, outputs=tuple(outputs), inits=inits), split=(self.dim, self.step))

    def nest(self) -> FlatNest:
        """The loops of the stage that combines partial results: tasks of rows, vectors along what is contiguous."""
        names = loop_names(self.kernel).dims[self.combining]
        stage = self.kernel.stages[self.combining]
        *rows, parts = names
        width = _VECTOR_BITS // max(ITEM_BITS[self.kernel.values[value].dtype] for value in self.values)
        loops = [NestLoop(name, parallel=True) for name in rows]
        if rows and stage.sizes[len(rows) - 1] != 1:
            loops += [NestLoop(rows[-1], _BLOCK), NestLoop(parts), NestLoop(rows[-1], width, vectorize=True)]
        else:
            loops.append(NestLoop(parts))
        return FlatNest(tuple(loops), {}, (), ())


def split_loop(nest: Nest) -> tuple[NestLoop, int] | None:
    """The loop of `nest` whose iterations leave partial results, and the elements by which it steps."""
    for position, loop in enumerate(nest.loops):
        if loop.split_reduction:
            inner = (other.tile for other in nest.loops[position + 1 :] if other.dim == loop.dim)
            return loop, next(inner, None) or 1
    return None


def with_partial_sums(
    kernel: Kernel, schedule: NestSchedule, names: LoopNames
) -> tuple[Kernel, dict[int, PartialSums]]:
    """`kernel` with values and stages for the partial results of `schedule`, a legal one, and these by their stage."""
    found: dict[int, PartialSums] = {}
    for each in schedule.nests:
        split = split_loop(each.nest)
        if split is not None:
            dim = names.dims[each.stage].index(split[0].dim)
            made = _partial_sums(kernel, each.stage, dim, split[1])
            kernel, found[each.stage] = made.kernel, made
    return kernel, {number: replace(each, kernel=kernel) for number, each in found.items()}


def _partial_sums(kernel: Kernel, number: int, dim: int, step: int) -> PartialSums:
    stage = kernel.stages[number]
    reductions, size = match_reductions(stage), stage.sizes[dim]
    if reductions is None or not isinstance(size, int):
        raise ValueError("partial results of a reduction whose order matters, or of a dynamic extent")
    parts = -(-size // step)
    first = stage.outputs[0]
    near = [d for axis in kernel.values[first.value].order for d in first.map[axis].dims]
    parallel = [d for d, kind in enumerate(stage.iterators) if kind == "parallel"]
    dims = tuple(dict.fromkeys([*(d for d in parallel if d not in near), *(d for d in near if d in parallel)]))
    shape = (parts, *(stage.sizes[d] for d in dims))
    values = tuple(Value(shape, each.dtype, "temporary", row_major(len(shape))) for each in reductions)
    numbers = tuple(range(len(kernel.values), len(kernel.values) + len(values)))
    mine = {d: n for n, d in enumerate(dims)}

    def moved(access: Access) -> Access:
        return replace(access, map=tuple(entry.renumber(mine) for entry in access.map))

    count = len(values)
    place = tuple(Affine.dim(d) for d in (len(dims), *range(len(dims))))
    combining = Stage(
        (*(stage.sizes[d] for d in dims), parts), (*("parallel" for _ in dims), "reduction"),
        tuple(Access(value, place) for value in numbers), tuple(map(moved, stage.outputs)),
        tuple(moved(init) if isinstance(init, Access) else init for init in stage.inits),
        tuple(Scalar(each.op, (n, count + n), each.dtype) for n, each in enumerate(reductions)),
        tuple(range(2 * count, 3 * count)),
    )
    made = replace(kernel, values=(*kernel.values, *values), stages=(*kernel.stages, combining))
    return PartialSums(made, number, dim, step, dims, numbers, len(kernel.stages))
