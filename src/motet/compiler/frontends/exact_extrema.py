"""Makes maxima and minima that lose NaN into those that keep it.

    %c = arith.cmpf ogt, %a, %b          →  %m = arith.maximumf %a, %b
    %m = arith.select %c, %a, %b

The wheel's lowering of maximum, minimum and clamp compares and selects, which gives the other operand for NaN, where
PyTorch and ONNX's reference give NaN. To be run on what the wheel has lowered, before anything is fused: there a
comparison that a program itself selects by is an operation of its own.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_GREATER = frozenset({2, 3, 9, 10})  # ogt, oge, ugt, uge
_LESS = frozenset({4, 5, 11, 12})  # olt, ole, ult, ule


def exact_extrema(module: ir.Module) -> None:
    """Rewrite the bodies of the operations of `module` in place."""
    for select in find_operations(module, "arith.select"):
        name = _extremum(select)
        if name is not None:
            _replace(select, name)


def _extremum(select: ir.Operation) -> str | None:
    """The operation that `select` stands for; None where it is none."""
    condition, chosen, other = select.operands
    compare = condition.owner
    if isinstance(compare, ir.Block) or compare.name != "arith.cmpf":
        return None
    left, right = compare.operands
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    if predicate not in _GREATER | _LESS or {chosen, other} != {left, right} or left == right:
        return None
    return "arith.maximumf" if (predicate in _GREATER) == (chosen == left) else "arith.minimumf"


def _replace(select: ir.Operation, name: str) -> None:
    made = ir.Operation.create(
        name, results=[select.results[0].type], operands=list(select.operands)[1:], loc=select.location,
        ip=ir.InsertionPoint(select),
    )  # fmt: skip
    select.results[0].replace_all_uses_with(made.results[0])
    select.erase()
