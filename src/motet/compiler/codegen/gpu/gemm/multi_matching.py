"""Matches launches of several products whose results are combined element by element, and writes their epilogues.

    a·b + c·d               one sum after the other, each rounded as in the program, then the combination
    silu(x·w) * (x·u)       both sums in one loop, as they share an operand, which is loaded once

A launch is saved, and what would be written between the products, and read again. `multi_plan.py` chooses the
forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.gemm import contraction
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.gpu.tasks import LoopTask, total
from motet.compiler.kernels.epilogue import Epilogue, EpilogueStep, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

MOST = 3  # products


@dataclass(frozen=True)
class Joined:
    """Several products with a combined result. `products` are in program order; `task` is the last one's, with the
    epilogue on all results. `together` means that they share one operand and have the same K."""

    products: tuple[ContractionLaunch, ...]
    task: LoopTask
    together: bool

    @property
    def values(self) -> list[int]:
        """The results of the products."""
        return [c.task.stage.outputs[0].value for c in self.products]

    @property
    def steps(self) -> tuple[EpilogueStep, ...]:
        """The stages after the products."""
        return self.task.epilogue.steps if self.task.epilogue is not None else ()


# -- matching --------------------------------------------------------------------------------------


def ordered(kernel: Kernel) -> Kernel:
    """`kernel` with stages that do not depend on products first, then the products; unchanged unless there are
    several."""
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
    """The products at the start of `stages`, several, and the epilogue on their results; None if `stages` are anything
    else. `seen` is the kernel as these stages see it."""
    products: list[Stage] = []
    while len(products) < len(stages) and _is_product(kernel, stages[len(products)]):
        products.append(stages[len(products)])
    if not 2 <= len(products) <= MOST:
        return None
    main, others = products[-1], products[:-1]
    result, shape = kernel.values[main.outputs[0].value], _written(main)
    if shape is None:
        return None
    for stage in others:
        value = kernel.values[stage.outputs[0].value]
        if (value.shape, value.order) != (result.shape, result.order) or _written(stage) != shape:
            return None
    other_results = [stage.outputs[0].value for stage in others]
    epilogue = match_epilogue(seen, main, stages[len(products) :], other_results)
    return None if epilogue is None else (products, epilogue)


def _written(stage: Stage) -> list[object] | None:
    """The extents over which the only result is written; None if it is not written element by element."""
    found: list[object] = []
    for entry in stage.outputs[0].map:
        if entry.single is None and (entry.constant or not entry.is_constant):
            return None
        found.append(1 if entry.single is None else stage.sizes[entry.single])
    return found


def match(launch: LaunchPart, target: GpuTarget) -> Joined | None:
    """Read `launch` as combined products."""
    kernel = launch.kernel
    found = matched(kernel, launch.stages, launch.seen)
    if found is None:
        return None
    stages, epilogue = found
    main = stages[-1]
    stored: dict[int, StridedAccess] = {}
    for stage in stages:
        value = stage.outputs[0].value
        if kernel.values[value].role == "result" or value in launch.read:
            stored[value] = source_of(kernel, Access(value, main.outputs[0].map), main.sizes)
    stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    task = LoopTask(kernel, main, epilogue, stored, launch.buffers, launch.symbol, launch.about)
    products: list[ContractionLaunch] = []
    for stage in stages:
        own = {access.value: source_of(kernel, access, stage.sizes) for access in stage.outputs}
        c = contraction.match(
            task if stage is main else replace(task, stage=stage, epilogue=None, stored=own), target
        )
        if c is None:
            return None
        products.append(c)
    last = products[-1]
    for c in products:
        if any(total(a) != total(b) for a, b in ((c.m, last.m), (c.n, last.n), (c.batch, last.batch))):
            return None
    return Joined(tuple(products), task, _share(products))


def _share(products: Sequence[ContractionLaunch]) -> bool:
    """Whether all products read one operand by the same access."""
    first = products[0]
    for c in products[1:]:
        if total(c.k) != total(first.k) or (c.factor, c.sum) != (first.factor, first.sum):
            return False
    lefts, rights = ({(c.left if side else c.right).value for c in products} for side in (True, False))
    return len(lefts) == 1 or len(rights) == 1


# -- epilogue of sums ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StagesOfSums:
    """The stages after the products. `own` has, for each product but the last, the stages that depend on its result
    only; `rest` has all others. `later` are the values that `rest` reads, and the initial values of sums that are
    another product's result."""

    own: list[list[EpilogueStep]]
    rest: list[EpilogueStep]
    later: set[int]


def split_stages(j: Joined) -> StagesOfSums:
    """Split the stages after the products by the results that they depend on."""
    own: list[list[EpilogueStep]] = [[] for _ in j.products]
    rest: list[EpilogueStep] = []
    of = {value: {number} for number, value in enumerate(j.values)}
    for step in j.steps:
        needed = set[int]().union(*(of[value] for value in step.known if value is not None))
        of |= {output: needed for output, _ in step.writes}
        (own[min(needed)] if len(needed) == 1 and max(needed) + 1 < len(j.products) else rest).append(step)
    begun = {c.task.inits[0].value for c in j.products if isinstance(c.task.inits[0], StridedAccess)}
    return StagesOfSums(own, rest, begun | {value for step in rest for value in step.known if value is not None})
