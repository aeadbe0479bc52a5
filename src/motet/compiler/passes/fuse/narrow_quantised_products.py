"""narrow-quantised-products: multiplies dequantised bytes as bytes.

    %a = dequantise %x : i8 to f32                         %s = linalg.generic ins(%x, %w : i8, i8) outs(i32)
    %b = dequantise %w : i8 to f32                   →         (ext %x - zero of x) * (ext %w - zero of w)
    linalg.generic ins(%a, %b : f32, f32) outs(%c)         %r = sitofp(%s) * scale of x * scale of w + %c

The integer sums are exact, so that only the scaled sum is rounded; the result differs from that of the program by the
rounding of its floats. A product stays as it is if a sum may exceed 32 bits, if its extent along the reduced
dimensions is not known, or if a scale changes along one of them. A division by a constant before rounding, which is how
such results are quantised again, becomes a multiplication by the reciprocal.

The terms are those of Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.current import constant, create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.nests import copied, is_elementwise, is_product, nest
from motet.compiler.kernels.roles import DENSE_ROLES, Role, Structure, known_number, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.loop_tensors import extent, filled
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.fuse.quantised import Quantised, Side, holds_bytes, read_quantised

_LARGEST = (1 << 31) - 1
_LEAST_GROUP = 16  # channels, and filters, of a group: fewer do not fill the vectors of bytes
_MOST_STEPS = 12  # element-wise operations between a product and its rounding


@dataclass(frozen=True)
class NarrowQuantisedProducts(FunctionPass):
    """Products whose operands both are dequantised bytes, of known depth. With `symmetric`, only matrix products of
    signed bytes without zero points, which GPUs multiply as they are."""

    name = "narrow-quantised-products"
    symmetric: bool = False

    def run_on(self, function: ir.Operation) -> bool:
        if not holds_bytes(function):
            return False
        changed = False
        for block in function.regions[0].blocks:
            for each in [entry.operation for entry in block.operations]:
                if is_product(each) and MARK not in each.attributes and role_of(each) in DENSE_ROLES:
                    changed |= _narrow(each, self.symmetric)
        if changed:
            erase_unused(function)
        return changed


def _narrow(operation: ir.Operation, symmetric: bool) -> bool:
    maps = maps_of(operation)
    structure = structure_of(operation)
    if structure is None or not all(isinstance(each, ir.AffineDimExpr) for each in maps[2].results):
        return False
    sizes = [structure.sizes[dim] for dim in structure.reduced]
    if any(size is None for size in sizes) or not _has_columns(structure, role_of(operation)):
        return False
    a, b = (read_quantised(operand) for operand in list(operation.operands)[:2])
    if a is None or b is None or not (a.is_real and b.is_real):
        return False
    if _in_groups(structure, role_of(operation)) and any(isinstance(each.zero, Side) for each in (a, b)):
        return False
    if symmetric and (role_of(operation) is not Role.CONTRACTION or any(each.unsigned or each.zero for each in (a, b))):
        return False
    if math.prod(size or 1 for size in sizes) * a.greatest * b.greatest > _LARGEST:
        return False
    if not all(_follow_sum(factor, read, maps[2]) for factor, read in zip((a, b), maps, strict=False)):
        return False
    sums = _integer_product(operation, (a, b), maps)
    result = _scaled(operation, sums, (a, b), maps)
    operation.results[0].replace_all_uses_with(result)
    _multiply_by_reciprocals(result)
    return True


def _has_columns(structure: Structure, role: Role) -> bool:
    """Whether each element of an operand is multiplied by several of the other one. Groups of a convolution have one
    channel, or so many channels and filters that products of bytes are worth it."""
    left, right = (
        {d for entry in each for d in entry.dims if structure.sizes[d] != 1} for each in structure.maps[:2]
    )
    if role is Role.CONVOLUTION:
        if _channels_of(structure):
            return True
        if not (left - right and right - left):
            return False
        return left & right <= structure.reduced or _has_large_groups(structure)
    return bool(left - right) or bool(right - left)


def _in_groups(structure: Structure, role: Role) -> bool:
    """Whether a convolution has groups of several channels."""
    left, right = ({d for entry in each for d in entry.dims} for each in structure.maps[:2])
    return role is Role.CONVOLUTION and not _channels_of(structure) and not left & right <= structure.reduced


def _has_large_groups(structure: Structure) -> bool:
    """Whether each group of a convolution has enough channels and filters."""
    image, filters = structure.maps[:2]
    if any(len(entry.dims) > 1 for entry in filters):
        image, filters = filters, image
    points = {entry.single for entry in image}
    dims = {entry.single for entry in filters}
    channels = [d for d in dims & points if d in structure.reduced]
    columns = dims - {d for entry in image for d in entry.dims}
    least = [max((structure.sizes[d] or 0 for d in each if d is not None), default=0) for each in (channels, columns)]
    return len(columns) == 1 and min(least) >= _LEAST_GROUP


def _channels_of(structure: Structure) -> bool:
    """Whether a convolution has one filter for each channel."""
    image, filters = (
        {d for entry in each for d in entry.dims if structure.sizes[d] != 1} for each in structure.maps[:2]
    )
    if any(len(entry.dims) > 1 for entry in structure.maps[1]):
        image, filters = filters, image
    shared = filters - structure.reduced
    return len(shared) == 1 and shared <= image and bool(image - filters)


def _follow_sum(factor: Quantised, read: ir.AffineMap, result: ir.AffineMap) -> bool:
    """Whether the scales of an operand are indexed by elements of the result alone, so that they can follow the sum.
    Zero points may not depend on windows or reduced loops either."""
    entries = [read.results[axis] for side in factor.sides for axis in side.axes if axis is not None]
    return all(isinstance(entry, ir.AffineDimExpr) and entry in list(result.results) for entry in entries) and not any(
        isinstance(scale, Side) and scale.casts for scale in factor.scales)


def _integer_product(
    operation: ir.Operation, factors: tuple[Quantised, Quantised], maps: list[ir.AffineMap]
) -> ir.Value:
    """The sum of the products of both operands minus their zero points, in 32 bits."""
    zeros = [(factor.zero, read) for factor, read in zip(factors, maps, strict=False) if isinstance(factor.zero, Side)]
    inputs = [*(factor.stored for factor in factors), *(zero.value for zero, _ in zeros)]
    reads = [*maps[:2], *(zero.map(read) for zero, read in zeros)]

    def body(block: ir.Block) -> ir.Value:
        *_, total = block.arguments
        points = iter(list(block.arguments)[2:])
        a, b = (
            factor.write_difference(byte, next(points) if isinstance(factor.zero, Side) else None)
            for factor, byte in zip(factors, block.arguments, strict=False)
        )
        return create("arith.addi", total.type, [total, create("arith.muli", a.type, [a, b])])

    with operation.location:
        start, kind = operation.operands[2], ir.RankedTensorType(operation.results[0].type)
        extents = [extent(start, axis, operation) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
        word = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(32))
        sums = filled(0, word, extents, operation)
    return nest(operation, inputs, sums, [*reads, maps[2]], body)


def _scaled(
    operation: ir.Operation, sums: ir.Value, factors: tuple[Quantised, Quantised], maps: list[ir.AffineMap]
) -> ir.Value:
    """The sums as floats, times the scales, plus the product's initial tensor."""
    real, rank = ir.RankedTensorType(operation.results[0].type).element_type, len(maps[2].results)
    whole = ir.AffineMap.get_identity(rank, operation.context)
    inputs, reads, number, over_result = [sums], [whole], 1.0, _over_result(maps[2])
    for factor, read in zip(factors, maps, strict=False):
        for scale in factor.scales:
            if not isinstance(scale, Side):
                number *= scale
                continue
            inputs.append(scale.value)
            places = [place.compose(over_result) for place in scale.map(read).results]
            reads.append(ir.AffineMap.get(rank, 0, places, operation.context))
    initial = _initial(operation)
    if initial is not None:
        inputs.append(initial[0])
        reads.append(initial[1])

    def body(block: ir.Block) -> ir.Value:
        summed, *scales, _ = block.arguments
        added = None if initial is None else scales.pop()
        value = create("arith.sitofp", real, [summed])
        factor = None if number == 1 and len(inputs) > 1 else constant(real, number)
        for scale in scales:
            factor = scale if factor is None else create("arith.mulf", real, [factor, scale])
        if factor is not None:
            value = create("arith.mulf", real, [value, factor])
        return value if added is None else create("arith.addf", real, [value, added])

    return nest(operation, inputs, operation.operands[2], [*reads, whole], body)


