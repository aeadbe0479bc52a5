"""Epilogues: element-wise stages after a contraction or a convolution, fused on its tiles while they are in registers.

Every stage runs over the space of the main stage's output. If the main stage is element-wise, too, a stage over equal
extents may read no value of earlier ones, and bodies may use the indices of loops and read whole tensors that no stage
writes. Values of earlier stages are read at the point where they
were computed (identity in that space) and stay in registers unless they are results. All other values are read by a
strided access over that space. Back ends emit the stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.compose import tables
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.strides import StridedAccess, place_of

_OF_POINTS = ("linalg.index", "tensor.extract")  # what bodies use if the main stage is element-wise


@dataclass(frozen=True)
class EpilogueStep:
    """One stage in the main stage's space. `reads` are the body's operands before its own operations: a strided access,
    a number, the index of a value computed before, or None for an unused operand. `writes` pairs each output's value
    with its access, None for one that stays in registers. `dims` maps the stage's dimensions to the main stage's."""

    stage: Stage
    reads: tuple[StridedAccess | float | int | None, ...]
    known: tuple[int | None, ...]
    writes: tuple[tuple[int, StridedAccess | None], ...]
    dims: Mapping[int, int]

    @property
    def indexed(self) -> set[int]:
        """The main stage's dimensions whose indices the body uses."""
        used = {int(op.value or 0) for op in self.stage.body if op.op == "linalg.index"}
        return {self.dims[d] for d in used if d in self.dims}


@dataclass(frozen=True)
class Epilogue:
    """`value` is the main stage's result and `place` the access that stores it, None if it stays in registers."""

    value: int
    place: StridedAccess | None
    steps: tuple[EpilogueStep, ...]

    @property
    def places(self) -> list[StridedAccess]:
        found = [] if self.place is None else [self.place]
        for step in self.steps:
            found += [read for read in step.reads if isinstance(read, StridedAccess)]
            found += [place for _, place in step.writes if place is not None]
        return found

    @property
    def operations(self) -> int:
        """The number of operations per element; elementary functions count as several."""
        return sum(
            25 if op.op.startswith("math.") else 1
            for step in self.steps for op in step.stage.body if op.op != "arith.constant"
        )


def match_epilogue(
    kernel: Kernel, main: Stage, stages: Sequence[Stage], beside: Sequence[int] = ()
) -> Epilogue | None:
    """Read `stages` as the epilogue of `main`, whose only output they read; None if they are not element-wise on it.
    The values `beside` are in registers like that output, for the same points."""
    output = main.outputs[0]
    made: dict[int, tuple[Affine, ...]] = dict.fromkeys((output.value, *beside), output.map)
    steps: list[EpilogueStep] = []
    for stage in stages:
        step = _match_step(kernel, main, stage, made)
        if step is None:
            return None
        steps.append(step)
    place = place_of(kernel, output, len(main.sizes))
    if place is None:
        return None
    stored = kernel.values[output.value].role == "result"
    return Epilogue(output.value, place if stored else None, tuple(steps))


def stored_place(epilogue: Epilogue) -> StridedAccess | None:
    """The last access by which the epilogue stores a value; None if it stores none."""
    written = [place for step in epilogue.steps for _, place in step.writes if place is not None]
    return written[-1] if written else epilogue.place


def _match_step(kernel: Kernel, main: Stage, stage: Stage, made: dict[int, tuple[Affine, ...]]) -> EpilogueStep | None:
    if stage.reductions or (main.reductions and any(op.op in _OF_POINTS for op in stage.body)):
        return None
    dims = _correspondence(main, stage, made)
    if dims is None:
        return None
    whole = tables(stage)
    reads: list[StridedAccess | float | int | None] = []
    known: list[int | None] = []
    for access in (*stage.inputs, *stage.inits):
        if not isinstance(access, Access):
            reads.append(access)
            known.append(None)
            continue
        if access.padding is not None:
            return None
        moved = _translate(access, dims)
        if access.value in made:
            if access in whole or not _same(moved.map, made[access.value], main):
                return None
            reads.append(None)
            known.append(access.value)
            continue
        place = place_of(kernel, moved, len(main.sizes))
        if place is None or kernel.values[access.value].role not in ("argument", "constant"):
            return None
        reads.append(place)
        known.append(None)
    writes: list[tuple[int, StridedAccess | None]] = []
    for access in stage.outputs:
        moved = _translate(access, dims)
        place = place_of(kernel, moved, len(main.sizes))
        if place is None or access.value in made:
            return None
        made[access.value] = moved.map
        writes.append((access.value, place if kernel.values[access.value].role == "result" else None))
    return EpilogueStep(stage, tuple(reads), tuple(known), tuple(writes), dims)


def _correspondence(main: Stage, stage: Stage, made: dict[int, tuple[Affine, ...]]) -> dict[int, int] | None:
    """The dimension of `main` for each dimension of `stage`, derived from its reads of values computed before."""
    dims: dict[int, int] = {}
    readers = [access for access in stage.inputs if access.value in made]
    if not readers:  # on other values, at the same points
        is_alike = not main.reductions and stage.sizes == main.sizes and stage.outputs[0].map == main.outputs[0].map
        return {d: d for d, size in enumerate(stage.sizes) if size != 1} if is_alike else None
    for access in readers:
        for entry, origin in zip(access.map, made[access.value], strict=True):
            ours, theirs = stage.along(entry), main.along(origin)
            if ours is None or theirs is None:
                if ours is not None or theirs is not None:
                    return None
                continue
            if dims.setdefault(ours, theirs) != theirs or stage.sizes[ours] != main.sizes[theirs]:
                return None
    needed = {d for d, size in enumerate(stage.sizes) if size != 1}
    parallel = {d for d, kind in enumerate(main.iterators) if kind == "parallel" and main.sizes[d] != 1}
    complete = set(dims) == needed and set(dims.values()) == parallel and len(dims) == len(parallel)
    return dims if complete else None


def _translate(access: Access, dims: dict[int, int]) -> Access:
    return replace(access, map=tuple(entry.renumber(dims) for entry in access.map))


def _same(a: Sequence[Affine], b: Sequence[Affine], main: Stage) -> bool:
    def bare(entry: Affine) -> Affine:
        return Affine(tuple((d, c) for d, c in entry.terms if main.sizes[d] != 1), entry.constant)

    return [bare(entry) for entry in a] == [bare(entry) for entry in b]
