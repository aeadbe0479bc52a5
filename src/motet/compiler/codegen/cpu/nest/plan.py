"""Reads a nest of a schedule as loops over a stage: tasks, loops around a register tile, and the tile.

    i parallel, j, k, i#8 unroll, j#48 vectorize, of a product

    tasks     i by 8            the loops that are marked parallel
    outer     j by 48
    carried   k                 reductions around the tile: the tile's sums stay in registers
    tile      i#8, j#48         copies of the body: 8 by 3 vectors of 16 elements
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from motet.artifact.expressions import apply
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import StridedNest
from motet.compiler.codegen.cpu.emit.addressing import nest_of as strided_nest
from motet.compiler.codegen.cpu.emit.builder import Builder, Index
from motet.compiler.codegen.cpu.rows.grouping import multiplied
from motet.compiler.kernels.kernel import ITEM_BITS, Kernel, Stage
from motet.compiler.kernels.loop_names import LoopNames
from motet.compiler.kernels.microkernel import MicroMatch, MicroMeaning, match_part, meaning_of
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.schedule import Nest, NestCopy, NestLoop
from motet.compiler.kernels.strides import Extent
from motet.compiler.targets.cpu import CpuTarget

_STRIPPED = 8  # vectors of a whole dimension that are copies of the body; more become a loop


@dataclass(frozen=True)
class Span:
    """The elements of a dimension of extent `size` from `begin` up to `end`, None for the last."""

    size: Extent
    begin: int = 0
    end: int | None = None

    @property
    def known(self) -> int | None:
        """The number of elements; None if the extent is dynamic."""
        if self.size.known is None:
            return None
        end = self.size.known if self.end is None else min(self.end, self.size.known)
        return max(0, end - self.begin)

    @property
    def expression(self) -> Expr:
        if self.known is not None:
            return self.known
        end = self.size.expression if self.end is None else apply("min", self.end, self.size.expression)
        return apply("max", 0, apply("-", end, self.begin)) if self.begin else end

    def length(self, f: Builder, size: Index) -> Index:
        """The number of elements, `size` being the extent."""
        if self.known is not None:
            return self.known
        end = size if self.end is None else f.imin(self.end, size)
        return f.imax(0, f.isub(end, self.begin)) if self.begin else end


@dataclass(frozen=True)
class ScheduledLoop:
    """A loop over `span` elements of dimension `dim` (None: all) by steps of `step`."""

    dim: int
    span: int | None
    step: int
    kind: Literal["task", "sequential", "unroll", "vector", "micro"]
    label: str


@dataclass(frozen=True)
class PlannedMicrokernel:
    """A microkernel that computes whole tiles of a nest. `outer`, `carried` and `tile` are the loops that compute other
    ones, and `vector` and `lanes` their vectors."""

    kernel: Microkernel
    meaning: MicroMeaning
    match: MicroMatch
    outer: tuple[ScheduledLoop, ...]
    carried: tuple[ScheduledLoop, ...]
    tile: tuple[ScheduledLoop, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """The inputs of the stage, in the order of the microkernel's operands."""
        return self.match.inputs


@dataclass(frozen=True)
class NestEpilogue:
    """An element-wise stage computed on the results of a register tile: `nest` has the dimensions of the tile's stage.
    `registers` are its inputs that are values of the tile, by their position. Results that only further epilogues
    read are not `stored`."""

    nest: StridedNest
    registers: dict[int, int]
    stored: bool


