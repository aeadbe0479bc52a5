"""Splits a reduction, and a sum of terms about what it decides, into pieces that are read once: moments and softmax.

    s = sum x[0 … n-1]                    s[i] = sum of piece i,  q[i] = sum (x - s[i] / k)² of piece i, of k elements
    m = s / n                        →    s = sum s[i],  m = s / n
    v = sum (x - m)²                      v = sum (q[i] + k (s[i] / k - m)²)

The formula holds for any m, and is as accurate as two passes: Chan, Golub, LeVeque: Algorithms for computing the sample
variance, 1983. `split_reductions` alone would read x a second time, after all pieces of the sum. The same for
exponentials about a maximum:

    m = max x                             m[i] = max of piece i,  s[i] = sum exp(x - m[i]) of piece i
    s = sum exp(x - m)               →    m = max m[i],  s = sum s[i] exp(m[i] - m)

An infinite m[i] is subtracted as 0, so that pieces of -inf alone sum to 0, and those with inf to inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage, dependencies
from motet.compiler.kernels.reduction import match_reduction
from motet.compiler.kernels.split_reductions import (
    ReductionCut,
    cut_of,
    kept_dimensions,
    partial_map,
    partial_value,
    parts_of,
    renumbered,
)
from motet.compiler.kernels.verify import checked

_SPLIT_AT = 1 << 14  # elements above which a pair is split: two passes are saved


def split_moments(kernel: Kernel, most: int, most_pieces: int) -> Kernel:
    """`kernel` with each pair of such reductions, of at most `most` results, in up to `most_pieces` pieces."""
    found = _find(kernel)
    cut = None if found is None else cut_of(kernel, kernel.stages[found.total], most, most_pieces, _SPLIT_AT)
    if found is None or cut is None:
        return kernel
    return split_moments(checked(_split(kernel, found, cut), "split_moments"), most, most_pieces)


@dataclass(frozen=True)
class _Differences:
    """What the terms of a sum are squares of or, if `exponential`, exponentials of: in `body`, `number - middle`, where
    `middle` is the same for all terms. `apart` is the stage of the differences, or of the terms, if it is one of its
    own."""

    apart: int | None
    body: Stage
    number: int
    middle: int
    exponential: bool


@dataclass(frozen=True)
class _Moments:
    """The stages `total`, of the sum or the maximum of the numbers, and `terms`, of a sum about it."""

    total: int
    terms: int
    about: _Differences

    @property
    def body(self) -> Stage:
        return self.about.body


def _find(kernel: Kernel) -> _Moments | None:
    for position, stage in enumerate(kernel.stages):
        about = _differences(kernel, position) if _reduces_by(stage, "arith.addf", 0) else None
        if about is None:
            continue
        for total, other in enumerate(kernel.stages[:position]):
            if (other.sizes, other.iterators) == (stage.sizes, stage.iterators) and _decides(other, about):
                return _Moments(total, position, about)
    return None


def _decides(stage: Stage, about: _Differences) -> bool:
    """Whether `stage` is the maximum of the numbers of exponentials, or the sum of those of squares."""
    fits = (
        _reduces_by(stage, "arith.maximumf") or _reduces_by(stage, "arith.maxnumf") if about.exponential
        else _reduces_by(stage, "arith.addf", 0)
    )
    term = match_reduction(stage, 0) if fits else None
    return term is not None and _form(stage, term.term) == _form(about.body, about.number)


def _reduces_by(stage: Stage, op: str, init: float | None = None) -> bool:
    """Whether `stage` reduces by `op`, from `init` if given, in the dtype of its result."""
    found = match_reduction(stage, 0) if stage.reductions and len(stage.outputs) == 1 else None
    return (
        found is not None and found.op == op and found.dtype == found.accumulator
        and (init is None or stage.inits == (init,))
    )


def _differences(kernel: Kernel, position: int) -> _Differences | None:
    """What a sum of squares or exponentials of differences is of."""
    stage = kernel.stages[position]
    found = match_reduction(stage, 0)
    if found is None:
        return None
    apart, stage, term = _opened(kernel, position, None, stage, found.term)
    square, exponential = _operation(stage, term, "arith.mulf"), _operation(stage, term, "math.exp")
    outer = exponential or square
    if outer is None or (square is not None and square.operands[0] != square.operands[1]):
        return None
    apart, stage, root = _opened(kernel, position, apart, stage, outer.operands[0])
    difference = _operation(stage, root, "arith.subf")
    if difference is None:
        return None
    number, middle = difference.operands
    moving = {d for d in stage.reductions if stage.sizes[d] != 1}
    if any(stage.inputs[i].dims & moving for i in _inputs(stage, middle)):
        return None
    return _Differences(apart, stage, number, middle, exponential is not None)


def _opened(
    kernel: Kernel, position: int, apart: int | None, stage: Stage, number: int
) -> tuple[int | None, Stage, int]:
    """`stage` and a value of its body; if this is an input that an earlier stage computes, and none is `apart` yet,
    with that stage's body in its own, and that stage."""
    if number >= len(stage.inputs) or apart is not None:
        return apart, stage, number
    value = stage.inputs[number].value
    own = next((s for s, other in enumerate(kernel.stages[:position])
                if value in [access.value for access in other.outputs]), None)
    joined = None if own is None else _joined(stage, number, kernel.stages[own])
    return (None, stage, number) if joined is None else (own, *joined)


