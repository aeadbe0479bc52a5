"""Replaces maxima and minima that drop NaN by those that propagate it.

    %c = arith.cmpf ogt, %a, %b          →  %m = arith.maximumf %a, %b
    %m = arith.select %c, %a, %b

    %c = arith.cmpf ogt, %in, %out       →  %c = "%in is greater, or NaN and %out is not"

The torch-mlir wheel lowers maximum, minimum and clamp to a comparison and a select, which return the other operand for
NaN, whereas PyTorch and ONNX's reference return NaN. Its argmax never moves to a NaN; theirs returns the index of the
first NaN. This must run on the wheel's output before any fusion: only there is a comparison that the program itself
wrote a separate operation.
"""
from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_GREATER = frozenset({2, 3, 9, 10})  # ogt, oge, ugt, uge
_LESS = frozenset({4, 5, 11, 12})  # olt, ole, ult, ule


def exact_extrema(module: ir.Module) -> None:
    """Rewrites the bodies of the operations of `module` in place."""
    for select in find_operations(module, "arith.select"):
        name = _extremum(select)
        if name is not None:
            _replace(select, name)
    for extremum in find_operations(module, "arith.maximumf", "arith.minimumf"):
        for compare in _comparisons(extremum):
            _replace_comparison(compare)


def _extremum(select: ir.Operation) -> str | None:
    """The maximum or minimum that `select` computes; None for other selects."""
    condition, chosen, other = select.operands
    compare = condition.owner
    if isinstance(compare, ir.Block) or compare.name != "arith.cmpf":
        return None
    left, right = compare.operands
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    if predicate not in _GREATER | _LESS or {chosen, other} != {left, right} or left == right:
        return None
    return "arith.maximumf" if (predicate in _GREATER) == (chosen == left) else "arith.minimumf"


def _comparisons(extremum: ir.Operation) -> list[ir.Operation]:
    """The comparisons of a reduction's element with its extremum so far, which decide whether its index moves."""
    element, found = extremum.operands
    block = found.owner
    if not isinstance(block, ir.Block) or block.owner.name != "linalg.generic":
        return []
    predicate = 2 if extremum.name == "arith.maximumf" else 4  # ogt, olt
    return [
        use.owner for use in element.uses
        if use.owner.name == "arith.cmpf" and list(use.owner.operands) == [element, found]
        and ir.IntegerAttr(use.owner.attributes["predicate"]).value == predicate
        and _is_reduced(block.owner, found)
    ]


def _is_reduced(generic: ir.Operation, value: ir.Value) -> bool:
    """Whether `value` is the accumulator of a result of `generic`."""
    inputs = len(generic.operands) - len(generic.results)
    return ir.BlockArgument(value).arg_number >= inputs


def _replace_comparison(compare: ir.Operation) -> None:
    element, found = compare.operands
    at, kind = ir.InsertionPoint(compare), compare.results[0].type
    predicate = ir.IntegerAttr(compare.attributes["predicate"])
    or_unordered = ir.IntegerAttr.get(predicate.type, predicate.value + 7)  # ugt, ult
    ordered = ir.IntegerAttr.get(predicate.type, 7)  # ord

    def create(name: str, operands: list[ir.Value], **attributes: ir.Attribute) -> ir.Value:
        return ir.Operation.create(
            name, results=[kind], operands=operands, attributes=attributes, loc=compare.location, ip=at
        ).results[0]

    moves = create("arith.cmpf", [element, found], predicate=or_unordered)
    both = create("arith.andi", [moves, create("arith.cmpf", [found, found], predicate=ordered)])
    compare.results[0].replace_all_uses_with(both)
    compare.erase()


def _replace(select: ir.Operation, name: str) -> None:
    made = ir.Operation.create(
        name, results=[select.results[0].type], operands=list(select.operands)[1:], loc=select.location,
        ip=ir.InsertionPoint(select),
    )  # fmt: skip
    select.results[0].replace_all_uses_with(made.results[0])
    select.erase()
