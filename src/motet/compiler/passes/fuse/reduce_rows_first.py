"""reduce-rows-first: reduces what is computed of reduced rows along these first, and then over all rows.

    %r = linalg.generic … sum of %x over j                 %r = linalg.generic … sum of %x over j
    %y = linalg.generic … %x / %r                          %y = linalg.generic … %x / %r
    %s = linalg.generic … sum of %y over i, j        →     %p = linalg.generic … sum of %y over j
                                                           %s = linalg.generic … sum of %p over i

The program of a GPU that holds a row then adds it up as well, and `%y` is not stored: a divergence is one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import constant, create, recreate
from motet.compiler.ir.nests import loops
from motet.compiler.kernels.roles import Role, Structure, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.fuse.rules import space_of

_LEAST = 16  # rows: the reductions of fewer are split over many programs
_FAR = 16  # operations between the rows and what is reduced
_BEGINNINGS: Mapping[str, float] = MappingProxyType({
    "arith.addf": -0.0, "arith.maximumf": -float("inf"), "arith.minimumf": float("inf"),
})
_TYPES = ("f32", "f64")  # in which partial results are stored


@dataclass(frozen=True)
class ReduceRowsFirst(FunctionPass):
    """Considers reductions of known extents of one tensor to one number."""

    name = "reduce-rows-first"

    def run_on(self, function: ir.Operation) -> bool:
        found = False
        for block in function.regions[0].blocks:
            for operation in [entry.operation for entry in block.operations]:
                structure = _total(operation)
                rows = None if structure is None else _rows(operation, structure)
                if structure is not None and rows is not None:
                    _reduce_in_two(operation, structure, rows)
                    found = True
        return found


def _total(operation: ir.Operation) -> Structure | None:
    """The loops of a reduction of all elements of one tensor by one operation."""
    if operation.name != "linalg.generic" or len(operation.operands) != 2 or MARK in operation.attributes:
        return None
    structure = structure_of(operation)
    if structure is None or len(structure.reduced) != len(structure.sizes) or any(n is None for n in structure.sizes):
        return None
    if [entry.single for entry in structure.maps[0]] != list(range(len(structure.sizes))):
        return None
    kind = ir.RankedTensorType(operation.results[0].type)
    combined = _combined(operation)
    known = combined is not None and combined.name in _BEGINNINGS and str(kind.element_type) in _TYPES
    return structure if known and role_of(operation) is Role.REDUCTION and kind.rank == 0 else None


def _combined(operation: ir.Operation) -> ir.Operation | None:
    """The operation of a body that combines its term with the result so far, which nothing else reads."""
    block = operation.regions[0].blocks[0]
    running = block.arguments[1]
    users = [use.owner.operation for use in running.uses]
    last = block.operations[len(block.operations) - 1].operation.operands[0].owner
    if isinstance(last, ir.Block) or users != [last.operation] or list(last.operation.operands).count(running) != 1:
        return None
    return last.operation


def _rows(operation: ir.Operation, structure: Structure) -> frozenset[int] | None:
    """The loops along the rows of which the operand is computed point by point; None if there are none."""
    extents, todo, seen = space_of(structure).extents, [operation.operands[0]], 0
    while todo and seen < _FAR:
        owner = todo.pop().owner
        if isinstance(owner, ir.Block) or owner.operation.name in ("tensor.empty", "arith.constant"):
            continue
        maker, seen = owner.operation, seen + 1
        made = structure_of(maker) if maker.name == "linalg.generic" else None
        role = role_of(maker)
        if made is not None and role is Role.REDUCTION:
            space = space_of(made)
            if space.is_trailing and space.extents == extents and prod(size or 0 for size in space.outer) >= _LEAST:
                kept = [d for d, size in enumerate(structure.sizes) if size != 1]
                return frozenset(kept[position] for position in space.reduced)
        elif role is Role.ALIAS or (made is not None and role in (Role.ELEMENTWISE, Role.VIEW)):
            todo += maker.operands
    return None


def _reduce_in_two(operation: ir.Operation, structure: Structure, along: frozenset[int]) -> None:
    combined = _combined(operation)
    assert combined is not None
    name, element = combined.name, ir.RankedTensorType(operation.results[0].type).element_type
    rank = len(structure.sizes)
    over = [d for d in range(rank) if d not in along]
    kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{'reduction' if d in along else 'parallel'}>")
             for d in range(rank)]
    with ir.InsertionPoint(operation), operation.location:
        every, whole = ir.AffineMap.get_identity(rank), ir.AffineMap.get_identity(len(over))
        one = ir.AffineMap.get(len(over), 0, [])
        rows = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(d) for d in over])
        shape = ir.RankedTensorType.get([structure.sizes[d] or 0 for d in over], element)
        begin = loops(
            [constant(element, _BEGINNINGS[name])], create("tensor.empty", shape, []), [one, whole],
            lambda block: block.arguments[0],
        )
        part = recreate(operation, [operation.operands[0], begin], [every, rows], kinds)
        total = loops(
            [part], operation.operands[1], [whole, one], lambda block: create(name, element, list(block.arguments))
        )
    operation.results[0].replace_all_uses_with(total)
    operation.erase()
