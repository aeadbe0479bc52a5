"""Splits long reductions to few results into stages: partial results of pieces in parallel, and their combination.

    sum x[0 … 100002]    →    p[i] = sum x[1568 i … 1568 i + 1567],  i = 0 … 62
                              p[63] = sum x[98784 … 100002]
                              sum p[0 … 63]

Pieces are equal if the extent has a suitable divisor. Otherwise the last one is shorter, and a stage of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage, dependencies
from motet.compiler.kernels.kernel import Value as KernelValue
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import Extent, physical_order
from motet.compiler.kernels.verify import checked

_SPLIT_AT = 1 << 16  # elements above which a reduction to few results is split
_LEAST_PIECES = 4
_LONG = 256  # elements of a piece from which on it is a multiple of `_STEP`, so that vectors keep their alignment
_STEP = 16


def split_reductions(kernel: Kernel, most: int = 64, most_pieces: int = 64) -> Kernel:
    """`kernel` with every long reduction to at most `most` results split into stages: partial results of up to
    `most_pieces` pieces, and their combination. Applies only to order-independent reductions."""
    values = list(kernel.values)
    stages: list[Stage] = []
    parts: set[Stage] = set()
    movable = _reads_what_one_stage_writes(kernel.stages)
    for stage in kernel.stages:
        cut = cut_of(kernel, stage, most, most_pieces)
        if cut is None:
            stages.append(stage)
            continue
        own = parts_of(stage, values, cut)
        for part in own.partial:
            stages.insert(_place(part, stages, parts) if movable else len(stages), part)
            parts.add(part)
        stages += own.combination
    if len(values) == len(kernel.values):
        return kernel
    return checked(replace(kernel, values=tuple(values), stages=tuple(stages)), "split_reductions")


def _reads_what_one_stage_writes(stages: Sequence[Stage]) -> bool:
    """Whether every value that stages read is written by at most one of them, before."""
    writers = Counter(access.value for stage in stages for access in stage.outputs)
    read = {access.value for stage in stages for access in (*stage.inputs, *stage.inits) if isinstance(access, Access)}
    return all(writers[value] <= 1 for value in read)


def _place(part: Stage, stages: Sequence[Stage], parts: Collection[Stage]) -> int:
    """Where `part` follows parts of independent reductions, best those of equal extents, after what it reads."""
    read = {access.value for access in part.inputs}
    ready = [n + 1 for n, other in enumerate(stages) if any(access.value in read for access in other.outputs)]
    first = max(ready, default=0)
    end = first
    while end < len(stages) and stages[end] in parts:
        end += 1
    return max((n + 1 for n in range(first, end) if stages[n].sizes == part.sizes), default=end)


@dataclass(frozen=True)
class ReductionCut:
    """The dimension `along` of a stage as `pieces` of `length` and a last, shorter piece of `rest`, which may be 0."""

    along: int
    pieces: int
    length: int
    rest: int

    @staticmethod
    def of(along: int, extent: int, most: int) -> ReductionCut:
        """The most equal pieces if they are at least half of `most`, else pieces with a shorter last one."""
        equal = max(n for n in range(1, most + 1) if extent % n == 0)
        if equal >= _LEAST_PIECES and 2 * equal >= min(most, extent):
            return ReductionCut(along, equal, extent // equal, 0)
        length = -(-extent // most)
        if length >= _LONG:
            length = -(-length // _STEP) * _STEP
        return ReductionCut(along, extent // length, length, extent % length)

    @property
    def count(self) -> int:
        return self.pieces + (self.rest > 0)

    def access(self, access: Access) -> Access:
        """An access of the stage, over the number of the piece and then the stage's dimensions."""

        def moved(entry: Affine) -> Affine:
            first = entry.coefficient(self.along) * self.length
            return Affine.of({0: first} | {d + 1: c for d, c in entry.terms}, entry.constant)

        return replace(access, map=tuple(map(moved, access.map)))

    def sizes(self, stage: Stage) -> tuple[Size, ...]:
        """The extents of the stage for all pieces but a shorter last one."""
        return self.pieces, *(self.length if d == self.along else size for d, size in enumerate(stage.sizes))

    def last(self, partial: Stage) -> Stage:
        """The stage of the last, shorter piece: `partial` at piece `pieces`, without the dimension of pieces."""

        def at_end(entry: Affine) -> Affine:
            terms = {d - 1: c for d, c in entry.terms if d}
            return Affine.of(terms, entry.constant + entry.coefficient(0) * self.pieces)

        def moved(access: Access) -> Access:
            return replace(access, map=tuple(map(at_end, access.map)))

        return replace(
            partial,
            sizes=tuple(self.rest if d == self.along else size for d, size in enumerate(partial.sizes[1:])),
            iterators=partial.iterators[1:],
            inputs=tuple(map(moved, partial.inputs)),
            outputs=tuple(map(moved, partial.outputs)),
        )


