"""A launch as one stage with its epilogue: its loops, and the memory that they read and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import gathered, source_of
from motet.compiler.codegen.gpu.launches import LaunchPart, seen_by
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, merge

Loop = tuple[Extent, int]


@dataclass(frozen=True)
class LoopTask:
    """One launch: a stage, its epilogue, the accesses by which results are stored, and the arguments."""

    kernel: Kernel
    stage: Stage
    epilogue: Epilogue | None
    stored: dict[int, StridedAccess]
    buffers: tuple[int, ...]
    symbol: str
    about: str

    @property
    def gathers(self) -> bool:
        """Whether places are computed."""
        steps = self.epilogue.steps if self.epilogue else ()
        return any(map(gathered, (self.stage, *(step.stage for step in steps))))

    @property
    def sources(self) -> list[StridedAccess]:
        return [source_of(self.kernel, access, self.stage.sizes) for access in self.stage.inputs]

    @property
    def inits(self) -> list[StridedAccess | float | int | None]:
        return [
            source_of(self.kernel, init, self.stage.sizes) if isinstance(init, Access) else init
            for init in self.stage.inits
        ]

    @property
    def places(self) -> list[StridedAccess]:
        """All accesses of the launch."""
        found = list(self.sources)
        found += [init for init in self.inits if isinstance(init, StridedAccess)]
        found += self.stored.values()
        return found + (self.epilogue.places if self.epilogue else [])

    def frozen(self) -> frozenset[int]:
        """Dimensions that must not be merged: those of padded accesses, and those whose index bodies use."""
        found = {int(op.value or 0) for op in self.stage.body if op.op == "linalg.index"}
        found.update(*(step.indexed for step in self.epilogue.steps) if self.epilogue else ())
        for source in (*self.sources, *(init for init in self.inits if isinstance(init, StridedAccess))):
            for bound in source.bounds:
                found.update(bound.entry.dims)
        return frozenset(found)

    def merged(self, dims: Sequence[int]) -> list[Loop]:
        """Loops along `dims`, merged where all accesses allow it."""
        return merge([Extent.of(size) for size in self.stage.sizes], dims, self.places, self.frozen())

    def by_memory(self, loops: Sequence[Loop], places: Sequence[StridedAccess]) -> tuple[Loop, ...]:
        """`loops` in the order of the first of `places` that depends on them, the fastest in memory last."""
        return tuple(sorted(loops, key=lambda loop: _stride_rank(places, loop[1]), reverse=True))

    def loops(self, kind: str) -> tuple[Loop, ...]:
        """The loops of one kind, merged; the fastest in memory last."""
        found = self.merged([d for d, iterator in enumerate(self.stage.iterators) if iterator == kind])
        places = list(self.stored.values()) if kind == "parallel" else list(self.sources)
        return self.by_memory(found, places)


def _stride_rank(places: Sequence[StridedAccess], dim: int) -> tuple[int, int]:
    """The stride along `dim` of the first of `places` that depends on it, as a sort key."""
    for place in places:
        stride = place.strides[dim]
        if stride != ZERO:
            return len(stride.symbols), abs(stride.factor)
    return (99, 0)


def task_of(launch: LaunchPart) -> LoopTask:
    kernel, main, epilogue = launch.kernel, launch.stages[0], launch.epilogue
    stored = {
        access.value: source_of(kernel, access, main.sizes) for access in main.outputs if launch.is_stored(access.value)
    }
    if epilogue is not None:
        stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    return LoopTask(kernel, main, epilogue, stored, launch.buffers, launch.symbol, launch.about)


def with_epilogue(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages, including the first, can run while the first stage's result is in registers, the last of them on
    such results. Temporaries of earlier stages count as arguments."""
    count = best = 1
    written = {access.value for access in stages[0].outputs}
    while count < len(stages) and not _is_apart(kernel, stages[count]) and _fits(kernel, stages[: count + 1]):
        if any(access.value in written for access in stages[count].inputs):
            best = count + 1
        written |= {access.value for access in stages[count].outputs}
        count += 1
    return best


def _is_apart(kernel: Kernel, stage: Stage) -> bool:
    """Whether a stage only copies a tensor to another order of its dimensions."""
    access, result = stage.inputs[0] if len(stage.inputs) == 1 else None, stage.outputs[0]
    return not stage.body and access is not None and access.map == result.map and (
        kernel.values[access.value].order != kernel.values[result.value].order
    )


def _fits(kernel: Kernel, stages: Sequence[Stage]) -> bool:
    main, *rest = stages
    return len(main.outputs) == 1 and match_epilogue(seen_by(kernel, stages, set()), main, rest) is not None


def ceiling(count: Extent, block: int) -> Expr:
    """The number of blocks of `block` that cover `count`."""
    return ceildiv(count.expression, block)


def total(loops: Sequence[Loop]) -> Extent:
    result = ONE
    for size, _ in loops:
        result = result * size
    return result


def power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
