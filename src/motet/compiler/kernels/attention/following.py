"""Follows the inputs of the second product of attention back, scalar by scalar, through all stages.

They are a quotient of exponentials and their sum, exponentials of differences from the largest score, and scores, which
are any function of the first product, of tensors read at the same point, and of positions. Casts between f32 and floats
of 16 bits are dropped: code generators compute all of an `Attention` in f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from motet.compiler.ir.affine import Affine, compose_maps
from motet.compiler.kernels.attention.description import FLOATS, LOWEST, KeyPiece, Term
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage


@dataclass(frozen=True)
class Found:
    follower: Follower
    query: Access
    pieces: tuple[KeyPiece, ...]
    score: int
    safe: bool
    repairs: bool


class NoAttention(Exception):
    pass


@dataclass
class Follower:
    """Builds terms for what input `side` of `main` reads, over the dimensions of `main` and then those that `first`
    sums."""

    kernel: Kernel
    first: Stage
    main: Stage
    side: int
    terms: list[Term] = field(default_factory=list[Term])
    known: dict[Term, int] = field(default_factory=dict[Term, int])
    factors: tuple[Access, ...] = ()

    def run(self) -> Found | None:
        keys = [d for d in self.main.reductions if self.main.sizes[d] != 1]
        if len(keys) != 1:
            return None
        self.key = keys[0]
        self.dtype = "f64" if self.kernel.values[self.main.outputs[0].value].dtype == "f64" else "f32"
        self.made = {access.value: stage for stage in self.kernel.stages for access in stage.outputs}
        try:
            weight = self._read(self.main.inputs[self.side])
            weight, empty = self._unguarded(weight)
            score = self._softmax(weight)
        except NoAttention:
            return None
        if score is None or not self.factors:
            return None
        repairs = empty is not None and self._is_no_number(*empty, weight)
        if empty is not None and not repairs and not self._sees_nothing(*empty, score):
            return None
        query, keys_ = self.factors
        if self._runs(query, self.key):
            query, keys_ = keys_, query
        if self._runs(query, self.key) or query.value in self.made:
            return None
        found = self._parts(keys_), self._parts(self.main.inputs[1 - self.side])
        if None in found or [part[:2] for part in found[0] or ()] != [part[:2] for part in found[1] or ()]:
            return None
        pieces = (
            KeyPiece(first, size, keys, values)
            for (first, size, keys), (_, _, values) in zip(found[0] or (), found[1] or (), strict=True)
        )
        return Found(self, query, tuple(pieces), score, empty is not None and not repairs, repairs)

    def _parts(self, access: Access) -> list[tuple[int, Size, Access]] | None:
        """The pieces of a concatenation of keys or values that `access` reads: the first position, the number of
        positions, and the access to the piece's source."""
        axes = [axis for axis, entry in enumerate(access.map) if entry.coefficient(self.key)]
        if len(axes) != 1 or access.map[axes[0]].single != self.key:
            return None
        count = self.main.sizes[self.key]
        if access.value not in self.made:
            return [(0, count, access)]
        shape = self.kernel.values[access.value].shape
        found: list[tuple[int, Size, Access]] = []
        for stage in self.kernel.stages:
            if all(output.value != access.value for output in stage.outputs):
                continue
            if stage.body or stage.reductions or len(stage.inputs) != 1 or stage.inputs[0].value in self.made:
                return None
            at = [Affine()] * len(stage.sizes)
            part: tuple[int, Size] = (0, 0)
            for axis, entry in enumerate(stage.outputs[0].map):
                dim = entry.plus(-entry.constant).single
                if dim is None:
                    return None
                if axis == axes[0]:
                    part = (entry.constant, stage.sizes[dim])
                elif entry.constant or stage.sizes[dim] != shape[axis]:
                    return None
                at[dim] = access.map[axis].plus(-entry.constant)
            source = stage.inputs[0]
            if source.padding is not None:
                return None
            found.append((part[0], part[1], replace(source, map=compose_maps(source.map, at))))
        ends = [first + size if isinstance(size, int) else -1 for first, size, _ in found]
        if [first for first, _, _ in found] != [0, *ends[:-1]] or ends[-1] != count:
            return None
        return found

    def _runs(self, access: Access, dim: int) -> bool:
        return any(entry.coefficient(dim) for entry in access.map)

    def _term(self, term: Term) -> int:
        if term not in self.known:
            self.known[term] = len(self.terms)
            self.terms.append(term)
        return self.known[term]

    def _read(self, access: Access) -> int:
        """The term for the element that `access` reads, followed to the stage that computes it."""
        stage = self.made.get(access.value)
        if stage is None:
            return self._term(Term("load", access=access))
        if access.padding is not None:
            raise NoAttention
        at = self._inverse(stage, access)
        if stage is self.first:
            return self._product(at)
        if stage is self.main:
            raise NoAttention
        if stage.reductions:
            return self._along_keys(stage, at)
        number = next(k for k, output in enumerate(stage.outputs) if output.value == access.value)
        return self._body(stage, at)[stage.yields[number]]

    def _inverse(self, stage: Stage, access: Access) -> list[Affine]:
        """The dimensions of `stage` at the point whose result `access` reads; zero for reduction dimensions."""
        output = next(one for one in stage.outputs if one.value == access.value)
        at = [Affine()] * len(stage.sizes)
        for there, here in zip(output.map, access.map, strict=True):
            moving = [d for d, _ in there.terms if stage.sizes[d] != 1]
            if not moving:
                continue
            if len(moving) > 1 or there.coefficient(moving[0]) != 1 or there.constant:
                raise NoAttention
            at[moving[0]] = here
        return at

    def _product(self, at: list[Affine]) -> int:
        """The first product, which may be read at one point only."""
        for number, dim in enumerate(self.first.reductions):
            at[dim] = Affine.dim(len(self.main.sizes) + number)
        read = [self._unscaled(replace(access, map=compose_maps(access.map, at))) for access in self.first.inputs]
        factors = tuple(access for access, _ in read)
        if self.factors not in ((), factors):
            raise NoAttention
        self.factors = factors
        product = self._term(Term("product"))
        scale = math.prod(factor for _, factor in read)
        if scale == 1:
            return product
        number = self._term(Term("arith.constant", (), Scalar("arith.constant", (), self.dtype, scale)))
        return self._term(Term("arith.mulf", (product, number), Scalar("arith.mulf", (), self.dtype)))

    def _unscaled(self, access: Access) -> tuple[Access, float]:
        """`access` before multiplications by numbers, and their product."""
        scale = 1.0
        while (stage := self.made.get(access.value)) is not None and (found := _scaling(stage)) is not None:
            number, factor = found
            if access.padding is not None or stage.inputs[number].padding is not None:
                break
            source = stage.inputs[number]
            access = replace(source, map=compose_maps(source.map, self._inverse(stage, access)))
            scale *= factor
        return access, scale

    def _along_keys(self, stage: Stage, at: list[Affine]) -> int:
        """The maximum or the sum along all keys."""
        dims = [d for d in stage.reductions if stage.sizes[d] != 1]
        if len(dims) != 1 or len(stage.outputs) != 1 or stage.sizes[dims[0]] != self.main.sizes[self.key]:
            raise NoAttention
        if any(entry.coefficient(self.key) for entry in at):
            raise NoAttention
        at[dims[0]] = Affine.dim(self.key)
        inputs = len(stage.inputs)
        position = stage.yields[0] - inputs - 1
        last = stage.body[position] if position >= 0 else None
        if last is None or inputs not in last.operands or len(last.operands) != 2:
            raise NoAttention
        term = last.operands[1] if last.operands[0] == inputs else last.operands[0]
        name = last.op.partition(".")[2]
        init = stage.inits[0]
        if isinstance(init, Access) or init is None:
            raise NoAttention
        kind = {"addf": "sum", "maximumf": "max", "maxnumf": "max", "andi": "all", "ori": "any"}.get(name)
        if kind in ("all", "any"):
            begins = last.dtype == "i1" and bool(init) == (kind == "all")
        else:
            begins = init == 0 if kind == "sum" else init <= LOWEST or (name == "maxnumf" and init != init)
        if kind is None or not begins or term == inputs:
            raise NoAttention
        return self._term(Term(kind, (self._body(stage, at, position)[term],)))

    def _body(self, stage: Stage, at: list[Affine], without: int = -1) -> list[int]:
        """Terms for all values of a body, except operation `without`."""
        names = [
            self._read(replace(access, map=compose_maps(access.map, at))) for access in stage.inputs
        ]
        names += [-1] * len(stage.outputs)
        for position, scalar in enumerate(stage.body):
            if position == without:
                names.append(-1)
            elif scalar.op == "linalg.index":
                names.append(self._term(Term("index", place=at[int(scalar.value or 0)])))
            else:
                names.append(self._scalar(scalar, tuple(names[o] for o in scalar.operands)))
        return names

    def _scalar(self, scalar: Scalar, operands: tuple[int, ...]) -> int:
        if -1 in operands or scalar.op == "tensor.extract":
            raise NoAttention
        dtype = "f32" if scalar.dtype in FLOATS else scalar.dtype
        if scalar.op in ("arith.truncf", "arith.extf") and dtype == self.dtype == "f32":
            if not self._is_wide(operands[0]):
                return operands[0]
            if (number := self.constant(operands[0])) is not None:
                rounded = float(np.float32(number))
                return self._term(Term("arith.constant", (), Scalar("arith.constant", (), "f32", rounded)))
        if scalar.op in ("arith.maximumf", "arith.maxnumf"):
            for number, other in (operands, operands[::-1]):
                if self.constant(number) == -math.inf:
                    return other
        return self._term(Term(scalar.op, operands, replace(scalar, operands=(), dtype=dtype)))

    # -- interpretation of terms --

    def _is_wide(self, number: int) -> bool:
        """Whether a term is of f64."""
        term = self.terms[number]
        if term.access is not None:
            return self.kernel.values[term.access.value].dtype == "f64"
        return term.scalar is not None and term.scalar.dtype == "f64"

    def constant(self, number: int) -> float | int | None:
        term = self.terms[number]
        if term.op != "arith.constant" or term.scalar is None:
            return None
        return 0 if term.scalar.value is None else term.scalar.value

    def _unguarded(self, weight: int) -> tuple[int, tuple[int, bool] | None]:
        """`weight` without its replacement by zeros, and the condition of the replacement, with whether it must
        hold."""
        term = self.terms[weight]
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for dropped, kept, holds in ((yes, no, True), (no, yes, False)):
                if self.constant(dropped) == 0:
                    return kept, (condition, holds)
        return weight, None

    def _is_no_number(self, condition: int, holds: bool, weight: int) -> bool:
        """Whether `condition` is `holds` exactly if `weight` is NaN."""
        if (inner := self._negated(condition)) is not None:
            return self._is_no_number(inner, not holds, weight)
        term = self.terms[condition]
        predicate = term.scalar.predicate if term.op == "arith.cmpf" and term.scalar is not None else ""
        return predicate in (("une", "uno") if holds else ("oeq", "ord")) and term.operands == (weight, weight)

    def _sees_nothing(self, condition: int, holds: bool, score: int) -> bool:
        """Whether `condition` is `holds` exactly if all of a query's scores are -inf."""
        if (inner := self._negated(condition)) is not None:
            return self._sees_nothing(inner, not holds, score)
        term = self.terms[condition]
        if term.op == ("all" if holds else "any"):
            return self._is_hidden(term.operands[0], holds, score)
        highest = self._term(Term("max", (score,)))
        return self._is_hidden(condition, holds, highest)

    def _is_hidden(self, condition: int, holds: bool, score: int) -> bool:
        """Whether `condition` is `holds` exactly if `score` is -inf."""
        if (inner := self._negated(condition)) is not None:
            return self._is_hidden(inner, not holds, score)
        term = self.terms[condition]
        predicate = term.scalar.predicate if term.op == "arith.cmpf" and term.scalar is not None else ""
        if predicate not in (("oeq",) if holds else ("une",)):
            return False
        left, right = map(self._before_widening, term.operands)
        return (left == score and self.constant(right) == -math.inf) or (
            right == score and self.constant(left) == -math.inf
        )

    def _before_widening(self, number: int) -> int:
        """`number` before a cast to f64, in which comparisons with Python's numbers are made sometimes."""
        term = self.terms[number]
        return self._before_widening(term.operands[0]) if term.op == "arith.extf" else number

    def _negated(self, condition: int) -> int | None:
        """The operand of a negation; None if `condition` is not one."""
        term = self.terms[condition]
        if term.op == "arith.xori":
            for inner, other in (term.operands, term.operands[::-1]):
                if self.constant(other) in (1, -1):
                    return inner
        return None

    def _softmax(self, weight: int) -> int | None:
        """The term whose softmax along keys `weight` is; None if it is not one."""
        term = self.terms[weight]
        if term.op == "arith.mulf":
            for power, inverse in (term.operands, term.operands[::-1]):
                below = self.terms[inverse]
                if below.op == "arith.divf" and self.constant(below.operands[0]) == 1:
                    return self._powers(power, below.operands[1])
        return self._powers(*term.operands) if term.op == "arith.divf" else None

    def _powers(self, power: int, total: int) -> int | None:
        sums, raised = self.terms[total], self.terms[power]
        if sums.op != "sum" or sums.operands != (power,) or raised.op != "math.exp":
            return None
        difference = self.terms[raised.operands[0]]
        if difference.op != "arith.subf":
            return None
        score, largest = difference.operands
        highest = self.terms[largest]
        return score if highest.op == "max" and highest.operands == (score,) else None


def _scaling(stage: Stage) -> tuple[int, float] | None:
    """The input that `stage` multiplies by a number, and the number; None if it does something else."""
    if stage.reductions or len(stage.outputs) != 1:
        return None
    count = len(stage.inputs) + len(stage.outputs)
    last = stage.body[stage.yields[0] - count] if stage.yields[0] >= count else None
    if last is None or last.op not in ("arith.mulf", "arith.divf"):
        return None
    for place, other in (last.operands, last.operands[::-1]):
        constant = stage.body[other - count] if other >= count else None
        if place < len(stage.inputs) and constant is not None and constant.op == "arith.constant":
            value = float(constant.value or 0)
            usable = 0 < abs(value) < math.inf
            return (place, value if last.op == "arith.mulf" else 1 / value) if usable else None
        if last.op == "arith.divf":
            break
    return None
