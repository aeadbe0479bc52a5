"""unroll-placed-loops: unrolls loops whose bodies are distributed over devices.

    scf.for %i = 0 to 2 step 1 {                       %a0 = tensor.extract_slice %x[%c0] … {motet.turn = [0, 0]}
      %a = tensor.extract_slice %x[%i] …        →      %b0 = "motet.transfer"(%a0) {to = "gpu", motet.turn = [0, 0]}
      %b = "motet.transfer"(%a) {to = "gpu"}           …
      … } {motet.affinity = "cpu"}                     %a1 = tensor.extract_slice %x[%c1] … {motet.turn = [0, 1]}

A loop runs on one device as a whole, unless the parts of its body have affinities to several: then each iteration is
separate work for each device, so that values of one iteration are transferred while another device still computes on
the previous iteration. `motet.turn` holds the loop and the iteration of an operation. It separates iterations
(outline-regions) and bounds their memory (the runtime lets iteration i+2 reuse the memory of iteration i). Parts of a
tensor that iterations only insert are inserted after the loop, all at once.

Distributed loops inside such a loop are unrolled with it, and continue its count of iterations. A loop with an unknown
or too large number of iterations, or one that contains such a loop, is left to `outline-loops`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.devices import AFFINITY, TO, TRANSFER_OP, TURN, Affinity, join_and, join_or, parse_affinity
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import explicit_affinity

FOR = "scf.for"
WHILE = "scf.while"
MOST_TURNS = 256  # iterations of a loop nest; each is a step for each device, and has separate code if it slices
_INSERT = "tensor.insert_slice"


@dataclass(frozen=True)
class UnrollPlacedLoops(ModulePass):
    name = "unroll-placed-loops"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            unroll_placed(function)


def unroll_placed(function: ir.Operation) -> bool:
    """Unrolls the loops of one function, in place; returns whether there were any."""
    operations = [entry.operation for block in function.regions[0].blocks for entry in block.operations]
    taken = [turn[0] for operation in operations if (turn := turn_of(operation)) is not None]
    first = number = max(taken, default=-1) + 1
    for operation in operations:
        if operation.name == FOR and spread(operation) is not None and is_unrolled(operation):
            _Unroller(operation, number).run()
            number += 1
    return number > first


def is_unrolled(loop: ir.Operation) -> bool:
    """Whether the number of iterations of a `scf.for`, including loops inside it, is known and small."""
    indices = _count_iterations(loop, {}, MOST_TURNS)
    return indices is not None and indices <= MOST_TURNS


def turn_of(operation: ir.Operation) -> tuple[int, int] | None:
    """The loop and the iteration that an operation was unrolled from; None for others."""
    if TURN not in operation.attributes:
        return None
    loop, turn = ir.DenseI64ArrayAttr(operation.attributes[TURN])
    return int(loop), int(turn)


def spread(loop: ir.Operation) -> Affinity | None:
    """The affinity of a loop's parts if they share no device and queue; None otherwise. A loop with its own affinity is
    left to place-operations, which refuses it."""
    if AFFINITY in loop.attributes:
        return None
    shared: Affinity | None = None
    joined: Affinity | None = None
    disjoint = False
    for said in _said(loop):
        both = join_and(shared, said)
        disjoint = disjoint or both is None
        shared, joined = both, join_or(joined, said)
    return joined if disjoint else None


def _said(loop: ir.Operation) -> Iterator[Affinity]:
    for operation in all_operations(loop):
        if operation.name == TRANSFER_OP:
            yield parse_affinity(ir.StringAttr(operation.attributes[TO]).value)
        elif (own := explicit_affinity(operation)) is not None:
            yield own


class _Unroller:
    """Unrolls one loop, in place."""

    def __init__(self, loop: ir.Operation, number: int) -> None:
        self.loop = loop
        self.number = number
        self.turn = -1
        self.behind: list[ir.Operation] = []  # insertions to be done after the loop, in order

    def run(self) -> None:
        results = self._unroll(self.loop, ir.InsertionPoint(self.loop))
        for operation in self.behind:
            operation.move_before(self.loop)
        for old, new in zip(self.loop.results, results, strict=True):
            old.replace_all_uses_with(new)
        self.loop.erase()

    def _unroll(self, loop: ir.Operation, point: ir.InsertionPoint) -> list[ir.Value]:
        """The results of `loop`, whose iterations are created at `point`."""
        body = loop.regions[0].blocks[0]
        indices = _range_of(loop, {})
        assert indices is not None, "is_unrolled has counted them"
        carried = list(loop.operands)[3:]
        operations = [entry.operation for entry in body.operations]
        late = _inserted_late(body, operations[-1]) if loop == self.loop else set[ir.Value]()
        for value in indices:
            self.turn += 1
            with loop.location, point:
                index = arith.ConstantOp(body.arguments[0].type, value)
            mapping: dict[ir.Value, ir.Value] = dict(zip(body.arguments, [index.result, *carried], strict=True))
            for operation in operations[:-1]:
                if operation.name == FOR and spread(operation) is not None:
                    inner = operation.clone(point)
                    remap(inner, mapping)
                    results = self._unroll(inner, ir.InsertionPoint(inner))
                    inner.erase()
                    mapping.update(zip(operation.results, results, strict=True))
                    continue
                copy = operation.clone(point)
                remap(copy, mapping)
                if len(operation.results) and operation.results[0] in late:
                    self.behind.append(copy)
                else:
                    copy.attributes[TURN] = ir.DenseI64ArrayAttr.get([self.number, self.turn])
                mapping.update(zip(operation.results, copy.results, strict=True))
            carried = [mapping.get(operand, operand) for operand in operations[-1].operands]
        return carried


def _range_of(loop: ir.Operation, known: Mapping[ir.Value, int]) -> range | None:
    """The values of a loop's index; None if they are not known when compiling."""
    lower, upper, step = (_constant(value, known) for value in list(loop.operands)[:3])
    if lower is None or upper is None or step is None or step <= 0:
        return None
    return range(lower, upper, step)


