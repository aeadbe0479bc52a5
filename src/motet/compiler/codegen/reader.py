"""Reads a kernel's function (MLIR) into a `Kernel` (plain data).

Operations that only rename elements (`tensor.extract_slice`, `tensor.pad`, a `linalg.generic` that copies through
a projected permutation) become *views*: they vanish into the maps of the stages that read them. What cannot be
said in stages (data-dependent addresses, control flow, non-affine maps) raises `Unreadable` with the reason;
such a kernel takes the generic path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.kernel import (
    ITEM_BITS,
    Access,
    Affine,
    Kernel,
    Scalar,
    Size,
    Stage,
    Value,
    row_major,
)
from motet.compiler.ir._mlir import ir

EXTENT = "tensor.dim"  # a scalar: the dynamic extent that `predicate` names
CONSTANT = "motet.constant"  # argument attribute: its data is known when compiling

FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)
INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


class Unreadable(Exception):
    """The function has something that stages cannot say; the text names it."""


@dataclass(frozen=True)
class View:
    """Elements of value `base` under another numbering: element `d` is `base[map(d)]`, or `padding` outside.
    `limits` are the extents that the view itself has."""

    base: int
    map: tuple[Affine, ...]
    shape: tuple[Size, ...]
    padding: float | int | None = None


Number = float | int
Source = View | Number | None  # what an SSA value stands for; None: contents undefined


def read_kernel(function: ir.Operation) -> Kernel:
    """The `Kernel` that `function` (a `func.func` on tensors with one block) computes.

    Raises `Unreadable` where it has no such form; `computed.py` reads more of them.
    """
    return Reader(function).read()


def dtype_of(kind: ir.Type) -> str:
    """The element type of a tensor type, or of a scalar, in MLIR's spelling."""
    if isinstance(kind, ir.RankedTensorType):
        kind = ir.RankedTensorType(kind).element_type
    name = str(kind)
    if name not in ITEM_BITS:
        raise Unreadable(f"element type {name}")
    return name


def affine_of(expression: ir.AffineExpr, rank: int) -> Affine:
    """A linear map's result; `floordiv`, `mod` and symbols are `Unreadable`."""
    if isinstance(expression, ir.AffineConstantExpr):
        return Affine((0,) * rank, ir.AffineConstantExpr(expression).value)
    if isinstance(expression, ir.AffineDimExpr):
        position = ir.AffineDimExpr(expression).position
        return Affine(tuple(int(i == position) for i in range(rank)))
    if isinstance(expression, ir.AffineAddExpr):
        pair = ir.AffineBinaryExpr(expression)
        left, right = affine_of(pair.lhs, rank), affine_of(pair.rhs, rank)
        return _add(left, right)
    if isinstance(expression, ir.AffineMulExpr):
        pair = ir.AffineBinaryExpr(expression)
        left, right = affine_of(pair.lhs, rank), affine_of(pair.rhs, rank)
        if left.is_constant:
            left, right = right, left
        if right.is_constant:
            return _scale(left, right.constant)
    raise Unreadable(f"indexing expression {expression}")


def _add(a: Affine, b: Affine) -> Affine:
    return Affine(
        tuple(x + y for x, y in zip(a.coefficients, b.coefficients, strict=True)), a.constant + b.constant
    )


def _scale(a: Affine, factor: int) -> Affine:
    return Affine(tuple(x * factor for x in a.coefficients), a.constant * factor)


def substitute(outer: Affine, inner: Sequence[Affine], rank: int) -> Affine:
    """`outer(inner_0(d), inner_1(d), …)` over `rank` dimensions."""
    result = Affine((0,) * rank, outer.constant)
    for coefficient, expression in zip(outer.coefficients, inner, strict=True):
        if coefficient:
            result = _add(result, _scale(expression, coefficient))
    return result


def identity_map(rank: int) -> tuple[Affine, ...]:
    return tuple(Affine(tuple(int(i == j) for j in range(rank))) for i in range(rank))


def constant_number(operation: ir.Operation) -> Number | None:
    """The number that an `arith.constant` holds, if it is a scalar or a splat."""
    attribute = operation.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        dense = ir.DenseElementsAttr(attribute)
        if not dense.is_splat:
            return None
        attribute = dense.get_splat_value()
    if isinstance(attribute, ir.FloatAttr):
        return float(ir.FloatAttr(attribute).value)
    if isinstance(attribute, ir.BoolAttr):
        return int(ir.BoolAttr(attribute).value)
    if isinstance(attribute, ir.IntegerAttr):
        return int(ir.IntegerAttr(attribute).value)
    return None


