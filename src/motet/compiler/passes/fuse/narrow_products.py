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
from motet.compiler.ir.sizes import extent_of
from motet.compiler.passes.base import FunctionPass

PRECISION = "motet.precision"  # a string attribute of modules: the dtype to which operands are rounded
NARROW = {"bf16": ir.BF16Type, "f16": ir.F16Type}
_PRODUCT = ["arith.mulf", "arith.addf", "linalg.yield"]
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True)
class NarrowProducts(FunctionPass):
    """`dtype` is one of `NARROW`."""

    name = "narrow-products"
    dtype: str = "bf16"

    def run_on(self, function: ir.Operation) -> bool:
        narrow = NARROW[self.dtype].get(function.context)
        found = False
        for block in function.regions[0].blocks:
            rounded: dict[ir.Value, ir.Value] = {}
            for entry in list(block.operations):
                if _is_product(entry.operation):
                    _narrow(entry.operation, narrow, rounded)
                    found = True
        return found


def _is_product(operation: ir.Operation) -> bool:
    """Whether `operation` is a sum of products of two f32 tensors."""
    if operation.name != "linalg.generic" or "reduction" not in str(operation.attributes["iterator_types"]):
        return False
    block = operation.regions[0].blocks[0]
    arguments = list(block.arguments)
    body = [entry.operation for entry in block.operations]
    if [each.name for each in body] != _PRODUCT or len(arguments) != 3:
        return False
    if any(not isinstance(argument.type, ir.F32Type) for argument in arguments):
        return False
    return {body[0].operands[0], body[0].operands[1]} == set(arguments[:2]) and arguments[2] in list(body[1].operands)


def _narrow(product: ir.Operation, narrow: ir.Type, rounded: dict[ir.Value, ir.Value]) -> None:
    """Let `product` read its operands rounded to `narrow`; `rounded` has those that are."""
    block = product.regions[0].blocks[0]
    for number in range(2):
        argument = block.arguments[number]
        uses = [(use.owner, use.operand_number) for use in argument.uses]
        with ir.InsertionPoint(product), product.location:
            product.operands[number] = _rounded(product.operands[number], narrow, rounded)
        wide = argument.type
        argument.set_type(narrow)
        cast = ir.Operation.create(
            "arith.extf", results=[wide], operands=[argument], loc=product.location,
            ip=ir.InsertionPoint.at_block_begin(block),
        )
        for owner, position in uses:
            owner.operation.operands[position] = cast.result


def _rounded(value: ir.Value, narrow: ir.Type, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """`value` rounded to `narrow`, at the current insertion point: what pads or reshapes it then moves 16 bits."""
    if value not in known:
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is not None and (owner.name in _VIEWS or _pads_with_constant(owner)):
            known[value] = _moved(owner, narrow, _rounded(owner.operands[0], narrow, known))
        elif owner is not None and _copies(owner):
            known[value] = _copied(owner, narrow, _rounded(owner.operands[0], narrow, known))
        else:
            known[value] = _cast(value, narrow)
    return known[value]


def _copies(operation: ir.Operation) -> bool:
    """Whether `operation` broadcasts or transposes one tensor."""
    if operation.name != "linalg.generic" or len(operation.operands) != 2 or len(operation.results) != 1:
        return False
    if not isinstance(operation.operands[0].type, ir.RankedTensorType):
        return False
    block = operation.regions[0].blocks[0]
    body = [entry.operation for entry in block.operations]
    return len(body) == 1 and list(body[0].operands) == [block.arguments[0]]


def _pads_with_constant(operation: ir.Operation) -> bool:
    if operation.name != "tensor.pad":
        return False
    (number,) = operation.regions[0].blocks[0].operations[-1].operation.operands if _is_bare(operation) else (None,)
    owner = None if number is None or isinstance(number.owner, ir.Block) else number.owner.operation
    return owner is not None and owner.name == "arith.constant" and ir.FloatAttr(owner.attributes["value"]).value == 0


def _is_bare(pad: ir.Operation) -> bool:
    return len(list(pad.regions[0].blocks[0].operations)) == 1


def _moved(operation: ir.Operation, narrow: ir.Type, source: ir.Value) -> ir.Value:
    """`operation`, a reshape or a pad with zeros, applied to `source`, the rounded tensor."""
    kind = ir.RankedTensorType(operation.results[0].type)
    made = ir.Operation.create(
        operation.name, results=[ir.RankedTensorType.get(kind.shape, narrow, kind.encoding)],
        operands=[source, *list(operation.operands)[1:]], regions=len(operation.regions),
        attributes={name: operation.attributes[name] for name in operation.attributes},
    )
    if operation.name == "tensor.pad":
        index = ir.IndexType.get()
        block = made.regions[0].blocks.append(*[index] * kind.rank, arg_locs=[operation.location] * kind.rank)
        zero = ir.Operation.create(
            "arith.constant", results=[narrow], attributes={"value": ir.FloatAttr.get(narrow, 0)},
            ip=ir.InsertionPoint(made),
        )
        ir.Operation.create("tensor.yield", operands=[zero.result], ip=ir.InsertionPoint(block))
    return made.result


def _copied(operation: ir.Operation, narrow: ir.Type, source: ir.Value) -> ir.Value:
    """`operation`, a broadcast or a transpose, of `source`, the rounded tensor. A weight that is repeated for a dynamic
    number of images stays a constant."""
    result = operation.results[0]
    kind = ir.RankedTensorType(result.type)
    sizes = [extent_of(result, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    narrowed = ir.RankedTensorType.get(kind.shape, narrow)
    empty = ir.Operation.create("tensor.empty", results=[narrowed], operands=sizes).result
    made = ir.Operation.create(
        "linalg.generic", results=[narrowed], operands=[source, empty], regions=1,
        attributes={name: operation.attributes[name] for name in operation.attributes},
    )
    block = made.regions[0].blocks.append(narrow, narrow, arg_locs=[operation.location] * 2)
    ir.Operation.create("linalg.yield", operands=[block.arguments[0]], ip=ir.InsertionPoint(block))
    return made.result


def _cast(value: ir.Value, narrow: ir.Type) -> ir.Value:
    """The element-wise rounding of `value`."""
    wide = ir.RankedTensorType(value.type)
    kind = ir.RankedTensorType.get(wide.shape, narrow)
    sizes = [extent_of(value, axis) for axis in range(wide.rank) if wide.is_dynamic_dim(axis)]
    empty = ir.Operation.create("tensor.empty", results=[kind], operands=sizes).result
    same = ir.AffineMapAttr.get(ir.AffineMap.get_identity(wide.rank))
    made = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[value, empty], regions=1, attributes={
            "indexing_maps": ir.ArrayAttr.get([same, same]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * wide.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
    )  # fmt: skip
    location = ir.Location.unknown()
    block = made.regions[0].blocks.append(wide.element_type, narrow, arg_locs=[location, location])
    with ir.InsertionPoint(block):
        cast = ir.Operation.create("arith.truncf", results=[narrow], operands=[block.arguments[0]])
        ir.Operation.create("linalg.yield", operands=[cast.result])
    return made.result
