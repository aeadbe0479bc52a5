"""quantise-products: rounds the operands of f32 products with constant weights to bytes, with a scale for each row.

    linalg.generic … ins(%x, %w : f32, f32)          %g = greatest |x| of each row
      %p = mulf %a, %b; addf …                  →    %q = roundeven(%x * 127 / %g) : i8;  %v = sitofp(%q) * %g / 127
                                                     the same of each column of %w, when compiling
                                                     linalg.generic … ins(%v, %u : f32, f32)

`--option precision=int8` runs it after `normalise`; `narrow-quantised-products` then multiplies the bytes. Scales are
symmetric. Those of weights are one for each column of results, known when compiling; those of the other operand are
computed in each call, one for each row ("dynamic quantisation"). An operand that several products read is rounded once.
Products of two operands that are computed, as in attention, convolutions, and sums shorter than 16 stay as they are.

Source: Dettmers et al., "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale", 2022, section 2.1
(vector-wise quantisation, without its separation of outliers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.nests import empty_like, is_product, nest
from motet.compiler.ir.program import parameters_of
from motet.compiler.kernels.roles import Role, role_of, structure_of
from motet.compiler.operators.arithmetic import Floats, Real
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.loop_tensors import extent, filled

_SHORTEST = 16  # sums
_MOST = 127.0
_TINY = 2.0**-120  # instead of lesser greatest magnitudes, whose reciprocals times 127 are not finite
_STEPS = 8  # operations between a parameter and a product


@dataclass(frozen=True)
class QuantiseProducts(FunctionPass):
    """Products of known depth."""

    name = "quantise-products"

    def run_on(self, function: ir.Operation) -> bool:
        parameters = set(parameters_of(function))
        found = False
        for block in function.regions[0].blocks:
            rounded: dict[tuple[ir.Value, tuple[int, ...]], ir.Value] = {}
            for each in [entry.operation for entry in block.operations]:
                if each.name == "linalg.generic" and _is_linear(each, parameters):
                    _quantise(each, rounded)
                    found = True
        return found


def _is_linear(operation: ir.Operation, parameters: set[ir.Value]) -> bool:
    """Whether a nest is a long sum of products in f32, with one constant operand."""
    if not is_product(operation) or role_of(operation) is not Role.CONTRACTION:
        return False
    structure = structure_of(operation)
    if structure is None:
        return False
    depth = math.prod(structure.sizes[dim] or 0 for dim in structure.reduced)
    constant = [_is_constant(operand, parameters, _STEPS) for operand in list(operation.operands)[:2]]
    return depth >= _SHORTEST and constant[0] != constant[1]


def _is_constant(value: ir.Value, parameters: set[ir.Value], steps: int) -> bool:
    """Whether a tensor is computed from parameters alone, in a few steps."""
    if isinstance(value.owner, ir.Block):
        return value in parameters
    maker = value.owner.operation
    if maker.name in ("tensor.empty", "arith.constant"):
        return True
    operands = list(maker.operands)
    return steps > 0 and bool(operands) and all(_is_constant(each, parameters, steps - 1) for each in operands)


def _quantise(product: ir.Operation, rounded: dict[tuple[ir.Value, tuple[int, ...]], ir.Value]) -> None:
    """Let `product` read its operands rounded to bytes; `rounded` has those that are, by their summed axes."""
    structure = structure_of(product)
    assert structure is not None
    for number in range(2):
        own = [entry.single for entry in structure.maps[number]]
        summed = tuple(axis for axis, dim in enumerate(own) if dim in structure.reduced)
        key = (product.operands[number], summed)
        if key not in rounded:
            rounded[key] = _rounded(product, product.operands[number], summed)
        product.operands[number] = rounded[key]


def _rounded(at: ir.Operation, value: ir.Value, summed: tuple[int, ...]) -> ir.Value:
    """`value` as bytes, dequantised, before `at`; there is one scale for all elements along the axes `summed`."""
    kind = ir.RankedTensorType(value.type)
    rows = [axis for axis in range(kind.rank) if axis not in summed]
    with at.location:
        byte, real = ir.IntegerType.get_signless(8), Floats(kind.element_type)
        whole = ir.AffineMap.get_identity(kind.rank)
        row = ir.AffineMap.get(kind.rank, 0, [ir.AffineDimExpr.get(axis) for axis in rows])
        sizes = [extent(value, axis, at) for axis in rows if kind.is_dynamic_dim(axis)]
        least = filled(_TINY, ir.RankedTensorType.get([kind.shape[a] for a in rows], kind.element_type), sizes, at)

    def larger(block: ir.Block) -> ir.Value:
        return real.maximum(block.arguments[1], abs(Real(block.arguments[0])))

    def rounded(block: ir.Block) -> ir.Value:
        scaled = Real(block.arguments[0]) * (_MOST / Real(block.arguments[1]))
        limited = real.minimum(real.maximum(real.round(scaled), -_MOST), _MOST)
        return create("arith.fptosi", byte, [limited])

    def restored(block: ir.Block) -> ir.Value:
        return real.of_integer(block.arguments[0]) * Real(block.arguments[1]) * (1 / _MOST)

    greatest = nest(at, [value], least, [whole, row], larger)
    stored = nest(at, [value, greatest], empty_like(at, value, byte), [whole, row, whole], rounded)
    output = empty_like(at, value, kind.element_type)
    return nest(at, [stored, greatest], output, [whole, row, whole], restored)