def _over_result(product: ir.AffineMap) -> ir.AffineMap:
    """The loops of a product over those of a nest of its results; 0 for loops that are summed over."""
    context, places = product.context, {ir.AffineDimExpr(entry).position: d for d, entry in enumerate(product.results)}
    loops = [
        ir.AffineDimExpr.get(places[loop], context) if loop in places else ir.AffineConstantExpr.get(0, context)
        for loop in range(product.n_dims)
    ]
    return ir.AffineMap.get(len(places), 0, loops, context)


def _initial(operation: ir.Operation) -> tuple[ir.Value, ir.AffineMap] | None:
    """What a product is added to, with its map over the result: a broadcast is read at its source. None for zeros."""
    value = operation.operands[2]
    if known_number(value) == 0:
        return None
    maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
    source = copied(maker)
    if maker is not None and source is not None and is_elementwise(maker):
        return source, maps_of(maker)[0]
    return value, ir.AffineMap.get_identity(ir.RankedTensorType(value.type).rank, operation.context)


def _multiply_by_reciprocals(value: ir.Value) -> None:
    """Replaces the division by a constant that precedes the rounding of `value`, after element-wise steps."""
    for _ in range(_MOST_STEPS):
        uses = list(value.uses)
        if len(uses) != 1:
            return
        reader = uses[0].owner.operation
        if not is_elementwise(reader):
            return
        for entry in list(reader.regions[0].blocks[0].operations):
            inner = entry.operation
            if inner.name == "arith.divf" and _is_rounded(inner.result, reader):
                _multiply_instead(inner, reader)
                return
        value = reader.results[0]


