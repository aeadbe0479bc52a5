"""Writes operations of single devices: slices, concatenations and reductions, each with the device that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.sharding.parameters import FunctionParameters
from motet.compiler.sharding.rules.rule import shape_of

_FLOAT = {"add": "arith.addf", "mul": "arith.mulf", "max": "arith.maximumf", "min": "arith.minimumf"}
_INTEGER = {
    "add": "arith.addi", "mul": "arith.muli", "max": "arith.maxsi", "min": "arith.minsi", "maxu": "arith.maxui",
    "minu": "arith.minui", "and": "arith.andi", "or": "arith.ori", "xor": "arith.xori",
}  # fmt: skip
_COMPLEX = {"add": "complex.add", "mul": "complex.mul"}


@dataclass
class DeviceWriter:
    """Inserts operations before `at`, at the location of the operation that they are for. `devices` are the names of
    the mesh's devices."""

    at: ir.Operation
    devices: Sequence[str]
    location: ir.Location
    parameters: FunctionParameters

    def create(
        self, name: str, device: int | None, results: Sequence[ir.Type], operands: Sequence[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None, regions: int = 0,
    ) -> ir.Operation:
        own = dict(attributes or {})
        if device is not None:
            own[AFFINITY] = ir.StringAttr.get(self.devices[device])
        return ir.Operation.create(
            name, results=list(results), operands=list(operands), attributes=own, regions=regions,
            loc=self.location, ip=ir.InsertionPoint(self.at),
        )

    def slice(self, value: ir.Value, device: int, begin: Sequence[int], sizes: Sequence[int]) -> ir.Value:
        """A part of a tensor."""
        shape = shape_of(value) or []
        if list(sizes) == shape:
            return value
        kind = ir.RankedTensorType.get(list(sizes), ir.RankedTensorType(value.type).element_type)
        if (part := self.parameters.part(value, begin, kind)) is not None:
            return part
        if 0 in sizes:  # no offset is within a dimension of no elements
            return self.create("tensor.empty", device, [kind], []).result
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get(list(begin)),
            "static_sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
        }
        return self.create("tensor.extract_slice", device, [kind], [value], attributes).result

    def along(self, value: ir.Value, device: int, dimension: int, begin: int, end: int) -> ir.Value:
        """The elements `[begin, end)` of one dimension."""
        sizes = list(shape_of(value) or [])
        offsets = [0] * len(sizes)
        offsets[dimension], sizes[dimension] = begin, end - begin
        return self.slice(value, device, offsets, sizes)

    def concat(self, values: Sequence[ir.Value], device: int, dimension: int) -> ir.Value:
        """Tensors one after the other along a dimension."""
        if len(values) == 1:
            return values[0]
        shape = list(shape_of(values[0]) or [])
        shape[dimension] = sum((shape_of(value) or [])[dimension] for value in values)
        kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(values[0].type).element_type)
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dimension)
        return self.create("tensor.concat", device, [kind], values, {"dim": number}).result

    def zeros(self, kind: ir.Type, device: int) -> ir.Value:
        element = ir.RankedTensorType(kind).element_type
        empty = self.create("tensor.empty", device, [kind], []).result
        return self._fill(empty, zero_attribute(element), device)

    def number(self, value: int, kind: ir.Type) -> ir.Value:
        """A tensor of rank 0 with an integer."""
        number = ir.IntegerAttr.get(ir.RankedTensorType(kind).element_type, value)
        attribute = ir.DenseElementsAttr.get_splat(kind, number)
        return self.create("arith.constant", None, [kind], [], {"value": attribute}).result

    def neutral(self, like: ir.Value, kind: str, device: int) -> ir.Value:
        """A tensor that a reduction of a kind leaves as it is."""
        element = ir.RankedTensorType(like.type).element_type
        empty = self.create("tensor.empty", device, [like.type], []).result
        return self._fill(empty, neutral_of(element, kind), device)

    def combine(self, values: Sequence[ir.Value], kind: str, device: int) -> ir.Value:
        """The reduction of tensors of one shape, in order; sums and products of 16-bit numbers are rounded once."""
        if len(values) == 1:
            return values[0]
        result = values[0].type
        tensor = ir.RankedTensorType(result)
        element = tensor.element_type
        empty = self.create("tensor.empty", device, [result], []).result
        same = ir.AffineMapAttr.get(ir.AffineMap.get_identity(tensor.rank))
        loops = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * tensor.rank)
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([same] * (len(values) + 1)), "iterator_types": loops,
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(values), 1]),
        }
        generic = self.create("linalg.generic", device, [result], [*values, empty], attributes, regions=1)
        block = ir.Block.create_at_start(
            generic.regions[0], [element] * (len(values) + 1), [self.location] * (len(values) + 1)
        )
        body = _Body(block, self.location)
        body.end(body.reduce(list(block.arguments)[:-1], element, kind))
        return generic.result

    def _fill(self, empty: ir.Value, number: ir.Attribute, device: int) -> ir.Value:
        kind = ir.RankedTensorType(empty.type)
        splat = ir.DenseElementsAttr.get_splat(kind, number)
        return self.create("arith.constant", None, [kind], [], {"value": splat}).result


class _Body:
    """The body of a reduction's generic."""

    def __init__(self, block: ir.Block, location: ir.Location) -> None:
        self._block, self._location = block, location

    def _create(self, name: str, kinds: Sequence[ir.Type], operands: Sequence[ir.Value]) -> ir.Operation:
        return ir.Operation.create(
            name, results=list(kinds), operands=list(operands), loc=self._location, ip=ir.InsertionPoint(self._block)
        )

    def reduce(self, values: Sequence[ir.Value], element: ir.Type, kind: str) -> ir.Value:
        wide = element
        if kind in ("add", "mul") and str(element) in ("f16", "bf16"):
            wide = ir.F32Type.get()
            values = [self._create("arith.extf", [wide], [value]).result for value in values]
        total = values[0]
        for value in values[1:]:
            total = self._create(operation_of(wide, kind), [wide], [total, value]).result
        return total if wide == element else self._create("arith.truncf", [element], [total]).result

    def end(self, value: ir.Value) -> None:
        self._create("linalg.yield", [], [value])


def operation_of(element: ir.Type, kind: str) -> str:
    """The operation of `arith` for a step of a reduction. Raises ValueError if there is none."""
    if isinstance(element, ir.ComplexType):
        table = _COMPLEX
    elif isinstance(element, ir.IntegerType):
        table = _INTEGER
        if element.width == 1:
            table = _INTEGER | {"add": "arith.ori", "mul": "arith.andi", "max": "arith.ori", "min": "arith.andi"}
    else:
        table = _FLOAT
    if kind not in table:
        raise ValueError(f"reduction {kind} of {element}: there is none; expected one of {', '.join(table)}")
    return table[kind]


def neutral_of(element: ir.Type, kind: str) -> ir.Attribute:
    """The number that a reduction leaves as it is."""
    if isinstance(element, ir.IntegerType):
        width = element.width
        smallest, largest = -(1 << (width - 1)), (1 << (width - 1)) - 1
        number = {"add": 0, "mul": 1, "max": smallest, "min": largest, "maxu": 0, "minu": -1, "and": -1, "or": 0,
                  "xor": 0}[kind]
        if width == 1:
            number = {"add": 0, "mul": 1, "max": 0, "min": 1, "and": 1, "minu": 1}.get(kind, 0)
        return ir.IntegerAttr.get(element, number)
    return ir.FloatAttr.get(element, {"add": -0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind])