def _operation(stage: Stage, number: int, op: str) -> Scalar | None:
    position = number - len(stage.inputs) - len(stage.outputs)
    return stage.body[position] if position >= 0 and stage.body[position].op == op else None


def _inputs(stage: Stage, number: int) -> list[int]:
    """The inputs from which a value of the body is computed."""
    count = len(stage.inputs) + len(stage.outputs)
    return [i for i in sorted(dependencies(stage.body, count, [number])) if i < len(stage.inputs)]


def _joined(stage: Stage, number: int, producer: Stage) -> tuple[Stage, int] | None:
    """`stage` with its input `number` computed in its body, and the value there; None if the producer reduces, or is
    read in another place than it writes."""
    here, there = stage.inputs[number], producer.outputs[0]
    if producer.reductions or len(producer.outputs) != 1 or here.padding is not None:
        return None
    at: dict[int, Affine] = {}
    for reading, writing in zip(here.map, there.map, strict=True):
        if writing.single is None and writing != Affine():
            return None
        if writing.single is not None:
            at[writing.single] = reading
    for d, size in enumerate(producer.sizes):
        if d not in at and size != 1:
            return None
        at.setdefault(d, Affine())
    moved = [replace(access, map=tuple(entry.substitute(at) for entry in access.map)) for access in producer.inputs]
    inputs = (*stage.inputs, *moved)
    added = _NestBody(inputs, len(stage.outputs))
    own = added.copied(producer, range(len(producer.inputs)), producer.yields[0], len(stage.inputs))
    return replace(stage, inputs=inputs, body=tuple(added.scalars)), own


def _form(stage: Stage, number: int) -> Any:
    """A value of a body as a tree of operations and reads, equal for equal values of stages over the same loops."""
    if number < len(stage.inputs):
        return stage.inputs[number]
    scalar = stage.body[number - len(stage.inputs) - len(stage.outputs)]
    return replace(scalar, operands=()), *(_form(stage, operand) for operand in scalar.operands)


class _NestBody:
    """A body of a stage that is written for given inputs and a number of outputs."""

    def __init__(self, inputs: Sequence[Access], outputs: int = 1) -> None:
        self.inputs = tuple(inputs)
        self.outputs = outputs
        self.scalars: list[Scalar] = []

    def add(self, op: str, dtype: str, *operands: int, value: float | None = None, predicate: str = "") -> int:
        self.scalars.append(Scalar(op, operands, dtype, value, predicate))
        return len(self.inputs) + self.outputs + len(self.scalars) - 1

    def copied(self, stage: Stage, used: Sequence[int], wanted: int, first: int = 0) -> int:
        """A value of the body of `stage`, whose inputs `used` are the inputs here, from `first` on."""
        count = len(stage.inputs) + len(stage.outputs)
        names = {own: first + position for position, own in enumerate(used)}
        for number in sorted(dependencies(stage.body, count, [wanted])):
            if number >= count:
                scalar = stage.body[number - count]
                self.scalars.append(replace(scalar, operands=tuple(names[i] for i in scalar.operands)))
                names[number] = len(self.inputs) + self.outputs + len(self.scalars) - 1
        return names[wanted]


def _split(kernel: Kernel, found: _Moments, cut: ReductionCut) -> Kernel:
    values = list(kernel.values)
    total, terms = kernel.stages[found.total], kernel.stages[found.terms]
    sums = parts_of(total, values, cut)
    first = len(values)
    values.append(partial_value(terms, cut, values, 0, kernel.values[terms.outputs[0].value].dtype))
    partial = [_terms(found, cut, sums.first, first, cut.length)]
    if cut.rest:
        partial.append(cut.last(_terms(found, cut, sums.first, first, cut.rest)))
    pieces = [stage for pair in zip(sums.partial, partial, strict=True) for stage in pair]
    stages: list[Stage] = []
    for position, stage in enumerate(kernel.stages):
        if position == found.total:
            stages += [*pieces, *sums.combination]
        elif position == found.terms:
            stages.append(_combination(kernel, found, cut, sums.first, first))
        elif position != found.about.apart:
            stages.append(stage)
    if found.about.apart is not None:
        _put_back(kernel, kernel.stages[found.about.apart], stages)
    return replace(kernel, values=tuple(values), stages=tuple(stages))


