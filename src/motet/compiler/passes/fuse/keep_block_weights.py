"""keep-block-weights: multiplies by constant weights of 4 or 8 bits as they are stored.

    %w = (sitofp %bytes - zero) * scale               %v = tensor.expand_shape %x … 1x4096 into 1x128x4x8
    linalg.generic ins(%x, %w : f32, f32)       →     linalg.generic ins(%v, %words, %scales : f32, i32, f32)
      mulf; addf                                        (sitofp (nibble t of the word) * scale); mulf; addf

Otherwise fold-constants would write the weights out as floats, four to eight times as large. Zero points, scales and
shifts may change from one block of rows to the next; `block_weights.py` describes the layout. The weights of a product
are exact, also where the program rounds them to a 16-bit float. Small matrices are left to fold-constants, and so are
those that a known number of many rows of bf16 numbers is multiplied by: CPUs have instructions for such products, which
need both operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, reassociation_attribute
from motet.compiler.ir.create import create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.ir.sizes import extent_of
from motet.compiler.kernels.roles import structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.block_weights import BlockWeights, block_weights
from motet.compiler.passes.fuse.dequantised import is_elementwise, nest
from motet.compiler.passes.fuse.evaluate_factored import Evaluator
from motet.compiler.passes.fuse.group import MARK
from motet.compiler.passes.normalise.hoist_constants import add_parameter, fresh_key

_PRODUCT = ["arith.mulf", "arith.addf", "linalg.yield"]
_BLOCKS = "blocks"
_FEWEST = 8  # rows and columns
_MOST_BFLOAT_ROWS = 8


@dataclass(frozen=True)
class KeepBlockWeights(Pass):
    """Matrices of at least `smallest` weights. Adds parameters to the program."""

    name = "keep-block-weights"
    smallest: int = 4096

    def run(self, program: Program) -> bool:
        parameters = dict(program.parameters)
        changed = [_BlockRewriter(each, parameters, self.smallest).run() for each in public_functions(program.module)]
        program.parameters = parameters
        return any(changed)


@dataclass(frozen=True)
class _ByMatrix:
    """A product by a matrix: `weights`, operand `number` of the nest or the source that it repeats, is indexed by the
    loop `row`, which is summed over, along `row_axis`, and by `column`; the other operand has `row` as its axis
    `axis`."""

    operation: ir.Operation
    number: int
    weights: ir.Value
    row: int
    column: int
    row_axis: int
    axis: int


@dataclass(frozen=True)
class _Stored:
    """Weights as arguments of the function."""

    what: BlockWeights
    words: ir.Value
    scales: ir.Value
    zeros: ir.Value | None
    shifts: ir.Value | None


class _BlockRewriter:
    def __init__(self, function: ir.Operation, parameters: dict[str, np.ndarray], smallest: int) -> None:
        self.function, self.parameters, self.smallest = function, parameters, smallest
        self.evaluator = Evaluator(_known(function, parameters))
        self.stored: dict[tuple[ir.Value, int], _Stored | None] = {}

    def run(self) -> bool:
        if len(self.function.regions[0].blocks) != 1:
            return False
        changed = False
        for entry in list(self.function.regions[0].blocks[0].operations):
            operation = entry.operation
            if operation.name == "linalg.generic" and MARK not in operation.attributes:
                changed |= any(self._rewrite(operation, number) for number in (1, 0))
        if changed:
            erase_unused(self.function)
        return changed

    def _rewrite(self, operation: ir.Operation, number: int) -> bool:
        """Multiplies by operand `number` as it is stored, if it can be."""
        product = _product(operation, number)
        if product is None or _has_instructions(product):
            return False
        kind = ir.RankedTensorType(product.weights.type)
        if not kind.has_static_shape or int(np.prod(kind.shape)) < self.smallest or min(kind.shape) < _FEWEST:
            return False
        stored = self._weights(product.weights, product.row_axis)
        if stored is None:
            return False
        result = _multiplied(product, stored)
        operation.results[0].replace_all_uses_with(result)
        operation.erase()
        return True

    def _weights(self, value: ir.Value, row_axis: int) -> _Stored | None:
        key = value, row_axis
        if key not in self.stored:
            self.stored[key] = None
            found = self.evaluator.evaluate(value) if self.evaluator.is_widened(value) else None
            what = None if found is None else block_weights(found, row_axis)
            if what is not None:
                self.stored[key] = self._store(what)
        return self.stored[key]

    def _store(self, what: BlockWeights) -> _Stored:
        blocks, columns = what.blocks, what.words.shape[1]
        words = self._parameter(what.words.reshape(blocks, -1, columns))
        sides = [None if each is None else self._parameter(each) for each in (what.zeros, what.shifts)]
        return _Stored(what, words, self._parameter(what.scales), *sides)

    def _parameter(self, array: np.ndarray) -> ir.Value:
        context = self.function.context
        elements = {
            "int32": ir.IntegerType.get_signless(32, context), "int8": ir.IntegerType.get_signless(8, context),
            "float32": ir.F32Type.get(context), "float16": ir.F16Type.get(context),
        }
        kind = ir.RankedTensorType.get(array.shape, elements[array.dtype.name], loc=self.function.location)
        key = fresh_key(_BLOCKS, self.parameters)
        self.parameters[key] = np.ascontiguousarray(array)
        return add_parameter(self.function, kind, key, self.function.location)


def _known(function: ir.Operation, parameters: dict[str, np.ndarray]) -> dict[ir.Value, np.ndarray]:
    if "arg_attrs" not in function.attributes:
        return {}
    dictionaries = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return {
        argument: parameters[ir.StringAttr(dictionary[PARAMETER]).value]
        for argument, dictionary in zip(function.regions[0].blocks[0].arguments, dictionaries, strict=True)
        if PARAMETER in dictionary
    }


def _product(operation: ir.Operation, number: int) -> _ByMatrix | None:
    """A nest as a product by its operand `number`, a matrix; None if it is something else."""
    if len(operation.operands) != 3 or len(operation.results) != 1:
        return None
    body = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    names = [each.name for each in body if each.name != "arith.extf"]
    if names != _PRODUCT or str(body[-2].results[0].type) != "f32":
        return None
    structure = structure_of(operation)
    if structure is None:
        return None
    maps = [[entry.single for entry in each if entry.single is not None] for each in structure.maps]
    if [len(each) for each in maps] != [len(each) for each in structure.maps]:
        return None
    weights, own = _source(operation.operands[number], maps[number])
    other, result = maps[1 - number], maps[2]
    if len(own) != 2 or any(len(set(each)) != len(each) for each in (own, other, result)):
        return None
    rows = [dim for dim in own if dim in structure.reduced]
    if len(rows) != 1 or len(structure.reduced) != 1 or rows[0] not in other:
        return None
    column = next(dim for dim in own if dim != rows[0])
    if column in other or column not in result:
        return None
    return _ByMatrix(operation, number, weights, rows[0], column, own.index(rows[0]), other.index(rows[0]))


def _has_instructions(product: _ByMatrix) -> bool:
    """Whether a known number of many rows of bf16 numbers is multiplied. If the number is not known, it may be one, and
    then reading four times the bytes costs more than instructions for products gain."""
    other = ir.RankedTensorType(product.operation.operands[1 - product.number].type)
    if not isinstance(other.element_type, ir.BF16Type) or not other.has_static_shape:
        return False
    return int(np.prod(other.shape)) > _MOST_BFLOAT_ROWS * other.shape[product.axis]


def _source(value: ir.Value, dims: Sequence[int]) -> tuple[ir.Value, list[int]]:
    """The tensor that `value`, indexed by the loops `dims`, repeats along loops, and the loops that index it."""
    maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if maker is None or maker.name != "linalg.generic" or not is_elementwise(maker) or len(maker.operands) != 2:
        return value, list(dims)
    block, read = maker.regions[0].blocks[0], maps_of(maker)[0]
    copies = len(list(block.operations)) == 1 and block.operations[0].operation.operands[0] == block.arguments[0]
    tensor = isinstance(maker.operands[0].type, ir.RankedTensorType)
    if not copies or not tensor or not all(isinstance(each, ir.AffineDimExpr) for each in read.results):
        return value, list(dims)
    return _source(maker.operands[0], [dims[ir.AffineDimExpr(each).position] for each in read.results])


# -- the product ---------------------------------------------------------------------------------------


def _multiplied(product: _ByMatrix, stored: _Stored) -> ir.Value:
    """The product by stored weights. The loops are those of `product` without that along the rows, then the block, the
    word of the block, and the number of the word."""
    operation, what = product.operation, stored.what
    context = operation.context
    other = operation.operands[1 - product.number]
    with operation.location:
        padded = _padded(operation, other, product.axis, what.blocks * what.block)
        left = _split(operation, padded, product.axis, (what.blocks, what.block * what.bits // 32, 32 // what.bits))
    maps = maps_of(operation)
    count = maps[0].n_dims - 1
    dims = {dim: place for place, dim in enumerate(dim for dim in range(count + 1) if dim != product.row)}

    def mapped(places: list[int]) -> ir.AffineMap:
        return ir.AffineMap.get(count + 3, 0, [ir.AffineDimExpr.get(place, context) for place in places], context)

    block, word, part = count, count + 1, count + 2
    loops = [ir.AffineDimExpr(each).position for each in maps[1 - product.number].results]
    of_left = [place for dim in loops for place in ((block, word, part) if dim == product.row else (dims[dim],))]
    column = dims[product.column]
    sides = [each for each in (stored.scales, stored.zeros, stored.shifts) if each is not None]
    reads = [mapped(of_left), mapped([block, word, column]), *(mapped([block, column]) for _ in sides)]
    result = mapped([dims[ir.AffineDimExpr(each).position] for each in maps[2].results])
    with operation.location:
        return nest(
            operation, [left, stored.words, *sides], operation.operands[2], [*reads, result],
            lambda body: _body(body, stored, part), frozenset((block, word, part)),
        )


def _padded(at: ir.Operation, value: ir.Value, axis: int, extent: int) -> ir.Value:
    """`value` padded with zeros along `axis` to `extent`."""
    kind = ir.RankedTensorType(value.type)
    shape = list(kind.shape)
    missing = extent - shape[axis]
    if not missing:
        return value
    shape[axis] = extent
    zeros = [0] * kind.rank
    high = [missing if place == axis else 0 for place in range(kind.rank)]
    padding = create("arith.constant", [kind.element_type], [], at, {
        "value": ir.FloatAttr.get(kind.element_type, 0.0)}).result
    padded = create("tensor.pad", [ir.RankedTensorType.get(shape, kind.element_type)], [value], at, {
        "static_low": ir.DenseI64ArrayAttr.get(zeros), "static_high": ir.DenseI64ArrayAttr.get(high),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0])}, 1)
    index = ir.IndexType.get()
    inner = ir.Block.create_at_start(padded.regions[0], [index] * kind.rank, [at.location] * kind.rank)
    with ir.InsertionPoint(inner):
        ir.Operation.create("tensor.yield", operands=[padding])
    return padded.result


def _split(at: ir.Operation, value: ir.Value, axis: int, sizes: tuple[int, ...]) -> ir.Value:
    """`value` with `axis` divided into axes of `sizes`."""
    kind = ir.RankedTensorType(value.type)
    unknown = ir.ShapedType.get_dynamic_size()
    shape, groups, extents = list[int](), list[list[int]](), list[ir.Value]()
    with ir.InsertionPoint(at):
        for place, extent in enumerate(kind.shape):
            parts = list(sizes) if place == axis else [extent]
            groups.append(list(range(len(shape), len(shape) + len(parts))))
            shape += parts
            if extent == unknown:
                extents.append(extent_of(value, place))
    return create("tensor.expand_shape", [ir.RankedTensorType.get(shape, kind.element_type)], [value, *extents], at, {
        "reassociation": reassociation_attribute(groups, at.context),
        "static_output_shape": ir.DenseI64ArrayAttr.get(shape)}).result


def _body(block: ir.Block, stored: _Stored, part: int) -> ir.Value:
    """The sum and one more product, in f32."""
    bits = stored.what.bits
    word, real = ir.IntegerType.get_signless(32), ir.F32Type.get()
    arguments = list(block.arguments)
    left, words, scale, *sides, total = arguments
    index = ir.Operation.create("linalg.index", results=[ir.IndexType.get()], attributes={
        "dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), part)}).result
    number = ir.Operation.create("arith.index_cast", results=[word], operands=[index]).result
    low = _binary("arith.muli", number, _integer(word, bits))
    shifted = _binary("arith.shli", words, _binary("arith.subi", _integer(word, 32 - bits), low))
    value = _binary("arith.shrsi", shifted, _integer(word, 32 - bits))
    if stored.zeros is not None:
        value = _binary("arith.subi", value, _cast("arith.extsi", sides.pop(0), word))
    weight = _binary("arith.mulf", _cast("arith.sitofp", value, real), _cast("arith.extf", scale, real))
    if stored.shifts is not None:
        weight = _binary("arith.addf", weight, sides.pop(0))
    return _binary("arith.addf", total, _binary("arith.mulf", _cast("arith.extf", left, real), weight))


def _binary(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return ir.Operation.create(name, results=[left.type], operands=[left, right]).result


def _cast(name: str, value: ir.Value, kind: ir.Type) -> ir.Value:
    return value if value.type == kind else ir.Operation.create(name, results=[kind], operands=[value]).result


def _integer(kind: ir.Type, number: int) -> ir.Value:
    return ir.Operation.create(
        "arith.constant", results=[kind], attributes={"value": ir.IntegerAttr.get(kind, number)}).result