class Reader:
    """With `gathers`, bodies may have `tensor.extract` (see `Scalar`)."""

    gathers = False

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.sources: dict[ir.Value, Source] = {}
        self.symbols: dict[str, Size] = {}  # union-find over symbol names
        self.extents: dict[ir.Value, Size] = {}  # index values that are known to be an extent
        self.shapes: dict[ir.Value, tuple[Size | None, ...]] = {}  # of tensors without contents

    def read(self) -> Kernel:
        block = self.function.regions[0].blocks[0]
        attributes = self._argument_attributes(len(block.arguments))
        for index, argument in enumerate(block.arguments):
            self._read_argument(argument, index, attributes[index])
        operations = list(block.operations)
        for operation in operations[:-1]:
            self._read_operation(operation.operation)
        results = [self._result(operand) for operand in operations[-1].operation.operands]
        return self._finish(results)

    def _argument_attributes(self, count: int) -> list[set[str]]:
        if "arg_attrs" not in self.function.attributes:
            return [set()] * count
        dictionaries = [ir.DictAttr(a) for a in ir.ArrayAttr(self.function.attributes["arg_attrs"])]
        return [{entry.name for entry in dictionary} for dictionary in dictionaries]

    def _read_argument(self, argument: ir.Value, index: int, attributes: set[str]) -> None:
        if not isinstance(argument.type, ir.RankedTensorType):
            raise Unreadable(f"argument of type {argument.type}")
        kind = ir.RankedTensorType(argument.type)
        shape = tuple(
            f"a{index}_{axis}" if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
        )
        self.symbols.update((size, size) for size in shape if isinstance(size, str))
        role = "constant" if CONSTANT in attributes else "argument"
        self.values.append(Value(shape, dtype_of(kind), role, row_major(kind.rank)))
        self.sources[argument] = View(index, identity_map(kind.rank), shape)

    # -- one operation ---------------------------------------------------------------------------

    def _read_operation(self, operation: ir.Operation) -> None:
        name = operation.name
        if name == "tensor.empty":
            self._read_empty(operation)
        elif name == "arith.constant":
            self._read_constant(operation)
        elif name.startswith(("arith.", "math.")) and self._is_scalar(operation):
            self._read_scalar(operation)
        elif name == "linalg.generic":
            self._read_generic(operation)
        elif name == "linalg.fill":
            self.sources[operation.results[0]] = self._number(operation.operands[0])
        elif name == "tensor.pad":
            self._read_pad(operation)
        elif name == "tensor.extract_slice":
            self._read_extract_slice(operation)
        elif name == "tensor.insert_slice":
            self._read_insert_slice(operation)
        elif name == "tensor.concat":
            self._read_concat(operation)
        elif name in ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"):
            self._read_reshape(operation)
        elif name == "tensor.extract":
            self._read_extract(operation)
        elif name == "tensor.dim":
            self._read_dim(operation)
        elif name == "affine.apply" or (name.startswith("arith.") and _is_size(operation.results[0].type)):
            pass  # sizes: they follow from the operands' shapes
        else:
            raise Unreadable(f"operation {name}")

    def _read_empty(self, operation: ir.Operation) -> None:
        kind = ir.RankedTensorType(operation.results[0].type)
        dynamic = iter(operation.operands)
        self.shapes[operation.results[0]] = tuple(
            self._given_extent(next(dynamic)) if kind.is_dynamic_dim(axis) else kind.shape[axis]
            for axis in range(kind.rank)
        )
        self.sources[operation.results[0]] = None

    def _given_extent(self, value: ir.Value) -> Size | None:
        """The extent that `value` is, where that can be told."""
        return self.extents.get(value)

    def _grown(self, size: Size, by: int) -> Size:
        """An extent that is larger by a constant."""
        return _known(size) + by

    def _shape_at(self, operand: ir.Value) -> tuple[Size, ...]:
        """The extents of a tensor that is no view."""
        kind = ir.RankedTensorType(operand.type)
        return tuple(_known(_extent(kind, axis)) for axis in range(kind.rank))

    def _read_dim(self, operation: ir.Operation) -> None:
        source, axis = (self.sources.get(operand) for operand in operation.operands)
        if isinstance(source, View) and isinstance(axis, int):
            self.extents[operation.results[0]] = source.shape[axis]

    def _read_constant(self, operation: ir.Operation) -> None:
        number = constant_number(operation)
        if number is None:
            raise Unreadable("a constant that is not a splat")
        self.sources[operation.results[0]] = number

    def _read_extract(self, operation: ir.Operation) -> None:
        """The element at a place that is known."""
        source = self.source_of(operation.operands[0])
        indices = [self.sources.get(operand) for operand in list(operation.operands)[1:]]
        known = [Affine((), index) for index in indices if isinstance(index, int)]
        if len(known) != len(indices):
            raise Unreadable("an element at a computed place")
        if isinstance(source, View):
            map_ = tuple(substitute(expression, known, 0) for expression in source.map)
            source = View(source.base, map_, (), source.padding)
        self.sources[operation.results[0]] = source

    def _is_scalar(self, operation: ir.Operation) -> bool:
        """Whether an operation outside of bodies makes a number, which is no size, of what is known or in a tensor."""
        kind = operation.results[0].type
        return str(kind) in DTYPES and str(kind) != "index" and all(o in self.sources for o in operation.operands)

    def _read_scalar(self, operation: ir.Operation) -> None:
        """A number that is calculated outside of bodies: a loop nest of one point. Of constants in another type
        upstream folds those alone that it need not round."""
        dtype = dtype_of(operation.results[0].type)
        source = self.sources[operation.operands[0]]
        if operation.name in ("arith.truncf", "arith.extf") and isinstance(source, float):
            with np.errstate(over="ignore"):
                self.sources[operation.results[0]] = float(np.float64(source).astype(DTYPES[dtype]))
            return
        body = Body(self, 0)
        for operand in operation.operands:
            body.bind(operand, self.sources[operand], (), operand, [])
        target = self._new((), dtype)
        body.read_one(operation)
        self.stages.append(Stage(
            sizes=(), iterators=(), inputs=tuple(body.accesses), outputs=(Access(target, ()),), inits=(None,),
            body=tuple(body.scalars), yields=tuple(body.yields), source=operation.name,
        ))
        self.sources[operation.results[0]] = View(target, (), ())

    def source_of(self, value: ir.Value) -> Source:
        if value not in self.sources:
            raise Unreadable(f"value of type {value.type} from outside")
        return self.sources[value]

    def _number(self, value: ir.Value) -> Number:
        source = self.source_of(value)
        if isinstance(source, View) or source is None:
            raise Unreadable("a fill with a computed value")
        return source

    def _read_pad(self, operation: ir.Operation) -> None:
        source = self.source_of(operation.operands[0])
        low, high = _static(operation, "static_low"), _static(operation, "static_high")
        padding = self._padding_of(padding_value(operation))
        if source is None:
            raise Unreadable("padding of undefined contents")
        if not isinstance(source, View):
            source = self._spread(source, operation.operands[0])
        if source.padding is not None:
            source = self.materialised(source, dtype_of(operation.operands[0].type))
        rank = len(source.shape)
        shape = tuple(
            size if lo == hi == 0 else self._grown(size, lo + hi)
            for size, lo, hi in zip(source.shape, low, high, strict=True)
        )
        shift = [
            Affine(tuple(int(i == j) for j in range(rank)), -low[i]) for i in range(rank)
        ]
        if any(low) or any(high):
            base_shape = self.values[source.base].shape
            if source.shape != base_shape or source.map != identity_map(rank):
                source = self.materialised(source, dtype_of(operation.operands[0].type))
        map_ = tuple(substitute(expression, shift, rank) for expression in source.map)
        pad = padding if any(low) or any(high) else source.padding
        self.sources[operation.results[0]] = View(source.base, map_, shape, pad)

    def _padding_of(self, value: ir.Value) -> Number:
        source = self.sources.get(value)
        if source is None and not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant":
            source = constant_number(value.owner.operation)
        if source is None or isinstance(source, View):
            raise Unreadable("a computed padding value")
        return source

    def _read_extract_slice(self, operation: ir.Operation) -> None:
        source = self.source_of(operation.operands[0])
        if not isinstance(source, View):
            self.sources[operation.results[0]] = source
            return
        offsets, strides = _static(operation, "static_offsets"), _static(operation, "static_strides")
        sizes = static_or_none(operation, "static_sizes")
        result = ir.RankedTensorType(operation.results[0].type)
        kept = kept_dimensions(sizes, [_extent(result, i) for i in range(result.rank)])
        inner: list[Affine] = []
        for axis, (offset, stride) in enumerate(zip(offsets, strides, strict=True)):
            coefficients = tuple(stride if dimension == axis else 0 for dimension in kept)
            inner.append(Affine(coefficients, offset))
        given = iter(list(operation.operands)[1:])  # offsets and strides are no operands: they are static
        extents = [self._slice_extent(next(given)) if size is None else size for size in sizes]
        shape = tuple(extents[axis] for axis in kept)
        map_ = tuple(substitute(expression, inner, len(kept)) for expression in source.map)
        self.sources[operation.results[0]] = View(source.base, map_, shape, source.padding)

    def _slice_extent(self, value: ir.Value) -> Size:
        """The extent of a slice whose size is computed: that of some tensor, or not to be told."""
        extent = self.extents.get(value)
        if extent is None:
            raise Unreadable("a slice of a computed size")
        return extent

    def _read_reshape(self, operation: ir.Operation) -> None:
        """A reshape that adds or drops unit dimensions."""
        source = self.source_of(operation.operands[0])
        if not isinstance(source, View) or operation.name == "tensor.cast":
            self.sources[operation.results[0]] = source
            self.shapes[operation.results[0]] = self.shapes.get(operation.operands[0], ())
            return
        expands = operation.name == "tensor.expand_shape"
        result = ir.RankedTensorType(operation.results[0].type)
        wide = result if expands else ir.RankedTensorType(operation.operands[0].type)
        groups = reassociation(operation)
        real = [[axis for axis in group if _extent(wide, axis) != 1] for group in groups]
        if any(len(axes) > 1 for axes in real):
            raise Unreadable("a reshape that merges or splits dimensions")
        zero = Affine((0,) * result.rank)
        identity = identity_map(result.rank)
        inner = [zero] * len(source.shape)
        shape: list[Size] = [1] * result.rank
        for narrow, axes in enumerate(real):
            axis = axes[0] if axes else groups[narrow][0]
            old, new = (narrow, axis) if expands else (axis, narrow)
            inner[old] = identity[new]
            shape[new] = source.shape[old]
        map_ = tuple(substitute(expression, inner, result.rank) for expression in source.map)
        self.sources[operation.results[0]] = View(source.base, map_, tuple(shape), source.padding)

    def _read_insert_slice(self, operation: ir.Operation) -> None:
        source, destination = (self.source_of(operation.operands[i]) for i in range(2))
        offsets, strides = _static(operation, "static_offsets"), _static(operation, "static_strides")
        sizes = self._inserted_sizes(operation, source)
        result = ir.RankedTensorType(operation.results[0].type)
        target = self._writable(destination, operation.operands[1])
        kind = ir.RankedTensorType(operation.operands[0].type)
        known = [size if isinstance(size, int) else None for size in sizes]
        kept = kept_dimensions(known, [_extent(kind, i) for i in range(kind.rank)])
        map_ = tuple(
            Affine(tuple(strides[axis] if d == axis else 0 for d in kept), offsets[axis])
            for axis in range(result.rank)
        )
        extents = tuple(sizes[axis] for axis in kept)
        self._copy(source, extents, Access(target, map_), operation)
        self.sources[operation.results[0]] = View(target, identity_map(result.rank), self.values[target].shape)

    def _inserted_sizes(self, operation: ir.Operation, source: Source) -> Sequence[Size]:
        """The extents of what is inserted, with those that its type leaves out."""
        return _static(operation, "static_sizes")

    def _read_concat(self, operation: ir.Operation) -> None:
        axis = ir.IntegerAttr(operation.attributes["dim"]).value
        result = ir.RankedTensorType(operation.results[0].type)
        parts = [self.source_of(operand) for operand in operation.operands]
        shapes = [self._shape_of(operand, part) for operand, part in zip(operation.operands, parts, strict=True)]
        total = sum(_known(shape[axis]) for shape in shapes)
        shape = tuple(total if i == axis else shapes[0][i] for i in range(result.rank))
        target = self._new(shape, dtype_of(result))
        start = 0
        for part, extents in zip(parts, shapes, strict=True):
            map_ = tuple(
                replace(expression, constant=start) if i == axis else expression
                for i, expression in enumerate(identity_map(result.rank))
            )
            self._copy(part, extents, Access(target, map_), operation)
            start += _known(extents[axis])
        self.sources[operation.results[0]] = View(target, identity_map(result.rank), shape)

    def _shape_of(self, value: ir.Value, source: Source) -> tuple[Size, ...]:
        if isinstance(source, View):
            return source.shape
        return self._shape_at(value)

    # -- linalg.generic --------------------------------------------------------------------------

    def _read_generic(self, operation: ir.Operation) -> None:
        maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(operation.attributes["indexing_maps"])]
        iterators: list[Literal["parallel", "reduction"]] = [
            "reduction" if "reduction" in str(a) else "parallel"
            for a in ir.ArrayAttr(operation.attributes["iterator_types"])
        ]
        rank = len(iterators)
        segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
        operands = list(operation.operands)
        inputs, outputs = operands[: segments[0]], operands[segments[0] :]
        linear = [tuple(affine_of(result, rank) for result in map_.results) for map_ in maps]
        sources = [self.source_of(operand) for operand in operands]
        if self._is_fill(operation, sources):
            self.sources[operation.results[0]] = sources[0]
            self.shapes[operation.results[0]] = self.shapes.get(operands[-1], ())
            return
        sizes = self._loop_sizes(rank, operands, sources, linear)
        block = operation.regions[0].blocks[0]
        if self._is_view(block, iterators, inputs, outputs, linear, sizes):
            self._view(operation, sources[0], linear[0], linear[-1], sizes)
            return
        body = Body(self, rank)
        accesses: list[Access] = []
        for operand, source, map_, argument in zip(
            inputs, sources, linear, list(block.arguments)[: len(inputs)], strict=False
        ):
            body.bind(argument, source, map_, operand, accesses)
        inits = self._inits(block, outputs, sources, linear, segments[0], iterators, body, accesses)
        body.read(block, len(outputs))
        targets = [
            self._new(self._output_shape(linear[segments[0] + k], sizes, outputs[k]), dtype_of(outputs[k].type))
            for k in range(len(outputs))
        ]
        self.stages.append(
            Stage(
                sizes=tuple(sizes), iterators=tuple(iterators), inputs=tuple(body.accesses),
                outputs=tuple(Access(t, linear[segments[0] + k]) for k, t in enumerate(targets)),
                inits=tuple(inits), body=tuple(body.scalars), yields=tuple(body.yields), source=_describe(operation),
            )
        )
        for result, target in zip(operation.results, targets, strict=True):
            shape = self.values[target].shape
            self.sources[result] = View(target, identity_map(len(shape)), shape)

    def _inits(
        self,
        block: ir.Block,
        outputs: Sequence[ir.Value],
        sources: Sequence[Source],
        linear: Sequence[tuple[Affine, ...]],
        first: int,
        iterators: Sequence[str],
        body: Body,
        accesses: list[Access],
    ) -> list[Access | Number | None]:
        inits: list[Access | Number | None] = []
        for k, output in enumerate(outputs):
            argument = block.arguments[first + k]
            source = sources[first + k]
            if not any(True for _ in argument.uses):
                inits.append(None)
            elif "reduction" not in iterators:
                body.bind(argument, source, linear[first + k], output, accesses)  # read like an input
                inits.append(None)
                continue
            elif isinstance(source, View):
                map_ = tuple(substitute(e, linear[first + k], len(iterators)) for e in source.map)
                inits.append(Access(source.base, map_, source.padding))
            elif source is None:
                raise Unreadable("a reduction into undefined contents")
            else:
                inits.append(source)
            body.bind_output(argument, k)
        return inits

    def _loop_sizes(
        self,
        rank: int,
        operands: Sequence[ir.Value],
        sources: Sequence[Source],
        maps: Sequence[tuple[Affine, ...]],
    ) -> list[Size]:
        sizes: list[Size | None] = [None] * rank
        for operand, source, map_ in zip(operands, sources, maps, strict=True):
            for axis, expression in enumerate(map_):
                dimension = expression.single
                if dimension is None:
                    continue
                extent: Size | None
                if isinstance(source, View):
                    extent = source.shape[axis]
                elif isinstance(operand.type, ir.RankedTensorType):
                    made = self.shapes.get(operand, ())
                    extent = made[axis] if axis < len(made) else _extent(ir.RankedTensorType(operand.type), axis)
                else:
                    extent = None
                if extent is not None:
                    sizes[dimension] = self._unify(sizes[dimension], extent)
        if any(size is None for size in sizes):
            raise Unreadable("a loop whose extent no operand gives")
        return [self._find(size) for size in sizes if size is not None]

    def _unify(self, known: Size | None, extent: Size) -> Size:
        if known is None or known == extent:
            return extent
        known, extent = self._find(known), self._find(extent)
        if known == extent:
            return known
        if isinstance(extent, str):
            self.symbols[extent] = known
            return known
        if isinstance(known, str):
            self.symbols[known] = extent
            return extent
        raise Unreadable(f"extents {known} and {extent} in one loop")

    def _find(self, size: Size) -> Size:
        while isinstance(size, str) and self.symbols.get(size, size) != size:
            size = self.symbols[size]
        return size

    def _output_shape(self, map_: Sequence[Affine], sizes: Sequence[Size], output: ir.Value) -> tuple[Size, ...]:
        kind = ir.RankedTensorType(output.type)
        shape: list[Size] = []
        for axis, expression in enumerate(map_):
            extent = _extent(kind, axis)
            if extent is None:
                if expression.single is None:
                    raise Unreadable("a dynamic extent that no loop gives")
                extent = sizes[expression.single]
            shape.append(extent)
        return tuple(shape)

    def _is_fill(self, operation: ir.Operation, sources: Sequence[Source]) -> bool:
        block = operation.regions[0].blocks[0]
        operations = list(block.operations)
        return (
            len(sources) == 2
            and isinstance(sources[0], (int, float))
            and len(operations) == 1
            and operations[0].operation.operands[0] == block.arguments[0]
        )

    def _is_view(
        self,
        block: ir.Block,
        iterators: Sequence[str],
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        linear: Sequence[tuple[Affine, ...]],
        sizes: Sequence[Size],
    ) -> bool:
        operations = list(block.operations)
        if len(inputs) != 1 or len(outputs) != 1 or "reduction" in iterators or len(operations) != 1:
            return False
        if operations[0].operation.operands[0] != block.arguments[0]:
            return False
        targets = [expression.single for expression in linear[1]]
        unit_gaps = all(
            e.single is not None or (e.is_constant and e.constant == 0) for e in linear[1]
        )
        covered = {t for t in targets if t is not None}
        return unit_gaps and all(i in covered or sizes[i] == 1 for i in range(len(iterators)))

    def _view(
        self,
        operation: ir.Operation,
        source: Source,
        read: tuple[Affine, ...],
        written: tuple[Affine, ...],
        sizes: Sequence[Size],
    ) -> None:
        if not isinstance(source, View):
            self.sources[operation.results[0]] = source
            return
        rank = len(written)
        inverse = [Affine((0,) * rank)] * len(sizes)
        for axis, expression in enumerate(written):
            if expression.single is not None:
                inverse[expression.single] = identity_map(rank)[axis]
        shape = tuple(1 if e.single is None else sizes[e.single] for e in written)
        moved = tuple(substitute(expression, inverse, rank) for expression in read)
        map_ = tuple(substitute(expression, moved, rank) for expression in source.map)
        self.sources[operation.results[0]] = View(source.base, map_, shape, source.padding)

    # -- writing ---------------------------------------------------------------------------------

    def _new(self, shape: tuple[Size, ...], dtype: str) -> int:
        self.values.append(Value(shape, dtype, "temporary", row_major(len(shape))))
        return len(self.values) - 1

    def _copy(self, source: Source, extents: tuple[Size, ...], target: Access, operation: ir.Operation) -> None:
        if source is None:
            return
        inputs: tuple[Access, ...] = ()
        body: tuple[Scalar, ...] = ()
        if isinstance(source, View):
            inputs = (Access(source.base, source.map, source.padding),)
        else:
            body = (Scalar("arith.constant", (), self.values[target.value].dtype, source),)
        self.stages.append(
            Stage(
                sizes=extents, iterators=("parallel",) * len(extents), inputs=inputs, outputs=(target,),
                inits=(None,), body=body, yields=(0 if inputs else 1,), source=_describe(operation),
            )
        )

    def materialised(self, view: View, dtype: str) -> View:
        """`view` as a value of its own."""
        target = self._new(view.shape, dtype)
        rank = len(view.shape)
        self.stages.append(
            Stage(
                sizes=view.shape, iterators=("parallel",) * rank, inputs=(Access(view.base, view.map, view.padding),),
                outputs=(Access(target, identity_map(rank)),), inits=(None,), body=(), yields=(0,), source="copy",
            )
        )
        return View(target, identity_map(rank), view.shape)

    def _writable(self, source: Source, operand: ir.Value) -> int:
        """A value that may be written over what `source` holds."""
        if isinstance(source, View):
            value = self.values[source.base]
            only_use = len(list(operand.uses)) == 1
            if value.role == "temporary" and only_use and source.map == identity_map(value.rank):
                return source.base
            return self.materialised(source, value.dtype).base
        target = self._new(self._shape_at(operand), dtype_of(operand.type))
        if source is not None:
            self._copy_number(source, target)
        return target

    def _spread(self, number: Number, operand: ir.Value) -> View:
        """A value like `operand`, which is no view, that holds `number` everywhere."""
        shape = self._shape_at(operand)
        target = self._new(shape, dtype_of(operand.type))
        self._copy_number(number, target)
        return View(target, identity_map(len(shape)), shape)

    def _copy_number(self, number: Number, target: int) -> None:
        value = self.values[target]
        self.stages.append(
            Stage(
                sizes=value.shape, iterators=("parallel",) * value.rank, inputs=(),
                outputs=(Access(target, identity_map(value.rank)),), inits=(None,),
                body=(Scalar("arith.constant", (), value.dtype, number),), yields=(1,), source="fill",
            )
        )

    def _result(self, operand: ir.Value) -> int:
        source = self.source_of(operand)
        if isinstance(source, View):
            value = self.values[source.base]
            plain = source.map == identity_map(value.rank) and source.padding is None
            if value.role == "temporary" and plain and source.shape == value.shape:
                return source.base
            return self.materialised(source, value.dtype).base
        target = self._new(self._shape_at(operand), dtype_of(operand.type))
        if source is not None:
            self._copy_number(source, target)
        return target

    def _finish(self, results: list[int]) -> Kernel:
        if len(set(results)) != len(results):
            raise Unreadable("one value returned twice")
        accessed = {access.value for stage in self.stages for access in (*stage.inputs, *stage.outputs)}
        accessed |= {init.value for stage in self.stages for init in stage.inits if isinstance(init, Access)}
        externals = [i for i, v in enumerate(self.values) if v.role != "temporary" and i in accessed]
        rest = [i for i, v in enumerate(self.values) if v.role == "temporary" and i not in results]
        order = externals + results + rest
        number = {old: new for new, old in enumerate(order)}
        values = tuple(
            replace(
                self.values[i],
                role="result" if i in results else self.values[i].role,
                shape=tuple(self._find(size) for size in self.values[i].shape),
            )
            for i in order
        )
        stages = tuple(self._renumber(stage, number) for stage in self.stages)
        symbols = dict.fromkeys(
            size for value in values for size in value.shape if isinstance(size, str)
        )
        name = ir.StringAttr(self.function.attributes["sym_name"]).value
        return Kernel(name, values, stages, tuple(symbols), tuple(externals))

    def _renumber(self, stage: Stage, number: dict[int, int]) -> Stage:
        def move(access: Access) -> Access:
            return replace(access, value=number[access.value])

        return replace(
            stage,
            sizes=tuple(self._find(size) for size in stage.sizes),
            body=tuple(self._resolved(scalar) for scalar in stage.body),
            inputs=tuple(map(move, stage.inputs)),
            outputs=tuple(map(move, stage.outputs)),
            inits=tuple(move(init) if isinstance(init, Access) else init for init in stage.inits),
        )


    def _resolved(self, scalar: Scalar) -> Scalar:
        """`scalar` with the extent that it is, where it is one."""
        if scalar.op != EXTENT:
            return scalar
        size = self._find(scalar.predicate)
        if isinstance(size, int):
            return Scalar("arith.constant", (), scalar.dtype, size)
        return replace(scalar, predicate=size)


