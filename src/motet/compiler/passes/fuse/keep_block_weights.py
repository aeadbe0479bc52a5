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
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.current import constant, create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.nests import PRODUCT, copied, is_elementwise, nest, pad_with_zeros, steps_of, widened
from motet.compiler.ir.program import Program, parameters_of
from motet.compiler.ir.sizes import extent_of
from motet.compiler.kernels.roles import structure_of
from motet.compiler.operators.pointwise import split
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.block_weights import BlockWeights, block_weights
from motet.compiler.passes.fuse.evaluate_factored import Evaluator
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.normalise.hoist_constants import add_parameter, fresh_key

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
        self.evaluator = Evaluator({argument: parameters[key] for argument, key in parameters_of(function).items()})
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


def _product(operation: ir.Operation, number: int) -> _ByMatrix | None:
    """A nest as a product by its operand `number`, a matrix; None if it is something else."""
    if len(operation.operands) != 3 or len(operation.results) != 1:
        return None
    kind = ir.RankedTensorType(operation.results[0].type).element_type
    if [name for name in steps_of(operation) if name != "arith.extf"] != PRODUCT or str(kind) != "f32":
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
    source = copied(maker)
    if maker is None or source is None or not isinstance(source.type, ir.RankedTensorType) or not is_elementwise(maker):
        return value, list(dims)
    read = maps_of(maker)[0]
    if not all(isinstance(each, ir.AffineDimExpr) for each in read.results):
        return value, list(dims)
    return _source(source, [dims[ir.AffineDimExpr(each).position] for each in read.results])


# -- the product ---------------------------------------------------------------------------------------


def _multiplied(product: _ByMatrix, stored: _Stored) -> ir.Value:
    """The product by stored weights. The loops are those of `product` without that along the rows, then the block, the
    word of the block, and the number of the word."""
    operation, what = product.operation, stored.what
    context = operation.context
    other = operation.operands[1 - product.number]
    with operation.location, ir.InsertionPoint(operation):
        whole = _padded(other, product.axis, what.blocks * what.block)
        left = _split(whole, product.axis, (what.blocks, what.block * what.bits // 32, 32 // what.bits))
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
    return nest(
        operation, [left, stored.words, *sides], operation.operands[2], [*reads, result],
        lambda body: _body(body, stored, part),
    )


def _padded(value: ir.Value, axis: int, extent: int) -> ir.Value:
    """`value` padded with zeros along `axis` to `extent`."""
    kind = ir.RankedTensorType(value.type)
    missing, before, after = extent - kind.shape[axis], [0] * axis, [0] * (kind.rank - axis - 1)
    if not missing:
        return value
    wide = ir.RankedTensorType.get([*kind.shape[:axis], extent, *kind.shape[axis + 1:]], kind.element_type)
    return pad_with_zeros(wide, [value], [0] * kind.rank, [*before, missing, *after])


def _split(value: ir.Value, axis: int, sizes: tuple[int, ...]) -> ir.Value:
    """`value` with `axis` divided into axes of `sizes`."""
    kind = ir.RankedTensorType(value.type)
    wide = ir.RankedTensorType.get([*kind.shape[:axis], *sizes, *kind.shape[axis + 1:]], kind.element_type)
    extents = [extent_of(value, place) for place in range(kind.rank) if kind.is_dynamic_dim(place)]
    return split(value, wide, axis, len(sizes), extents)


def _body(block: ir.Block, stored: _Stored, part: int) -> ir.Value:
    """The sum and one more product, in f32."""
    bits = stored.what.bits
    word, real, index = ir.IntegerType.get_signless(32), ir.F32Type.get(), ir.IndexType.get()
    left, words, scale, *sides, total = block.arguments
    place = create("linalg.index", index, [], {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), part)})
    number = create("arith.index_cast", word, [place])
    low = create("arith.muli", word, [number, constant(word, bits)])
    unread = create("arith.subi", word, [constant(word, 32 - bits), low])
    shifted = create("arith.shli", word, [words, unread])
    value = create("arith.shrsi", word, [shifted, constant(word, 32 - bits)])
    if stored.zeros is not None:
        value = create("arith.subi", word, [value, create("arith.extsi", word, [sides.pop(0)])])
    weight = create("arith.mulf", real, [create("arith.sitofp", real, [value]), widened(scale, real)])
    if stored.shifts is not None:
        weight = create("arith.addf", real, [weight, sides.pop(0)])
    return create("arith.addf", real, [total, create("arith.mulf", real, [widened(left, real), weight])])