def _is_rounded(value: ir.Value, reader: ir.Operation) -> bool:
    """Whether a value in the body of `reader` is only rounded, there or by the only reader of the result."""
    uses = list(value.uses)
    if len(uses) != 1:
        return False
    user = uses[0].owner.operation
    if user.name != "linalg.yield":
        return user.name == "math.roundeven"
    readers = list(reader.results[0].uses)
    if len(readers) != 1 or not is_elementwise(readers[0].owner.operation):
        return False
    block = readers[0].owner.operation.regions[0].blocks[0]
    inner = list(block.arguments[readers[0].operand_number].uses)
    return len(inner) == 1 and inner[0].owner.operation.name == "math.roundeven"


def _multiply_instead(division: ir.Operation, reader: ir.Operation) -> None:
    value, divisor = division.operands
    number = known_number(divisor)
    block = reader.regions[0].blocks[0]
    if number is None and divisor in list(block.arguments):
        number = known_number(reader.operands[list(block.arguments).index(divisor)])
    if number is None or not number or not np.isfinite(1 / np.float32(number)):
        return
    with division.location, ir.InsertionPoint(division):
        factor = constant(value.type, float(1 / np.float64(number)))
        division.results[0].replace_all_uses_with(create("arith.mulf", value.type, [value, factor]))
    division.erase()