class Body:
    """Reads a region of scalar operations. Body values are numbered: inputs, outputs, then operations; while
    reading, outputs and operations have provisional numbers that `read` resolves."""

    def __init__(self, reader: Reader, rank: int) -> None:
        self.reader = reader
        self.rank = rank
        self.accesses: list[Access] = []
        self.names: dict[ir.Value, tuple[str, int]] = {}
        self.constants: list[tuple[ir.Value, Number, str]] = []
        self.scalars: list[Scalar] = []
        self.yields: list[int] = []

    def bind(
        self, argument: ir.Value, source: Source, map_: Sequence[Affine], operand: ir.Value, accesses: list[Access]
    ) -> None:
        if isinstance(source, View):
            composed = tuple(substitute(expression, map_, self.rank) for expression in source.map)
            access = Access(source.base, composed, source.padding)
            if access in self.accesses:
                self.names[argument] = ("input", self.accesses.index(access))
                return
            self.names[argument] = ("input", len(self.accesses))
            self.accesses.append(access)
        else:
            self.constants.append((argument, 0 if source is None else source, dtype_of(operand.type)))

    def bind_output(self, argument: ir.Value, k: int) -> None:
        self.names[argument] = ("output", k)

    def read_one(self, operation: ir.Operation) -> None:
        """An operation on what was bound, as a body with one output."""
        position = self._begin(1)
        self.scalars.append(self._scalar(operation, tuple(position[operand] for operand in operation.operands)))
        self.yields = [len(self.accesses) + len(self.scalars)]

    def read_apply(self, operation: ir.Operation) -> int:
        """An `affine.apply` of what was bound, as a body with one output; the number of what it yields."""
        position = self._begin(1)
        return self._applied(operation, [position[operand] for operand in operation.operands], len(self.accesses) + 1)

    def _begin(self, outputs: int) -> dict[ir.Value, int]:
        """The numbers of what was bound."""
        position: dict[ir.Value, int] = {}
        for value, (kind, index) in self.names.items():
            position[value] = index if kind == "input" else len(self.accesses) + index
        for value, number, dtype in self.constants:
            position[value] = len(self.accesses) + outputs + len(self.scalars)
            self.scalars.append(Scalar("arith.constant", (), dtype, number))
        return position

    def read(self, block: ir.Block, outputs: int) -> None:
        self._capture(block)
        base = len(self.accesses) + outputs
        position = self._begin(outputs)
        for operation in block.operations:
            op = operation.operation
            if op.name == "linalg.yield":
                self.yields = [position[operand] for operand in op.operands]
                return
            if op.name == "cf.assert" and self.reader.gathers:
                continue  # that an index is inside: gathers bring those that are not to the border
            if op.name == "affine.apply" and self.reader.gathers:
                position[op.results[0]] = self._applied(op, [position[operand] for operand in op.operands], base)
                continue
            scalar = self._scalar(op, tuple(position[operand] for operand in op.operands))
            position[op.results[0]] = base + len(self.scalars)
            self.scalars.append(scalar)

    def _applied(self, op: ir.Operation, operands: Sequence[int], base: int) -> int:
        """The number of what an `affine.apply` calculates, as arithmetic on indices."""
        map_ = ir.AffineMapAttr(op.attributes["map"]).value

        def add(name: str, *parts: int, value: int | None = None) -> int:
            self.scalars.append(Scalar(name, parts, "index", value))
            return base + len(self.scalars) - 1

        def emitted(expression: ir.AffineExpr) -> int:
            if isinstance(expression, ir.AffineConstantExpr):
                return add("arith.constant", value=ir.AffineConstantExpr(expression).value)
            if isinstance(expression, ir.AffineDimExpr):
                return operands[ir.AffineDimExpr(expression).position]
            if isinstance(expression, ir.AffineSymbolExpr):
                return operands[map_.n_dims + ir.AffineSymbolExpr(expression).position]
            for kind, name in _AFFINE.items():
                if isinstance(expression, kind):
                    pair = ir.AffineBinaryExpr(expression)
                    return add(name, emitted(pair.lhs), emitted(pair.rhs))
            raise Unreadable(f"indexing expression {expression}")

        return emitted(map_.results[0])

    def _capture(self, block: ir.Block) -> None:
        """Values of the enclosing function that the region uses: scalars, known or read from a tensor."""
        inside = set(block.arguments)
        for operation in block.operations:
            op = operation.operation
            if len(op.regions):
                raise Unreadable(f"{op.name} inside a linalg body")
            for operand in op.operands:
                if operand in inside or operand in self.names:
                    continue
                source = self.reader.source_of(operand)
                table = self._table(op, operand)
                if table is not None:
                    self.bind(operand, table, tuple(Affine((0,) * self.rank) for _ in table.shape), operand, [])
                    continue
                if isinstance(source, View) and source.shape:
                    raise Unreadable(f"{op.name} of a whole tensor inside a linalg body")
                if isinstance(source, View):
                    self.bind(operand, source, (), operand, [])
                elif all(value != operand for value, _, _ in self.constants):
                    self.constants.append((operand, 0 if source is None else source, dtype_of(operand.type)))
            inside.update(op.results)

    def _table(self, op: ir.Operation, operand: ir.Value) -> View | None:
        """The tensor that `op` gathers from, which `operand` is."""
        source = self.reader.source_of(operand)
        if not self.reader.gathers or op.name != "tensor.extract" or operand != op.operands[0]:
            return None
        if not isinstance(source, View):
            return None
        value = self.reader.values[source.base]
        whole = source.map == identity_map(value.rank) and source.shape == value.shape and source.padding is None
        return source if whole else self.reader.materialised(source, dtype_of(operand.type))

    def _scalar(self, op: ir.Operation, operands: tuple[int, ...]) -> Scalar:
        if len(op.results) != 1:
            raise Unreadable(f"operation {op.name} inside a linalg body")
        dtype = dtype_of(op.results[0].type)
        if op.name == "arith.constant":
            number = constant_number(op)
            return Scalar(op.name, (), dtype, number)
        if op.name == "linalg.index":
            return Scalar(op.name, (), dtype, ir.IntegerAttr(op.attributes["dim"]).value)
        if op.name in ("arith.cmpf", "arith.cmpi"):
            index = ir.IntegerAttr(op.attributes["predicate"]).value
            names = FLOAT_PREDICATES if op.name == "arith.cmpf" else INTEGER_PREDICATES
            return Scalar(op.name, operands, dtype, None, names[index])
        known = op.name.startswith(("arith.", "math.")) or (self.reader.gathers and op.name == "tensor.extract")
        if not known:
            raise Unreadable(f"operation {op.name} inside a linalg body")
        return Scalar(op.name, operands, dtype)


