"""scatter-in-place: writes windows into a tensor as it is stored, instead of into a transposed copy of it.

    %t = transpose %x : 8x1024x64 → 1024x8x64
    %s = tm_tensor.scatter {dimension_map = [0]}         →    tm_tensor.scatter {dimension_map = [0, 1]}
             ins(%u: 16x8x64, %i: 16x1) outs(%t)                  ins(%v: 128x64, %k: 128x2) outs(%x)
    %y = transpose %s : 1024x8x64 → 8x1024x64

Frontends transpose a tensor so that the dimension that is indexed is the first, as of a cache of keys that is written
at some positions. Dimensions before the indexed one get an index for each of their positions; those behind it are the
window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.attributes import maps_of, reassociation_attribute
from motet.compiler.ir.create import create, index_constant
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.nests import copied, is_elementwise, nest
from motet.compiler.ir.program import Program
from motet.compiler.passes.base import Pass

_SCATTER = "tm_tensor.scatter"


@dataclass(frozen=True)
class ScatterInPlace(Pass):
    """Extents must be static. A scatter along the last dimension, of single elements, is left unchanged."""

    name = "scatter-in-place"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            changed = [_rewrite(each) for each in find_operations(function, _SCATTER)]
            if any(changed):
                found = True
                erase_unused(function)
        return found


def _rewrite(scatter: ir.Operation) -> bool:
    updates, indices, transposed = scatter.operands
    kinds = [ir.RankedTensorType(value.type) for value in scatter.operands]
    if list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) != [0] or kinds[0].rank != kinds[2].rank:
        return False
    uses = list(scatter.results[0].uses)
    order = _transposition(transposed.owner)
    if order is None or len(uses) != 1 or not all(kind.has_static_shape for kind in kinds):
        return False
    back = _transposition(uses[0].owner)
    axis = order.index(0)
    if back is None or [back[d] for d in order] != list(range(len(order))) or axis in (0, len(order) - 1):
        return False
    if 0 in kinds[0].shape:
        return False
    moved = _transposed(updates, order, scatter)
    shape = list(ir.RankedTensorType(moved.type).shape)
    count = math.prod(shape[: axis + 1])
    groups = [list(range(axis + 1)), *([d] for d in range(axis + 1, len(shape)))]
    rows = _collapsed(moved, [count, *shape[axis + 1 :]], groups, scatter)
    places = _places(indices, shape[: axis + 1], scatter)
    places = _collapsed(places, [count, axis + 1], [list(range(axis + 1)), [axis + 1]], scatter)
    attributes = {name: scatter.attributes[name] for name in scatter.attributes}
    attributes["dimension_map"] = ir.DenseI64ArrayAttr.get(list(range(axis + 1)))
    source = transposed.owner.operands[0]
    made = create(_SCATTER, [source.type], [rows, places, source], scatter, attributes, 1)
    scatter.regions[0].blocks[0].append_to(made.regions[0])
    uses[0].owner.results[0].replace_all_uses_with(made.results[0])
    uses[0].owner.operation.erase()
    scatter.erase()
    return True


def _transposition(owner: ir.Operation | ir.Block) -> list[int] | None:
    """The dimension of the result that each dimension of the operand becomes, if `owner` only transposes."""
    if isinstance(owner, ir.Block) or copied(owner.operation) is None or not is_elementwise(owner.operation):
        return None
    read = maps_of(owner.operation)[0]
    if not all(isinstance(entry, ir.AffineDimExpr) for entry in read.results):
        return None
    order = [ir.AffineDimExpr(entry).position for entry in read.results]
    return order if sorted(order) == list(range(read.n_dims)) else None


def _transposed(value: ir.Value, order: Sequence[int], at: ir.Operation) -> ir.Value:
    """`value`, whose dimension `order[d]` becomes dimension `d`."""
    kind = ir.RankedTensorType(value.type)
    result = ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type)
    reading = ir.AffineMap.get(kind.rank, 0, [ir.AffineExpr.get_dim(list(order).index(d)) for d in range(kind.rank)])
    return _written(result, value, reading, at, lambda block: block.arguments[0])


def _places(indices: ir.Value, extents: Sequence[int], at: ir.Operation) -> ir.Value:
    """For each point of `extents` its coordinates, the last replaced by its index."""
    rank = len(extents)
    word = ir.RankedTensorType(indices.type).element_type
    result = ir.RankedTensorType.get([*extents, rank], word)
    reading = ir.AffineMap.get(rank + 1, 0, [ir.AffineExpr.get_dim(rank - 1), ir.AffineExpr.get_constant(0)])
    numbers = [index_constant(d, at) for d in range(rank - 1)]

    def body(block: ir.Block) -> ir.Value:
        column = _index(rank)
        found: ir.Value = block.arguments[0]
        for d, number in enumerate(numbers):
            here = arith.CmpIOp(arith.CmpIPredicate.eq, column, number).result
            own = ir.Operation.create("arith.index_cast", results=[word], operands=[_index(d)]).result
            found = arith.SelectOp(here, own, found).result
        return found

    return _written(result, indices, reading, at, body)


def _index(d: int) -> ir.Value:
    attributes = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), d)}
    return ir.Operation.create("linalg.index", results=[ir.IndexType.get()], attributes=attributes).result


def _written(
    kind: ir.RankedTensorType, value: ir.Value, read: ir.AffineMap, at: ir.Operation,
    body: Callable[[ir.Block], ir.Value],
) -> ir.Value:
    """A tensor of what `body` makes of the elements of `value` that are read by `read`."""
    empty = create("tensor.empty", [kind], [], at).result
    return nest(at, [value], empty, [read, ir.AffineMap.get_identity(kind.rank)], body)


def _collapsed(
    value: ir.Value, shape: Sequence[int], groups: Sequence[Sequence[int]], at: ir.Operation
) -> ir.Value:
    kind = ir.RankedTensorType(value.type)
    result = ir.RankedTensorType.get(list(shape), kind.element_type)
    attributes: dict[str, ir.Attribute] = {"reassociation": reassociation_attribute(groups)}
    return create("tensor.collapse_shape", [result], [value], at, attributes).result
