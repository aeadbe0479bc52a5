"""Splits long reductions to few results into two stages, partial results in parallel and their combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage, dependencies
from motet.compiler.kernels.kernel import Value as KernelValue
from motet.compiler.kernels.reduction import Reduction, match_reduction
from motet.compiler.kernels.strides import Extent, physical_order
from motet.compiler.kernels.verify import checked

_SPLIT_AT = 1 << 16  # elements above which a reduction to few results is split


def split_reductions(kernel: Kernel, most: int = 64, most_pieces: int = 64) -> Kernel:
    """`kernel` with every long reduction to at most `most` results split into two stages: partial results of up to
    `most_pieces` pieces, and their combination. Applies only to order-independent reductions and equal pieces."""
    values = list(kernel.values)
    stages: list[Stage] = []
    for stage in kernel.stages:
        stages += _split(kernel, stage, values, most, most_pieces) or [stage]
    if len(values) == len(kernel.values):
        return kernel
    return checked(replace(kernel, values=tuple(values), stages=tuple(stages)), "split_reductions")


def _split(
    kernel: Kernel, stage: Stage, values: list[KernelValue], most: int, most_pieces: int
) -> list[Stage] | None:
    sizes = [Extent.of(size) for size in stage.sizes]
    kept = [d for d, kind in enumerate(stage.iterators) if kind == "parallel"]
    if not stage.reductions or any(size.known is None for size in sizes):
        return None
    results, points = 1, 1
    for d, size in enumerate(sizes):
        points *= size.factor
        results *= size.factor if d in kept else 1
    combiners = [match_reduction(stage, k) for k in range(len(stage.outputs))]
    if results > most or points < _SPLIT_AT or any(scalar.op == "linalg.index" for scalar in stage.body):
        return None
    if any(found is None for found in combiners):
        return None
    for along in physical_order(kernel, stage):
        pieces = max(n for n in range(1, most_pieces + 1) if sizes[along].factor % n == 0)
        if along in stage.reductions and pieces >= 4:
            return _halves(stage, values, [found for found in combiners if found], along, pieces)
    return None


def _halves(
    stage: Stage, values: list[KernelValue], found: list[Reduction], along: int, pieces: int
) -> list[Stage]:
    length = int(stage.sizes[along]) // pieces
    kept = [d for d, kind in enumerate(stage.iterators) if kind == "parallel"]
    shape = (pieces, *(stage.sizes[d] for d in kept))
    first = len(values)
    for each in found:
        values.append(KernelValue(shape, each.accumulator, "temporary", tuple(range(len(shape)))))

    def moved(entry: Affine) -> Affine:
        first = entry.coefficient(along) * length
        return Affine.of({0: first} | {d + 1: c for d, c in entry.terms}, entry.constant)

    inputs = tuple(replace(access, map=tuple(map(moved, access.map))) for access in stage.inputs)
    unit = tuple(map(Affine.dim, (0, *(d + 1 for d in kept))))
    outputs = tuple(Access(first + k, unit) for k in range(len(found)))
    body, yields = _widened(stage, found)
    sizes = (pieces, *(length if d == along else size for d, size in enumerate(stage.sizes)))
    partial = Stage(
        sizes,
        ("parallel", *stage.iterators),
        inputs,
        outputs,
        tuple(each.identity for each in found),
        body,
        yields,
        stage.source,
    )
    return [partial, _combination(stage, found, first, pieces, kept)]


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
    stage: Stage, found: Sequence[Reduction], first: int, pieces: int, kept: Sequence[int]
) -> Stage:
    """The stage that combines the partial results in values `first` and following into the stage's outputs."""
    rank = len(kept) + 1
    where = {d: position + 1 for position, d in enumerate(kept)}

    def kept_only(access: Access) -> Access:
        return replace(access, map=tuple(entry.renumber(where) for entry in access.map))

    inputs = tuple(Access(first + k, identity_map(rank)) for k in range(len(found)))
    body: list[Scalar] = []
    yields: list[int] = []
    count = 2 * len(found)
    for k, each in enumerate(found):
        term = k
        if each.accumulator != each.dtype:
            body.append(Scalar("arith.truncf", (term,), each.dtype))
            term = count + len(body) - 1
        body.append(Scalar(each.op, (len(found) + k, term), each.dtype))
        yields.append(count + len(body) - 1)
    sizes = (pieces, *(stage.sizes[d] for d in where))
    return Stage(
        sizes,
        ("reduction", *(stage.iterators[d] for d in kept)),
        inputs,
        tuple(map(kept_only, stage.outputs)),
        tuple(kept_only(init) if isinstance(init, Access) else init for init in stage.inits),
        tuple(body),
        tuple(yields),
        stage.source,
    )