def padding_value(operation: ir.Operation) -> ir.Value:
    """What a `tensor.pad` fills with."""
    value = list(operation.regions[0].blocks[0].operations)[-1].operation.operands[0]
    if isinstance(value.owner, ir.Block):
        raise Unreadable("a padding value that depends on the position")
    return value


_AFFINE = {
    ir.AffineAddExpr: "arith.addi", ir.AffineMulExpr: "arith.muli", ir.AffineFloorDivExpr: "arith.floordivsi",
    ir.AffineCeilDivExpr: "arith.ceildivsi",
}


def _is_size(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IndexType, ir.IntegerType))


def reassociation(operation: ir.Operation) -> list[list[int]]:
    """The groups of dimensions that an expand_shape or collapse_shape makes of one, or one of."""
    return [
        [ir.IntegerAttr(index).value for index in ir.ArrayAttr(group)]
        for group in ir.ArrayAttr(operation.attributes["reassociation"])
    ]


def static_or_none(operation: ir.Operation, name: str) -> list[int | None]:
    unknown = ir.ShapedType.get_dynamic_size()
    return [None if value == unknown else value for value in ir.DenseI64ArrayAttr(operation.attributes[name])]


def _static(operation: ir.Operation, name: str) -> list[int]:
    values = static_or_none(operation, name)
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        raise Unreadable(f"{operation.name} with a computed {name.removeprefix('static_')}")
    return known


