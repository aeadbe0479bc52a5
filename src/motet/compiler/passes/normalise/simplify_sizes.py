"""simplify-sizes: replaces sizes that equal an input's extent by that extent, constant sizes by numbers, and others by
the first calculated one that is equal.

    %2 = arith.muli %b, 1024 ; %4 = arith.muli %b, 64        %c0 = arith.constant 0
    %5 = arith.divsi %2, %4 ; …                         →    %b = tensor.dim %x, %c0
    %21 = tensor.empty(%20)                                  %21 = tensor.empty(%b)

Frontends compute extents where a reshape infers one.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.scheduling.shapes import Shapes


@dataclass(frozen=True)
class SimplifySizes(FunctionPass):
    """The computations of the sizes remain, unused."""

    name = "simplify-sizes"

    def run_on(self, function: ir.Operation) -> bool:
        block = function.regions[0].blocks[0]
        if all(ir.RankedTensorType(argument.type).has_static_shape for argument in block.arguments):
            return False
        shapes = Shapes(function)
        places = {symbol.name: (block.arguments[symbol.input], symbol.axis) for symbol in shapes.symbols}
        made: dict[str, ir.Value] = {}
        begin = block.operations[0].operation
        changed = False
        for entry in list(block.operations):
            operation = entry.operation
            shapes.note(operation)
            if not operation.name.startswith(("arith.", "tensor.dim")) or len(operation.results) != 1:
                continue
            result = operation.results[0]
            known = shapes.numbers.get(result)
            if not isinstance(result.type, ir.IndexType) or known is None or _is_plain(operation):
                continue
            if (key := repr(known)) in made:
                result.replace_all_uses_with(made[key])
                changed = True
            elif isinstance(known, (str, int)):
                made[key] = _make(known, places, begin)
                shapes.numbers[made[key]] = known
                result.replace_all_uses_with(made[key])
                changed = True
            elif operation.name != "tensor.dim":  # a tensor would be kept for its extent alone
                made[key] = result
        return changed


def _is_plain(operation: ir.Operation) -> bool:
    """Whether a size is already a constant, or an argument's extent."""
    if operation.name == "arith.constant":
        return True
    return operation.name == "tensor.dim" and isinstance(operation.operands[0].owner, ir.Block)


def _make(known: str | int, places: dict[str, tuple[ir.Value, int]], begin: ir.Operation) -> ir.Value:
    """Creates a size at the beginning of the function."""
    with ir.InsertionPoint(begin), begin.location:
        return constant_index(known) if isinstance(known, int) else extent_of(*places[known])
