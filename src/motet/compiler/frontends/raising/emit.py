"""Emits the statements of a loop nest as operations of linalg on tensors, which are read from and written to memrefs.

    C[i, j] = reduce(k, +, 0, A[i, k] * B[k, j])
      →  %a = bufferization.to_tensor %A …
         %0 = linalg.generic {d0, d1 parallel, d2 reduction} ins(%a, %b) outs(fill of zeros)
         bufferization.materialize_in_destination %0 in %C

An access to a window, a range or an edge of a memref becomes a slice or padding of its tensor. A bounded reduction
becomes a padded one if its bounds are those of its loads: out-of-bounds terms are neutral. (As in every padded
convolution, this assumes that the other operand is finite.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.raising.linalg_body import LinalgBody, LinalgLoops
from motet.compiler.frontends.raising.nest import (
    Compute,
    Load,
    LoopNest,
    NestScalar,
    Node,
    Reduce,
    Statement,
    Unraisable,
    free_dims,
    nodes,
)
from motet.compiler.frontends.raising.sizes import Sizes, is_known
from motet.compiler.frontends.raising.statement_shape import holds, shape_statement
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine
from motet.compiler.ir.create import create

_WIDENING = ("arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp", "arith.negf")
_MUCH = 16  # terms of a stored element from which on copying a part of dynamic size pays
_PADDED_WITH = {
    "arith.addf": 0.0, "arith.addi": 0, "arith.maximumf": -math.inf, "arith.maxnumf": -math.inf,
    "arith.minimumf": math.inf, "arith.minnumf": math.inf,
}  # fmt: skip


def count_terms(nest: LoopNest) -> int:
    """The number of terms summed for a stored element, maximised over the statements."""
    found = [1]
    for statement in nest.statements:
        stored = frozenset[int]().union(*(index.dims for index in statement.indices))
        over = {dim for dim in statement.dims if dim not in stored}
        over.update(dim for node in nodes(statement.value) if isinstance(node, Reduce) for dim in node.dims)
        found.append(math.prod(nest.extents[dim] for dim in over))
    return max(found)


def emit_statement(
    statement: Statement, extents: Mapping[int, int], sizes: Sizes, terms: int, before: ir.Operation
) -> None:
    """Creates the operations of `statement`, of a nest with `terms` terms, before `before`. Raises Unraisable, possibly
    after creating some of them."""
    shaped, own = shape_statement(statement, dict(extents))
    if all(own[dim] > 0 for dim in shaped.dims):
        _StatementEmitter(own, sizes, terms, before, shaped).run()


class _StatementEmitter:
    """Creates the operations of one statement."""

    def __init__(
        self, extents: Mapping[int, int], sizes: Sizes, terms: int, before: ir.Operation, statement: Statement
    ) -> None:
        self.extents = extents
        self.sizes = sizes
        self.terms = terms
        self.before = before
        self.statement = statement

    def run(self) -> None:
        statement = self.statement
        kind = ir.MemRefType(statement.memref.type)
        axes = [index.terms[0][0] if index.terms else None for index in statement.indices]
        result = self._tensor_of(statement.value, axes, kind.element_type)
        shape = self.sizes.of_shape(statement.memref)
        if not all(self._covers(index, extent) for index, extent in zip(statement.indices, shape, strict=True)):
            result = self._inserted(result, shape)
        attributes = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
        self._create("bufferization.materialize_in_destination", [], [result, statement.memref], attributes)

    def _covers(self, index: Affine, extent: int) -> bool:
        size = self.extents[index.terms[0][0]] if index.terms else 1
        return not index.constant and size == extent and (not index.terms or index.single is not None)

    def _inserted(self, part: ir.Value, shape: Sequence[int]) -> ir.Value:
        """The content of the memref with `part` inserted."""
        whole = self._held(self.statement.memref)
        indices = self.statement.indices
        for index, extent in zip(indices, shape, strict=True):
            low, high = index.range(self.extents)
            if low < 0 or self.sizes.beyond(high, extent):
                raise Unraisable("a store outside of its memref")
        if not all(map(is_known, shape)) and self.terms < _MUCH:
            raise Unraisable("a store to a part of a size that is not known, for little work")
        attributes, values = self._slice(
            [index.constant for index in indices],
            [self.extents[index.terms[0][0]] if index.terms else 1 for index in indices],
            [index.terms[0][1] if index.terms else 1 for index in indices],
        )
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, 0, len(values), 0])
        return self._create("tensor.insert_slice", [whole.type], [part, whole, *values], attributes).result

    def _slice(
        self, offsets: list[int], sizes: list[int], strides: list[int]
    ) -> tuple[dict[str, ir.Attribute], list[ir.Value]]:
        """The attributes of a slice, and its dynamic sizes."""
        static, values = self._sizes(sizes)
        return {
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets), "static_sizes": ir.DenseI64ArrayAttr.get(static),
            "static_strides": ir.DenseI64ArrayAttr.get(strides),
        }, values

    def _check_worth(self, sizes: Sequence[int]) -> None:
        """Raises Unraisable for tensors of computed sizes in nests of little work; kernels cannot take them
        directly."""
        if not all(is_known(size) or self.sizes.is_axis(size) for size in sizes) and self.terms < _MUCH:
            raise Unraisable("a computed size, for little work")

    def _sizes(self, sizes: Sequence[int]) -> tuple[list[int], list[ir.Value]]:
        """Sizes as in a type, and the values of the dynamic ones."""
        values = [self.sizes.create(size, self.before) for size in sizes if not is_known(size)]
        return [size if is_known(size) else ir.ShapedType.get_dynamic_size() for size in sizes], values

    # -- tensors ---------------------------------------------------------------------------------

    def _tensor_of(self, node: Node, axes: Sequence[int | None], element: ir.Type) -> ir.Value:
        """A tensor of the values of `node`, with an axis for each dimension of `axes`, of extent 1 for None."""
        dims = tuple(dim for dim in axes if dim is not None)
        if isinstance(node, Reduce):
            return self._reduced(node, axes, element)
        if isinstance(node, NestScalar):
            return self._filled(node, axes, element)
        return self._generic(LinalgLoops(dims, len(dims)), node, None, self._empty(axes, element), axes)

    def _empty(self, axes: Sequence[int | None], element: ir.Type) -> ir.Value:
        extents = [1 if dim is None else self.extents[dim] for dim in axes]
        self._check_worth(extents)
        shape, values = self._sizes(extents)
        return self._create("tensor.empty", [ir.RankedTensorType.get(shape, element)], values, {}).result

    def _filled(self, node: NestScalar, axes: Sequence[int | None], element: ir.Type) -> ir.Value:
        dims = tuple(dim for dim in axes if dim is not None)
        loops = LinalgLoops(dims, len(dims))
        loops.add(node, self._scalar(node), [])
        return self._generic(loops, node, None, self._empty(axes, element), axes)

    def _scalar(self, node: NestScalar) -> ir.Value:
        """A scalar that is available where operations are created: constants may be defined inside the loops."""
        if isinstance(node.value.owner, ir.Block) or node.value.owner.operation.name != "arith.constant":
            return node.value
        value = node.value.owner.operation.attributes["value"]
        return self._create("arith.constant", [node.value.type], [], {"value": value}).result

    def _reduced(self, node: Reduce, axes: Sequence[int | None], element: ir.Type) -> ir.Value:
        padding = _Padding(node, self.extents)
        dims = tuple(dim for dim in axes if dim is not None)
        start = self._start(node.initial, axes, element)
        loops = LinalgLoops((*dims, *node.dims), len(dims))
        self._find_operands(loops, node.term, padding)
        self._show_extents(loops, element)
        return self._generic(loops, node.term, node.combiner, start, axes)

    def _start(self, node: Node, axes: Sequence[int | None], element: ir.Type) -> ir.Value:
        """The initial tensor of a reduction; the content of the memref if it starts with that."""
        if isinstance(node, Load) and node.indices == self.statement.indices and node.memref == self.statement.memref:
            shape = self.sizes.of_shape(node.memref)
            stored = [index.terms[0][0] if index.terms else None for index in node.indices]
            if stored == list(axes) and all(self._covers(i, n) for i, n in zip(node.indices, shape, strict=True)):
                return self._held(node.memref)
        return self._tensor_of(node, axes, element)

    def _show_extents(self, loops: LinalgLoops, element: ir.Type) -> None:
        """Adds an operand that is never read if no other operand determines the extent of a loop."""
        shown = {
            ir.AffineDimExpr(expression).position
            for _, map_ in loops.inputs for expression in map_.results if isinstance(expression, ir.AffineDimExpr)
        }
        hidden = [dim for number, dim in enumerate(loops.dims) if number >= loops.parallel and number not in shown]
        if hidden:
            loops.inputs.append((self._empty(hidden, element), loops.map([Affine.dim(dim) for dim in hidden])))

    def _generic(
        self, loops: LinalgLoops, node: Node, combiner: str | None, start: ir.Value, axes: Sequence[int | None]
    ) -> ir.Value:
        self._find_operands(loops, node, None)
        output = loops.map([Affine() if dim is None else Affine.dim(dim) for dim in axes])
        kinds = ["parallel"] * loops.parallel + ["reduction"] * (len(loops.dims) - loops.parallel)
        maps = [*(map_ for _, map_ in loops.inputs), output]
        operands = [*(value for value, _ in loops.inputs), start]
        attributes: dict[str, ir.Attribute] = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            "iterator_types": ir.Attribute.parse(f"[{', '.join(f'#linalg.iterator_type<{kind}>' for kind in kinds)}]"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(loops.inputs), 1]),
        }
        operation = self._create("linalg.generic", [start.type], operands, attributes, regions=1)
        elements = [value.type.element_type if _is_tensor(value) else value.type for value in operands]
        block = operation.regions[0].blocks.append(*elements, arg_locs=[self.before.location] * len(elements))
        body = LinalgBody(block, loops, self.before.location)
        value = body.value(node)
        if combiner is not None:
            value = body.create(combiner, [block.arguments[len(operands) - 1], value], value.type, {})
        body.create("linalg.yield", [value], None, {})
        return operation.result

    # -- operands --------------------------------------------------------------------------------

    def _find_operands(self, loops: LinalgLoops, node: Node, padding: _Padding | None) -> None:
        """Makes every load, scalar and inner reduction of `node` an operand."""
        if node in loops.places:
            return
        if isinstance(node, Load):
            value, expressions = self._element(node, padding)
            loops.add(node, value, expressions)
        elif isinstance(node, NestScalar):
            loops.add(node, self._scalar(node), [])
        elif isinstance(node, Reduce):
            free = [dim for dim in loops.dims if dim in free_dims(node)]
            loops.add(node, self._tensor_of(node, free, node.kind), [Affine.dim(dim) for dim in free])
        elif isinstance(node, Compute):
            for operand in node.operands:
                self._find_operands(loops, operand, padding)

    def _held(self, memref: ir.Value) -> ir.Value:
        kind = ir.MemRefType(memref.type)
        tensor = ir.RankedTensorType.get(kind.shape, kind.element_type)
        return self._create("bufferization.to_tensor", [tensor], [memref], {"restrict": ir.UnitAttr.get()}).result

    def _element(self, load: Load, padding: _Padding | None) -> tuple[ir.Value, list[Affine]]:
        """A tensor of the elements that `load` reads over all iterations, and the index into it along each axis."""
        kind = ir.MemRefType(load.memref.type)
        shape = self.sizes.of_shape(load.memref)
        bounds = _bounds(load)
        if any(not holds(condition, self.extents) and condition not in bounds for condition in load.conditions):
            raise Unraisable("a load under other conditions than its bounds")
        tensor = self._held(load.memref)
        lows, highs = list[int](), list[int]()
        windows: list[_IndexWindow] = []
        for index, extent in zip(load.indices, shape, strict=True):
            low, high = index.range(self.extents)
            before, after = max(0, -low), self.sizes.beyond(high, extent)
            if (before or after) and not _is_bounded(load, index, extent, padding, self.extents):
                raise Unraisable("a load outside of its memref")
            lows.append(before)
            highs.append(after)
            windows.append(_IndexWindow.of(index.plus(before), extent + before + after, self.extents))
        if any((*lows, *highs)):
            number = load.otherwise if load.conditions or padding is None else padding.value
            tensor = self._padded(tensor, lows, highs, number)
        padded = [low + extent + high for low, extent, high in zip(lows, shape, highs, strict=True)]
        sizes = [window.size for window in windows]
        if sizes != padded or any(window.stride != 1 for window in windows):
            self._check_worth(sizes)
            attributes, values = self._slice(
                [window.offset for window in windows], sizes, [window.stride for window in windows]
            )
            part = ir.RankedTensorType.get(self._sizes(sizes)[0], kind.element_type)
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, len(values), 0])
            tensor = self._create("tensor.extract_slice", [part], [tensor, *values], attributes).result
        return tensor, [window.index for window in windows]

    def _padded(self, tensor: ir.Value, lows: list[int], highs: list[int], value: float) -> ir.Value:
        kind = ir.RankedTensorType(tensor.type)
        shape = [low + n + high if low or high else n for low, n, high in zip(lows, kind.shape, highs, strict=True)]
        element = kind.element_type
        number = (
            ir.IntegerAttr.get(element, int(value)) if isinstance(element, ir.IntegerType)
            else ir.FloatAttr.get(element, float(value))
        )
        constant = self._create("arith.constant", [element], [], {"value": number}).result
        attributes: dict[str, ir.Attribute] = {
            "static_low": ir.DenseI64ArrayAttr.get(lows), "static_high": ir.DenseI64ArrayAttr.get(highs),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
        }
        padded = ir.RankedTensorType.get(shape, element)
        operation = self._create("tensor.pad", [padded], [tensor], attributes, regions=1)
        index = ir.IndexType.get()
        block = operation.regions[0].blocks.append(*[index] * len(shape), arg_locs=[self.before.location] * len(shape))
        ir.Operation.create("tensor.yield", operands=[constant], loc=self.before.location, ip=ir.InsertionPoint(block))
        return operation.result

    def _create(
        self, name: str, results: list[ir.Type], operands: list[ir.Value], attributes: dict[str, ir.Attribute],
        regions: int = 0,
    ) -> ir.Operation:
        return create(name, results, operands, self.before, attributes, regions)


@dataclass(frozen=True)
class _IndexWindow:
    """The range of an axis that an index covers, and the index within it."""

    offset: int
    size: int
    stride: int
    index: Affine

    @staticmethod
    def of(index: Affine, extent: int, extents: Mapping[int, int]) -> _IndexWindow:
        low, high = index.range(extents)
        if not index.terms:
            return _IndexWindow(low, 1, 1, Affine())
        dim, coefficient = index.terms[0]
        if len(index.terms) == 1 and coefficient > 0:
            return _IndexWindow(low, extents[dim], coefficient, Affine.dim(dim))
        if low == 0 and len(index.terms) > 1:
            return _IndexWindow(0, extent, 1, index)
        return _IndexWindow(low, high - low + 1, 1, index.plus(-low))


class _Padding:
    """The loads of a reduction's term that may be padded: its conditions keep exactly these in bounds."""

    def __init__(self, node: Reduce, extents: Mapping[int, int]) -> None:
        self.conditions = tuple(c for c in node.conditions if c.range(extents)[0] < 0)
        self.factors = list[Node]()
        self.value = float(_PADDED_WITH.get(node.combiner, 0))
        if not self.conditions:
            return
        if node.combiner not in _PADDED_WITH:
            raise Unraisable(f"a bounded reduction by {node.combiner}")
        sums = node.combiner in ("arith.addf", "arith.addi")
        self.factors = _factors(node.term) if sums else [node.term] if isinstance(node.term, Load) else []
        bounded = [bound for load in self.factors if isinstance(load, Load) for bound in _bounds(load)]
        if any(condition not in bounded for condition in self.conditions):
            raise Unraisable("bounds of a reduction that are not those of what it reads")

    def allows(self, load: Load) -> bool:
        """Whether `load` may be padded: a neutral element of it makes the whole term neutral."""
        return any(load is factor for factor in self.factors)


def _bounds(load: Load) -> list[Affine]:
    """Expressions that are non-negative exactly if `load` is in bounds."""
    extents = ir.MemRefType(load.memref.type).shape
    return [
        bound for index, extent in zip(load.indices, extents, strict=True)
        for bound in (index, (index * -1).plus(extent - 1))
    ]


def _is_bounded(load: Load, index: Affine, extent: int, padding: _Padding | None, extents: Mapping[int, int]) -> bool:
    """Whether conditions keep `index` of `load` within `[0, extent)` at each end where it could be outside."""
    conditions = load.conditions
    if not conditions and padding is not None and padding.conditions and padding.allows(load):
        conditions = padding.conditions
    return all(holds(bound, extents) or bound in conditions for bound in (index, (index * -1).plus(extent - 1)))


def _factors(node: Node) -> list[Node]:
    """The nodes whose being zero makes `node` zero."""
    if isinstance(node, Compute):
        if node.name in ("arith.mulf", "arith.muli"):
            return [factor for operand in node.operands for factor in _factors(operand)]
        if node.name in _WIDENING:
            return _factors(node.operands[0])
    return [node]


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)
