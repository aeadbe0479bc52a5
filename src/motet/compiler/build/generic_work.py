"""Estimates the work of kernels on the generic path, and names the operator that most of it is for.

    linalg.generic over 128x56x56, 30 operations      401,408 · 30 steps
    scf.for 300 times { 4 operations on numbers }     300 · 4 · 20 steps: such loops are not vectorised
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.sizes import static_extent
from motet.compiler.ir.source_names import source_name

_GUESS = 16  # for a dynamic extent, and for the iterations of a loop whose number is not known
_SCALAR = 20  # steps of an operation that is not vectorised
_FREE = ("arith.constant", "linalg.index", "linalg.yield", "scf.yield", "scf.condition", "tensor.empty", "tensor.dim")


@dataclass(frozen=True)
class GenericWork:
    """`steps` are operations of vectorised code; `place` names the operator with the most of them."""

    steps: int
    place: str


def generic_work(function: ir.Operation) -> GenericWork:
    found: dict[str, int] = {}
    for operation, steps in _steps(function.regions[0].blocks[0], 1):
        name = source_name(operation)
        found[name] = found.get(name, 0) + steps
    place = max(found, key=lambda name: found[name], default="")
    return GenericWork(sum(found.values()), place)


def _steps(block: ir.Block, times: int) -> Iterator[tuple[ir.Operation, int]]:
    """The operations of `block`, which runs `times` times, with their steps."""
    for entry in block.operations:
        operation = entry.operation
        if operation.name.startswith("linalg.") and len(operation.regions):
            counted = [o for o in operation.regions[0].blocks[0].operations if o.operation.name not in _FREE]
            yield operation, times * _points(operation) * max(1, len(counted))
            continue
        inner = times * _iterations(operation)
        for region in operation.regions:
            for each in region.blocks:
                yield from _steps(each, inner)
        if times > 1 and operation.name not in _FREE:
            yield operation, times * _elements(operation) * _SCALAR


def _points(operation: ir.Operation) -> int:
    """The points of a structured operation."""
    extents: dict[int, int] = {}
    maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    for operand, map_ in zip(operation.operands, maps, strict=True):
        for axis, entry in enumerate(map_.results):
            if isinstance(entry, ir.AffineDimExpr):
                extent = static_extent(ir.RankedTensorType(operand.type), axis)
                extents[ir.AffineDimExpr(entry).position] = _GUESS if extent is None else extent
    return math.prod(extents.values())


def _iterations(operation: ir.Operation) -> int:
    """How often a loop runs its body; 1 for an operation that is not a loop."""
    if operation.name != "scf.for":
        return _GUESS if operation.name == "scf.while" else 1
    begin, end, step = (integer_constant(operand) for operand in list(operation.operands)[:3])
    if begin is None or end is None or not step:
        return _GUESS
    return max(0, -(-(end - begin) // step))


def _elements(operation: ir.Operation) -> int:
    """The elements that an operation on tensors copies, at the rate of an operation that is not vectorised."""
    if operation.name != "tensor.insert_slice":
        return 1
    kind = ir.RankedTensorType(operation.operands[0].type)
    extents = [static_extent(kind, axis) for axis in range(kind.rank)]
    return max(1, math.prod(_GUESS if extent is None else extent for extent in extents) // _SCALAR)
