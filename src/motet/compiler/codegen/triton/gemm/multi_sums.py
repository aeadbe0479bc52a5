"""What is done to the sums of several products whose results meet, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.compiler.codegen.gpu.gemm.multi_matching import Joined, StagesOfSums
from motet.compiler.codegen.triton.gemm.products import whole
from motet.compiler.codegen.triton.text.scalars import SHORT_FLOATS, from_storage, rounded, to_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.epilogue import Epilogue, EpilogueStep
from motet.compiler.kernels.kernel import Kernel


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


Points = Sequence[Mapping[int, Coordinate]]  # where the tile lies, in the dimensions of each product


def settled(
    w: Sums, j: Joined, stages: StagesOfSums, number: int, acc: str, points: Points, before: Mapping[int, str]
) -> dict[int, tuple[str, str]]:
    """Run the stages that depend on the sum `acc` of product `number` only; returns the names and dtypes, as stored, of
    the values that later stages read. `before` are results of earlier products."""
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
