"""Reads a kernel's function (MLIR) into a `Kernel` (plain data).

Operations that only rename elements (`tensor.extract_slice`, `tensor.pad`, a `linalg.generic` that copies through
a projected permutation) become *views*: they vanish into the maps of the stages that read them. What cannot be
said in stages (data-dependent addresses, control flow, non-affine maps) raises `Unreadable` with the reason;
such a kernel takes the generic path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import CONSTANT, constant_number, reassociation, static_or_none
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.sizes import static_extent
from motet.compiler.kernels.kernel import (
    EXTENT,
    Access,
    Affine,
    Kernel,
    Scalar,
    Size,
    Stage,
    Value,
    identity_map,
    row_major,
    substitute,
)
from motet.compiler.kernels.reader.body_reader import BodyReader
from motet.compiler.kernels.reader.generic_reader import read_generic
from motet.compiler.kernels.reader.reading import Number, Reading, Source, Unreadable, View, dtype_of


def read_kernel(function: ir.Operation) -> Kernel:
    """The `Kernel` that `function` (a `func.func` on tensors with one block) computes.

    Raises `Unreadable` where it has no such form; `computed.py` reads more of them.
    """
    return Reader(function).read()


class Reader(Reading):
    def __init__(self, function: ir.Operation) -> None:
        super().__init__()
        self.function = function

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
            read_generic(self, operation)
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
        return tuple(_known(static_extent(kind, axis)) for axis in range(kind.rank))

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
        body = BodyReader(self, 0)
        for operand in operation.operands:
            body.bind(operand, self.sources[operand], (), operand)
        target = self.new_value((), dtype)
        body.read_one(operation)
        self.stages.append(Stage(
            sizes=(), iterators=(), inputs=tuple(body.accesses), outputs=(Access(target, ()),), inits=(None,),
            body=tuple(body.scalars), yields=tuple(body.yields), source=operation.name,
        ))
        self.sources[operation.results[0]] = View(target, (), ())

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
        kept = kept_dimensions(sizes, [static_extent(result, i) for i in range(result.rank)])
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
        real = [[axis for axis in group if static_extent(wide, axis) != 1] for group in groups]
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
        kept = kept_dimensions(known, [static_extent(kind, i) for i in range(kind.rank)])
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
        target = self.new_value(shape, dtype_of(result))
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

    # -- writing ---------------------------------------------------------------------------------

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

    def _writable(self, source: Source, operand: ir.Value) -> int:
        """A value that may be written over what `source` holds."""
        if isinstance(source, View):
            value = self.values[source.base]
            only_use = len(list(operand.uses)) == 1
            if value.role == "temporary" and only_use and source.map == identity_map(value.rank):
                return source.base
            return self.materialised(source, value.dtype).base
        return self._filled(source, operand)

    def _spread(self, number: Number, operand: ir.Value) -> View:
        """A value like `operand`, which is no view, that holds `number` everywhere."""
        target = self._filled(number, operand)
        shape = self.values[target].shape
        return View(target, identity_map(len(shape)), shape)

    def _filled(self, number: Number | None, operand: ir.Value) -> int:
        """A value like `operand`, which is no view, that holds `number` everywhere, or nothing yet."""
        target = self.new_value(self._shape_at(operand), dtype_of(operand.type))
        if number is not None:
            self._copy_number(number, target)
        return target

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
        # A result of undefined contents, an empty tensor, is zeros: every result is written.
        undefined = source is None and 0 not in self._shape_at(operand)
        return self._filled(0 if undefined else source, operand)

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
                shape=tuple(self.find(size) for size in self.values[i].shape),
            )
            for i in order
        )
        stages = tuple(self._renumber(stage, number) for stage in self.stages)
        # A loop may be as long as an argument that nothing reads, such as the window of a pool.
        shapes = (*(value.shape for value in values), *(stage.sizes for stage in stages))
        symbols = dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str))
        name = symbol_name(self.function)
        return Kernel(name, values, stages, tuple(symbols), tuple(externals), tuple(self.checks))

    def _renumber(self, stage: Stage, number: dict[int, int]) -> Stage:
        def move(access: Access) -> Access:
            return replace(access, value=number[access.value])

        return replace(
            stage,
            sizes=tuple(self.find(size) for size in stage.sizes),
            body=tuple(self._resolved(scalar) for scalar in stage.body),
            inputs=tuple(map(move, stage.inputs)),
            outputs=tuple(map(move, stage.outputs)),
            inits=tuple(move(init) if isinstance(init, Access) else init for init in stage.inits),
        )

    def _resolved(self, scalar: Scalar) -> Scalar:
        """`scalar` with the extent that it is, where it is one."""
        if scalar.op != EXTENT:
            return scalar
        size = self.find(scalar.predicate)
        if isinstance(size, int):
            return Scalar("arith.constant", (), scalar.dtype, size)
        return replace(scalar, predicate=size)


def padding_value(operation: ir.Operation) -> ir.Value:
    """What a `tensor.pad` fills with."""
    value = list(operation.regions[0].blocks[0].operations)[-1].operation.operands[0]
    if isinstance(value.owner, ir.Block):
        raise Unreadable("a padding value that depends on the position")
    return value


def _is_size(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IndexType, ir.IntegerType))


def _static(operation: ir.Operation, name: str) -> list[int]:
    values = static_or_none(operation, name)
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        raise Unreadable(f"{operation.name} with a computed {name.removeprefix('static_')}")
    return known


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
