"""attention: a kernel read as softmax(f(q k)) v, over any order of dimensions.

    stage 0: v3[b, h, m, n] += q[b, m, h, d] * k[b, n, h, d]
    stage 1: v4[b, h, m, n]  = v3[b, h, m, n] * 0.125
    stage 2: v5[b, h, m] max= v4[b, h, m, n]               →    Attention(q, k, v, score, …)
    …
    stage 6: v9[b, h, m, e] += v8[b, h, m, n] * v[b, n, h, e]

What the second product reads is followed back, scalar by scalar, through all stages at once: to a quotient of powers
and their sum, powers of differences from the largest score, and scores that are any function of the first product, of
tensors read at the same point, and of positions. Casts between short floats and f32 are left out on the way: whoever
makes code for an `Attention` calculates all of it in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from motet.compiler.codegen.cpu.epilogue import Epilogue, match_epilogue
from motet.compiler.codegen.cpu.micro import match_product
from motet.compiler.codegen.kernel import Access, Affine, Kernel, Scalar, Size, Stage, substitute

FLOATS = ("f16", "bf16", "f32")
LARGEST_HEAD = 256
HIDING = -1e8  # a mask's numbers from here down leave nothing of a key beside one that has a usual score
_LOWEST = -1e30  # of numbers in place of scores, so that a factor does not make them infinite


@dataclass(frozen=True)
class Term:
    """A scalar at a point (m, n), made of `operands` (numbers of other terms). `op` is an operation of MLIR, with its
    attributes in `scalar`; or `load` (`access`), `index` (`place`, a position), `inside` (whether `place` is at least
    0), `product` (of q and k), `max`, `sum`, `all` and `any` (along keys)."""

    op: str
    operands: tuple[int, ...] = ()
    scalar: Scalar | None = None
    access: Access | None = None
    place: Affine | None = None


@dataclass(frozen=True)
class Causal:
    """Key n is seen by query m where n <= m + `offset`, and by no other. `certain` says that those it is hidden from
    may be left out: they have nothing of it."""

    offset: int
    certain: bool


@dataclass(frozen=True)
class Piece:
    """Keys from `first` to below `first + size`, with their values; both accesses are of positions among all keys."""

    first: int
    size: Size
    keys: Access
    values: Access


@dataclass(frozen=True)
class Attention:
    """All maps are over one space of loops of `sizes`. `batch` are those that q, k or v and the result run along
    together; `group` and `row` those of queries that share keys and values (`row` is along the sequence; None for one
    query); `key`, `depth` (of the first product) and `column` (of the second) are one loop each.

    Keys and values may lie in several pieces, one after the other: what is kept of earlier queries, and what is new.

    `score` is the term whose softmax is taken; `scale` a positive factor that was taken out of it. `safe` says that
    queries that see no key, whose scores are all -inf, give zeros: their softmax is replaced by that. `epilogue` is
    what is done with the result, over the dimensions of `main`, the second product, which come first in the space."""

    kernel: Kernel
    main: Stage
    epilogue: Epilogue
    sizes: tuple[Size, ...]
    batch: tuple[int, ...]
    group: tuple[int, ...]
    row: int | None
    key: int
    depth: int
    column: int
    query: Access
    pieces: tuple[Piece, ...]
    terms: tuple[Term, ...]
    score: int
    scale: float
    causal: Causal | None
    safe: bool = False

    @property
    def dtype(self) -> str:
        """Of q, k and v."""
        return self.kernel.values[self.query.value].dtype

    @property
    def whole(self) -> Piece | None:
        """All keys and values, where they are one tensor each."""
        return self.pieces[0] if len(self.pieces) == 1 else None

    @property
    def reads(self) -> bool:
        """Whether scores depend on tensors beside q and k."""
        return any(self.terms[number].op == "load" for number in self.needed())

    def needed(self) -> set[int]:
        """The terms that `score` is made of, itself counted."""
        found: set[int] = set()
        stack = [self.score]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.terms[number].operands)
        return found


def match(kernel: Kernel) -> Attention | None:
    """`kernel`, composed, as attention; None where it is something else."""
    products = [stage for stage in kernel.stages if stage.reductions and match_product(stage) is not None]
    if len(products) != 2:
        return None
    first, main = products
    if not (_is_product(kernel, first) and _is_product(kernel, main)):
        return None
    after = kernel.stages[kernel.stages.index(main) + 1 :]
    epilogue = match_epilogue(kernel, main, after)
    for side in (0, 1):
        found = _Follower(kernel, first, main, side).run() if epilogue is not None else None
        if found is not None and epilogue is not None:
            return _arranged(kernel, main, epilogue, found)
    return None


def is_attention(kernel: Kernel) -> bool:
    """Whether `kernel` is attention that is worth a kernel: heads of known sizes, which registers hold."""
    found = match(kernel)
    if found is None:
        return False
    sizes = [found.sizes[dim] for dim in (found.depth, found.column)]
    return all(isinstance(size, int) and size <= LARGEST_HEAD for size in sizes)


def _is_product(kernel: Kernel, stage: Stage) -> bool:
    product = match_product(stage)
    if product is None or product.dtype != "f32" or stage.inits not in ((0,), (0.0,)):
        return False
    if any(access.padding is not None for access in stage.inputs):
        return False
    return all(kernel.values[access.value].dtype in FLOATS for access in (*stage.inputs, *stage.outputs))


# -- following -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    follower: _Follower
    query: Access
    pieces: tuple[Piece, ...]
    score: int
    safe: bool


class _NoAttention(Exception):
    pass


@dataclass
class _Follower:
    """Terms for what input `side` of `main` reads, over the dimensions of `main` and then those that `first` sums."""

    kernel: Kernel
    first: Stage
    main: Stage
    side: int
    terms: list[Term] = field(default_factory=list[Term])
    known: dict[Term, int] = field(default_factory=dict[Term, int])
    factors: tuple[Access, ...] = ()

    def run(self) -> _Found | None:
        self.rank = len(self.main.sizes) + len(self.first.reductions)
        keys = [d for d in self.main.reductions if self.main.sizes[d] != 1]
        if len(keys) != 1:
            return None
        self.key = keys[0]
        self.made = {access.value: stage for stage in self.kernel.stages for access in stage.outputs}
        try:
            weight = self._read(self._widened(self.main.inputs[self.side]))
            weight, empty = self._unguarded(weight)
            score = self._softmax(weight)
        except _NoAttention:
            return None
        if score is None or not self.factors:
            return None
        if empty is not None and not self._sees_nothing(*empty, score):
            return None
        query, keys_ = self.factors
        if self._runs(query, self.key):
            query, keys_ = keys_, query
        if self._runs(query, self.key) or query.value in self.made:
            return None
        found = self._parts(keys_), self._parts(self._widened(self.main.inputs[1 - self.side]))
        if None in found or [part[:2] for part in found[0] or ()] != [part[:2] for part in found[1] or ()]:
            return None
        pieces = (
            Piece(first, size, keys, values)
            for (first, size, keys), (_, _, values) in zip(found[0] or (), found[1] or (), strict=True)
        )
        return _Found(self, query, tuple(pieces), score, empty is not None)

    def _parts(self, access: Access) -> list[tuple[int, Size, Access]] | None:
        """What `access` reads of keys or values, piece by piece where it was put together of several: the first
        position, how many, and the access to what was put there."""
        axes = [axis for axis, entry in enumerate(access.map) if entry.coefficients[self.key]]
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
            at = [Affine((0,) * self.rank)] * len(stage.sizes)
            part: tuple[int, Size] = (0, 0)
            for axis, entry in enumerate(stage.outputs[0].map):
                dims = [d for d, c in enumerate(entry.coefficients) if c]
                if len(dims) != 1 or entry.coefficients[dims[0]] != 1:
                    return None
                if axis == axes[0]:
                    part = (entry.constant, stage.sizes[dims[0]])
                elif entry.constant or stage.sizes[dims[0]] != shape[axis]:
                    return None
                here = access.map[axis]
                at[dims[0]] = replace(here, constant=here.constant - entry.constant)
            source = stage.inputs[0]
            if source.padding is not None:
                return None
            moved = replace(source, map=tuple(substitute(entry, at, self.rank) for entry in source.map))
            found.append((part[0], part[1], moved))
        ends = [first + size if isinstance(size, int) else -1 for first, size, _ in found]
        if [first for first, _, _ in found] != [0, *ends[:-1]] or ends[-1] != count:
            return None
        return found

    def _runs(self, access: Access, dim: int) -> bool:
        return any(entry.coefficients[dim] for entry in access.map)

    def _widened(self, access: Access) -> Access:
        """An access of `main` in the whole space."""
        more = (0,) * (self.rank - len(self.main.sizes))
        return replace(
            access, map=tuple(replace(entry, coefficients=entry.coefficients + more) for entry in access.map)
        )

    def _term(self, term: Term) -> int:
        if term not in self.known:
            self.known[term] = len(self.terms)
            self.terms.append(term)
        return self.known[term]

    def _read(self, access: Access) -> int:
        """The element that `access` reads, followed to the stage that makes it."""
        stage = self.made.get(access.value)
        if stage is None:
            return self._term(Term("load", access=access))
        if access.padding is not None:
            raise _NoAttention
        at = self._inverse(stage, access)
        if stage is self.first:
            return self._product(at)
        if stage is self.main:
            raise _NoAttention
        if stage.reductions:
            return self._along_keys(stage, at)
        number = next(k for k, output in enumerate(stage.outputs) if output.value == access.value)
        return self._body(stage, at)[stage.yields[number]]

    def _inverse(self, stage: Stage, access: Access) -> list[Affine]:
        """The dimensions of `stage` at the point that `access` reads of what it makes; zero for those it sums."""
        output = next(one for one in stage.outputs if one.value == access.value)
        zero = Affine((0,) * self.rank)
        at = [zero] * len(stage.sizes)
        for there, here in zip(output.map, access.map, strict=True):
            moving = [d for d, c in enumerate(there.coefficients) if c and stage.sizes[d] != 1]
            if not moving:
                continue
            if len(moving) > 1 or there.coefficients[moving[0]] != 1 or there.constant:
                raise _NoAttention
            at[moving[0]] = here
        return at

    def _product(self, at: list[Affine]) -> int:
        """The first product, which may be read at one point alone."""
        for number, dim in enumerate(self.first.reductions):
            at[dim] = _unit(len(self.main.sizes) + number, self.rank)
        factors = tuple(
            replace(access, map=tuple(substitute(entry, at, self.rank) for entry in access.map))
            for access in self.first.inputs
        )
        if self.factors not in ((), factors):
            raise _NoAttention
        self.factors = factors
        return self._term(Term("product"))

    def _along_keys(self, stage: Stage, at: list[Affine]) -> int:
        """The largest or the sum along all keys."""
        dims = [d for d in stage.reductions if stage.sizes[d] != 1]
        if len(dims) != 1 or len(stage.outputs) != 1 or stage.sizes[dims[0]] != self.main.sizes[self.key]:
            raise _NoAttention
        if any(entry.coefficients[self.key] for entry in at):
            raise _NoAttention
        at[dims[0]] = _unit(self.key, self.rank)
        inputs = len(stage.inputs)
        position = stage.yields[0] - inputs - 1
        last = stage.body[position] if position >= 0 else None
        if last is None or inputs not in last.operands or len(last.operands) != 2:
            raise _NoAttention
        term = last.operands[1] if last.operands[0] == inputs else last.operands[0]
        name = last.op.partition(".")[2]
        init = stage.inits[0]
        if isinstance(init, Access) or init is None:
            raise _NoAttention
        kind = {"addf": "sum", "maximumf": "max", "maxnumf": "max", "andi": "all", "ori": "any"}.get(name)
        if kind in ("all", "any"):
            begins = last.dtype == "i1" and bool(init) == (kind == "all")
        else:
            begins = init == 0 if kind == "sum" else init <= _LOWEST or (name == "maxnumf" and init != init)
        if kind is None or not begins or term == inputs:
            raise _NoAttention
        return self._term(Term(kind, (self._body(stage, at, position)[term],)))

    def _body(self, stage: Stage, at: list[Affine], without: int = -1) -> list[int]:
        """Terms for all values of a body, except operation `without`."""
        names = [
            self._read(replace(access, map=tuple(substitute(entry, at, self.rank) for entry in access.map)))
            for access in stage.inputs
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
            raise _NoAttention
        dtype = "f32" if scalar.dtype in FLOATS else scalar.dtype
        if scalar.op in ("arith.truncf", "arith.extf") and dtype == "f32":
            return operands[0]
        if scalar.op in ("arith.maximumf", "arith.maxnumf"):
            for number, other in (operands, operands[::-1]):
                if self.constant(number) == -math.inf:
                    return other
        return self._term(Term(scalar.op, operands, replace(scalar, operands=(), dtype=dtype)))

    # -- what terms are --

    def constant(self, number: int) -> float | int | None:
        term = self.terms[number]
        if term.op != "arith.constant" or term.scalar is None:
            return None
        return 0 if term.scalar.value is None else term.scalar.value

    def _unguarded(self, weight: int) -> tuple[int, tuple[int, bool] | None]:
        """What `weight` is where it is not replaced by zeros; and the condition under which it is, with whether that
        has to hold or not to."""
        term = self.terms[weight]
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for dropped, kept, holds in ((yes, no, True), (no, yes, False)):
                if self.constant(dropped) == 0:
                    return kept, (condition, holds)
        return weight, None

    def _sees_nothing(self, condition: int, holds: bool, score: int) -> bool:
        """Whether `condition` is `holds` just where all of a query's scores are -inf."""
        if (inner := self._negated(condition)) is not None:
            return self._sees_nothing(inner, not holds, score)
        term = self.terms[condition]
        if term.op == ("all" if holds else "any"):
            return self._is_hidden(term.operands[0], holds, score)
        highest = self._term(Term("max", (score,)))
        return self._is_hidden(condition, holds, highest)

    def _is_hidden(self, condition: int, holds: bool, score: int) -> bool:
        """Whether `condition` is `holds` just where `score` is -inf."""
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
        """Comparisons with numbers of Python's are of f64 at times."""
        term = self.terms[number]
        return self._before_widening(term.operands[0]) if term.op == "arith.extf" else number

    def _negated(self, condition: int) -> int | None:
        """What `condition` is the negation of."""
        term = self.terms[condition]
        if term.op == "arith.xori":
            for inner, other in (term.operands, term.operands[::-1]):
                if self.constant(other) in (1, -1):
                    return inner
        return None

    def _softmax(self, weight: int) -> int | None:
        """The term whose softmax along keys `weight` is."""
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


