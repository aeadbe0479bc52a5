"""Splits a sum, and a sum of squares about what it decides, into pieces that are read once.

    s = sum x[0 … n-1]                    s[i] = sum of piece i,  q[i] = sum (x - s[i] / k)² of piece i, of k elements
    m = s / n                        →    s = sum s[i],  m = s / n
    v = sum (x - m)²                      v = sum (q[i] + k (s[i] / k - m)²)

The formula holds for any m, and is as accurate as two passes: Chan, Golub, LeVeque: Algorithms for computing the sample
variance, 1983. `split_reductions` alone would read x a second time, after all pieces of the sum.
"""

from __future__ import annotations

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


def split_moments(kernel: Kernel, most: int, most_pieces: int) -> Kernel:
    """`kernel` with each pair of such sums, of at most `most` results, in up to `most_pieces` pieces."""
    found = _find(kernel)
    cut = None if found is None else cut_of(kernel, kernel.stages[found.total], most, most_pieces)
    if found is None or cut is None:
        return kernel
    return split_moments(checked(_split(kernel, found, cut), "split_moments"), most, most_pieces)


@dataclass(frozen=True)
class _Moments:
    """The stages `total`, of a sum, and `squares`, of the squares of differences: in `body`, the values `number` and
    `middle`, which is the same for all terms. `apart` is the stage of the differences, if it is one of its own."""

    total: int
    squares: int
    apart: int | None
    body: Stage
    number: int
    middle: int


def _find(kernel: Kernel) -> _Moments | None:
    for position, stage in enumerate(kernel.stages):
        found = _differences(kernel, position) if _is_sum(stage) else None
        if found is None:
            continue
        apart, body, number, middle = found
        for total, other in enumerate(kernel.stages[:position]):
            if _is_sum(other) and (other.sizes, other.iterators) == (stage.sizes, stage.iterators):
                term = match_reduction(other, 0)
                if term is not None and _form(other, term.term) == _form(body, number):
                    return _Moments(total, position, apart, body, number, middle)
    return None


def _is_sum(stage: Stage) -> bool:
    """Whether `stage` adds to zero, in the dtype of its result."""
    found = match_reduction(stage, 0) if stage.reductions and len(stage.outputs) == 1 else None
    return found is not None and found.op == "arith.addf" and found.dtype == found.accumulator and stage.inits == (0,)


def _differences(kernel: Kernel, position: int) -> tuple[int | None, Stage, int, int] | None:
    """For a sum of squares of differences: the stage of the differences if it is one of its own, the sum with them in
    its body, and there the number and what is subtracted."""
    stage = kernel.stages[position]
    term = match_reduction(stage, 0)
    square = None if term is None else _operation(stage, term.term, "arith.mulf")
    if square is None or square.operands[0] != square.operands[1]:
        return None
    root, apart = square.operands[0], None
    if root < len(stage.inputs):
        apart = next((s for s, other in enumerate(kernel.stages[:position])
                      if stage.inputs[root].value in [access.value for access in other.outputs]), None)
        joined = None if apart is None else _joined(stage, root, kernel.stages[apart])
        if joined is None:
            return None
        stage, root = joined
    difference = _operation(stage, root, "arith.subf")
    if difference is None:
        return None
    number, middle = difference.operands
    moving = {d for d in stage.reductions if stage.sizes[d] != 1}
    if any(stage.inputs[i].dims & moving for i in _inputs(stage, middle)):
        return None
    return apart, stage, number, middle


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
    total, squares = kernel.stages[found.total], kernel.stages[found.squares]
    sums = parts_of(total, values, cut)
    first = len(values)
    values.append(partial_value(squares, cut, values, 0, kernel.values[squares.outputs[0].value].dtype))
    partial = [_squares(found, cut, sums.first, first, cut.length)]
    if cut.rest:
        partial.append(cut.last(_squares(found, cut, sums.first, first, cut.rest)))
    pieces = [stage for pair in zip(sums.partial, partial, strict=True) for stage in pair]
    stages: list[Stage] = []
    for position, stage in enumerate(kernel.stages):
        if position == found.total:
            stages += [*pieces, *sums.combination]
        elif position == found.squares:
            stages.append(_combination(kernel, found, cut, sums.first, first))
        elif position != found.apart:
            stages.append(stage)
    if found.apart is not None:
        _put_back(kernel, kernel.stages[found.apart], stages)
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


def _squares(found: _Moments, cut: ReductionCut, sums: int, result: int, length: int) -> Stage:
    """The squares of differences from the mean of each piece."""
    stage = found.body
    used = _inputs(stage, found.number)
    unit = partial_map(stage)
    inputs = (*(cut.access(stage.inputs[i]) for i in used), Access(sums, unit))
    body = _NestBody(inputs)
    dtype = stage.body[-1].dtype
    number = body.copied(stage, used, found.number)
    count = body.add("arith.constant", dtype, value=_elements(stage, cut, length))
    mean = body.add("arith.divf", dtype, len(used), count)
    difference = body.add("arith.subf", dtype, number, mean)
    square = body.add("arith.mulf", dtype, difference, difference)
    last = body.add("arith.addf", dtype, square, len(inputs))
    return Stage(cut.sizes(stage), ("parallel", *stage.iterators), inputs, (Access(result, unit),), (-0.0,),
                 tuple(body.scalars), (last,), stage.source)


def _combination(kernel: Kernel, found: _Moments, cut: ReductionCut, sums: int, squares: int) -> Stage:
    """The sum over all pieces."""
    stage, kept = found.body, kept_dimensions(found.body)
    where = {d: position + 1 for position, d in enumerate(kept)}
    used = _inputs(stage, found.middle)
    whole = tuple(map(Affine.dim, range(len(kept) + 1)))
    moved = [replace(stage.inputs[i], map=tuple(_kept(entry, where) for entry in stage.inputs[i].map)) for i in used]
    inputs = (*moved, Access(sums, whole), Access(squares, whole))
    body = _NestBody(inputs)
    dtype = stage.body[-1].dtype
    middle = body.copied(stage, used, found.middle)
    count = body.add("arith.constant", dtype, value=_elements(stage, cut, cut.length))
    if cut.rest:
        rest = body.add("arith.constant", dtype, value=_elements(stage, cut, cut.rest))
        piece = body.add("linalg.index", "index", value=0)
        end = body.add("arith.constant", "index", value=cut.pieces)
        count = body.add("arith.select", dtype, body.add("arith.cmpi", "i1", piece, end, predicate="eq"), rest, count)
    mean = body.add("arith.divf", dtype, len(used), count)
    difference = body.add("arith.subf", dtype, mean, middle)
    between = body.add("arith.mulf", dtype, body.add("arith.mulf", dtype, difference, difference), count)
    term = body.add("arith.addf", dtype, len(used) + 1, between)
    last = body.add("arith.addf", dtype, term, len(inputs))
    outputs, inits = renumbered(kernel.stages[found.squares], where)
    sizes = (cut.count, *(stage.sizes[d] for d in kept))
    return Stage(sizes, ("reduction", *(stage.iterators[d] for d in kept)), inputs, outputs, inits,
                 tuple(body.scalars), (last,), stage.source)


def _kept(entry: Affine, where: dict[int, int]) -> Affine:
    """An entry without dimensions of extent 1 that are summed over."""
    return Affine.of({where[d]: c for d, c in entry.terms if d in where}, entry.constant)
