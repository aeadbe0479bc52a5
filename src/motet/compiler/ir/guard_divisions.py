"""guard-divisions: guards integer divisions against divisors that trap.

    %q = arith.divsi %x, %y   →   %safe = %y, or 1 where %y is 0 or -1
                                  %q = %y is -1 ? 0 - %x : %x / %safe

Division by 0, and that of the least number by -1, are undefined in MLIR, and trap on x86-64. Here they have an
arbitrary result instead. Must run on scalars, after everything that is expanded to divisions.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.ir.find import find_operations

_SIGNED = ("arith.divsi", "arith.remsi")
_UNSIGNED = ("arith.divui", "arith.remui")
_EQUAL = 0  # a predicate of arith.cmpi


def guard_divisions(module: ir.Module) -> None:
    """Rewrites the divisions in `module` whose divisor may be 0 or -1, in place."""
    for operation in find_operations(module, *_SIGNED, *_UNSIGNED):
        if not _is_safe(operation.operands[1]):
            _guard(operation)


def _is_safe(divisor: ir.Value) -> bool:
    if isinstance(divisor.owner, ir.Block) or divisor.owner.operation.name != "arith.constant":
        return False
    return constant_number(divisor.owner.operation) not in (None, 0, -1)


def _guard(operation: ir.Operation) -> None:
    left, divisor = operation.operands
    kind, at = divisor.type, ir.InsertionPoint(operation)

    def create(name: str, operands: list[ir.Value], result: ir.Type, **attributes: ir.Attribute) -> ir.Value:
        return ir.Operation.create(
            name, results=[result], operands=operands, attributes=attributes, loc=operation.location, ip=at
        ).result

    def number(value: int) -> ir.Value:
        return create("arith.constant", [], kind, value=ir.IntegerAttr.get(kind, value))

    def equals(value: ir.Value) -> ir.Value:
        predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _EQUAL)
        return create("arith.cmpi", [divisor, value], ir.IntegerType.get_signless(1), predicate=predicate)

    zero, one = number(0), number(1)
    bad = equals(zero)
    if operation.name not in _SIGNED:
        operation.operands[1] = create("arith.select", [bad, one, divisor], kind)
        return
    inverts = equals(number(-1))
    bad = create("arith.ori", [bad, inverts], bad.type)
    safe = create("arith.select", [bad, one, divisor], kind)
    plain = create(operation.name, [left, safe], kind)
    if operation.name == "arith.divsi":
        plain = create("arith.select", [inverts, create("arith.subi", [zero, left], kind), plain], kind)
    operation.results[0].replace_all_uses_with(plain)
    operation.erase()
