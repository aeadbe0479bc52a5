"""join-loop-products: joins the products of one operand with several weights in the body of a loop.

    scf.for … {                                  %w = tensor.concat %wi, %wf
      %i = product of %h and %wi, 4x8     →      scf.for … {
      %f = product of %h and %wf, 4x8              %p = product of %h and %w, 4x16
      … }                                          %i = extract_slice of %p, %f = extract_slice of %p … }

The weights do not depend on the iteration, so that they are joined once: when compiling if they are constants. The
gates of a recurrent network then have one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, static_or_none
from motet.compiler.ir.create import create
from motet.compiler.kernels.roles import Role, known_number, role_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.loop_tensors import (
    dimensions,
    extent,
    filled,
    is_outside,
    loop_blocks,
    sliced,
)


@dataclass(frozen=True)
class JoinLoopProducts(FunctionPass):
    name = "join-loop-products"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for loop, block in loop_blocks(function):
            alike: dict[tuple[object, ...], list[_LoopProduct]] = {}
            for entry in block.operations:
                for product in _products(entry.operation, loop):
                    alike.setdefault(product.key, []).append(product)
            joined: set[int] = set()
            for products in alike.values():
                left = [each for each in products if id(each.operation) not in joined]
                if len(left) > 1:
                    _join(left, loop)
                    joined.update(id(each.operation) for each in left)
                    changed = True
        return changed


@dataclass(frozen=True)
class _LoopProduct:
    """A product into zeros whose operand `own` does not depend on the iteration; that operand's axis `axis` and the
    result's axis `column` are one loop, of which the other operand is independent."""

    operation: ir.Operation
    own: int
    axis: int
    column: int
    loops: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for products that can be joined."""
        operation = self.operation
        shapes = [list(ir.RankedTensorType(operation.operands[self.own].type).shape),
                  list(ir.RankedTensorType(operation.results[0].type).shape)]
        shapes[0][self.axis] = shapes[1][self.column] = 0
        body = _written_body(operation.regions[0].blocks[0])
        kinds = tuple(str(ir.RankedTensorType(value.type).element_type) for value in operation.operands)
        return operation.operands[1 - self.own], self.own, self.loops, str(shapes), body, kinds


def _written_body(block: ir.Block) -> tuple[object, ...]:
    """The operations of a body, equal for equal bodies. MLIR's printer would number the values of the whole function
    for each of them."""
    numbers: dict[ir.Value, int] = {value: number for number, value in enumerate(block.arguments)}
    written: list[object] = [tuple(str(value.type) for value in block.arguments)]
    for entry in block.operations:
        operation = entry.operation
        operands = tuple(numbers.get(value, value) for value in operation.operands)
        attributes = tuple((name, str(operation.attributes[name])) for name in operation.attributes)
        written.append((operation.name, operands, attributes, tuple(str(value.type) for value in operation.results)))
        numbers.update((value, len(numbers)) for value in operation.results)
    return tuple(written)


def _products(operation: ir.Operation, loop: ir.Operation) -> list[_LoopProduct]:
    """`operation` as a product, for each of its operands that can be joined with others."""
    if operation.name != "linalg.generic" or role_of(operation) is not Role.CONTRACTION:
        return []
    if len(operation.results) != 1 or known_number(operation.operands[2]) != 0:
        return []
    read = [dimensions(each) for each in maps_of(operation)]
    loops = [tuple(each) for each in read if each is not None]
    if len(loops) != 3:
        return []
    found: list[_LoopProduct] = []
    for own in (1, 0):
        columns = set(loops[2]) & set(loops[own]) - set(loops[1 - own])
        if len(columns) == 1 and is_outside(operation.operands[own], loop):
            column = next(iter(columns))
            axis, place = loops[own].index(column), loops[2].index(column)
            if not ir.RankedTensorType(operation.operands[own].type).is_dynamic_dim(axis):
                found.append(_LoopProduct(operation, own, axis, place, tuple(loops)))
    return found


def _join(products: list[_LoopProduct], loop: ir.Operation) -> None:
    first = products[0]
    operation = first.operation
    common = _common_source([each.operation.operands[each.own] for each in products], first.axis)
    if common is not None:
        products = [products[number] for number in common.order]
    weights = [each.operation.operands[each.own] for each in products]
    widths = [ir.RankedTensorType(value.type).shape[first.axis] for value in weights]
    weight = _concatenated(weights, first.axis, sum(widths), loop) if common is None else common.whole(loop)
    kind = _with(operation.results[0], first.column, sum(widths))
    sizes = [_extent_of(first, axis, weight) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    made = operation.clone(ip=ir.InsertionPoint(operation)).operation
    made.operands[first.own] = weight
    made.operands[2] = filled(0, kind, sizes, made)
    made.results[0].set_type(kind)
    place = 0
    for each, width in zip(products, widths, strict=True):
        old = each.operation.results[0]
        part = sliced(made.results[0], ir.RankedTensorType(old.type), first.column, place, operation)
        old.replace_all_uses_with(part)
        place += width
    for each in products:
        each.operation.erase()


def _concatenated(weights: Sequence[ir.Value], axis: int, width: int, loop: ir.Operation) -> ir.Value:
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    return create("tensor.concat", [_with(weights[0], axis, width)], weights, loop, {"dim": number}).result


def _with(value: ir.Value, axis: int, size: int) -> ir.RankedTensorType:
    kind = ir.RankedTensorType(value.type)
    shape = list(kind.shape)
    shape[axis] = size
    return ir.RankedTensorType.get(shape, kind.element_type)


def _extent_of(product: _LoopProduct, axis: int, weight: ir.Value) -> ir.Value:
    """The extent of the result's `axis`, as an operation before the product."""
    operation = product.operation
    loop = product.loops[2][axis]
    number = 1 - product.own if loop in product.loops[1 - product.own] else product.own
    value = weight if number == product.own else operation.operands[number]
    return extent(value, product.loops[number].index(loop), operation)