def _put_back(kernel: Kernel, apart: Stage, stages: list[Stage]) -> None:
    """Insert the differences before what else reads them: between the sums, they would be stored."""
    value = apart.outputs[0].value
    readers = [position for position, stage in enumerate(stages) if any(a.value == value for a in stage.inputs)]
    if readers or kernel.values[value].role == "result":
        stages.insert(readers[0] if readers else len(stages), apart)


def _elements(stage: Stage, cut: ReductionCut, length: int) -> float:
    """The terms of one piece of `length` along the dimension that is cut."""
    count = length
    for d in stage.reductions:
        if d != cut.along:
            size = stage.sizes[d]
            assert isinstance(size, int), "cut_of takes known extents alone"
            count *= size
    return float(count)


def _terms(found: _Moments, cut: ReductionCut, totals: int, result: int, length: int) -> Stage:
    """The squares of differences from the mean of each piece, or the exponentials of those from its maximum."""
    stage = found.body
    used = _inputs(stage, found.about.number)
    unit = partial_map(stage)
    inputs = (*(cut.access(stage.inputs[i]) for i in used), Access(totals, unit))
    body = _NestBody(inputs)
    dtype = stage.body[-1].dtype
    number = body.copied(stage, used, found.about.number)
    if found.about.exponential:
        size, infinite = body.add("math.absf", dtype, len(used)), body.add("arith.constant", dtype, value=math.inf)
        is_infinite = body.add("arith.cmpf", "i1", size, infinite, predicate="oeq")
        zero = body.add("arith.constant", dtype, value=0.0)
        middle = body.add("arith.select", dtype, is_infinite, zero, len(used))
        term = body.add("math.exp", dtype, body.add("arith.subf", dtype, number, middle))
    else:
        count = body.add("arith.constant", dtype, value=_elements(stage, cut, length))
        middle = body.add("arith.divf", dtype, len(used), count)
        difference = body.add("arith.subf", dtype, number, middle)
        term = body.add("arith.mulf", dtype, difference, difference)
    last = body.add("arith.addf", dtype, term, len(inputs))
    return Stage(cut.sizes(stage), ("parallel", *stage.iterators), inputs, (Access(result, unit),), (-0.0,),
                 tuple(body.scalars), (last,), stage.source)


def _combination(kernel: Kernel, found: _Moments, cut: ReductionCut, totals: int, terms: int) -> Stage:
    """The sum over all pieces."""
    stage, kept = found.body, kept_dimensions(found.body)
    where = {d: position + 1 for position, d in enumerate(kept)}
    used = _inputs(stage, found.about.middle)
    whole = tuple(map(Affine.dim, range(len(kept) + 1)))
    moved = [replace(stage.inputs[i], map=tuple(_kept(entry, where) for entry in stage.inputs[i].map)) for i in used]
    inputs = (*moved, Access(totals, whole), Access(terms, whole))
    body = _NestBody(inputs)
    dtype = stage.body[-1].dtype
    middle = body.copied(stage, used, found.about.middle)
    if found.about.exponential:
        factor = body.add("math.exp", dtype, body.add("arith.subf", dtype, len(used), middle))
        term = body.add("arith.mulf", dtype, len(used) + 1, factor)
    else:
        count = _count(body, stage, cut, dtype)
        mean = body.add("arith.divf", dtype, len(used), count)
        difference = body.add("arith.subf", dtype, mean, middle)
        between = body.add("arith.mulf", dtype, body.add("arith.mulf", dtype, difference, difference), count)
        term = body.add("arith.addf", dtype, len(used) + 1, between)
    last = body.add("arith.addf", dtype, term, len(inputs))
    outputs, inits = renumbered(kernel.stages[found.terms], where)
    sizes = (cut.count, *(stage.sizes[d] for d in kept))
    return Stage(sizes, ("reduction", *(stage.iterators[d] for d in kept)), inputs, outputs, inits,
                 tuple(body.scalars), (last,), stage.source)


def _count(body: _NestBody, stage: Stage, cut: ReductionCut, dtype: str) -> int:
    """The terms of the piece that the first dimension numbers."""
    count = body.add("arith.constant", dtype, value=_elements(stage, cut, cut.length))
    if not cut.rest:
        return count
    rest = body.add("arith.constant", dtype, value=_elements(stage, cut, cut.rest))
    piece = body.add("linalg.index", "index", value=0)
    end = body.add("arith.constant", "index", value=cut.pieces)
    return body.add("arith.select", dtype, body.add("arith.cmpi", "i1", piece, end, predicate="eq"), rest, count)


def _kept(entry: Affine, where: dict[int, int]) -> Affine:
    """An entry without dimensions of extent 1 that are summed over."""
    return Affine.of({where[d]: c for d, c in entry.terms if d in where}, entry.constant)
