"""Loops over tensors, and operations on tensors built before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create, index_constant
from motet.compiler.ir.current import constant
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.nests import nest

LOOPS = ("scf.for", "scf.while")


def loop_blocks(function: ir.Operation) -> Iterator[tuple[ir.Operation, ir.Block]]:
    """Every loop of `function`, inner ones first, with its body."""
    for loop in find_operations(function, *LOOPS):
        yield loop, loop.regions[len(loop.regions) - 1].blocks[0]


def is_outside(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether `value` is available before `loop`."""
    owner = value.owner
    current = owner.owner if isinstance(owner, ir.Block) else owner.operation.parent
    while current is not None:
        if current.operation == loop:
            return False
        current = current.operation.parent
    return True


def dimensions(each: ir.AffineMap) -> list[int] | None:
    """The loops that the results of a map are; None if one is no loop."""
    if not all(isinstance(result, ir.AffineDimExpr) for result in each.results):
        return None
    return [ir.AffineDimExpr(result).position for result in each.results]


def extent(value: ir.Value, axis: int, at: ir.Operation) -> ir.Value:
    """The extent of `value` along `axis`, as an operation before `at`."""
    return create("tensor.dim", [ir.IndexType.get()], [value, index_constant(axis, at)], at).result


def filled(number: float, kind: ir.RankedTensorType, sizes: Sequence[ir.Value], at: ir.Operation) -> ir.Value:
    """A tensor of `kind`, with the dynamic extents `sizes`, that has `number` everywhere, before `at`."""
    with at.location, ir.InsertionPoint(at):
        value = constant(kind.element_type, number)
        empty = ir.Operation.create("tensor.empty", results=[kind], operands=sizes).result
    maps = [ir.AffineMap.get(kind.rank, 0, [], at.context), ir.AffineMap.get_identity(kind.rank, at.context)]
    return nest(at, [value], empty, maps, lambda block: block.arguments[0])


def sliced(
    value: ir.Value, kind: ir.RankedTensorType, axis: int, place: int | ir.Value, at: ir.Operation
) -> ir.Value:
    """The part of `value` of type `kind`, before `at`, that begins at `place` of `axis` and is whole along the other
    axes; a `kind` of lower rank has no such axis."""
    source = ir.RankedTensorType(value.type)
    unknown = ir.ShapedType.get_dynamic_size()
    offsets, sizes = [0] * source.rank, list(source.shape)
    sizes[axis] = kind.shape[axis] if kind.rank == source.rank else 1
    offsets[axis] = place if isinstance(place, int) else unknown
    given = [extent(value, a, at) for a in range(source.rank) if a != axis and source.is_dynamic_dim(a)]
    starts = [] if isinstance(place, int) else [place]
    return create("tensor.extract_slice", [kind], [value, *starts, *given], at, {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
        "static_sizes": ir.DenseI64ArrayAttr.get([unknown if a != axis and source.is_dynamic_dim(a) else size
                                                  for a, size in enumerate(sizes)]),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * source.rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(starts), len(given), 0]),
    }).result  # fmt: skip