def _extent(kind: ir.RankedTensorType, axis: int) -> int | None:
    return None if kind.is_dynamic_dim(axis) else kind.shape[axis]


def _known(size: Size | None) -> int:
    if not isinstance(size, int):
        raise Unreadable("arithmetic on a dynamic extent")
    return size


def kept_dimensions(sizes: Sequence[int | None], result: Sequence[int | None]) -> list[int]:
    """Which axes of a slice survive in its rank-reduced result: unit axes are dropped, from the left."""
    kept: list[int] = []
    drop = len(sizes) - len(result)
    position = 0
    for axis, size in enumerate(sizes):
        if position < len(result) and size == result[position]:
            rest_axes, rest_results = len(sizes) - axis - 1, len(result) - position - 1
            if rest_axes >= rest_results and not (size == 1 and drop and _must_drop(sizes, result, axis, position)):
                kept.append(axis)
                position += 1
                continue
        drop -= 1
    if position != len(result):
        raise Unreadable("a slice whose reduced axes are ambiguous")
    return kept


def _must_drop(
    sizes: Sequence[int | None], result: Sequence[int | None], axis: int, position: int
) -> bool:
    """Whether keeping unit axis `axis` as `result[position]` would leave the rest unmatched."""
    remaining: Iterable[int | None] = (s for s in sizes[axis + 1 :] if s != 1)
    wanted = [s for s in result[position + 1 :] if s != 1]
    return list(remaining) != wanted


def _describe(operation: ir.Operation) -> str:
    return f"{operation.name} {operation.location}"