# -- weights that are parts of one tensor --------------------------------------------------------------


@dataclass(frozen=True)
class _Common:
    """A static tensor of which weights are neighbouring parts, in `order`, that cover `axis`; they may be transposed by
    operations like `transposition`, an operation on the first of them."""

    source: ir.Value
    order: list[int]
    transposition: ir.Operation | None

    def whole(self, loop: ir.Operation) -> ir.Value:
        """All weights, before `loop`."""
        if self.transposition is None:
            return self.source
        source, old = ir.RankedTensorType(self.source.type), ir.RankedTensorType(self.transposition.results[0].type)
        read, written = (dimensions(each) or [] for each in maps_of(self.transposition))
        kind = ir.RankedTensorType.get([source.shape[read.index(loop)] for loop in written], old.element_type)
        empty = create("tensor.empty", [kind], [], loop).result
        made = self.transposition.clone(ip=ir.InsertionPoint(loop)).operation
        made.operands[0], made.operands[1] = self.source, empty
        made.results[0].set_type(kind)
        return made.results[0]


def _common_source(weights: Sequence[ir.Value], axis: int) -> _Common | None:
    """The tensor that `weights`, joined along `axis`, are all of; None if they are not."""
    moves = [_transposition(weight) for weight in weights]
    parts = [weight if move is None else move.operands[0] for weight, move in zip(weights, moves, strict=True)]
    first = moves[0]
    if len({None if move is None else str(move.attributes["indexing_maps"]) for move in moves}) > 1:
        return None
    if first is not None:
        read, written = (dimensions(each) or [] for each in maps_of(first))
        axis = read.index(written[axis])
    slices = [part.owner.operation for part in parts if not isinstance(part.owner, ir.Block)]
    if len(slices) < len(parts) or any(each.name != "tensor.extract_slice" for each in slices):
        return None
    source = slices[0].operands[0]
    places = [_place(each, axis) for each in slices]
    if any(each.operands[0] != source for each in slices):
        return None
    known = [(place[0], place[1], number) for number, place in enumerate(places) if place is not None]
    end = 0
    for begin, width, _ in sorted(known):
        if begin != end:
            return None
        end += width
    if len(known) < len(places) or end != ir.RankedTensorType(source.type).shape[axis]:
        return None
    return _Common(source, [number for _, _, number in sorted(known)], first)


def _transposition(value: ir.Value) -> ir.Operation | None:
    """The operation that makes `value` by a permutation of the axes of another tensor; None if there is none."""
    operation = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if operation is None or operation.name != "linalg.generic" or role_of(operation) is not Role.VIEW:
        return None
    maps = [dimensions(each) for each in maps_of(operation)]
    full = [each for each in maps if each is not None and sorted(each) == list(range(maps_of(operation)[0].n_dims))]
    return operation if len(full) == 2 else None


def _place(slice_: ir.Operation, axis: int) -> tuple[int, int] | None:
    """The beginning and the width of a slice along `axis`, whole along the others; None if it is of another form."""
    source, result = (ir.RankedTensorType(value.type) for value in (slice_.operands[0], slice_.results[0]))
    starts, strides = (static_or_none(slice_, f"static_{name}") for name in ("offsets", "strides"))
    if not (source.has_static_shape and result.has_static_shape and source.rank == result.rank):
        return None
    for number, (start, stride) in enumerate(zip(starts, strides, strict=True)):
        whole = start == 0 and source.shape[number] == result.shape[number]
        if stride != 1 or start is None or (number != axis and not whole):
            return None
    begin = starts[axis]
    return None if begin is None else (begin, result.shape[axis])
