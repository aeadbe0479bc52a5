"""distribute-concats: applies element-wise operations to the parts of a concatenation.

    %c = tensor.concat dim(1) %a, %b                        %x = linalg.generic … f(%a, slice of %y)
    %r = linalg.generic … f(%c, %y)                   →     %z = linalg.generic … f(%b, slice of %y)
                                                            %r = tensor.concat dim(1) %x, %z

Neither the concatenation nor the elements of `%y` that were only read by it are then stored in memory: the parts become
one kernel, each of which writes its slice of the result. Rotary position embeddings have this form. A tensor that is
only read in slices is computed in slices. Other concatenations are marked to become one kernel with the operations that
make their parts, including views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import computes_its_points
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.marks import MARK, TOGETHER

_MOST = 4  # parts


@dataclass(frozen=True)
class DistributeConcats(Pass):
    """Rewrites and marks concatenations of static extents."""

    name = "distribute-concats"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            for block in function.regions[0].blocks:
                found |= _mark(block)
                made = [_distribute(operation) for operation in _generics(block)]
                if any(made):
                    found = True
                    erase_unused(function)
                    while sum(map(_slice_before, _generics(block))):  # until nothing changes
                        erase_unused(function)
        return found


def _mark(block: ir.Block) -> bool:
    concats = [
        entry.operation for entry in block.operations
        if entry.operation.name == "tensor.concat" and MARK not in entry.operation.attributes
        and ir.RankedTensorType(entry.operation.results[0].type).has_static_shape
    ]
    for operation in concats:
        operation.attributes[TOGETHER] = ir.UnitAttr.get(operation.context)
    return bool(concats)


def _generics(block: ir.Block) -> list[ir.Operation]:
    return [entry.operation for entry in block.operations if entry.operation.name == "linalg.generic"]


@dataclass(frozen=True)
class _Parts:
    """The parts of a concatenated tensor: the dimension, and the offset and extent of each part."""

    dim: int
    places: tuple[tuple[int, int], ...]


def _distribute(operation: ir.Operation) -> bool:
    """Splits `operation` into parts, if it is element-wise on concatenations that have no other reader."""
    if not _is_element_wise(operation):
        return False
    maps = maps_of(operation)
    sources = list(operation.operands)[: len(maps) - 1]
    found = [_parts(source) if each == maps[-1] else None for source, each in zip(sources, maps, strict=False)]
    kinds = {parts for parts in found if parts is not None}
    if len(kinds) != 1:
        return False
    (parts,) = kinds
    split = _result_dimension(maps[-1], parts.dim)
    made: list[ir.Value] = []
    for number, place in enumerate(parts.places):
        own = [
            _sliced(operation, source, each, split, place) if one is None else source.owner.operation.operands[number]
            for source, each, one in zip(sources, maps, found, strict=False)
        ]
        made.append(_part(operation, own, parts.dim, place))
    whole = ir.Operation.create(
        "tensor.concat", results=[operation.results[0].type], operands=made,
        attributes={
            "dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, operation.context), parts.dim),
            TOGETHER: ir.UnitAttr.get(operation.context),
        },
        loc=operation.location, ip=ir.InsertionPoint(operation),
    )
    operation.results[0].replace_all_uses_with(whole.result)
    operation.erase()
    return True


def _slice_before(operation: ir.Operation) -> bool:
    """If only slices of an element-wise operation are read, moves the slices to its operands."""
    if not _is_element_wise(operation):
        return False
    users = [use.owner.operation for use in operation.results[0].uses]
    if not users or any(user.name != "tensor.extract_slice" for user in users):
        return False
    places = [_place(user) for user in users]
    if any(place is None for place in places) or len({place and place[0] for place in places}) != 1:
        return False
    maps = maps_of(operation)
    sources = list(operation.operands)[: len(maps) - 1]
    for user, where in zip(users, places, strict=True):
        if where is None:
            return False
        dim, place = where
        split = _result_dimension(maps[-1], dim)
        own = [_sliced(user, source, each, split, place) for source, each in zip(sources, maps, strict=False)]
        user.results[0].replace_all_uses_with(_part(operation, own, dim, place, ir.InsertionPoint(user)))
        user.erase()
    return True


def _is_element_wise(operation: ir.Operation) -> bool:
    """Whether an operation has one result of static shape, iterates over exactly its points, and does not depend on
    their indices; operations that only rename elements do not count."""
    if operation.name != "linalg.generic" or MARK in operation.attributes or len(operation.results) != 1:
        return False
    if "reduction" in str(operation.attributes["iterator_types"]):
        return False
    if not ir.RankedTensorType(operation.results[0].type).has_static_shape:
        return False
    return computes_its_points(operation) and len(list(operation.regions[0].blocks[0].operations)) > 1



def _result_dimension(map_: ir.AffineMap, position: int) -> int:
    """The loop of dimension `position` of a result."""
    return ir.AffineDimExpr(map_.results[position]).position


def _parts(value: ir.Value) -> _Parts | None:
    """The parts of `value` if it is a concatenation of few tensors with one reader; None otherwise."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "tensor.concat":
        return None
    operation = value.owner.operation
    dim = ir.IntegerAttr(operation.attributes["dim"]).value
    kinds = [ir.RankedTensorType(operand.type) for operand in operation.operands]
    if not 2 <= len(kinds) <= _MOST or not all(kind.has_static_shape for kind in kinds):
        return None
    if len(list(value.uses)) != 1:
        return None
    sizes = [kind.shape[dim] for kind in kinds]
    return _Parts(dim, tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes)))