def _count_iterations(loop: ir.Operation, known: Mapping[ir.Value, int], most: int) -> int | None:
    """The number of iterations of a loop and the distributed loops inside it, as `_Unroller` counts them; None if it is
    not known when compiling. Counting stops above `most`."""
    indices = _range_of(loop, known)
    body = loop.regions[0].blocks[0]
    inner = [entry.operation for entry in body.operations if entry.operation.name in (FOR, WHILE)]
    inner = [each for each in inner if spread(each) is not None]
    if indices is None or any(each.name == WHILE for each in inner):
        return None
    total = 0
    for value in indices:
        total += 1
        for each in inner:
            count = _count_iterations(each, {**known, body.arguments[0]: value}, most)
            if count is None:
                return None
            total += count
        if total > most:
            break
    return total


def _inserted_late(body: ir.Block, end: ir.Operation) -> set[ir.Value]:
    """The results of insertions into carried values that only the next insertion reads: they can be done after the
    loop."""
    found: set[ir.Value] = set()
    for argument, yielded in zip(list(body.arguments)[1:], end.operands, strict=True):
        owner = yielded.owner
        if isinstance(owner, ir.Block) or owner.operation.name != _INSERT or owner.operation.operands[1] != argument:
            continue
        if len(list(argument.uses)) == 1 and len(list(yielded.uses)) == 1:
            found.add(yielded)
    return found


def _constant(value: ir.Value, known: Mapping[ir.Value, int]) -> int | None:
    """A known index: a constant, one of `known`, or arithmetic on these; None for others."""
    if value in known:
        return known[value]
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name == "arith.constant":
        return ir.IntegerAttr(operation.attributes["value"]).value
    operands = [_constant(operand, known) for operand in operation.operands]
    if len(operands) != 2 or operands[0] is None or operands[1] is None:
        return None
    left, right = operands[0], operands[1]
    match operation.name:
        case "arith.addi":
            return left + right
        case "arith.subi":
            return left - right
        case "arith.muli":
            return left * right
        case "arith.minsi":
            return min(left, right)
        case "arith.maxsi":
            return max(left, right)
        case _:
            return None
