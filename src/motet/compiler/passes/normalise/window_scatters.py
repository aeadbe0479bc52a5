"""window-scatters: replaces scatters of single elements by scatters of windows, and removes copies of their operands.

    %p:3 = linalg.generic outs(%columns, %elements) {             %u = collapse_shape %updates [[0], [1]]
      (e, j) = delinearize(index 0)                               %i = extract_slice %k[0, 0] [E, 1]
      yield extract %k[e, j], j, extract %updates[e, j]     →
    }                                                             tm_tensor.scatter {dimension_map = [0]} ins(%u, %i)
    %c = insert_slice %p#0, %p#1                                    each index addresses a row of `J` elements
    tm_tensor.scatter {dimension_map = [0, 1]} ins(%p#2, %c)
        where %k is the same for all j

The torch-mlir wheel writes each scatter as one of single elements. Their operands are gathered element by element: the
coordinates of an update in the updates' tensor are its number, divided and reduced by constant extents; or they are
tensors over all coordinates, reshaped to lists. Dimensions whose index is the update's own coordinate, on which no
other index depends, are a window, if the last one is: rows written along a dimension in between, as to a cache, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant, reassociation_attribute, static_or_none
from motet.compiler.ir.create import create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.nests import copied, is_elementwise, nest, steps_of
from motet.compiler.kernels.roles import unaliased
from motet.compiler.passes.base import FunctionPass

_SCATTER = "tm_tensor.scatter"


@dataclass(frozen=True)
class WindowScatters(FunctionPass):
    """Extents must be static."""

    name = "window-scatters"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for each in find_operations(function, _SCATTER):
            changed |= _rewrite(each)
        return changed


@dataclass(frozen=True)
class _UpdatePart:
    """The element of `tensor` at an update's coordinates, or, without a tensor, coordinate `axis` itself."""

    tensor: ir.Value | None
    axis: int = -1


@dataclass(frozen=True)
class _Updates:
    """What the operands of a scatter of single elements are: for coordinates in `extents`, an element of `tensor`, and
    an index for each dimension of the tensor that is updated."""

    extents: tuple[int, ...]
    tensor: ir.Value
    columns: tuple[_UpdatePart, ...]


def _rewrite(scatter: ir.Operation) -> bool:
    gathered = ir.RankedTensorType(scatter.operands[0].type).rank == 1
    found = _updates(scatter) if gathered else _listed_updates(scatter)
    if found is None or 0 in found.extents:
        return False
    indexed = _indexed(found, ir.RankedTensorType(scatter.results[0].type).shape)
    if not gathered and len(indexed) == len(found.extents):
        return False
    count = math.prod(found.extents[axis] for axis in indexed)
    columns = [_column(found.columns[axis], found.extents, indexed, count, scatter) for axis in indexed]
    attributes = {name: scatter.attributes[name] for name in scatter.attributes}
    attributes["dimension_map"] = ir.DenseI64ArrayAttr.get(indexed)
    operands = [_windows(found, indexed, count, scatter), _joined(columns, scatter), scatter.operands[2]]
    made = create(_SCATTER, [scatter.results[0].type], operands, scatter, attributes, 1)
    scatter.regions[0].blocks[0].append_to(made.regions[0])
    scatter.results[0].replace_all_uses_with(made.results[0])
    scatter.erase()
    return True


def _dimensions(scatter: ir.Operation) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"]))


def _indexed(found: _Updates, shape: Sequence[int]) -> list[int]:
    """The dimensions that are not part of the window: at least one, and all if the last one is among them."""
    rank = len(found.columns)
    every = list(range(len(found.extents)))
    if rank != len(found.extents) or rank != len(shape):
        return every
    window: list[int] = []
    for axis in reversed(range(rank)):
        column = found.columns[axis]
        own = column.tensor is None and column.axis == axis and found.extents[axis] <= shape[axis]
        others = [each for number, each in enumerate(found.columns) if number != axis]
        if own and len(window) < rank - 1 and all(_is_constant_along(each, axis) for each in others):
            window.append(axis)
        elif not window:
            return every
    return [axis for axis in every if axis not in window]


