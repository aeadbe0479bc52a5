"""narrow-products: rounds the operands of f32 products and convolutions to a 16-bit float; sums stay in f32.

    linalg.generic … ins(%x, %y : f32, f32)          %v = linalg.generic … truncf %x : f32 to bf16
      %p = mulf %a, %b; addf …                  →    %w = linalg.generic … truncf %y : f32 to bf16
                                                     linalg.generic … ins(%v, %w : bf16, bf16)
                                                       %c = extf …; %d = extf …; %p = mulf %c, %d; addf …

`--option precision=bf16` runs it after `normalise`. An operand that other products read too is rounded once, one that
is padded, reshaped, broadcast or transposed before, so that the operation that computes it stores 16 bits; constants
are rounded when compiling.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.current import create
from motet.compiler.ir.nests import (
    border_of,
    converted,
    copied,
    empty_like,
    is_product,
    nest,
    read_instead,
    repeated,
    widened,
)
from motet.compiler.kernels.roles import known_number
from motet.compiler.passes.base import FunctionPass

PRECISION = "motet.precision"  # a string attribute of modules: the dtype to which operands are rounded
NARROW = {"bf16": ir.BF16Type, "f16": ir.F16Type}
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True)
class NarrowProducts(FunctionPass):
    """`dtype` is one of `NARROW`."""

    name = "narrow-products"
    dtype: str = "bf16"

    def run_on(self, function: ir.Operation) -> bool:
        narrow = NARROW[self.dtype].get(function.context)
        changed = False
        for block in function.regions[0].blocks:
            rounded: dict[ir.Value, ir.Value] = {}
            for product in [entry.operation for entry in block.operations if is_product(entry.operation)]:
                for number in range(2):
                    source = _rounded(product, product.operands[number], narrow, rounded)
                    read_instead(product, number, source, widened)
                changed = True
        return changed


def _rounded(at: ir.Operation, value: ir.Value, narrow: ir.Type, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """`value` rounded to `narrow`, before `at`: what pads or reshapes it then moves 16 bits. A weight that is repeated
    for a dynamic number of images stays a constant."""
    if value not in known:
        maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
        source = copied(maker)
        if maker is not None and (maker.name in _VIEWS or _pads_with_zeros(maker)):
            known[value] = repeated(at, maker, _rounded(at, maker.operands[0], narrow, known))
        elif maker is not None and source is not None and isinstance(source.type, ir.RankedTensorType):
            moved = _rounded(at, source, narrow, known)
            known[value] = nest(
                at, [moved], empty_like(at, value, narrow), maps_of(maker), lambda block: block.arguments[0])
        else:
            known[value] = converted(at, value, narrow, lambda real: create("arith.truncf", narrow, [real]))
    return known[value]


def _pads_with_zeros(operation: ir.Operation) -> bool:
    border = border_of(operation) if operation.name == "tensor.pad" else None
    return border is not None and known_number(border) == 0