def _unit(dim: int, rank: int) -> Affine:
    return Affine(tuple(int(i == dim) for i in range(rank)))


# -- arranging -------------------------------------------------------------------------------------


def _arranged(kernel: Kernel, main: Stage, epilogue: Epilogue, found: _Found) -> Attention | None:
    follower = found.follower
    sizes = main.sizes + tuple(follower.first.sizes[d] for d in follower.first.reductions)
    reads = [found.query, *(access for piece in found.pieces for access in (piece.keys, piece.values))]
    used = [
        _dims(found.query), _together([piece.keys for piece in found.pieces]),
        _together([piece.values for piece in found.pieces]),
    ]
    depth = [d for d in range(len(main.sizes), len(sizes)) if sizes[d] != 1]
    parallel = [d for d, kind in enumerate(main.iterators) if kind == "parallel" and sizes[d] != 1]
    column = [d for d in parallel if d not in used[0] | used[1]]
    dtypes = {kernel.values[access.value].dtype for access in reads}
    if len(depth) != 1 or len(column) != 1 or column[0] not in used[2] or len(dtypes) != 1:
        return None
    shared = [d for d in parallel if d not in used[1] | used[2] and d not in column]
    batch = [d for d in parallel if d not in shared and d not in column]
    scorer = _Scorer(list(follower.terms), follower.known)
    wanted = scorer.compared(found.score)
    causal = scorer.causal(wanted, follower.key, shared)
    row = causal[0] if causal is not None else _innermost(follower, shared)
    score, scale = scorer.without_scale(wanted)
    return Attention(
        kernel, main, epilogue, sizes, tuple(batch), tuple(d for d in shared if d != row), row, follower.key, depth[0],
        column[0], found.query, found.pieces, tuple(scorer.terms), score, scale,
        causal[1] if causal is not None else None, found.safe,
    )


