"""collect-insertions: groups insertions that fill one tensor part by part, so that one kernel writes all of it.

    %a = tensor.insert_slice %p into %filled [0, 0] …      one kernel that reads the slices' sources and writes %c;
    %b = tensor.insert_slice %q into %a [0, 3] …      →    reversed slices are read in place, and parts of %filled
    %c = tensor.insert_slice %r into %b [3, 0] …           that are written later are not filled

Frontends write padding by reflection or repetition in this form. Concatenations read slices and transpositions in place
likewise, and those of results of element-wise operations become one kernel with these, which write their parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import Role, is_unit_reshape, role_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.marks import INTERLEAVED, MARK, TOGETHER

_MOST = 64  # insertions of one kernel, each a stage
_INDEX_ARITHMETIC = ("linalg.index", "arith.addi", "arith.subi", "arith.constant")


@dataclass(frozen=True)
class CollectInsertions(FunctionPass):
    """Considers tensors of static extents, without other readers of the parts that are filled."""

    name = "collect-insertions"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for block in function.regions[0].blocks:
            number = _first_number(block)
            for chain in (*_chains(block), *_concats_of_views(block)):
                mark = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
                for operation in (*chain, *_moving(chain)):
                    operation.attributes[INTERLEAVED] = mark
                number += 1
                changed = True
            for concat in _concats_of_results(block):
                concat.attributes[TOGETHER] = ir.UnitAttr.get(concat.context)
                changed = True
        return changed


def _first_number(block: ir.Block) -> int:
    marked = [o.operation for o in block.operations if INTERLEAVED in o.operation.attributes]
    return 1 + max((ir.IntegerAttr(o.attributes[INTERLEAVED]).value for o in marked), default=-1)


def _chains(block: ir.Block) -> Iterator[list[ir.Operation]]:
    """Insertions into each other's results, the first into a fill or a tensor without contents, in program order."""
    for entry in list(block.operations):
        last = entry.operation
        if not _is_insertion(last) or any(_is_insertion(user) and _destination(user) == last.results[0]
                                          for user in _users(last)):
            continue
        chain = [last]
        while (before := _made_by(_destination(chain[0]))) is not None and _is_insertion(before):
            if len(_users(before)) > 1:
                break
            chain.insert(0, before)
        if before is not None and role_of(before) is Role.FREE and 2 <= len(chain) <= _MOST:
            yield chain


def _concats_of_views(block: ir.Block) -> Iterator[list[ir.Operation]]:
    """Concatenations of views that are not stored for another reader."""
    for entry in block.operations:
        concat = entry.operation
        if concat.name != "tensor.concat" or any(mark in concat.attributes for mark in (MARK, TOGETHER)):
            continue
        if concat.results[0].type.has_static_shape and any(map(_is_view, concat.operands)):
            yield [concat]


def _concats_of_results(block: ir.Block) -> Iterator[ir.Operation]:
    """Concatenations whose parts are all results of element-wise operations, without other readers."""
    for entry in block.operations:
        concat = entry.operation
        marked = any(mark in concat.attributes for mark in (INTERLEAVED, MARK, TOGETHER))
        if concat.name != "tensor.concat" or marked or not concat.results[0].type.has_static_shape:
            continue
        makers = [_made_by(part) for part in concat.operands]
        if len(set(concat.operands)) == len(makers) and all(
            maker is not None and role_of(maker) is Role.ELEMENTWISE and len(_users(maker)) == 1 for maker in makers
        ):
            yield concat


def _is_view(value: ir.Value) -> bool:
    """Whether `value` is a slice or transposition, without or with other unit dimensions."""
    maker = _made_by(value)
    while maker is not None and role_of(maker) is Role.ALIAS and is_unit_reshape(maker):
        maker = _made_by(maker.operands[0])
    return maker is not None and maker.name != "tensor.pad" and role_of(maker) is Role.VIEW


def _moving(chain: list[ir.Operation]) -> Iterator[ir.Operation]:
    """The operations that only the chain reads and that only move elements, such as reversals."""
    for insertion in chain:
        made = _made_by(insertion.operands[0]) if insertion.name == "tensor.insert_slice" else None
        if made is None or made.name != "linalg.generic" or len(_users(made)) != 1 or not _extracts(made):
            continue
        yield made
        inside = {made, *(entry.operation for entry in made.regions[0].blocks[0].operations)}
        for operand in dict.fromkeys(made.operands):
            part = _made_by(operand)
            if part is not None and role_of(part) is Role.VIEW and set(_users(part)) <= inside:
                yield part


def _is_insertion(operation: ir.Operation) -> bool:
    return (
        operation.name == "tensor.insert_slice" and INTERLEAVED not in operation.attributes
        and len(operation.operands) == 2  # the others are computed offsets and extents
        and all(operand.type.has_static_shape for operand in operation.operands)
    )


def _destination(insertion: ir.Operation) -> ir.Value:
    return insertion.operands[1]


def _extracts(operation: ir.Operation) -> bool:
    """Whether a body only reads a tensor at an index that is linear in the loops."""
    *before, last = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    return bool(before) and before[-1].name == "tensor.extract" and (
        list(last.operands) == list(before[-1].results)
        and all(inner.name in _INDEX_ARITHMETIC for inner in before[:-1])
    )


def _made_by(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _users(operation: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for result in operation.results for use in result.uses]
