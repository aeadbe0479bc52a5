"""Reads operations on tensors that rename elements or combine tensors: pads, slices, reshapes, concatenations.

Operations that only rename elements become views; those that write into a tensor become stages that copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, compose_maps, identity_map
from motet.compiler.ir.attributes import constant_number, reassociation, static_or_none
from motet.compiler.ir.sizes import static_extent
from motet.compiler.kernels.kernel import Access, Scalar, Size, Stage
from motet.compiler.kernels.reader.reading import Number, Reading, Source, Unreadable, View, dtype_of


class ViewReader(Reading):
    """A kernel while it is read, with the methods for operations that rename elements."""

    def _read_pad(self, operation: ir.Operation) -> None:
        source = self.source_of(operation.operands[0])
        low, high = _static(operation, "static_low"), _static(operation, "static_high")
        padding = self._padding_of(padding_value(operation))
        if source is None:
            raise Unreadable("padding of undefined contents")
        if not isinstance(source, View):
            source = self.spread(source, self._shape_at(operation.operands[0]), dtype_of(operation.operands[0].type))
        if source.padding is not None:
            source = self.materialised(source, dtype_of(operation.operands[0].type))
        rank = len(source.shape)
        shape = tuple(
            size if lo == hi == 0 else self._grown(size, lo + hi)
            for size, lo, hi in zip(source.shape, low, high, strict=True)
        )
        shift = [Affine.dim(axis).plus(-low[axis]) for axis in range(rank)]
        if any(low) or any(high):
            base_shape = self.values[source.base].shape
            if source.shape != base_shape or source.map != identity_map(rank):
                source = self.materialised(source, dtype_of(operation.operands[0].type))
        pad = padding if any(low) or any(high) else source.padding
        self.sources[operation.results[0]] = View(source.base, compose_maps(source.map, shift), shape, pad)

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
        inner = _strided(kept, offsets, strides)
        given = iter(list(operation.operands)[1:])  # static offsets and strides are not operands
        extents = [self._slice_extent(next(given)) if size is None else size for size in sizes]
        shape = tuple(extents[axis] for axis in kept)
        self.sources[operation.results[0]] = View(source.base, compose_maps(source.map, inner), shape, source.padding)

    def _slice_extent(self, value: ir.Value) -> Size:
        """The extent of a slice with a computed size: that of some tensor. Raises `Unreadable` if there is none."""
        extent = self.extents.get(value)
        if extent is None:
            raise Unreadable("a slice of a computed size")
        return extent

    def _read_reshape(self, operation: ir.Operation) -> None:
        """Read a reshape that adds or drops unit dimensions."""
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
        inner = [Affine()] * len(source.shape)
        shape: list[Size] = [1] * result.rank
        for narrow, axes in enumerate(real):
            axis = axes[0] if axes else groups[narrow][0]
            old, new = (narrow, axis) if expands else (axis, narrow)
            inner[old] = Affine.dim(new)
            shape[new] = source.shape[old]
        map_ = compose_maps(source.map, inner)
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
        extents = tuple(sizes[axis] for axis in kept)
        self._copy(source, extents, Access(target, _strided(kept, offsets, strides)), operation)
        self.sources[operation.results[0]] = View(target, identity_map(result.rank), self.values[target].shape)

    def _inserted_sizes(self, operation: ir.Operation, source: Source) -> Sequence[Size]:
        """The extents of the inserted tensor, including the unit dimensions that its type omits."""
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

    def _grown(self, size: Size, by: int) -> Size:
        """An extent increased by a constant."""
        return _known(size) + by

    def _shape_of(self, value: ir.Value, source: Source) -> tuple[Size, ...]:
        if isinstance(source, View):
            return source.shape
        return self._shape_at(value)

    def _shape_at(self, operand: ir.Value) -> tuple[Size, ...]:
        """The extents of a tensor that is not a view."""
        kind = ir.RankedTensorType(operand.type)
        return tuple(_known(static_extent(kind, axis)) for axis in range(kind.rank))

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
        """A value that may overwrite the contents of `source`."""
        if isinstance(source, View):
            value = self.values[source.base]
            only_use = len(list(operand.uses)) == 1
            if value.role == "temporary" and only_use and source.map == identity_map(value.rank):
                return source.base
            return self.materialised(source, value.dtype).base
        return self._filled(source, operand)

    def _filled(self, number: Number | None, operand: ir.Value) -> int:
        """A value with the shape of `operand`, which is not a view, filled with `number` or undefined (None)."""
        shape, dtype = self._shape_at(operand), dtype_of(operand.type)
        return self.new_value(shape, dtype) if number is None else self.spread(number, shape, dtype).base


def padding_value(operation: ir.Operation) -> ir.Value:
    """The padding value of a `tensor.pad`."""
    value = list(operation.regions[0].blocks[0].operations)[-1].operation.operands[0]
    if isinstance(value.owner, ir.Block):
        raise Unreadable("a padding value that depends on the position")
    return value


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
    """The axes of a slice kept in its rank-reduced result: unit axes are dropped, from the left."""
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
    """Whether keeping unit axis `axis` as `result[position]` would leave later axes unmatched."""
    remaining: Iterable[int | None] = (s for s in sizes[axis + 1 :] if s != 1)
    wanted = [s for s in result[position + 1 :] if s != 1]
    return list(remaining) != wanted


def _describe(operation: ir.Operation) -> str:
    return f"{operation.name} {operation.location}"


def _strided(kept: Sequence[int], offsets: Sequence[int], strides: Sequence[int]) -> tuple[Affine, ...]:
    """The positions along each axis that a slice walks; `kept` are the axes that are its dimensions."""
    where = {axis: dim for dim, axis in enumerate(kept)}
    return tuple(
        Affine.of({where[axis]: stride} if axis in where else {}, offset)
        for axis, (offset, stride) in enumerate(zip(offsets, strides, strict=True))
    )