@dataclass(frozen=True)
class NestPlan:
    """A nest over the part `spans` of the domain of a stage. `lanes` elements of dimension `vector` form a vector.
    `reductions` are how outputs reduce, empty if the order of their terms matters; `empty` ones have no terms. `packs`
    and `buffers` are copies with the numbers of their values. Results that only `epilogues` read are not `stored`.
    `split` is a reduction dimension, and the number of its elements whose partial results are a task's results. With
    `micro`, tiles are computed by a microkernel, and no sums stay in registers. `around` are dimensions of loops
    outside of the plan."""

    stage: int
    nest: StridedNest
    spans: tuple[Span, ...]
    tasks: tuple[ScheduledLoop, ...]
    outer: tuple[ScheduledLoop, ...]
    carried: tuple[ScheduledLoop, ...]
    tile: tuple[ScheduledLoop, ...]
    vector: int | None
    lanes: int
    reductions: tuple[Reduction, ...]
    packs: tuple[tuple[NestCopy, int], ...] = ()
    buffers: tuple[tuple[NestCopy, int], ...] = ()
    empty: bool = False
    epilogues: tuple[NestEpilogue, ...] = ()
    stored: bool = True
    split: tuple[int, int] | None = None
    micro: PlannedMicrokernel | None = None
    around: tuple[int, ...] = ()

    @property
    def remainder(self) -> NestPlan:
        """The loops that compute a tile without the microkernel."""
        assert self.micro is not None
        around = tuple(loop.dim for loop in (*self.tasks, *self.outer))
        return replace(
            self, tasks=(), outer=self.micro.outer, carried=self.micro.carried, tile=self.micro.tile, micro=None,
            around=around,
        )

    @property
    def loops(self) -> tuple[ScheduledLoop, ...]:
        return (*self.tasks, *self.outer, *self.carried, *self.tile)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The reduction dimensions."""
        return self.nest.stage.reductions

    @property
    def reduces_lanes(self) -> bool:
        """Whether vectors run along a reduction."""
        return self.vector in self.reduced

    @property
    def partial(self) -> tuple[int, ...]:
        """The reduction dimensions of which a register tile may see a part only."""
        around = {loop.dim for loop in (*self.tasks, *self.outer)}.union(self.around)
        return tuple(d for d in self.reduced if d in around or self.spans[d].begin or self.spans[d].end is not None)

    def cover(self, loops: Sequence[ScheduledLoop], dim: int) -> int | None:
        """The elements of `dim` that `loops`, the innermost ones, cover; 1 without a loop of `dim`."""
        spans = [loop.span for loop in loops if loop.dim == dim]
        return 1 if not spans else self.spans[dim].known if spans[0] is None else spans[0]

    def without_reductions(self) -> NestPlan:
        """The nest that computes the results of no terms."""
        kept = [
            tuple(loop for loop in loops if loop.dim not in self.reduced)
            for loops in (self.tasks, self.outer, self.tile)
        ]
        found = replace(self, tasks=kept[0], outer=kept[1], carried=(), tile=kept[2], empty=True)
        return replace(found, vector=None, lanes=1) if self.reduces_lanes else found


@dataclass(frozen=True)
class FlatNest:
    """A nest without regions: the loops around a region and those in it, for a part of the dimensions by name."""

    loops: tuple[NestLoop, ...]
    parts: dict[str, tuple[int, int | None]]
    packs: tuple[NestCopy, ...]
    buffers: tuple[NestCopy, ...]


def flatten(nest: Nest, around: FlatNest | None = None) -> Iterator[FlatNest]:
    """Each region of `nest` with the loops around it, in order. Regions do not depend on each other, so that loops
    around several of them may run once for each."""
    around = around or FlatNest((), {}, (), ())
    here = FlatNest(
        (*around.loops, *nest.loops), around.parts, (*around.packs, *nest.packs), (*around.buffers, *nest.buffers)
    )
    if not nest.regions:
        yield here
    for region in nest.regions:
        begin, end = around.parts.get(region.dim, (0, None))
        last = end if region.end is None else region.end
        part = {region.dim: (max(begin, region.begin), last)}
        yield from flatten(region.nest, replace(here, parts=around.parts | part))


def plan_of(
    kernel: Kernel, stage: int, flat: FlatNest, names: LoopNames, target: CpuTarget,
    microkernels: Sequence[Microkernel] = (),
) -> NestPlan:
    """The plan of a legal nest. Raises `Unsupported` for a stage whose accesses have no strides."""
    nest = strided_nest(kernel, kernel.stages[stage])
    dims = {name: d for d, name in enumerate(names.dims[stage])}
    spans = tuple(
        Span(size, *flat.parts.get(name, (0, None))) for size, name in zip(nest.sizes, names.dims[stage], strict=True)
    )
    most = target.lanes(widest(kernel, stage))
    lanes, loops = 1, list[ScheduledLoop]()
    outside, inside = None, list[ScheduledLoop]()
    for number, loop in enumerate(flat.loops):
        outside = len(loops) if loop.tensorize else outside
        inner = next((other.tile for other in flat.loops[number + 1 :] if other.dim == loop.dim), None) or 1
        dim = dims[loop.dim]
        cover = spans[dim].known if loop.tile is None else loop.tile
        if outside is not None:
            inside.append(ScheduledLoop(dim, loop.tile, inner, "micro", loop.label))
        if loop.vectorize and spans[dim].known == 1:
            # A dimension of one element carries no dependence, so that it may be a reduction whose terms have an order:
            # its one element is no vector, of which all lanes would be stored.
            loops.append(ScheduledLoop(dim, None, 1, "unroll", loop.label))
            continue
        if loop.vectorize:
            lanes = lanes_of(cover, most)
        loops += _expanded(loop, dim, cover, inner, lanes)
    tasks = [loop for loop in loops if loop.kind == "task"]
    rest = [loop for loop in loops if loop.kind != "task"]
    outer, carried, tile = _parts(rest, kernel.stages[stage].reductions)
    micro = None
    if outside is not None:
        parts = _parts(loops[outside:], kernel.stages[stage].reductions)
        micro = _planned(kernel.stages[stage], names.dims[stage], flat, spans, inside, parts, microkernels)
        outer, carried, tile = [loop for loop in loops[:outside] if loop.kind != "task"], [], [*parts[2]]
    vector = next((loop.dim for loop in tile if loop.kind == "vector"), None)
    if vector is not None and lanes > 1 and not kernel.stages[stage].reductions:
        nest = multiplied(nest, vector)
    packs, buffers = (
        tuple((copy, names.values.index(copy.value)) for copy in copies) for copies in (flat.packs, flat.buffers)
    )
    return NestPlan(
        stage, nest, spans, tuple(tasks), tuple(outer), tuple(carried), tuple(inside or tile), vector, lanes,
        tuple(match_reductions(kernel.stages[stage]) or ()), packs, buffers, micro=micro,
    )


def _planned(
    stage: Stage, names: Sequence[str], flat: FlatNest, spans: Sequence[Span], inside: Sequence[ScheduledLoop],
    parts: tuple[list[ScheduledLoop], list[ScheduledLoop], list[ScheduledLoop]], microkernels: Sequence[Microkernel],
) -> PlannedMicrokernel:
    """The microkernel that a legal nest names for its loops `inside`."""
    named = next(loop.tensorize for loop in flat.loops if loop.tensorize)
    kernel = next(each for each in microkernels if each.name == named)
    covers: dict[int, int | None] = {}
    for loop in inside:
        covers.setdefault(loop.dim, spans[loop.dim].known if loop.span is None else loop.span)
    meaning = meaning_of(kernel)
    match = match_part(meaning, stage, names, covers)
    assert isinstance(match, MicroMatch), match
    return PlannedMicrokernel(kernel, meaning, match, *(tuple(part) for part in parts))


def widest(kernel: Kernel, stage: int) -> int:
    """The bits of the widest type that the stage computes with; 16-bit floats are computed with as f32."""
    found = kernel.stages[stage]
    dtypes = {kernel.values[access.value].dtype for access in (*found.inputs, *found.outputs)}
    dtypes |= {scalar.dtype for scalar in found.body if scalar.op not in ("linalg.index", "arith.constant")}
    bits = [32 if dtype in ("f16", "bf16") else ITEM_BITS.get(dtype, 64) for dtype in dtypes]
    return max(bits, default=32)


def lanes_of(cover: int | None, most: int) -> int:
    """The elements of a vector for a loop over `cover` elements: `most`, or the power of two that suffices."""
    return most if cover is None else min(most, 1 << max(0, cover - 1).bit_length())


def _expanded(loop: NestLoop, dim: int, cover: int | None, step: int, lanes: int) -> list[ScheduledLoop]:
    """`loop` as one loop, or as two if only a part of it is copies or vectors."""
    if loop.vectorize:
        vector = ScheduledLoop(dim, loop.tile, 1, "vector", loop.label)
        if loop.tile is None and (cover is None or cover > _STRIPPED * lanes):
            return [
                ScheduledLoop(dim, None, lanes, "sequential", loop.label), replace(vector, span=lanes),
            ]
        return [vector]
    if loop.unroll is None or loop.is_task:
        return [ScheduledLoop(dim, loop.tile, step, "task" if loop.is_task else "sequential", loop.label)]
    copies = loop.unroll * step
    if not copies or (cover is not None and copies >= cover):
        return [ScheduledLoop(dim, loop.tile, step, "unroll", loop.label)]
    outer = ScheduledLoop(dim, loop.tile, copies, "sequential", loop.label)
    return [outer, ScheduledLoop(dim, copies, step, "unroll", loop.label)]


def _parts(
    loops: list[ScheduledLoop], reductions: Sequence[int]
) -> tuple[list[ScheduledLoop], list[ScheduledLoop], list[ScheduledLoop]]:
    """The loops outside, those of reductions around the tile, and the tile: vectors, and the copies inside the last
    other loop. Lanes run in step, so that a loop of vectors may move inwards."""
    last = max((n for n, loop in enumerate(loops) if loop.kind == "sequential"), default=-1)
    tile = [loop for n, loop in enumerate(loops) if n > last or loop.kind == "vector"]
    outer = [loop for n, loop in enumerate(loops) if n <= last and loop.kind != "vector"]
    first = len(outer)
    while first and outer[first - 1].kind == "sequential" and outer[first - 1].dim in reductions:
        first -= 1
    return outer[:first], outer[first:], tile
