"""Reads operations of linalg as loops whose indices are factors; the rules of `linalg` share this."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import indexing_maps, ir
from motet.compiler.ir.find import captured_values
from motet.compiler.sharding.rules.rule import Factors, all_static, shape_of

# The combiners of reductions, by the operation that the body ends with.
COMBINERS = {
    "arith.addf": "add", "arith.addi": "add", "arith.mulf": "mul", "arith.muli": "mul", "arith.maximumf": "max",
    "arith.minimumf": "min", "arith.maxsi": "max", "arith.minsi": "min", "arith.maxui": "maxu", "arith.minui": "minu",
    "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor",
}  # fmt: skip
# Those of single bits, of which 1 is -1.
_OF_BITS = {
    "arith.addi": "xor", "arith.muli": "and", "arith.maxsi": "and", "arith.minsi": "or", "arith.maxui": "or",
    "arith.minui": "and", "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor",
}  # fmt: skip


@dataclass(frozen=True)
class Loops:
    """The loops of an operation: the loop of each dimension of its operands, None where the index is not that of a
    loop alone; `extents` by loop; which loops reduce; `inputs` is the number of operands that are only read."""

    operands: tuple[Factors, ...]
    extents: tuple[int, ...]
    reductions: frozenset[int]
    inputs: int
    mixed: frozenset[int]  # loops that occur in sums with others, or in some results only


def read_loops(operation: ir.Operation) -> Loops | None:
    """None for operations that are not linalg's, or have dynamic shapes or tensors of other kinds."""
    if not operation.name.startswith("linalg.") or not len(operation.results) or not all_static(operation):
        return None
    maps = indexing_maps(operation)
    if maps is None or "operandSegmentSizes" not in operation.attributes:
        return None
    found = [ir.AffineMapAttr(each).value for each in maps]
    if len(found) != len(operation.operands):
        return None
    count = found[0].n_dims
    extents, mixed, operands = [0] * count, set[int](), list[Factors]()
    for value, each in zip(operation.operands, found, strict=True):
        shape = shape_of(value) or []
        factors: list[int | None] = []
        for place, expression in enumerate(each.results):
            number = expression.position if isinstance(expression, ir.AffineDimExpr) else None
            if number is None:
                mixed.update(_dimensions(expression))
            elif place < len(shape):
                extents[number] = shape[place]
            factors.append(number)
        operands.append(tuple(factors) if shape else ())
    inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    written = [{loop for loop in range(count) if _is_result(each, loop)} for each in found[inputs:]]
    reductions = frozenset(range(count)).difference(*written)
    mixed |= set[int]().union(*written) - set.intersection(*written)
    return Loops(tuple(operands), tuple(extents), reductions, inputs, frozenset(mixed))


def factors_without(loops: Loops, left: frozenset[int]) -> tuple[Factors, ...]:
    """The factors of the operands, without the loops that cannot be divided."""
    return tuple(tuple(None if loop in left else loop for loop in factors) for factors in loops.operands)


def combiner(operation: ir.Operation) -> str | None:
    """How the result of each step of a reduction is combined with those before; None if it is not known. Named
    operations of linalg have a body, too."""
    block = operation.regions[0].blocks[0]
    last = block.operations[len(block.operations) - 1].operation
    outs = len(last.operands)
    kinds: set[str | None] = set()
    for number, value in enumerate(last.operands):
        carried = block.arguments[len(block.arguments) - outs + number]
        kinds.add(_combined_with(value, carried))
    return kinds.pop() if len(kinds) == 1 else None


def captures(operation: ir.Operation) -> list[ir.Value]:
    """The tensors of outside that an operation's body reads."""
    inside = list(captured_values(operation))[len(operation.operands) :]
    return [value for value in inside if isinstance(value.type, ir.ShapedType)]


def _combined_with(value: ir.Value, carried: ir.Value) -> str | None:
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name not in COMBINERS or carried not in list(owner.operands) or len(list(carried.uses)) != 1:
        return None
    return (_OF_BITS if str(value.type) == "i1" else COMBINERS)[owner.name]


def _dimensions(expression: ir.AffineExpr) -> set[int]:
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position}
    if isinstance(expression, ir.AffineBinaryExpr):
        return _dimensions(expression.lhs) | _dimensions(expression.rhs)
    return set()


def _is_result(each: ir.AffineMap, loop: int) -> bool:
    return any(loop in _dimensions(expression) for expression in each.results)
