"""hoist-loop-products: runs the products of a sequence's elements, one for each iteration of a loop, as one product.

    scf.for %t … {                                   %p = product of %x and %w, 50x4x16
      %x_t = tensor.extract_slice %x[%t, 0, 0]   →   scf.for %t … {
      %p_t = product of %x_t and %w, 4x16              %p_t = tensor.extract_slice %p[%t, 0, 0]
      … }                                              … }

Operations before the product that only read elements of sequences at the same place, and tensors that do not depend on
the iteration, go with it. The place may be any function of the iteration's number, such as that of a reversed sequence.
A sequence of which the loop reads few elements keeps its products in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.attributes import integer_constant, maps_of, reassociation, reassociation_attribute
from motet.compiler.ir.create import create
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.nests import nest
from motet.compiler.ir.program import Program
from motet.compiler.ir.sizes import is_extent
from motet.compiler.kernels.roles import Role, known_number, role_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.loop_tensors import (
    dimensions,
    extent,
    filled,
    is_outside,
    loop_blocks,
    sliced,
)

_CLEAN = "canonicalize,cse"
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
_UNREAD = 2  # a sequence has at most so many elements for each that the loop reads


@dataclass(frozen=True)
class HoistLoopProducts(Pass):
    name = "hoist-loop-products"

    def run(self, program: Program) -> bool:
        changed = False
        for function in public_functions(program.module):
            for loop, block in loop_blocks(function):
                if loop.name == "scf.for":
                    changed |= _Hoisting(loop, block).run()
        if changed:
            run_pipeline(program.module, _CLEAN)
        return changed


@dataclass
class _Hoisting:
    """`places` has, for each tensor of the body that is an element of a sequence, its place in it; `wholes` the
    sequences, made before the loop."""

    loop: ir.Operation
    block: ir.Block
    places: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    wholes: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])

    def run(self) -> bool:
        products: list[ir.Operation] = []
        for entry in self.block.operations:
            operation = entry.operation
            place = self._place_of(operation)
            if place is not None:
                self.places[operation.results[0]] = place
                if operation.name == "linalg.generic" and role_of(operation) is Role.CONTRACTION:
                    products.append(operation)
        for operation in products:
            result = operation.results[0]
            whole = self._whole(result)
            kind = ir.RankedTensorType(result.type)
            result.replace_all_uses_with(sliced(whole, kind, 0, self.places[result], operation))
        return bool(products)

    # -- what depends on an element alone --------------------------------------------------------

    def _place_of(self, operation: ir.Operation) -> ir.Value | None:
        """The place of the elements that `operation` reads; None if it has other operands in the loop."""
        if operation.name == "tensor.extract_slice":
            axis = self._axis(operation)
            return None if axis is None or not self._reads_most(operation, axis) else operation.operands[1]
        if operation.name in _RESHAPES:
            sizes = list(operation.operands)[1:]
            fixed = all(is_outside(size, self.loop) for size in sizes)
            return self.places.get(operation.operands[0]) if fixed else None
        if operation.name != "linalg.generic" or not _is_plain(operation):
            return None
        *read, written = operation.operands
        if known_number(written) is None and not _is_empty(written):
            return None
        places = {self.places[value] for value in read if value in self.places}
        if len(places) != 1 or not all(value in self.places or is_outside(value, self.loop) for value in read):
            return None
        weights = [value for value in read if value not in self.places]
        if role_of(operation) is Role.CONTRACTION and not weights:
            return None
        return next(iter(places))

    def _axis(self, slice_: ir.Operation) -> int | None:
        """The axis along which a slice is one element at a computed place, whole along the others."""
        source, result = (ir.RankedTensorType(v.type) for v in (slice_.operands[0], slice_.results[0]))
        starts, sizes, strides = (
            list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
        )
        unknown = ir.ShapedType.get_dynamic_size()
        moving = [axis for axis, start in enumerate(starts) if start == unknown]
        if len(moving) != 1 or sizes[moving[0]] != 1 or set(strides) != {1} or not is_outside(
            slice_.operands[0], self.loop
        ):
            return None
        given = iter(list(slice_.operands)[2:])
        for axis, size in enumerate(sizes):
            own = next(given) if size == unknown else None
            if axis == moving[0]:
                continue
            whole = is_extent(own, slice_.operands[0], axis) if own is not None else (
                size == source.shape[axis] and not source.is_dynamic_dim(axis)
            )
            if starts[axis] != 0 or not whole:
                return None
        others = [size for axis, size in enumerate(source.shape) if axis != moving[0]]
        kept = list(source.shape)
        kept[moving[0]] = 1
        return moving[0] if list(result.shape) in (others, kept) else None

    def _reads_most(self, slice_: ir.Operation, axis: int) -> bool:
        """Whether the loop reads most of the slices along `axis`, as far as it is known: their place follows from the
        iteration's number."""
        if not self._follows(slice_.operands[1]):
            return False
        source = ir.RankedTensorType(slice_.operands[0].type)
        bounds = [integer_constant(value) for value in list(self.loop.operands)[:3]]
        lower, upper, step = bounds
        if source.is_dynamic_dim(axis):
            return upper is None
        if lower is None or upper is None or not step or step < 0:
            return False
        return source.shape[axis] <= _UNREAD * len(range(lower, upper, step))

    def _follows(self, value: ir.Value) -> bool:
        if is_outside(value, self.loop) or value == self.block.arguments[0]:
            return True
        if isinstance(value.owner, ir.Block):
            return False
        owner = value.owner.operation
        return owner.name.startswith(("arith.", "affine.")) and all(map(self._follows, owner.operands))

    # -- sequences -------------------------------------------------------------------------------

    def _whole(self, value: ir.Value) -> ir.Value:
        """The sequence that `value` is an element of: its first axis is that of the places."""
        if value not in self.places:
            return value
        if value not in self.wholes:
            operation = value.owner.operation
            make = {"tensor.extract_slice": self._source, "linalg.generic": self._generic}
            self.wholes[value] = make.get(operation.name, self._reshape)(operation)
        return self.wholes[value]

    def _source(self, slice_: ir.Operation) -> ir.Value:
        axis, source = self._axis(slice_) or 0, slice_.operands[0]
        kind = ir.RankedTensorType(source.type)
        if axis:
            source = self._first(source, axis)
        moved = ir.RankedTensorType(source.type)
        if ir.RankedTensorType(slice_.results[0].type).rank < kind.rank:
            return source
        shape = [*moved.shape[: axis + 1], 1, *moved.shape[axis + 1 :]]
        groups = [[a + (a > axis)] for a in range(kind.rank)]
        groups[axis].append(axis + 1)
        return self._expanded(source, shape, groups)

    def _first(self, source: ir.Value, axis: int) -> ir.Value:
        """`source` with `axis` before the others."""
        kind = ir.RankedTensorType(source.type)
        order = [axis, *(a for a in range(kind.rank) if a != axis)]
        shape = [kind.shape[a] for a in order]
        made = ir.RankedTensorType.get(shape, kind.element_type)
        sizes = [extent(source, a, self.loop) for a in order if kind.is_dynamic_dim(a)]
        empty = create("tensor.empty", [made], sizes, self.loop).result
        read = ir.AffineMap.get(kind.rank, 0, [ir.AffineDimExpr.get(order.index(a)) for a in range(kind.rank)])
        whole = ir.AffineMap.get_identity(kind.rank)
        return nest(self.loop, [source], empty, [read, whole], lambda block: block.arguments[0])

    def _expanded(self, source: ir.Value, shape: list[int], groups: list[list[int]]) -> ir.Value:
        kind = ir.RankedTensorType(source.type)
        sizes = [extent(source, axis, self.loop) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
        return create(
            "tensor.expand_shape", [ir.RankedTensorType.get(shape, kind.element_type)], [source, *sizes], self.loop,
            {"reassociation": reassociation_attribute(groups), "static_output_shape": ir.DenseI64ArrayAttr.get(shape)},
        ).result

    def _reshape(self, reshape: ir.Operation) -> ir.Value:
        source = self._whole(reshape.operands[0])
        result = ir.RankedTensorType(reshape.results[0].type)
        count = ir.RankedTensorType(source.type).shape[0]
        kind = ir.RankedTensorType.get([count, *result.shape], result.element_type)
        groups = [[0], *([axis + 1 for axis in group] for group in reassociation(reshape))]
        named: dict[str, ir.Attribute] = {"reassociation": reassociation_attribute(groups)}
        sizes: list[ir.Value] = []
        if reshape.name == "tensor.expand_shape":
            named["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(kind.shape))
            if kind.is_dynamic_dim(0):
                sizes.append(extent(source, 0, self.loop))
            sizes += list(reshape.operands)[1:]
        return create(reshape.name, [kind], [source, *sizes], self.loop, named).result

    def _generic(self, operation: ir.Operation) -> ir.Value:
        *read, written = operation.operands
        maps = [dimensions(each) or [] for each in maps_of(operation)]
        loops = [
            [*([0] if value in self.places else []), *(loop + 1 for loop in each)]
            for value, each in zip(read, maps, strict=False)
        ]
        loops.append([0, *(loop + 1 for loop in maps[-1])])
        operands = [self._whole(value) for value in read]
        count = next(
            ir.RankedTensorType(whole.type).shape[0]
            for value, whole in zip(read, operands, strict=True) if value in self.places
        )
        result = ir.RankedTensorType(operation.results[0].type)
        kind = ir.RankedTensorType.get([count, *result.shape], result.element_type)
        sizes = [
            self._extent(loops[-1][axis], operands, loops) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)
        ]
        number = known_number(written)
        empty = number is None
        target = create("tensor.empty", [kind], sizes, self.loop).result if empty else filled(
            number, kind, sizes, self.loop
        )
        rank = maps_of(operation)[0].n_dims + 1
        new = [ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(loop) for loop in each]) for each in loops]
        iterators = [ir.Attribute.parse("#linalg.iterator_type<parallel>"),
                     *ir.ArrayAttr(operation.attributes["iterator_types"])]
        own = ("indexing_maps", "iterator_types")
        made = create("linalg.generic", [kind], [*operands, target], self.loop, {
            **{name: operation.attributes[name] for name in operation.attributes if name not in own},
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in new]),
            "iterator_types": ir.ArrayAttr.get(iterators),
        }, regions=1)  # fmt: skip
        copy = operation.clone(ip=ir.InsertionPoint(operation)).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.operation.erase()
        return made.result

    def _extent(self, loop: int, operands: list[ir.Value], loops: list[list[int]]) -> ir.Value:
        """The extent of a loop, read from an operand."""
        for value, each in zip(operands, loops, strict=False):
            if loop in each:
                return extent(value, each.index(loop), self.loop)
        raise AssertionError("a loop that no operand has")


def _is_plain(operation: ir.Operation) -> bool:
    """Whether the operands of a generic are indexed by loops, and its body reads nothing else of the iteration; each
    loop of its result is one of an operand."""
    maps = [dimensions(each) for each in maps_of(operation)]
    loops = [each for each in maps if each is not None]
    if len(operation.results) != 1 or len(loops) != len(maps):
        return False
    if not set(loops[-1]) <= {loop for each in loops[:-1] for loop in each}:
        return False
    body = operation.regions[0].blocks[0]
    inside = set(body.arguments)
    for entry in body.operations:
        named = entry.operation.name
        if not named.startswith(("arith.", "math.", "linalg.yield")):
            return False
        inside.update(entry.operation.results)
    return all(
        value in inside or (not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant")
        for entry in body.operations for value in entry.operation.operands
    )


def _is_empty(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tensor.empty"
