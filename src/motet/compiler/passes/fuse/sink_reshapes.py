"""sink-reshapes: moves a reshape that splits dimensions after the element-wise operations on its result.

    %p = … a product on 4096x3072                         %g = linalg.generic … gelu of %p on 4096x3072
    %e = tensor.expand_shape %p … into 32x128x3072    →     %e = tensor.expand_shape %g … into 32x128x3072
    %g = linalg.generic … gelu of %e

They then join the kernel of the product: PyTorch's layers flatten the operand of a product, and restore the shape
before the next operation. Other operands must be constant along the dimensions that are split off, like a vector that
is added to every row. Extents must be static.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.marks import MARK


@dataclass(frozen=True)
class SinkReshapes(Pass):
    """Extents must be static."""

    name = "sink-reshapes"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            for block in function.regions[0].blocks:
                sunk = [_sink(each.operation) for each in list(block.operations)]
                if any(sunk):
                    found = True
                    erase_unused(function)
        return found


@dataclass(frozen=True)
class _Expansion:
    """A split of dimensions: the dimensions that each original one becomes, and the original shape."""

    groups: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


def _sink(operation: ir.Operation) -> bool:
    if not _is_element_wise(operation):
        return False
    maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    identity = ir.AffineMap.get_identity(maps[-1].n_dims, operation.context)
    operands = list(operation.operands)[: len(maps) - 1]
    whole = [operand for operand, each in zip(operands, maps, strict=False) if each == identity]
    expansions = {_expansion(operand) for operand in whole}
    if maps[-1] != identity or len(expansions) != 1:
        return False
    (expansion,) = expansions
    if expansion is None:
        return False
    before = [
        ir.AffineMap.get_identity(len(expansion.groups), operation.context) if each == identity
        else _remapped(each, expansion) for each in maps
    ]
    known = [each for each in before if each is not None]
    if len(known) != len(before):
        return False
    sources = [
        operand.owner.operation.operands[0] if each == identity else operand
        for operand, each in zip(operands, maps, strict=False)
    ]
    _rewrite(operation, expansion, sources, known, whole[0].owner.operation)
    return True


def _is_element_wise(operation: ir.Operation) -> bool:
    """Whether an operation has one result, iterates over exactly its points, and does not depend on their indices."""
    if operation.name != "linalg.generic" or MARK in operation.attributes or len(operation.results) != 1:
        return False
    if "reduction" in str(operation.attributes["iterator_types"]):
        return False
    body = operation.regions[0].blocks[0]
    return not any(True for _ in body.arguments[len(body.arguments) - 1].uses) and all(
        entry.operation.name.startswith(("arith.", "math.", "linalg.yield")) for entry in body.operations
    )


def _expansion(value: ir.Value) -> _Expansion | None:
    """The split that makes `value`, if it is one of an operation's result; None otherwise."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "tensor.expand_shape":
        return None
    operation = value.owner.operation
    source = operation.operands[0]
    kinds = ir.RankedTensorType(source.type), ir.RankedTensorType(value.type)
    if isinstance(source.owner, ir.Block) or source.owner.operation.name != "linalg.generic":
        return None
    if not all(kind.has_static_shape for kind in kinds):
        return None
    return _Expansion(tuple(map(tuple, reassociation(operation))), tuple(kinds[0].shape))


def _remapped(each: ir.AffineMap, expansion: _Expansion) -> ir.AffineMap | None:
    """The map over the original dimensions; None if it is not expressible."""
    place = {group[0]: number for number, group in enumerate(expansion.groups) if len(group) == 1}
    results: list[ir.AffineExpr] = []
    for result in each.results:
        if not isinstance(result, ir.AffineDimExpr):
            return None
        dimension = result.position
        if dimension not in place:
            return None
        results.append(ir.AffineDimExpr.get(place[dimension], each.context))
    return ir.AffineMap.get(len(expansion.groups), 0, results, each.context)


def _rewrite(
    operation: ir.Operation, expansion: _Expansion, sources: Sequence[ir.Value], maps: Sequence[ir.AffineMap],
    split: ir.Operation,
) -> None:
    context, place = operation.context, operation.location
    at = ir.InsertionPoint(operation)
    result = ir.RankedTensorType(operation.results[0].type)
    kind = ir.RankedTensorType.get(expansion.shape, result.element_type, loc=place)
    empty = ir.Operation.create("tensor.empty", results=[kind], loc=place, ip=at).result
    iterators = list(ir.ArrayAttr(operation.attributes["iterator_types"]))[: len(expansion.groups)]
    made = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[*sources, empty],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps], context),
            "iterator_types": ir.ArrayAttr.get(iterators, context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(sources), 1], context),
        },
        regions=1, loc=place, ip=at,
    )
    operation.regions[0].blocks[0].append_to(made.regions[0])
    expanded = ir.Operation.create(
        "tensor.expand_shape", results=[result], operands=[made.result],
        attributes={name: split.attributes[name] for name in ("reassociation", "static_output_shape")},
        loc=place, ip=at,
    ).result
    operation.results[0].replace_all_uses_with(expanded)
    operation.erase()
