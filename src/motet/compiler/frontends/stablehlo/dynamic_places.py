"""Rewrites StableHLO's operators of dynamic extents that upstream does not lower, to one operation on elements.

    stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0]    →    %y = linalg.generic { %x[i] }, of extents %s
    stablehlo.dynamic_gather %x, %i, %s                      →    %y = linalg.generic { %x[%i[b] + o] }, starts clamped
    stablehlo.reverse %x, dims = [0]                         →    %y = linalg.generic { %x[n - 1 - i] }
    stablehlo.dynamic_update_slice %x, %u, %i                →    %y = tensor.insert_slice %u into %x[%i], start clamped

A dynamic extent is not stretched: it must be that of the result, as JAX writes it, or the call fails. Known extents of
1 are stretched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.compiler.frontends.stablehlo.dynamic import number_of
from motet.compiler.frontends.stablehlo.writing import dimensions
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import as_index, constant_index, element_at, on_indices
from motet.compiler.operators.pointwise import WindowRead, clamped, pointwise, size_of


def write_dynamic_places(module: ir.Module) -> None:
    """Rewrites the module in place."""
    for op in find_operations(module, *_WRITTEN):
        if all(ir.RankedTensorType(value.type).has_static_shape for value in (op.operands[0], op.results[0])):
            continue
        with op.context, op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_WRITTEN[op.name](op))
        op.erase()


def _broadcast(op: ir.Operation) -> ir.Value:
    source, shape = op.operands
    kind, given = ir.RankedTensorType(op.results[0].type), ir.RankedTensorType(source.type)
    axes = [
        {} if not given.is_dynamic_dim(axis) and given.shape[axis] == 1 else {loop: 1}
        for axis, loop in enumerate(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    ]
    sizes = [number_of(shape, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    return pointwise(kind, sizes, [WindowRead(source, axes)], lambda values, _: values[0])


def _reverse(op: ir.Operation) -> ir.Value:
    source, turned = op.operands[0], set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    kind = ir.RankedTensorType(source.type)
    extents = [size_of(source, axis) for axis in range(kind.rank)]
    last = [on_indices("arith.subi", extent, constant_index(1)) for extent in extents]

    def body(_: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        at = [on_indices("arith.subi", last[axis], loop) if axis in turned else loop for axis, loop in enumerate(loops)]
        return element_at(source, at)

    return pointwise(kind, [e for axis, e in enumerate(extents) if kind.is_dynamic_dim(axis)], [], body)


def _gather(op: ir.Operation) -> ir.Value:
    """Source: StableHLO's specification, `dynamic_gather`."""
    source, starts, sizes = op.operands
    said, kind = op.attributes["dimension_numbers"], ir.RankedTensorType(op.results[0].type)
    offsets, collapsed, batching, index_batching, mapped = (dimensions(said, name) for name in (
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
        "start_index_map",
    ))  # fmt: skip
    vector = int(str(said).partition("index_vector_dim = ")[2].split(",")[0].rstrip("> ") or 0)
    rank = ir.RankedTensorType(source.type).rank
    kept = [axis for axis in range(rank) if axis not in (*collapsed, *batching)]
    batch = [axis for axis in range(kind.rank) if axis not in offsets]  # of the result
    places = [axis for axis in range(ir.RankedTensorType(starts.type).rank) if axis != vector]
    lengths = [number_of(sizes, axis) for axis in range(rank)]
    most = [on_indices("arith.subi", size_of(source, axis), lengths[axis]) for axis in range(rank)]
    extents = {loop: lengths[axis] for loop, axis in zip(offsets, kept, strict=True)}
    extents |= {loop: size_of(starts, axis) for loop, axis in zip(batch, places, strict=True)}

    def body(_: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        own = dict(zip(places, (loops[axis] for axis in batch), strict=True))
        at: list[ir.Value] = []
        for axis in range(rank):
            begin = constant_index(0)
            if axis in mapped:
                index = own | {vector: constant_index(mapped.index(axis))}
                begin = element_at(starts, [index[each] for each in range(ir.RankedTensorType(starts.type).rank)])
                begin = clamped(as_index(begin), most[axis])
            elif axis in batching:
                begin = own[index_batching[batching.index(axis)]]
            at.append(on_indices("arith.addi", begin, loops[offsets[kept.index(axis)]]) if axis in kept else begin)
        return element_at(source, at)

    return pointwise(kind, [extents[axis] for axis in range(kind.rank) if kind.is_dynamic_dim(axis)], [], body)


def _update(op: ir.Operation) -> ir.Value:
    source, update, *starts = op.operands
    kind = ir.RankedTensorType(update.type)
    sizes = [size_of(update, axis) for axis in range(kind.rank)]
    begins = [
        clamped(as_index(element_at(start, [])), on_indices("arith.subi", size_of(source, axis), sizes[axis]))
        for axis, start in enumerate(starts)
    ]
    own = [size for axis, size in enumerate(sizes) if kind.is_dynamic_dim(axis)]
    return create("tensor.insert_slice", source.type, [update, source, *begins, *own], {
        "static_offsets": ir.DenseI64ArrayAttr.get([DYNAMIC] * kind.rank),
        "static_sizes": ir.DenseI64ArrayAttr.get(kind.shape),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * kind.rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, kind.rank, len(own), 0]),
    })  # fmt: skip


_WRITTEN: Mapping[str, Callable[[ir.Operation], ir.Value]] = {
    "stablehlo.dynamic_broadcast_in_dim": _broadcast, "stablehlo.dynamic_gather": _gather,
    "stablehlo.reverse": _reverse, "stablehlo.dynamic_update_slice": _update,
}  # fmt: skip