@dataclass(frozen=True)
class Parts:
    """The stages of partial results, the values `first` and those after it, and the stages that combine them."""

    partial: Sequence[Stage]
    combination: Sequence[Stage]
    first: int


def cut_of(
    kernel: Kernel, stage: Stage, most: int, most_pieces: int, least: int = _SPLIT_AT
) -> ReductionCut | None:
    """How to cut a long reduction, of at least `least` elements to at most `most` results, into at most `most_pieces`
    pieces; None if `stage` is none, or cannot be cut."""
    sizes = [Extent.of(size) for size in stage.sizes]
    kept = kept_dimensions(stage)
    if not stage.reductions or any(size.known is None for size in sizes):
        return None
    results, points = 1, 1
    for d, size in enumerate(sizes):
        points *= size.factor
        results *= size.factor if d in kept else 1
    if results > most or points < least or any(scalar.op == "linalg.index" for scalar in stage.body):
        return None
    if match_reductions(stage) is None:
        return None
    for along in physical_order(kernel, stage):
        cut = ReductionCut.of(along, sizes[along].factor, most_pieces)
        if along in stage.reductions and cut.count >= _LEAST_PIECES:
            return cut
    return None


def kept_dimensions(stage: Stage) -> list[int]:
    return [d for d, kind in enumerate(stage.iterators) if kind == "parallel"]


def parts_of(stage: Stage, values: list[KernelValue], cut: ReductionCut) -> Parts:
    """The stages of a reduction; their partial results are added to `values`."""
    found = match_reductions(stage) or []
    kept = kept_dimensions(stage)
    first = len(values)
    values += [partial_value(stage, cut, values, k, each.accumulator) for k, each in enumerate(found)]
    unit = partial_map(stage)
    body, yields = _widened(stage, found)
    partial = Stage(
        cut.sizes(stage), ("parallel", *stage.iterators), tuple(map(cut.access, stage.inputs)),
        tuple(Access(first + k, unit) for k in range(len(found))), tuple(each.identity for each in found),
        body, yields, stage.source,
    )
    last = [cut.last(partial)] if cut.rest else []
    return Parts([partial, *last], _combination(stage, values, found, cut.count, kept), first)


def partial_value(
    stage: Stage, cut: ReductionCut, values: Sequence[KernelValue], output: int, dtype: str
) -> KernelValue:
    """The partial results of all pieces for one output, piece by piece, each as that output lies."""
    kept, access = kept_dimensions(stage), stage.outputs[output]
    order = [0]
    for axis in values[access.value].order:
        order += [kept.index(d) + 1 for d in access.map[axis].dims]
    order += [position for position in range(len(kept) + 1) if position not in order]
    return KernelValue((cut.count, *(stage.sizes[d] for d in kept)), dtype, "temporary", tuple(order))


def partial_map(stage: Stage) -> tuple[Affine, ...]:
    """The map of partial results, over the number of the piece and then the stage's dimensions."""
    return tuple(map(Affine.dim, (0, *(d + 1 for d in kept_dimensions(stage)))))


