"""Places in sequences that loops compute from their numbers: whether they are linear, by computing all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number

_MOST = 1 << 16  # iterations

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda x, y: x + y, "arith.subi": lambda x, y: x - y, "arith.muli": lambda x, y: x * y,
    "arith.maxsi": max, "arith.minsi": min, "arith.andi": lambda x, y: x & y, "arith.ori": lambda x, y: x | y,
}
_SAME = ("arith.index_cast", "arith.extui", "arith.extsi")
# By the number of the attribute `predicate` of arith.cmpi, signed ones.
_COMPARISONS: dict[int, Callable[[int, int], bool]] = {
    0: lambda x, y: x == y, 1: lambda x, y: x != y, 2: lambda x, y: x < y, 3: lambda x, y: x <= y,
    4: lambda x, y: x > y, 5: lambda x, y: x >= y,
}


def loop_values(loop: ir.Operation) -> range | None:
    """The numbers that an `scf.for` with constant bounds counts; None for other bounds."""
    bounds = [_constant(value) for value in list(loop.operands)[:3]]
    known = [bound for bound in bounds if bound is not None]
    return range(*known) if len(known) == 3 and known[2] > 0 else None


def _constant(value: ir.Value) -> int | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    number = constant_number(value.owner.operation)
    return number if isinstance(number, int) else None


@dataclass(frozen=True)
class LoopPlaces:
    """The offsets of slices in the body of a loop that depend on its number."""

    body: ir.Block

    def are_linear(self, numbers: range) -> bool:
        """Whether the loop's number is used for offsets of slices only, and all of them are linear in it."""
        offsets = self._offsets()
        if offsets is None or len(numbers) > _MOST:
            return False
        for offset in offsets:
            found: list[int] = []
            for number in numbers:
                value = self._evaluate(offset, number, {})
                if value is None:
                    return False
                found.append(value)
            step = found[1] - found[0]
            if found != [found[0] + step * position for position in range(len(found))]:
                return False
        return True

    def _offsets(self) -> list[ir.Value] | None:
        """The offsets that depend on the loop's number; None if something else does."""
        todo, done, found = [self.body.arguments[0]], set[ir.Value](), list[ir.Value]()
        while todo:
            value = todo.pop()
            if value in done:
                continue
            done.add(value)
            for use in value.uses:
                user = use.owner.operation
                if user.name in ("tensor.extract_slice", "tensor.insert_slice"):
                    found.append(value)
                elif user.name in (*_OPERATIONS, *_SAME, "arith.cmpi", "arith.select"):
                    todo += list(user.results)
                else:
                    return None
        return found

    def _evaluate(self, value: ir.Value, number: int, known: dict[ir.Value, int | None]) -> int | None:
        if value == self.body.arguments[0]:
            return number
        if value in known:
            return known[value]
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        known[value] = None if owner is None else self._result(owner, number, known)
        return known[value]

    def _result(self, operation: ir.Operation, number: int, known: dict[ir.Value, int | None]) -> int | None:
        if operation.name == "arith.constant":
            constant = constant_number(operation)
            return constant if isinstance(constant, int) else None
        operands = [self._evaluate(operand, number, known) for operand in operation.operands]
        x = [operand for operand in operands if operand is not None]
        if len(x) != len(operands):
            return None
        if operation.name in _SAME:
            return x[0]
        if operation.name in _OPERATIONS:
            return _OPERATIONS[operation.name](x[0], x[1])
        if operation.name == "arith.select":
            return x[1] if x[0] else x[2]
        if operation.name == "arith.cmpi":
            compare = _COMPARISONS.get(ir.IntegerAttr(operation.attributes["predicate"]).value)
            return None if compare is None else int(compare(x[0], x[1]))
        return None
