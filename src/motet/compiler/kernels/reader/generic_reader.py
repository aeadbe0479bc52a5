"""Reads a `linalg.generic` as a stage, or, if it only renames elements or fills, as the source of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, compose_maps, identity_map
from motet.compiler.ir.attributes import constant_number
from motet.compiler.ir.sizes import static_extent
from motet.compiler.kernels.kernel import Access, Size, Stage
from motet.compiler.kernels.reader.body_reader import BodyReader
from motet.compiler.kernels.reader.reading import (
    Number,
    Reading,
    Source,
    Unreadable,
    View,
    affine_of,
    dtype_of,
)
from motet.compiler.kernels.reader.written_schedules import written_schedule
from motet.compiler.kernels.strides import span_of


def read_generic(reading: Reading, operation: ir.Operation) -> None:
    generic = _Generic.of(reading, operation)
    result = operation.results[0]
    if generic.is_fill:
        reading.sources[result] = generic.sources[0]
        reading.shapes[result] = reading.shapes.get(generic.outputs[0], ())
        return
    sizes = _loop_sizes(reading, generic)
    if generic.is_view(sizes):
        reading.sources[result] = _view(generic, sizes)
    elif (moved := moved_elements(reading, generic, sizes)) is not None:
        reading.sources[result] = moved
    else:
        _read_stage(reading, generic, sizes)


@dataclass(frozen=True)
class _Generic:
    """The operation's parts; `sources` and `maps` list inputs, then outputs."""

    operation: ir.Operation
    block: ir.Block
    iterators: tuple[Literal["parallel", "reduction"], ...]
    inputs: Sequence[ir.Value]
    outputs: Sequence[ir.Value]
    sources: Sequence[Source]
    maps: Sequence[tuple[Affine, ...]]

    @staticmethod
    def of(reading: Reading, operation: ir.Operation) -> _Generic:
        iterators: list[Literal["parallel", "reduction"]] = [
            "reduction" if "reduction" in str(kind) else "parallel"
            for kind in ir.ArrayAttr(operation.attributes["iterator_types"])
        ]
        count = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
        operands = list(operation.operands)
        maps = [ir.AffineMapAttr(map_).value for map_ in ir.ArrayAttr(operation.attributes["indexing_maps"])]
        linear = [tuple(affine_of(result) for result in map_.results) for map_ in maps]
        return _Generic(
            operation, operation.regions[0].blocks[0], tuple(iterators), operands[:count], operands[count:],
            [reading.source_of(operand) for operand in operands], linear,
        )

    @property
    def rank(self) -> int:
        return len(self.iterators)

    @property
    def output_maps(self) -> Sequence[tuple[Affine, ...]]:
        return self.maps[len(self.inputs) :]

    @property
    def yields_its_input(self) -> bool:
        """Whether the body only yields the first input."""
        operations = list(self.block.operations)
        return len(operations) == 1 and operations[0].operation.operands[0] == self.block.arguments[0]

    @property
    def is_fill(self) -> bool:
        return len(self.sources) == 2 and isinstance(self.sources[0], (int, float)) and self.yields_its_input

    def is_view(self, sizes: Sequence[Size]) -> bool:
        """Whether the result has the input's elements under other indices."""
        if len(self.inputs) != 1 or len(self.outputs) != 1 or "reduction" in self.iterators:
            return False
        written = self.maps[1]
        unit_gaps = all(e.single is not None or (e.is_constant and e.constant == 0) for e in written)
        covered = {e.single for e in written}
        every = all(dimension in covered or size == 1 for dimension, size in enumerate(sizes))
        return self.yields_its_input and unit_gaps and every


def moved_elements(reading: Reading, generic: _Generic, sizes: Sequence[Size]) -> View | None:
    """The result as a view, if the body only extracts an element at linear functions of the loops, such as those of a
    reversal, that are within the tensor; None otherwise."""
    *before, last = [entry.operation for entry in generic.block.operations]
    if not before or before[-1].name != "tensor.extract" or list(last.operands) != list(before[-1].results):
        return None
    if len(generic.outputs) != 1 or generic.output_maps[0] != identity_map(generic.rank):
        return None
    tensor, *indices = before[-1].operands
    source = reading.sources.get(tensor)
    places = [_linear(reading, index) for index in indices]
    if not isinstance(source, View) or source.padding is not None:
        return None
    known = [place for place in places if place is not None]
    spans = [span_of(place, sizes) for place in known]
    if len(known) != len(places) or "reduction" in generic.iterators:
        return None
    for span, extent in zip(spans, source.shape, strict=True):
        if span is None or not isinstance(extent, int) or span[0] < 0 or span[1] >= extent:
            return None
    return View(source.base, compose_maps(source.map, known), tuple(sizes))


