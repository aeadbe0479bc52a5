"""flatten-concats: concatenations of slices of concatenations copy each part once, from where it was first.

    %c = tensor.concat dim(0) %x[3 …], %x[0 … 3]              %0 = tensor.insert_slice %x[3 …, 5 …] into %empty[0, 0]
    %d = tensor.concat dim(1) %c[0, 5 …], %c[0, 0 … 5]   →    %1 = tensor.insert_slice %x[0 … 3, 5 …] into %0[5, 0]
                                                              …

Rotations of several axes (`torch.roll`, shifted windows) have this form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.erase import erase_unused
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.boxes import Box, box_of, insert_at, meet, slice_at, whole
from motet.compiler.passes.fuse.marks import MARK, TOGETHER

_MOST = 32  # parts of one tensor


@dataclass(frozen=True)
class FlattenConcats(FunctionPass):
    """Considers tensors of static extents. Concatenations that another operation reads as a whole stay, and so do those
    that would have too many parts."""

    name = "flatten-concats"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for block in function.regions[0].blocks:
            for entry in reversed(list(block.operations)):
                concat = entry.operation
                if _is_concat(concat) and any(_inner(operand) is not None for operand in concat.operands):
                    changed |= _flatten(concat)
        if changed:
            erase_unused(function)
        return changed


@dataclass(frozen=True)
class _Copied:
    """The elements `place` of a tensor, which are those of `source` from `origin` on."""

    place: Box
    source: ir.Value
    origin: tuple[int, ...]


def _flatten(concat: ir.Operation) -> bool:
    # Concatenations of a tensor with itself have twice as many parts at each step.
    parts = list(islice(_parts(concat.results[0], whole(concat.results[0])), _MOST + 1))
    if len(parts) > _MOST:
        return False
    at, result = ir.InsertionPoint(concat), concat.results[0]
    value = ir.Operation.create("tensor.empty", results=[result.type], loc=concat.location, ip=at).result
    for part in parts:
        taken = tuple((first, size) for first, (_, size) in zip(part.origin, part.place, strict=True))
        value = insert_at(slice_at(part.source, taken, at, concat.location), value, part.place, at, concat.location)
    result.replace_all_uses_with(value)
    concat.erase()
    return True


def _parts(value: ir.Value, wanted: Box) -> Iterator[_Copied]:
    """The parts of `value` in the box `wanted`; their places begin at the box's first element."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    taken = None if owner is None else box_of(owner)
    if owner is not None and taken is not None:
        moved = tuple((begin + first, size) for (begin, _), (first, size) in zip(taken, wanted, strict=True))
        yield from _parts(owner.operands[0], moved)
    elif owner is not None and _is_concat(owner) and (_only_in_parts(owner) or wanted == whole(value)):
        for operand, place in _pieces(owner):
            common = meet(place, wanted)
            if common is None:
                continue
            inner = tuple((begin - first, size) for (begin, size), (first, _) in zip(common, place, strict=True))
            for part in _parts(operand, inner):
                shifted = tuple(
                    (begin + first - origin, size)
                    for (begin, size), (first, _), (origin, _) in zip(part.place, common, wanted, strict=True)
                )
                yield _Copied(shifted, part.source, part.origin)
    else:
        yield _Copied(tuple((0, size) for _, size in wanted), value, tuple(begin for begin, _ in wanted))


def _pieces(concat: ir.Operation) -> Iterator[tuple[ir.Value, Box]]:
    """The operands of a concatenation, with the boxes that they fill."""
    axis, start = ir.IntegerAttr(concat.attributes["dim"]).value, 0
    for operand in concat.operands:
        box = list(whole(operand))
        box[axis] = (start, box[axis][1])
        start += box[axis][1]
        yield operand, tuple(box)


def _inner(value: ir.Value) -> ir.Operation | None:
    """The concatenation that `value` is, or is a slice of, if it need not be stored."""
    while not isinstance(value.owner, ir.Block):
        operation = value.owner.operation
        if _is_concat(operation):
            return operation if _only_in_parts(operation) else None
        if box_of(operation) is None:
            return None
        value = operation.operands[0]
    return None


def _only_in_parts(concat: ir.Operation) -> bool:
    """Whether only slices and further concatenations read a concatenation."""
    return all(
        use.owner.operation.name in ("tensor.extract_slice", "tensor.concat") for use in concat.results[0].uses
    )


def _is_concat(operation: ir.Operation) -> bool:
    return (
        operation.name == "tensor.concat" and not {MARK, TOGETHER} & set(operation.attributes)
        and all(operand.type.has_static_shape for operand in operation.operands)
        and operation.results[0].type.has_static_shape
    )