def _is_constant_along(column: _UpdatePart, axis: int) -> bool:
    """Whether an index does not depend on coordinate `axis`."""
    if column.tensor is None:
        return column.axis != axis
    if ir.RankedTensorType(column.tensor.type).shape[axis] == 1:
        return True
    owner = column.tensor.owner
    if isinstance(owner, ir.Block) or owner.name != "linalg.generic" or len(owner.operands) != 2:
        return False
    read, written = (ir.AffineMapAttr(map_).value for map_ in ir.ArrayAttr(owner.attributes["indexing_maps"]))
    block = owner.regions[0].blocks[0]
    yields = block.operations[0].operation
    if written != ir.AffineMap.get_identity(written.n_dims) or yields.name != "linalg.yield":
        return False
    return yields.operands[0] == block.arguments[0] and not any(_uses(entry, axis) for entry in read.results)


def _uses(entry: ir.AffineExpr, axis: int) -> bool:
    if isinstance(entry, ir.AffineDimExpr):
        return ir.AffineDimExpr(entry).position == axis
    return not isinstance(entry, ir.AffineConstantExpr)


# -- reading -------------------------------------------------------------------------------------------


def _updates(scatter: ir.Operation) -> _Updates | None:
    """The operands of `scatter`; None if they have another form, or extents that are not static."""
    elements, indices, original = scatter.operands
    owner = elements.owner
    if isinstance(owner, ir.Block) or owner.name != "linalg.generic":
        return None
    rank = ir.RankedTensorType(original.type).rank
    columns = _columns(indices, rank) if _dimensions(scatter) == tuple(range(rank)) else None
    if columns is None or any(column.owner != owner for column in columns):
        return None
    reader = _Coordinates.of(owner.operation, elements)
    if reader is None:
        return None
    parts = [reader.element(value, axis) for axis, value in enumerate(columns)]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    return _Updates(reader.extents, reader.updates, tuple(known))


def _columns(indices: ir.Value, rank: int) -> list[ir.Value] | None:
    """The tensors of one column each that `indices` consists of."""
    count = ir.RankedTensorType(indices.type).shape[0]
    if rank == 1 and indices.owner.name != "tensor.insert_slice":
        return [indices]
    found: dict[int, ir.Value] = {}
    while len(found) < rank:
        owner = indices.owner
        if isinstance(owner, ir.Block) or owner.name != "tensor.insert_slice":
            return None
        offsets, sizes = (static_or_none(owner.operation, name) for name in ("static_offsets", "static_sizes"))
        if sizes != [count, 1] or offsets[0] != 0 or offsets[1] is None or offsets[1] in found:
            return None
        found[offsets[1]] = owner.operands[0]
        indices = owner.operands[1]
    return [found[axis] for axis in range(rank)]


def _listed_updates(scatter: ir.Operation) -> _Updates | None:
    """The same, of updates and columns over all coordinates that are reshaped to lists."""
    elements, indices, original = scatter.operands
    rank = ir.RankedTensorType(original.type).rank
    joined = indices.owner
    if _dimensions(scatter) != tuple(range(rank)) or isinstance(joined, ir.Block) or joined.name != "tensor.concat":
        return None
    tensor, columns = unaliased(elements), [unaliased(column) for column in joined.operands]
    kind = ir.RankedTensorType(tensor.type)
    sizes = list(ir.RankedTensorType(elements.type).shape)
    if not kind.has_static_shape or sizes != [math.prod(kind.shape), *[1] * rank] or len(columns) != rank:
        return None
    extents = tuple(kind.shape)
    parts = [_listed_part(column, axis, extents) for axis, column in enumerate(columns)]
    known = [part for part in parts if part is not None]
    return _Updates(extents, tensor, tuple(known)) if len(known) == rank else None


def _listed_part(column: ir.Value, position: int, extents: tuple[int, ...]) -> _UpdatePart | None:
    """What a column consists of, the indices along dimension `position`."""
    if position < len(extents) and extents[position] == 1 and _is_zero(column):
        return _UpdatePart(None, position)
    if tuple(ir.RankedTensorType(column.type).shape) != extents:
        return None
    source = None if isinstance(column.owner, ir.Block) else copied(column.owner.operation)
    if source is None or not _counts(source):
        return _UpdatePart(column)
    read = ir.AffineMapAttr(next(iter(ir.ArrayAttr(column.owner.attributes["indexing_maps"])))).value.results[0]
    whole = isinstance(read, ir.AffineDimExpr)
    axis = ir.AffineDimExpr(read).position if whole else -1
    return _UpdatePart(None, axis) if whole and is_elementwise(column.owner.operation) else _UpdatePart(column)