def _place(slice_: ir.Operation) -> tuple[int, tuple[int, int]] | None:
    """The single dimension that a slice with unit steps shortens, its offset and its extent; None otherwise."""
    source, result = (ir.RankedTensorType(value.type) for value in (slice_.operands[0], slice_.results[0]))
    if len(slice_.operands) != 1 or source.rank != result.rank:
        return None
    offsets, strides = (
        list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{name}"])) for name in ("offsets", "strides")
    )
    changed = [dim for dim in range(source.rank) if source.shape[dim] != result.shape[dim]]
    if len(changed) != 1 or any(stride != 1 for stride in strides):
        return None
    return changed[0], (offsets[changed[0]], result.shape[changed[0]])


def _sliced(
    before: ir.Operation, source: ir.Value, map_: ir.AffineMap, loop: int, place: tuple[int, int]
) -> ir.Value:
    """The elements of `source` that `map_` reads where `loop` is restricted to `place`."""
    kind = ir.RankedTensorType(source.type)
    offsets, sizes = [0] * kind.rank, list(kind.shape)
    for dim, entry in enumerate(map_.results):
        if isinstance(entry, ir.AffineDimExpr) and entry.position == loop:
            offsets[dim], sizes[dim] = place
    if sizes == list(kind.shape):
        return source
    context = before.context
    return ir.Operation.create(
        "tensor.extract_slice",
        results=[ir.RankedTensorType.get(sizes, kind.element_type, loc=before.location)], operands=[source],
        attributes={
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets, context),
            "static_sizes": ir.DenseI64ArrayAttr.get(sizes, context),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * kind.rank, context),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0], context),
        },
        loc=before.location, ip=ir.InsertionPoint(before),
    ).result


def _part(
    operation: ir.Operation, sources: Sequence[ir.Value], dim: int, place: tuple[int, int],
    at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """`operation` applied to `sources`, for the range `place` of dimension `dim` of its result."""
    at = at or ir.InsertionPoint(operation)
    result = ir.RankedTensorType(operation.results[0].type)
    shape = [place[1] if axis == dim else size for axis, size in enumerate(result.shape)]
    kind = ir.RankedTensorType.get(shape, result.element_type, loc=operation.location)
    empty = ir.Operation.create("tensor.empty", results=[kind], loc=operation.location, ip=at).result
    made = operation.clone(ip=at)
    for number, value in enumerate([*sources, empty]):
        made.operands[number] = value
    made.results[0].set_type(kind)
    return made.results[0]
