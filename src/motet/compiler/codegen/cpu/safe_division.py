"""Guards divisions of integers against traps, which processors raise for zero and for the least number by -1.

    %q = arith.divsi %x, %y   →   %d = select (%y == 0 or (%y == -1 and %x == least)), 1, %y
                                  %q = arith.divsi %x, %d

What such divisions give is what the kernels of other classes give (`operations.py`): x / 0 is x, x % 0 is 0, and the
least number divided by -1 is itself.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.find import find_operations

_SIGNED = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi")
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")


def divide_safely(module: ir.Module) -> None:
    """Replace the divisors of `module`'s divisions, unless they are numbers that never trap."""
    for operation in find_operations(module, *_SIGNED, *_UNSIGNED):
        x, y = operation.operands
        if isinstance(y.type, (ir.IntegerType, ir.IndexType)) and not _is_harmless(y):
            with ir.InsertionPoint(operation), operation.location:
                operation.operands[1] = _divisor(x, y, operation.name in _SIGNED)


def _is_harmless(y: ir.Value) -> bool:
    owner = y.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return False
    return ir.IntegerAttr(owner.attributes["value"]).value not in (0, -1)


def _divisor(x: ir.Value, y: ir.Value, signed: bool) -> ir.Value:
    equal = arith.CmpIPredicate.eq
    bad = arith.CmpIOp(equal, y, _number(y.type, 0)).result
    if signed:
        bits = y.type.width if isinstance(y.type, ir.IntegerType) else 64
        least = arith.CmpIOp(equal, x, _number(x.type, -(1 << bits - 1))).result
        minus_one = arith.CmpIOp(equal, y, _number(y.type, -1)).result
        bad = arith.OrIOp(bad, arith.AndIOp(least, minus_one).result).result
    return arith.SelectOp(bad, _number(y.type, 1), y).result


def _number(kind: ir.Type, number: int) -> ir.Value:
    return arith.ConstantOp(kind, ir.IntegerAttr.get(kind, number)).result