def _counts(tensor: ir.Value) -> bool:
    """Whether a vector numbers its elements."""
    owner = tensor.owner
    if isinstance(owner, ir.Block) or owner.name != "linalg.generic" or ir.RankedTensorType(tensor.type).rank != 1:
        return False
    return steps_of(owner.operation) == ["linalg.index", "arith.index_cast", "linalg.yield"]


def _is_zero(tensor: ir.Value) -> bool:
    """Whether all elements are 0."""
    owner = tensor.owner
    if isinstance(owner, ir.Block) or owner.name != "linalg.generic":
        return False
    source = copied(owner.operation)
    if source is not None and isinstance(source.type, ir.RankedTensorType):
        return _is_zero(source)
    return steps_of(owner.operation) == ["linalg.yield"] and integer_constant(_yielded(owner.operation, tensor)) == 0


@dataclass(frozen=True)
class _Coordinates:
    """Reads the results of a `linalg.generic` over the numbers of all updates. `values` are the divisors and extents of
    what its body computes: the number, divided by the product of later extents, and reduced by its own (0: not yet
    reduced). Those of extent 1 are constants."""

    generic: ir.Operation
    updates: ir.Value
    extents: tuple[int, ...]
    values: dict[ir.Value, tuple[int, int]]

    @staticmethod
    def of(generic: ir.Operation, elements: ir.Value) -> _Coordinates | None:
        """The coordinates in the tensor of updates, all of which `elements` lists in order; None for other results."""
        segments = list(ir.DenseI32ArrayAttr(generic.attributes["operandSegmentSizes"]))
        if len(list(ir.ArrayAttr(generic.attributes["iterator_types"]))) != 1 or segments[0]:
            return None
        written = _yielded(generic, elements)
        if isinstance(written.owner, ir.Block) or written.owner.name != "tensor.extract":
            return None
        updates, *places = written.owner.operands
        kind, listed = ir.RankedTensorType(updates.type), ir.RankedTensorType(elements.type)
        if not kind.has_static_shape or not listed.has_static_shape or not places:
            return None
        found = _Coordinates(generic, updates, tuple(kind.shape), _divided(generic))
        every = math.prod(kind.shape) == listed.shape[0]
        return found if every and all(found.is_coordinate(place, axis) for axis, place in enumerate(places)) else None

    def is_coordinate(self, value: ir.Value, axis: int) -> bool:
        if self.extents[axis] == 1 and integer_constant(value) == 0:
            return True
        return self.values.get(value) == (math.prod(self.extents[axis + 1 :]), self.extents[axis])

    def element(self, result: ir.Value, position: int) -> _UpdatePart | None:
        """What the generic writes as `result`, the indices along dimension `position`."""
        value = _yielded(self.generic, result)
        rank = len(self.extents)
        if integer_constant(value) == 0 and position < rank and self.extents[position] == 1:
            return _UpdatePart(None, position)
        if isinstance(value.owner, ir.Block):
            return None
        owner = value.owner.operation
        if owner.name == "arith.index_cast":
            return next((_UpdatePart(None, a) for a in range(rank) if self.is_coordinate(owner.operands[0], a)), None)
        if owner.name != "tensor.extract":
            return None
        tensor, *places = owner.operands
        if tuple(ir.RankedTensorType(tensor.type).shape) != self.extents:
            return None
        return _UpdatePart(tensor) if all(self.is_coordinate(p, axis) for axis, p in enumerate(places)) else None


def _yielded(generic: ir.Operation, result: ir.Value) -> ir.Value:
    """What the body of `generic` yields for `result`."""
    entries = generic.regions[0].blocks[0].operations
    return entries[len(entries) - 1].operands[list(generic.results).index(result)]


def _divided(generic: ir.Operation) -> dict[ir.Value, tuple[int, int]]:
    """See `_Coordinates.values`."""
    found: dict[ir.Value, tuple[int, int]] = {}
    for entry in generic.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name == "linalg.index":
            found[operation.results[0]] = (1, 0)
        elif operation.name in ("arith.remsi", "arith.divsi") and operation.operands[0] in found:
            divisor, extent = found[operation.operands[0]]
            number = integer_constant(operation.operands[1])
            if extent == 0 and number is not None and number > 0:
                reduced = operation.name == "arith.remsi"
                found[operation.results[0]] = (divisor, number) if reduced else (divisor * number, 0)
    return found


# -- writing -------------------------------------------------------------------------------------------


