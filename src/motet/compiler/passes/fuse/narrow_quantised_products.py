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

from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.create import create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.kernels.roles import Role, Structure, known_number, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.dequantised import (
    Dequantised,
    Side,
    holds_bytes,
    is_elementwise,
    nest,
    read_dequantised,
)
from motet.compiler.passes.fuse.group import MARK

_PRODUCT = ["arith.mulf", "arith.addf", "linalg.yield"]
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
                if each.name == "linalg.generic" and MARK not in each.attributes and is_product(each):
                    changed |= _narrow(each, self.symmetric)
        if changed:
            erase_unused(function)
        return changed


def is_product(operation: ir.Operation) -> bool:
    """Whether a nest is a sum of products in f32 of two tensors, with several results for each element of either."""
    body = operation.regions[0].blocks[0]
    if [entry.operation.name for entry in body.operations] != _PRODUCT or len(operation.operands) != 3:
        return False
    if str(ir.RankedTensorType(operation.results[0].type).element_type) != "f32":
        return False
    product, total, _ = (entry.operation for entry in body.operations)
    left, right, accumulator = body.arguments
    return (
        set(product.operands) == {left, right} and set(total.operands) == {accumulator, product.result}
        and role_of(operation) in (Role.CONTRACTION, Role.CONVOLUTION)
    )


def _narrow(operation: ir.Operation, symmetric: bool) -> bool:
    maps = maps_of(operation)
    structure = structure_of(operation)
    if structure is None or not all(isinstance(each, ir.AffineDimExpr) for each in maps[2].results):
        return False
    sizes = [structure.sizes[dim] for dim in structure.reduced]
    if any(size is None for size in sizes) or not _has_columns(structure, role_of(operation)):
        return False
    factors = [read_dequantised(operand) for operand in list(operation.operands)[:2]]
    a, b = factors
    if a is None or b is None or not (a.is_real and b.is_real):
        return False
    if _in_groups(structure, role_of(operation)) and any(isinstance(each.zero, Side) for each in (a, b)):
        return False
    if symmetric and (role_of(operation) is not Role.CONTRACTION or any(each.unsigned or each.zero for each in (a, b))):
        return False
    if int(np.prod([size or 1 for size in sizes], dtype=np.float64)) * a.greatest * b.greatest > _LARGEST:
        return False
    scales = [_result_maps(factor, maps[i], maps[2]) for i, factor in enumerate((a, b))]
    if scales[0] is None or scales[1] is None:
        return False
    sums = _integer_product(operation, (a, b), maps, structure.reduced)
    result = _scaled(operation, sums, [*scales[0], *scales[1]])
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


def _result_maps(factor: Dequantised, own: ir.AffineMap, result: ir.AffineMap) -> list[_Scale] | None:
    """The scales of an operand over the result's elements; None if one is indexed by anything else. Zero points may not
    depend on windows or reduced loops either."""
    places = {ir.AffineDimExpr(each).position: place for place, each in enumerate(result.results)}
    found: list[_Scale] = []
    for number in (factor.zero, *factor.scales):
        if not isinstance(number, Side):
            found += [_Scale(float(number))] if number is not factor.zero else []
            continue
        exprs: list[ir.AffineExpr] = []
        for axis in number.axes:
            entry = None if axis is None else own.results[axis]
            if entry is None:
                exprs.append(ir.AffineConstantExpr.get(0, own.context))
            elif isinstance(entry, ir.AffineDimExpr) and ir.AffineDimExpr(entry).position in places:
                exprs.append(ir.AffineDimExpr.get(places[ir.AffineDimExpr(entry).position], own.context))
            else:
                return None
        if number is not factor.zero:
            if number.casts:
                return None
            found.append(_Scale(number.value, ir.AffineMap.get(len(result.results), 0, exprs, own.context)))
    return found


@dataclass(frozen=True)
class _Scale:
    """A number, or a tensor with its map over the result."""

    value: ir.Value | float
    map: ir.AffineMap | None = None