def _widened(stage: Stage, found: Sequence[Reduction]) -> tuple[tuple[Scalar, ...], tuple[int, ...]]:
    """The stage's terms, reduced in the accumulators' dtypes."""
    count = len(stage.inputs) + len(stage.outputs)
    needed = sorted(dependencies(stage.body, count, [each.term for each in found]) - set(range(count)))
    moved = {i: i for i in range(count)} | {old: count + new for new, old in enumerate(needed)}
    body: list[Scalar] = []
    for old in needed:
        scalar = stage.body[old - count]
        body.append(replace(scalar, operands=tuple(moved[i] for i in scalar.operands)))
    yields: list[int] = []
    for k, each in enumerate(found):
        term = moved[each.term]
        if each.accumulator != each.dtype:
            body.append(Scalar("arith.extf", (term,), each.accumulator))
            term = count + len(body) - 1
        body.append(Scalar(each.op, (len(stage.inputs) + k, term), each.accumulator))
        yields.append(count + len(body) - 1)
    return tuple(body), tuple(yields)


def _combination(
    stage: Stage, values: list[KernelValue], found: Sequence[Reduction], pieces: int, kept: Sequence[int]
) -> list[Stage]:
    """The stages that combine the partial results, the last of `values`, into the stage's outputs. Accumulators of
    another dtype than the outputs' are combined in theirs, and rounded once, by a second stage."""
    first = len(values) - len(found)
    where = {d: position + 1 for position, d in enumerate(kept)}
    sizes = tuple(stage.sizes[d] for d in kept)
    inputs = tuple(Access(first + k, identity_map(len(kept) + 1)) for k in range(len(found)))
    direct = all(each.accumulator == each.dtype for each in found)
    outputs, inits = renumbered(stage, where) if direct else _totals(values, found, sizes)
    body = tuple(Scalar(each.op, (len(found) + k, k), each.accumulator) for k, each in enumerate(found))
    yields = tuple(range(2 * len(found), 3 * len(found)))
    combined = Stage(
        (pieces, *sizes), ("reduction", *(stage.iterators[d] for d in kept)),
        inputs, outputs, inits, body, yields, stage.source,
    )  # fmt: skip
    return [combined] if direct else [combined, _rounding(stage, found, kept, outputs[0].value)]


Accesses = tuple[tuple[Access, ...], tuple[Access | float | int | None, ...]]


def renumbered(stage: Stage, where: Mapping[int, int]) -> Accesses:
    """The outputs and inits of `stage` over dimensions that `where` renumbers."""

    def moved(access: Access) -> Access:
        return replace(access, map=tuple(entry.renumber(where) for entry in access.map))

    return (
        tuple(map(moved, stage.outputs)),
        tuple(moved(init) if isinstance(init, Access) else init for init in stage.inits),
    )


def _totals(values: list[KernelValue], found: Sequence[Reduction], sizes: Sequence[Size]) -> Accesses:
    """New values for the combined results in the accumulators' dtypes."""
    rank, first = len(sizes), len(values)
    values += [KernelValue(tuple(sizes), each.accumulator, "temporary", tuple(range(rank))) for each in found]
    unit = tuple(Affine.dim(d + 1) for d in range(rank))
    return tuple(Access(first + k, unit) for k in range(len(found))), tuple(each.identity for each in found)


def _rounding(stage: Stage, found: Sequence[Reduction], kept: Sequence[int], first: int) -> Stage:
    """The stage that adds the totals, values from `first` on, to the initial values, and rounds."""
    count = len(found)
    body: list[Scalar] = []
    yields: list[int] = []

    def add(op: str, operands: tuple[int, ...], dtype: str) -> int:
        body.append(Scalar(op, operands, dtype))
        return 2 * count + len(body) - 1

    for k, each in enumerate(found):
        exact = each.accumulator == each.dtype
        begin = count + k if exact else add("arith.extf", (count + k,), each.accumulator)
        total = add(each.op, (begin, k), each.accumulator)
        yields.append(total if exact else add("arith.truncf", (total,), each.dtype))
    outputs, inits = renumbered(stage, {d: position for position, d in enumerate(kept)})
    inputs = tuple(Access(first + k, identity_map(len(kept))) for k in range(count))
    sizes = tuple(stage.sizes[d] for d in kept)
    return Stage(
        sizes, ("parallel",) * len(kept), inputs, outputs, inits, tuple(body), tuple(yields), stage.source
    )
