"""Matches launches of several products whose results are combined element by element, and writes their epilogues.

    a·b + c·d               one sum after the other, each rounded as in the program, then the combination
    silu(x·w) * (x·u)       both sums in one loop, as they share an operand, which is loaded once

This saves launches, and writing and reading the intermediate results. The forms are in `multi_gemm.py` and
`multi_persistent.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.gemm import contraction
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.gpu.tasks import LoopTask, total
from motet.compiler.codegen.triton.gemm.products import whole
from motet.compiler.codegen.triton.text.scalars import SHORT_FLOATS, from_storage, rounded, to_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
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
    """`launch` as products that meet."""
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


class Sums(Writer):
    """Writes the epilogue of sums. Rounding to bf16 is hidden from the compiler, which would otherwise multiply in
    bf16; the assembler then reads sums while others accumulate, and serialises all products of tensor cores."""

    def __init__(self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int]) -> None:
        super().__init__(kernel, buffers, shape)
        self.sums: set[str] = set()

    def define(self, prefix: str, text: str) -> str:
        number = next((name for name in self.sums if text == rounded(name, "bf16")), None)
        if number is not None:
            bits = f"({number}).to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16"
            text = f"({bits}).to(tl.float32, bitcast=True)"
        name = super().define(prefix, text)
        if text in self.sums:
            self.sums.add(name)
        return name


Points = Sequence[Mapping[int, Coordinate]]  # the coordinates of the tile, in the dimensions of each product


@dataclass(frozen=True)
class StagesOfSums:
    """The stages behind the products: `own` need one product's result alone, for each of them but the last, `rest` are
    all others; `later` are the values that `rest`, and sums that begin with another's result, read."""

    own: list[list[EpilogueStep]]
    rest: list[EpilogueStep]
    later: set[int]


def parted(j: Joined) -> StagesOfSums:
    """The stages, parted by the results that they need."""
    own: list[list[EpilogueStep]] = [[] for _ in j.products]
    rest: list[EpilogueStep] = []
    of = {value: {number} for number, value in enumerate(j.values)}
    for step in j.steps:
        needed = set[int]().union(*(of[value] for value in step.known if value is not None))
        of |= {output: needed for output, _ in step.writes}
        (own[min(needed)] if len(needed) == 1 and max(needed) + 1 < len(j.products) else rest).append(step)
    begun = {c.task.inits[0].value for c in j.products if isinstance(c.task.inits[0], StridedAccess)}
    return StagesOfSums(own, rest, begun | {value for step in rest for value in step.known if value is not None})


def settled(
    w: Sums, j: Joined, stages: StagesOfSums, number: int, acc: str, points: Points, before: Mapping[int, str]
) -> dict[int, tuple[str, str]]:
    """What is made of the sum `acc` of product `number` alone, by its own stages: names and dtypes of the values that
    are read later, as they would be in memory. `before` are results of products before."""
    c = j.products[number]
    w.sums.add(acc)
    value = whole(w, c, acc, points[number], before)
    made = w.finish(Epilogue(j.values[number], None, tuple(stages.own[number])), value, points[-1], j.task.stored)
    kept: dict[int, tuple[str, str]] = {}
    for other in made.keys() & stages.later:
        dtype = c.task.kernel.values[other].dtype
        narrow = dtype in SHORT_FLOATS
        kept[other] = w.define("y", to_storage(f"({made[other]})", dtype)) if narrow else made[other], dtype
    return kept


def ended_at_once(w: Sums, j: Joined, sums: Sequence[str], points: Points) -> None:
    """Write the epilogue of sums that are all available."""
    made: dict[int, str] = {}
    w.sums |= set(sums)
    for number, (c, at) in enumerate(zip(j.products, points, strict=True)):
        value = j.values[number]
        made[value] = whole(w, c, sums[number], at, made)
        if value in j.task.stored and c is not j.products[-1]:
            w.write(j.task.stored[value], points[-1], made[value])
    value = made.pop(j.values[-1])
    w.finish(Epilogue(j.values[-1], None, j.steps), value, points[-1], j.task.stored, made)


def ended(
    w: Sums, j: Joined, acc: str, points: Points, kept: Mapping[int, tuple[str, str]], rest: Sequence[EpilogueStep]
) -> None:
    """Write the epilogue of the last sum `acc` and the values kept of earlier sums."""
    made = {value: w.define("x", from_storage(name, dtype)) for value, (name, dtype) in kept.items()}
    w.sums.add(acc)
    value = whole(w, j.products[-1], acc, points[-1], made)
    w.finish(Epilogue(j.values[-1], None, tuple(rest)), value, points[-1], j.task.stored, made)