def _integer_product(
    operation: ir.Operation, factors: tuple[Dequantised, Dequantised], maps: list[ir.AffineMap],
    reduced: frozenset[int],
) -> ir.Value:
    """The sum of the products of both operands minus their zero points, in 32 bits."""
    context = operation.context
    inputs, reads = [factor.bytes for factor in factors], maps[:2]
    places: dict[int, int] = {}
    for i, factor in enumerate(factors):
        if isinstance(factor.zero, Side):
            exprs = [
                ir.AffineConstantExpr.get(0, context) if axis is None else maps[i].results[axis]
                for axis in factor.zero.axes
            ]
            places[i] = len(inputs)
            inputs.append(factor.zero.value)
            reads.append(ir.AffineMap.get(maps[0].n_dims, 0, exprs, context))

    def body(block: ir.Block) -> ir.Value:
        word = ir.IntegerType.get_signless(32)
        wide: list[ir.Value] = []
        for i, factor in enumerate(factors):
            name = "arith.extui" if factor.unsigned else "arith.extsi"
            number = ir.Operation.create(name, results=[word], operands=[block.arguments[i]]).result
            if isinstance(factor.zero, Side):
                zero = block.arguments[places[i]]
                if zero.type != word:
                    zero = ir.Operation.create(factor.zero.casts[0], results=[word], operands=[zero]).result
                number = _binary("arith.subi", number, zero)
            elif factor.zero:
                number = _binary("arith.subi", number, _constant(word, factor.zero))
            wide.append(number)
        return _binary("arith.addi", block.arguments[len(inputs)], _binary("arith.muli", *wide))

    with operation.location:
        word = ir.IntegerType.get_signless(32)
        sums = _filled(operation, word)
    return nest(operation, inputs, sums, [*reads, maps[2]], body, reduced)


def _filled(operation: ir.Operation, word: ir.Type) -> ir.Value:
    """Zeros of the shape of the result of `operation`, whose initial tensor has the extents."""
    kind = ir.RankedTensorType(operation.results[0].type)
    unknown = ir.ShapedType.get_dynamic_size()
    extents: list[ir.Value] = []
    for axis, extent in enumerate(kind.shape):
        if extent == unknown:
            index = create("arith.constant", [ir.IndexType.get()], [], operation, {
                "value": ir.IntegerAttr.get(ir.IndexType.get(), axis)}).result
            extents.append(create("tensor.dim", [ir.IndexType.get()], [operation.operands[2], index], operation).result)
    empty = create("tensor.empty", [ir.RankedTensorType.get(kind.shape, word)], extents, operation).result
    zero = create("arith.constant", [word], [], operation, {"value": ir.IntegerAttr.get(word, 0)}).result
    scalar = ir.AffineMap.get(kind.rank, 0, [], operation.context)
    whole = ir.AffineMap.get_identity(kind.rank, operation.context)
    return nest(operation, [zero], empty, [scalar, whole], lambda block: block.arguments[0])


def _scaled(operation: ir.Operation, sums: ir.Value, scales: list[_Scale]) -> ir.Value:
    """The sums as floats, times `scales`, plus the product's initial tensor."""
    kind = ir.RankedTensorType(operation.results[0].type)
    whole = ir.AffineMap.get_identity(kind.rank, operation.context)
    inputs, reads = [sums], [whole]
    for scale in scales:
        if scale.map is not None:
            inputs.append(scale.value)  # type: ignore[arg-type]
            reads.append(scale.map)
    number = float(np.prod([scale.value for scale in scales if scale.map is None], dtype=np.float64))
    initial = _initial(operation)
    if initial is not None:
        inputs.append(initial[0])
        reads.append(initial[1])

    def body(block: ir.Block) -> ir.Value:
        value = ir.Operation.create("arith.sitofp", results=[kind.element_type], operands=[block.arguments[0]]).result
        factor = None if number == 1 and len(inputs) > 1 else _constant(kind.element_type, number)
        last = len(inputs) - (initial is not None)
        for argument in list(block.arguments)[1:last]:
            factor = argument if factor is None else _binary("arith.mulf", factor, argument)
        if factor is not None:
            value = _binary("arith.mulf", value, factor)
        return value if initial is None else _binary("arith.addf", value, block.arguments[last])

    return nest(operation, inputs, operation.operands[2], [*reads, whole], body)


def _initial(operation: ir.Operation) -> tuple[ir.Value, ir.AffineMap] | None:
    """What a product is added to, with its map over the result: a broadcast is read at its source. None for zeros."""
    value = operation.operands[2]
    if known_number(value) == 0:
        return None
    kind = ir.RankedTensorType(value.type)
    whole = ir.AffineMap.get_identity(kind.rank, operation.context)
    maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if maker is not None and is_elementwise(maker) and len(maker.operands) == 2:
        block = maker.regions[0].blocks[0]
        if len(list(block.operations)) == 1 and block.operations[0].operation.operands[0] == block.arguments[0]:
            return maker.operands[0], maps_of(maker)[0]
    return value, whole


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
        factor = _constant(value.type, float(1 / np.float64(number)))
        division.results[0].replace_all_uses_with(_binary("arith.mulf", value, factor))
    division.erase()


def _binary(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return ir.Operation.create(name, results=[left.type], operands=[left, right]).result


def _constant(kind: ir.Type, number: float | int) -> ir.Value:
    floating = isinstance(kind, ir.FloatType)
    attribute = ir.FloatAttr.get(kind, number) if floating else ir.IntegerAttr.get(kind, int(number))
    return ir.Operation.create("arith.constant", results=[kind], attributes={"value": attribute}).result