def _windows(found: _Updates, indexed: Sequence[int], count: int, at: ir.Operation) -> ir.Value:
    """The updates as windows: of the last dimensions, or, where some in between are indexed, of all dimensions."""
    rank, outer = len(found.extents), len(indexed)
    kept = [axis for axis in range(rank) if axis not in indexed]
    inner = [found.extents[axis] for axis in kept]
    groups = [list(range(outer)), *([axis] for axis in range(outer, rank))]
    if list(indexed) == list(range(outer)):
        return _reshaped(found.tensor, [count, *inner], groups, "tensor.collapse_shape", at)
    order = [*indexed, *kept]
    kind = ir.RankedTensorType(found.tensor.type)
    turned = ir.RankedTensorType.get([found.extents[axis] for axis in order], kind.element_type)
    read = ir.AffineMap.get_permutation([order.index(axis) for axis in range(rank)])
    moved = nest(
        at, [found.tensor], create("tensor.empty", [turned], [], at).result, [read, ir.AffineMap.get_identity(rank)],
        lambda block: block.arguments[0],
    )
    listed = _reshaped(moved, [count, *inner], groups, "tensor.collapse_shape", at)
    shape = [count, *(1 if axis in indexed else found.extents[axis] for axis in range(rank))]
    split: list[list[int]] = [[0]]
    before: list[int] = []
    for axis in range(rank):  # dimensions of extent 1 are split off the next one
        before.append(axis + 1)
        if axis not in indexed:
            split.append(before)
            before = []
    return _reshaped(listed, shape, split, "tensor.expand_shape", at)


def _column(
    column: _UpdatePart, extents: Sequence[int], indexed: Sequence[int], count: int, at: ir.Operation
) -> ir.Value:
    """The indices along one dimension, `count`x1, for the coordinates of `indexed`."""
    if column.tensor is None:
        tensor = _positions([extents[axis] for axis in indexed], list(indexed).index(column.axis), at)
    else:
        kind = ir.RankedTensorType(column.tensor.type)
        sizes = [extent if axis in indexed else 1 for axis, extent in enumerate(extents)]
        slice_ = create(
            "tensor.extract_slice", [ir.RankedTensorType.get(sizes, kind.element_type)], [column.tensor], at,
            {
                "static_offsets": ir.DenseI64ArrayAttr.get([0] * kind.rank),
                "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
                "static_strides": ir.DenseI64ArrayAttr.get([1] * kind.rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            },
        )
        tensor = slice_.result if len(indexed) < len(extents) else column.tensor
    rank = ir.RankedTensorType(tensor.type).rank
    flat = tensor if rank == 1 else _reshaped(tensor, [count], [list(range(rank))], "tensor.collapse_shape", at)
    return _reshaped(flat, [count, 1], [[0, 1]], "tensor.expand_shape", at)


def _positions(extents: Sequence[int], axis: int, at: ir.Operation) -> ir.Value:
    """A tensor of `extents` with the positions along `axis` as i64."""
    word = ir.IntegerType.get_signless(64)
    kind = ir.RankedTensorType.get(list(extents), word)
    empty = create("tensor.empty", [kind], [], at).result

    def position(block: ir.Block) -> ir.Value:
        place = {"dim": ir.IntegerAttr.get(word, axis)}
        index = ir.Operation.create("linalg.index", results=[ir.IndexType.get()], attributes=place).result
        return ir.Operation.create("arith.index_cast", results=[word], operands=[index]).result

    return nest(at, [], empty, [ir.AffineMap.get_identity(len(extents))], position)


def _reshaped(
    tensor: ir.Value, shape: Sequence[int], groups: Sequence[Sequence[int]], name: str, at: ir.Operation
) -> ir.Value:
    """`tensor` reshaped by merging or splitting `groups` of axes."""
    kind = ir.RankedTensorType(tensor.type)
    if list(kind.shape) == list(shape):
        return tensor
    attributes: dict[str, ir.Attribute] = {"reassociation": reassociation_attribute(groups)}
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape))
    return create(name, [ir.RankedTensorType.get(list(shape), kind.element_type)], [tensor], at, attributes).result


def _joined(columns: Sequence[ir.Value], at: ir.Operation) -> ir.Value:
    """The columns next to each other."""
    if len(columns) == 1:
        return columns[0]
    kind = ir.RankedTensorType(columns[0].type)
    joined = ir.RankedTensorType.get([kind.shape[0], len(columns)], kind.element_type)
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
    return create("tensor.concat", [joined], columns, at, {"dim": axis}).result
