"""Reads a loop nest of `scf.for` over memrefs into statements (`nest.py`).

The stores are found by walking the loops; the value of each is followed back to the loads that it depends on. A loop
with results is a reduction if every result is its initial value combined with terms. Bounds with max and min
(`arith.maxsi`, `arith.minsi`) and `scf.if` become conditions on a box of iterations.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from motet.compiler.frontends.raising.nest import (
    Compute,
    Index,
    Load,
    LoopNest,
    NestScalar,
    Node,
    Reduce,
    Statement,
    Unraisable,
)
from motet.compiler.frontends.raising.sizes import Sizes, is_known
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine

# Associative and commutative operations (floating-point ones up to rounding).
COMBINERS = frozenset({
    "arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
    "arith.addi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.andi", "arith.ori",
    "arith.xori",
})  # fmt: skip
_READ_WHERE_USED = ("arith.", "math.", "memref.load", "memref.dim", "scf.if", "scf.yield")
_LINEAR = ("arith.addi", "arith.subi", "arith.muli")
_CASTS = ("arith.index_cast", "arith.extsi")


def read_nest(loop: ir.Operation, sizes: Sizes) -> LoopNest:
    """The statements of `loop`, an `scf.for` without results; `sizes` holds placeholders of unknown sizes. Raises
    Unraisable."""
    return _NestReader(loop, sizes).run()


class _NestReader:
    def __init__(self, loop: ir.Operation, sizes: Sizes) -> None:
        self.loop = loop
        self.sizes = sizes
        self.extents: dict[int, int] = {}
        self.counters: dict[ir.Value, tuple[Affine, int, tuple[Affine, ...]]] = {}
        self.statements: list[Statement] = []
        self.nodes: dict[ir.Value, Node] = {}
        self.load_places: dict[ir.Value, int] = {}
        self.store_places: list[int] = []
        self._count_places()

    def run(self) -> LoopNest:
        self._loop(self.loop, (), ())
        if not self.statements:
            raise Unraisable("nothing is stored")
        return LoopNest(self.extents, self.statements)

    def _count_places(self) -> None:
        place = 0

        def visit(op: ir.Operation) -> ir.WalkResult:
            nonlocal place
            operation = op.operation
            if operation.name == "memref.load":
                self.load_places[operation.results[0]] = place = place + 1
            elif operation.name == "memref.store":
                place += 1
                self.store_places.append(place)
            return ir.WalkResult.ADVANCE

        self.loop.walk(visit)

    # -- loops and conditions --------------------------------------------------------------------

    def _loop(self, loop: ir.Operation, dims: tuple[int, ...], conditions: tuple[Affine, ...]) -> None:
        if len(loop.results) and not _stores(loop):
            return  # read with the stores of its results
        dim, new = self._dim(loop)
        self._walk(loop.regions[0].blocks[0], (*dims, dim), (*conditions, *new))

    def _walk(self, block: ir.Block, dims: tuple[int, ...], conditions: tuple[Affine, ...]) -> None:
        for entry in block.operations:
            op = entry.operation
            if op.name == "memref.store":
                self._store(op, dims, conditions)
            elif op.name == "scf.for":
                self._loop(op, dims, conditions)
            elif op.name == "scf.if" and _stores(op):
                self._branch(op, dims, conditions)
            elif not op.name.startswith(_READ_WHERE_USED):
                raise Unraisable(f"{op.name} in a loop")

    def _branch(self, op: ir.Operation, dims: tuple[int, ...], conditions: tuple[Affine, ...]) -> None:
        if len(op.results):
            raise Unraisable("a branch both hands values on and stores")
        wanted = self._condition(op.operands[0])
        self._walk(op.regions[0].blocks[0], dims, (*conditions, *wanted))
        otherwise = list(op.regions[1].blocks)
        if otherwise and len(otherwise[0].operations) > 1:
            if len(wanted) != 1:
                raise Unraisable("an else branch of a condition with several parts")
            self._walk(otherwise[0], dims, (*conditions, wanted[0] * -1 + Affine((), -1)))

    def _dim(self, loop: ir.Operation) -> tuple[int, tuple[Affine, ...]]:
        """The dimension of a loop, and the conditions that its bounds imply."""
        counter = loop.regions[0].blocks[0].arguments[0]
        if counter in self.counters:
            return self.counters[counter][1:]
        lowers = self._bounds(loop.operands[0], "arith.maxsi")
        uppers = self._bounds(loop.operands[1], "arith.minsi")
        step = self._linear(loop.operands[2])
        if step.terms or not is_known(step.constant) or step.constant < 1:
            raise Unraisable("a step that is no positive constant")
        dim = len(self.extents)
        bounds = [*lowers, *uppers]
        unknown = not all(is_known(bound.constant) for bound in bounds)
        if unknown and (len(lowers) != 1 or any(bound.terms for bound in bounds)):
            raise Unraisable("one of several bounds of a loop that is not known")
        if len(lowers) == 1:
            base = lowers[0]
        elif step.constant == 1:
            base = Affine((), max(lower.range(self.extents)[0] for lower in lowers))
        else:
            raise Unraisable("several lower bounds of a loop with a step")
        extent, *others = [(upper - base).range(self.extents)[1] for upper in uppers]
        for other in others:
            extent = self.sizes.least(extent, other)
        self.extents[dim] = -(-extent // step.constant)
        if self.extents[dim] <= 0:
            raise Unraisable("a loop that never runs")
        value = base + Affine.dim(dim) * step.constant
        conditions = [value - lower for lower in lowers] + [(upper - value).plus(-1) for upper in uppers]
        if unknown:
            conditions = []  # the bounds are loop-invariant
        new = tuple(condition for condition in conditions if condition.range(self.extents)[0] < 0)
        self.counters[counter] = value, dim, new
        return dim, new

    def _bounds(self, value: ir.Value, name: str) -> list[Affine]:
        owner = _owner(value)
        if owner is not None and owner.name == name:
            return [bound for operand in owner.operands for bound in self._bounds(operand, name)]
        return [self._linear(value)]

    def _condition(self, value: ir.Value) -> tuple[Affine, ...]:
        """The expressions that must be non-negative for `value`, an i1, to be true."""
        owner = _owner(value)
        if owner is None:
            raise Unraisable("a condition on data")
        if owner.name == "arith.constant" and ir.IntegerAttr(owner.attributes["value"]).value:
            return ()
        if owner.name == "arith.andi":
            return (*self._condition(owner.operands[0]), *self._condition(owner.operands[1]))
        if owner.name != "arith.cmpi":
            raise Unraisable("a condition on data")
        left, right = (self._linear(operand) for operand in owner.operands)
        predicate = ir.IntegerAttr(owner.attributes["predicate"]).value
        below, above = (right - left), (left - right)
        if not is_known(below.constant):
            return (self._end(left, right, predicate),)
        found = {
            0: (below, above), 2: (below.plus(-1),), 3: (below,), 4: (above.plus(-1),), 5: (above,),
            6: (below.plus(-1), left), 7: (below, left), 8: (above.plus(-1), right), 9: (above, right),
        }.get(predicate)  # fmt: skip
        if found is None:
            raise Unraisable("a condition that says two values differ")
        limits = {6: right, 7: right, 8: left, 9: left}
        if predicate in limits and limits[predicate].range(self.extents)[0] < 0:
            raise Unraisable("an unsigned comparison with what may be negative")
        return tuple(condition for condition in found if condition.range(self.extents)[0] < 0)

    def _end(self, left: Affine, right: Affine, predicate: int) -> Affine:
        """The condition that a known number is less than an unknown one: `if (i < n)`."""
        if predicate in (4, 5, 8):
            left, right, predicate = right, left, predicate - 2
        if predicate not in (2, 3, 6) or right.terms or not is_known(left.constant):
            raise Unraisable("a condition on what is not known")
        if predicate == 6:
            if left.range(self.extents)[0] < 0:
                raise Unraisable("an unsigned comparison with what may be negative")
            right = Affine((), self.sizes.unsigned(right.constant))
        return right - left if predicate == 3 else (right - left).plus(-1)

    # -- linear expressions ----------------------------------------------------------------------

    def _linear(self, value: ir.Value) -> Affine:
        if value in self.counters:
            return self.counters[value][0]
        owner = _owner(value)
        if self._is_size(value, owner):
            return Affine((), self.sizes.of_value(value))
        if owner is None:
            raise Unraisable("an index from outside the nest")
        if owner.name == "arith.constant":
            attribute = owner.attributes["value"]
            if isinstance(attribute, ir.IntegerAttr):
                return Affine((), attribute.value)
        elif owner.name in _LINEAR:
            left, right = (self._linear(operand) for operand in owner.operands)
            if owner.name == "arith.addi":
                return self._fits(left + right, value)
            if owner.name == "arith.subi":
                return self._fits(left - right, value)
            if not left.terms or not right.terms:
                factor, other = (left, right) if not left.terms else (right, left)
                return self._fits(other * factor.constant, value)
        elif owner.name in _CASTS or owner.name == "arith.trunci":
            return self._fits(self._linear(owner.operands[0]), value)
        elif owner.name == "arith.extui":
            found = self._linear(owner.operands[0])
            if found.range(self.extents)[0] >= 0:
                return found
        raise Unraisable(f"{owner.name}: an index that is not linear")

    def _is_size(self, value: ir.Value, owner: ir.Operation | None) -> bool:
        """Whether a value is an unmodified size: defined outside the nest, and not further known."""
        if not isinstance(value.type, ir.IndexType):
            return False
        if owner is not None and owner.name == "memref.dim":
            self._outside(owner.operands[0])
            return True
        if self._is_inside(value):
            return False
        return owner is None or owner.name != "arith.constant"

    def _fits(self, found: Affine, value: ir.Value) -> Affine:
        """`found`, if narrow integers can hold it without wrapping."""
        width = 64 if isinstance(value.type, ir.IndexType) else ir.IntegerType(value.type).width
        low, high = found.range(self.extents)
        if not -(1 << (width - 1)) <= low <= high < 1 << (width - 1):
            raise Unraisable("an index that its type does not hold")
        return found

    # -- values ----------------------------------------------------------------------------------

    def _store(self, op: ir.Operation, dims: tuple[int, ...], conditions: tuple[Affine, ...]) -> None:
        value, memref, *indices = op.operands
        place = self.store_places[len(self.statements)]
        self._outside(memref)
        self.statements.append(
            Statement(dims, conditions, memref, tuple(map(self._linear, indices)), self._node(value), place)
        )

    def _outside(self, memref: ir.Value) -> None:
        if self._is_inside(memref):
            raise Unraisable("a memref made in the loop")

    def _is_inside(self, value: ir.Value) -> bool:
        at = value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner.operation
        if isinstance(value.owner, ir.Block) and at == self.loop:
            return True
        parent = at if isinstance(value.owner, ir.Block) else at.parent
        while parent is not None:
            if parent.operation == self.loop:
                return True
            parent = parent.operation.parent
        return False

    def _node(self, value: ir.Value) -> Node:
        if value not in self.nodes:
            self.nodes[value] = self._read(value)
        return self.nodes[value]

    def _read(self, value: ir.Value) -> Node:
        if isinstance(value.type, ir.IndexType):
            return Index(self._linear(value))
        if not self._is_inside(value):
            return NestScalar(value)
        op = _owner(value)
        if op is None:
            raise Unraisable("a value that a loop hands on in another way than by a reduction")
        if op.name == "memref.load":
            self._outside(op.operands[0])
            indices = tuple(map(self._linear, list(op.operands)[1:]))
            return Load(op.operands[0], indices, self.load_places[value], self._around(op))
        if op.name == "arith.constant":
            return NestScalar(value)
        if op.name == "scf.for":
            return self._reduction(op, list(op.results).index(value))
        if op.name == "scf.if":
            return self._guarded(op, list(op.results).index(value))
        if len(op.regions) or len(op.results) != 1 or not op.name.startswith(("arith.", "math.")):
            raise Unraisable(f"{op.name} in a loop")
        operands = tuple(map(self._node, op.operands))
        return Compute(op.name, operands, value.type, _attributes(op))

    def _around(self, op: ir.Operation) -> tuple[int, ...]:
        """The dimensions of the loops around `op`."""
        found: list[int] = []
        current = op
        while current != self.loop:
            current = current.parent.operation
            if current.name == "scf.for":
                found.append(self._dim(current)[0])
        return tuple(found[::-1])

    def _guarded(self, op: ir.Operation, number: int) -> Node:
        """A load in bounds, else a constant: `scf.if %inside -> f32 { load } else { 0.0 }`."""
        taken, other = (_last(region.blocks[0]).operands[number] for region in op.regions)
        load, constant = self._node(taken), _owner(other)
        if not isinstance(load, Load) or load.conditions or constant is None or constant.name != "arith.constant":
            raise Unraisable("a branch that is no load within bounds, else a constant")
        number_there = constant.attributes["value"]
        if not isinstance(number_there, (ir.FloatAttr, ir.IntegerAttr)):
            raise Unraisable("a branch that is no load within bounds, else a constant")
        return replace(load, conditions=self._condition(op.operands[0]), otherwise=number_there.value)

    # -- reductions ------------------------------------------------------------------------------

    def _reduction(self, loop: ir.Operation, number: int) -> Node:
        initial = self._node(loop.operands[3 + number])
        return self._chain(initial, self._contributions(loop, number), loop.results[number].type)

    def _chain(self, initial: Node, parts: list[Reduce], kind: ir.Type) -> Node:
        if not parts:
            return initial
        if any(a.combiner != b.combiner for a, b in pairwise(parts)):
            raise Unraisable("a reduction that combines its terms in several ways")
        for part in parts:
            initial = replace(part, initial=initial, kind=kind)
        return initial

    def _contributions(self, loop: ir.Operation, number: int) -> list[Reduce]:
        """The terms that a loop combines with the initial value of one result."""
        dim, conditions = self._dim(loop)
        body = loop.regions[0].blocks[0]
        yielded = body.operations[len(body.operations) - 1].operands[number]
        parts = self._accumulated(yielded, body.arguments[1 + number])
        return [replace(part, dims=(dim, *part.dims), conditions=(*conditions, *part.conditions)) for part in parts]

    def _accumulated(self, value: ir.Value, before: ir.Value) -> list[Reduce]:
        """The terms that, combined with `before`, give `value`."""
        if value == before:
            return []
        op = _owner(value)
        if op is None:
            raise Unraisable("a loop that hands on another value")
        if op.name == "scf.for":
            number = list(op.results).index(value)
            return [*self._accumulated(op.operands[3 + number], before), *self._contributions(op, number)]
        if op.name == "scf.if":
            return self._accumulated_if(op, list(op.results).index(value), before)
        if op.name == "arith.subf" and _depends(op.operands[0], before):
            rest, term = op.operands
            return [*self._accumulated(rest, before), self._part("arith.addf", self._negated(term, before), value)]
        if op.name == "math.fma" and _depends(op.operands[2], before):
            factors = tuple(self._term(operand, before) for operand in list(op.operands)[:2])
            product = Compute("arith.mulf", factors, value.type, {})
            return [*self._accumulated(op.operands[2], before), self._part("arith.addf", product, value)]
        if op.name not in COMBINERS:
            raise Unraisable(f"{op.name}: a loop that is no reduction")
        left, right = op.operands
        rest, term = (left, right) if _depends(left, before) else (right, left)
        return [*self._accumulated(rest, before), self._part(op.name, self._term(term, before), value)]

    def _accumulated_if(self, op: ir.Operation, number: int, before: ir.Value) -> list[Reduce]:
        taken, other = (_last(region.blocks[0]).operands[number] for region in op.regions)
        conditions = self._condition(op.operands[0])
        if other != before:
            raise Unraisable("a branch in a reduction whose other side changes the value")
        parts = self._accumulated(taken, before)
        return [replace(part, conditions=(*conditions, *part.conditions)) for part in parts]

    def _part(self, combiner: str, term: Node, value: ir.Value) -> Reduce:
        return Reduce((), (), combiner, term, term, value.type)

    def _negated(self, term: ir.Value, before: ir.Value) -> Node:
        return Compute("arith.negf", (self._term(term, before),), term.type, {})

    def _term(self, value: ir.Value, before: ir.Value) -> Node:
        if _depends(value, before):
            raise Unraisable("a loop whose terms depend on what it has so far")
        return self._node(value)


def _owner(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _last(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _stores(op: ir.Operation) -> bool:
    found = False

    def visit(nested: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or nested.operation.name == "memref.store"
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def _depends(value: ir.Value, before: ir.Value) -> bool:
    """Whether `value` depends on `before`."""
    if value == before:
        return True
    op = _owner(value)
    if op is None:
        return False
    if any(_depends(operand, before) for operand in op.operands):
        return True
    found = False

    def visit(nested: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or any(operand == before for operand in nested.operation.operands)
        return ir.WalkResult.ADVANCE

    for region in op.regions:
        for block in region.blocks:
            for entry in block.operations:
                entry.operation.walk(visit)
    return found
