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

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create
from motet.compiler.ir.program import PARAMETER
from motet.compiler.ir.sizes import extent_of
from motet.compiler.kernels.roles import Role, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.dequantised import nest
from motet.compiler.passes.fuse.narrow_quantised_products import is_product

_SHORTEST = 16  # sums
_MOST = 127.0
_TINY = 2.0**-120  # instead of lesser greatest magnitudes, whose reciprocals times 127 are not finite
_STEPS = 8  # operations between a parameter and a product


@dataclass(frozen=True)
class QuantiseProducts(FunctionPass):
    """Products of known depth."""

    name = "quantise-products"

    def run_on(self, function: ir.Operation) -> bool:
        parameters = _parameters(function)
        found = False
        for block in function.regions[0].blocks:
            rounded: dict[tuple[ir.Value, tuple[int, ...]], ir.Value] = {}
            for each in [entry.operation for entry in block.operations]:
                if each.name == "linalg.generic" and _is_linear(each, parameters):
                    _quantise(each, rounded)
                    found = True
        return found


def _parameters(function: ir.Operation) -> set[ir.Value]:
    if "arg_attrs" not in function.attributes:
        return set()
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    arguments = function.regions[0].blocks[0].arguments
    return {argument for argument, own in zip(arguments, attributes, strict=True) if PARAMETER in own}


def _is_linear(operation: ir.Operation, parameters: set[ir.Value]) -> bool:
    """Whether a nest is a long sum of products in f32, with one constant operand."""
    if not is_product(operation) or role_of(operation) is not Role.CONTRACTION:
        return False
    structure = structure_of(operation)
    if structure is None:
        return False
    depth = 1
    for dim in structure.reduced:
        size = structure.sizes[dim]
        if size is None:
            return False
        depth *= size
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
    context, kind = at.context, ir.RankedTensorType(value.type)
    whole = ir.AffineMap.get_identity(kind.rank, context)
    rows = [axis for axis in range(kind.rank) if axis not in summed]
    row = ir.AffineMap.get(kind.rank, 0, [ir.AffineDimExpr.get(axis, context) for axis in rows], context)
    with at.location, ir.InsertionPoint(at):
        sizes = {axis: extent_of(value, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)}
        real, byte = kind.element_type, ir.IntegerType.get_signless(8)
        narrow = ir.RankedTensorType.get(kind.shape, byte)
        scales = ir.RankedTensorType.get([kind.shape[axis] for axis in rows], real)
    empties = [
        create("tensor.empty", [one], [sizes[axis] for axis in axes if axis in sizes], at).result
        for one, axes in ((scales, rows), (narrow, range(kind.rank)), (kind, range(kind.rank)))
    ]
    least = create("arith.constant", [real], [], at, {"value": ir.FloatAttr.get(real, _TINY)}).result
    own = ir.AffineMap.get_identity(len(rows), context)
    first = nest(at, [least], empties[0], [ir.AffineMap.get(len(rows), 0, [], context), own], lambda b: b.arguments[0])
    greatest = nest(at, [value], first, [whole, row], _larger, frozenset(summed))
    made = nest(at, [value, greatest], empties[1], [whole, row, whole], lambda b: _byte(b, byte))
    return nest(at, [made, greatest], empties[2], [whole, row, whole], lambda b: _real(b, real))


def _larger(block: ir.Block) -> ir.Value:
    element, accumulator = block.arguments
    magnitude = _made("math.absf", element.type, element)
    return _made("arith.maximumf", element.type, accumulator, magnitude)


def _byte(block: ir.Block, byte: ir.Type) -> ir.Value:
    element, greatest = list(block.arguments)[:2]
    kind = element.type
    scaled = _made("arith.mulf", kind, element, _made("arith.divf", kind, _number(kind, _MOST), greatest))
    value = _made("math.roundeven", kind, scaled)
    value = _made("arith.maximumf", kind, value, _number(kind, -_MOST))
    return _made("arith.fptosi", byte, _made("arith.minimumf", kind, value, _number(kind, _MOST)))


def _real(block: ir.Block, real: ir.Type) -> ir.Value:
    byte, greatest = list(block.arguments)[:2]
    value = _made("arith.mulf", real, _made("arith.sitofp", real, byte), greatest)
    return _made("arith.mulf", real, value, _number(real, 1 / _MOST))


def _made(name: str, kind: ir.Type, *operands: ir.Value) -> ir.Value:
    return ir.Operation.create(name, results=[kind], operands=list(operands)).result


def _number(kind: ir.Type, value: float) -> ir.Value:
    attributes = {"value": ir.FloatAttr.get(kind, value)}
    return ir.Operation.create("arith.constant", results=[kind], attributes=attributes).result