def _linear(reading: Reading, value: ir.Value) -> Affine | None:
    """An index in a body as a linear function of the loops; None if it is not one."""
    if (number := reading.sources.get(value)) is not None:
        return Affine((), number) if isinstance(number, int) else None
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name == "linalg.index":
        return Affine.dim(ir.IntegerAttr(operation.attributes["dim"]).value)
    if operation.name == "arith.constant":
        constant = constant_number(operation)
        return None if constant is None else Affine((), int(constant))
    if operation.name not in ("arith.addi", "arith.subi"):
        return None
    a, b = (_linear(reading, operand) for operand in operation.operands)
    if a is None or b is None:
        return None
    return a + b if operation.name == "arith.addi" else a - b


def _loop_sizes(reading: Reading, generic: _Generic) -> list[Size]:
    sizes: list[Size | None] = [None] * generic.rank
    operands = (*generic.inputs, *generic.outputs)
    for operand, source, map_ in zip(operands, generic.sources, generic.maps, strict=True):
        for axis, expression in enumerate(map_):
            dimension = expression.single
            if dimension is None:
                continue
            extent = _operand_extent(reading, operand, source, axis)
            if extent is not None:
                sizes[dimension] = reading.unify(sizes[dimension], extent)
    if any(size is None for size in sizes):
        raise Unreadable("a loop whose extent no operand gives")
    return [reading.find(size) for size in sizes if size is not None]


def _operand_extent(reading: Reading, operand: ir.Value, source: Source, axis: int) -> Size | None:
    if isinstance(source, View):
        return source.shape[axis]
    if not isinstance(operand.type, ir.RankedTensorType):
        return None
    made = reading.shapes.get(operand, ())
    return made[axis] if axis < len(made) else static_extent(ir.RankedTensorType(operand.type), axis)


def _view(generic: _Generic, sizes: Sequence[Size]) -> Source:
    """The source that the result of a view stands for."""
    source = generic.sources[0]
    if not isinstance(source, View):
        return source
    read, written = generic.maps
    inverse = [Affine()] * len(sizes)
    for axis, expression in enumerate(written):
        if expression.single is not None:
            inverse[expression.single] = Affine.dim(axis)
    shape = tuple(1 if e.single is None else sizes[e.single] for e in written)
    return View(source.base, compose_maps(source.map, compose_maps(read, inverse)), shape, source.padding)


def _read_stage(reading: Reading, generic: _Generic, sizes: Sequence[Size]) -> None:
    body = BodyReader(reading)
    arguments = list(generic.block.arguments)
    for argument, source, map_, operand in zip(
        arguments, generic.sources, generic.maps, generic.inputs, strict=False
    ):
        body.bind(argument, source, map_, operand)
    inits = [_init(generic, k, body) for k in range(len(generic.outputs))]
    body.read(generic.block, len(generic.outputs))
    targets = [
        reading.new_value(_output_shape(map_, sizes, output), dtype_of(output.type))
        for map_, output in zip(generic.output_maps, generic.outputs, strict=True)
    ]
    reading.stages.append(
        Stage(
            sizes=tuple(sizes), iterators=generic.iterators, inputs=tuple(body.accesses),
            outputs=tuple(map(Access, targets, generic.output_maps)), inits=tuple(inits), body=tuple(body.scalars),
            yields=tuple(body.yields), source=f"{generic.operation.name} {generic.operation.location}",
            written=written_schedule(generic.operation),
        )
    )
    for result, target in zip(generic.operation.results, targets, strict=True):
        shape = reading.values[target].shape
        reading.sources[result] = View(target, identity_map(len(shape)), shape)


def _init(generic: _Generic, k: int, body: BodyReader) -> Access | Number | None:
    """The initial contents of output `k`; binds its argument in `body`."""
    place = len(generic.inputs) + k
    argument, source, map_ = generic.block.arguments[place], generic.sources[place], generic.maps[place]
    if not any(True for _ in argument.uses):
        body.bind_output(argument, k)
        return None
    if "reduction" not in generic.iterators:
        body.bind(argument, source, map_, generic.outputs[k])  # read like an input
        return None
    if source is None:
        raise Unreadable("a reduction into undefined contents")
    body.bind_output(argument, k)
    if isinstance(source, View):
        return Access(source.base, compose_maps(source.map, map_), source.padding)
    return source


def _output_shape(map_: Sequence[Affine], sizes: Sequence[Size], output: ir.Value) -> tuple[Size, ...]:
    kind = ir.RankedTensorType(output.type)
    shape: list[Size] = []
    for axis, expression in enumerate(map_):
        extent = static_extent(kind, axis)
        if extent is None:
            if expression.single is None:
                raise Unreadable("a dynamic extent that no loop gives")
            extent = sizes[expression.single]
        shape.append(extent)
    return tuple(shape)