def _dims(access: Access) -> set[int]:
    return {d for entry in access.map for d, coefficient in enumerate(entry.coefficients) if coefficient}


def _together(accesses: Sequence[Access]) -> set[int]:
    return {d for access in accesses for d in _dims(access)}


def _innermost(follower: _Follower, shared: Sequence[int]) -> int | None:
    """The dimension of queries along the sequence: the last one of the scores that keys and values do not have."""
    access = follower.main.inputs[follower.side]
    order = [d for entry in access.map for d, c in enumerate(entry.coefficients) if c and d in shared]
    return order[-1] if order else None


@dataclass
class _Scorer:
    """What is known of a score: a mask that follows from positions, and a scale."""

    terms: list[Term]
    known: dict[Term, int]

    def constant(self, number: int) -> float | None:
        term = self.terms[number]
        return float(term.scalar.value or 0) if term.op == "arith.constant" and term.scalar is not None else None

    def _new(self, term: Term) -> int:
        if term not in self.known:
            self.known[term] = len(self.terms)
            self.terms.append(term)
        return self.known[term]

    # -- scales --

    def without_scale(self, number: int) -> tuple[int, float]:
        """`number` as a positive factor of another term."""
        term = self.terms[number]
        if term.op in ("arith.mulf", "arith.divf"):
            for inner, factor in (term.operands, term.operands[::-1]):
                known = self.constant(factor)
                if known is not None and 0 < known < math.inf:
                    rest, scale = self.without_scale(inner)
                    return rest, scale * known if term.op == "arith.mulf" else scale / known
                if term.op == "arith.divf":
                    break
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for kept, hidden in ((yes, no), (no, yes)):
                value = self.constant(hidden)
                if value is None:
                    continue
                rest, scale = self.without_scale(kept)
                if scale == 1:
                    continue
                constant = self._scaled(value, scale)
                pair = (rest, constant) if kept == yes else (constant, rest)
                return self._new(replace(term, operands=(condition, *pair))), scale
        if term.op == "arith.addf":
            for inner, mask in (term.operands, term.operands[::-1]):
                added = self.terms[mask]
                values = [self.constant(operand) for operand in added.operands[1:]]
                if added.op != "arith.select" or None in values:
                    continue
                rest, scale = self.without_scale(inner)
                numbers = tuple(self._scaled(value or 0.0, scale) for value in values)
                select = self._new(replace(added, operands=(added.operands[0], *numbers)))
                return self._new(replace(term, operands=(rest, select))), scale
        return number, 1.0

    def _scaled(self, value: float, scale: float) -> int:
        return self._number(value if value == -math.inf else max(value, _LOWEST) / scale)

    def _number(self, value: float) -> int:
        return self._new(Term("arith.constant", (), Scalar("arith.constant", (), "f32", value)))

    # -- masks --

    def causal(self, number: int, key: int, rows: Sequence[int]) -> tuple[int, Causal] | None:
        """The mask by positions that `number` has, with the dimension of queries that it looks at."""
        term = self.terms[number]
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for hidden, holds in ((no, True), (yes, False)):
                value = self.constant(hidden)
                seen = self._seen(condition, holds, key, rows) if value is not None and value <= HIDING else None
                if seen is not None and value is not None:
                    return seen[0], Causal(seen[1], value == -math.inf or seen[1] >= 0)
            return self.causal(yes, key, rows) if self.constant(no) is not None else None
        if term.op == "arith.addf":
            for kept, mask in (term.operands, term.operands[::-1]):
                if self.terms[mask].op == "arith.select":
                    found = self._added(mask, key, rows)
                    if found is not None:
                        return found
                found = self.causal(kept, key, rows)
                if found is not None:
                    return found
        if term.op in ("arith.mulf", "arith.divf") and (self.constant(term.operands[1]) or 0) > 0:
            return self.causal(term.operands[0], key, rows)
        return None

    def _added(self, mask: int, key: int, rows: Sequence[int]) -> tuple[int, Causal] | None:
        """A mask that is added: 0 where keys are seen, and next to nothing elsewhere."""
        condition, yes, no = self.terms[mask].operands
        for kept, hidden, holds in ((yes, no, True), (no, yes, False)):
            value = self.constant(hidden)
            if self.constant(kept) != 0 or value is None or value > HIDING:
                continue
            seen = self._seen(condition, holds, key, rows)
            if seen is not None:
                return seen[0], Causal(seen[1], value == -math.inf or seen[1] >= 0)
        return None

    def _seen(self, condition: int, holds: bool, key: int, rows: Sequence[int]) -> tuple[int, int] | None:
        """The dimension m and the number o where `condition` is `holds` only if n <= m + o."""
        term = self.terms[condition]
        if term.op == ("arith.andi" if holds else "arith.ori"):
            found = [self._seen(operand, holds, key, rows) for operand in term.operands]
            return next((one for one in found if one is not None), None)
        if term.op == "arith.xori":
            for inner, other in (term.operands, term.operands[::-1]):
                if self.constant(other) in (1, -1):
                    return self._seen(inner, not holds, key, rows)
        if term.op != "inside" or term.place is None or not holds:
            return None
        moving = {d: c for d, c in enumerate(term.place.coefficients) if c}
        row = next((d for d in moving if d in rows), None)
        return (row, term.place.constant) if row is not None and moving == {row: 1, key: -1} else None

    def compared(self, number: int) -> int:
        """`number` with comparisons of positions as such, and their negations resolved."""
        term = self.terms[number]
        operands = tuple(self.compared(operand) for operand in term.operands)
        if term.op == "arith.xori":
            for inner, other in (operands, operands[::-1]):
                place = self.terms[inner].place
                if self.constant(other) in (1, -1) and self.terms[inner].op == "inside" and place is not None:
                    return self._outside(place)
        if (truth := self._truth(term, operands)) is not None:
            return truth
        if term.op == "arith.select":  # what is hidden comes last
            place = self.terms[operands[0]].place if self.terms[operands[0]].op == "inside" else None
            yes, no = (self.constant(operand) for operand in operands[1:])
            if place is not None and yes is not None and (no is None or yes < no):
                return self._new(replace(term, operands=(self._outside(place), operands[2], operands[1])))
        predicate = term.scalar.predicate if term.op == "arith.cmpi" and term.scalar is not None else ""
        if predicate in ("sle", "slt", "sge", "sgt"):
            left, right = (self._linear(operand) for operand in operands)
            if left is not None and right is not None:
                greater = _subtract(left, right) if predicate[1] == "g" else _subtract(right, left)
                return self._new(
                    Term("inside", place=replace(greater, constant=greater.constant - int(predicate[2] == "t")))
                )
        return number if operands == term.operands else self._new(replace(term, operands=operands))

    def _truth(self, term: Term, operands: Sequence[int]) -> int | None:
        """The condition that a choice between true and false is, or a conjunction with true."""
        if term.scalar is None or term.scalar.dtype != "i1":
            return None
        values = [self.constant(operand) for operand in operands]
        if term.op == "arith.select" and None not in values[1:]:
            place = self.terms[operands[0]].place if self.terms[operands[0]].op == "inside" else None
            if values[1] and not values[2]:
                return operands[0]
            return self._outside(place) if values[2] and not values[1] and place is not None else None
        if term.op == "arith.select" and values[2] == 0:
            return self._new(replace(term, op="arith.andi", operands=(operands[0], operands[1])))
        if term.op == "arith.andi" and any(values):
            return next(other for other, value in zip(operands[::-1], values, strict=True) if value)
        return None

    def _outside(self, place: Affine) -> int:
        """Whether `place` is below 0."""
        return self._new(Term("inside", place=Affine(tuple(-c for c in place.coefficients), -place.constant - 1)))

    def _linear(self, number: int) -> Affine | None:
        """A term as a sum of positions and a number."""
        term = self.terms[number]
        if term.op == "index":
            return term.place
        if term.op in ("arith.index_cast", "arith.extsi", "arith.trunci"):
            return self._linear(term.operands[0])
        if term.op in ("arith.addi", "arith.subi"):
            left, right = (self._linear(operand) for operand in term.operands)
            if left is None or right is None:
                return None
            return _subtract(left, right if term.op == "arith.subi" else _subtract(_subtract(left, left), right))
        if term.op == "arith.constant" and term.scalar is not None:
            rank = next((len(t.place.coefficients) for t in self.terms if t.place is not None), 0)
            return Affine((0,) * rank, int(term.scalar.value or 0))
        return None


def _subtract(a: Affine, b: Affine) -> Affine:
    pairs = zip(a.coefficients, b.coefficients, strict=True)
    return Affine(tuple(x - y for x, y in pairs), a.constant - b.constant)
