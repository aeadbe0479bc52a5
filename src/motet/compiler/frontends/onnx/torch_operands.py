"""ONNX nodes in the dialect `torch`: their operands' extents, and assertions about these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.extent_demands import Demand, Size
from motet.compiler.frontends.onnx.model import Extents, OnnxModel, ShapedNode
from motet.compiler.frontends.onnx.operator_demands import demands_of
from motet.compiler.frontends.onnx.tensors import TorchKind, kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.ir.source_names import names_of

if TYPE_CHECKING:
    import onnx

_PREDICATES = {"==": 0, "<=": 3, ">": 4}  # of arith.cmpi
_OPERATIONS = {
    "+": "arith.addi", "*": "arith.muli", "//": "arith.floordivsi", "%": "arith.remsi", "&": "arith.andi",
    "|": "arith.ori",
}  # fmt: skip


@dataclass(frozen=True)
class ExtentOperand:
    """Input `number` of a node, a tensor; `extents` are numbers, or the model's names of dynamic ones."""

    number: int
    value: ir.Value
    kind: TorchKind
    extents: Extents

    @property
    def rank(self) -> int:
        return len(self.kind.extents)


@dataclass(frozen=True)
class NodeOperands:
    """The operation of a node, and its operands that are tensors. `source` is the node in the model, if it has one."""

    op: ir.Operation
    operands: Sequence[ExtentOperand]
    source: onnx.NodeProto | None
    model: OnnxModel

    @staticmethod
    def of(
        op: ir.Operation, model: OnnxModel, nodes: Mapping[str, onnx.NodeProto], extents: Mapping[str, Extents]
    ) -> NodeOperands | None:
        """The operands of `op`, one of `nodes` by name, with values of `extents` by name; None if the type of an input
        is unknown, for which there is no lowering."""
        source = next((nodes[name] for name in names_of(op.location) if name in nodes), None)
        names = () if source is None else source.input
        operands: list[ExtentOperand] = []
        for number, value in enumerate(op.operands):
            kind = kind_of(value)
            if kind is not None:
                symbols = extents.get(names[number], ()) if number < len(names) else ()
                symbols = symbols if len(symbols) == len(kind.extents) else [None] * len(kind.extents)
                known = [symbol if extent == DYNAMIC else extent
                         for extent, symbol in zip(kind.extents, symbols, strict=True)]  # fmt: skip
                operands.append(ExtentOperand(number, value, kind, known))
            elif number < len(names) and names[number]:
                return None
        return NodeOperands(op, operands, source, model)

    def operand(self, number: int) -> ExtentOperand | None:
        return next((operand for operand in self.operands if operand.number == number), None)

    def attribute(self, name: str, default: int) -> int:
        key = f"torch.onnx.{name}"
        return ir.IntegerAttr(self.op.attributes[key]).value if key in self.op.attributes else default

    def demands(self) -> Iterable[Demand]:
        """What the operator demands of its operands' extents."""
        if self.source is None:
            return ()
        kind, names = kind_of(self.op.results[0]), self.source.input
        result = None if kind is None else [None if extent == DYNAMIC else extent for extent in kind.extents]
        extents: list[Extents] = [()] * len(names)
        for operand in self.operands:
            extents[operand.number] = operand.extents
        values = [self.model.constants.get(name) for name in names]
        return demands_of(ShapedNode(self.source, extents, result, values), self.model.opsets.get("", 0))

    def axes_of(self, demand: Demand) -> list[OperandAxis]:
        """The axes that a demand is about."""
        by_number = {operand.number: operand for operand in self.operands}
        return [OperandAxis(by_number[number], axis) for number, axis in demand.places]


@dataclass(frozen=True)
class OperandAxis:
    """Axis `axis` of an operand."""

    operand: ExtentOperand
    axis: int

    @property
    def extent(self) -> int:
        return self.operand.kind.extents[self.axis]

    @property
    def is_dynamic(self) -> bool:
        return self.extent == DYNAMIC

    @property
    def size(self) -> ir.Value:
        if not self.is_dynamic:
            return constant_index(self.extent)
        return extent_of(builtin(self.operand), self.axis)

    @property
    def known(self) -> int | str | None:
        """The extent, or the model's name of it."""
        return self.operand.extents[self.axis]

    def may_differ(self, other: OperandAxis) -> bool:
        """Whether one of the two extents may be 1 where the other is not."""
        return (self.is_dynamic or other.is_dynamic) and (self.known is None or self.known != other.known)

    def __str__(self) -> str:
        return f"axis {self.axis} of input {self.operand.number}"


def builtin(operand: ExtentOperand) -> ir.Value:
    return create("torch_c.to_builtin_tensor", operand.kind.builtin, [operand.value])


def numbers(node: NodeOperands, number: int) -> list[int] | None:
    """The value of input `number` if it is a constant of integers."""
    if len(node.op.operands) <= number or isinstance(node.op.operands[number].owner, ir.Block):
        return None
    value = node.op.operands[number].owner.operation.attributes.get("torch.onnx.value", None)
    return [int(part) for part in ir.DenseIntElementsAttr(value)] if value is not None else None


def filled(places: Sequence[OperandAxis | None], scalar: ir.Type, number: ir.Attribute) -> ir.Value:
    """A tensor of `number` with the extents at `places`; None for 1."""
    kind = ir.RankedTensorType.get([1 if place is None else place.extent for place in places], scalar)
    sizes = [place.size for place in places if place is not None and place.is_dynamic]
    return create("tensor.splat", kind, [create("arith.constant", scalar, [], {"value": number}), *sizes])


def i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def assert_demand(node: NodeOperands, demand: Demand) -> None:
    """Asserts what is not known to hold."""
    axes = node.axes_of(demand)
    if any(axis.is_dynamic for axis in axes) and not demand.holds([axis.known for axis in axes]):
        sizes = (sized(axis.size) if axis.is_dynamic else axis.extent for axis in axes)
        assert_that(demand.fits(*sizes).value, str(demand))


def sized(value: ir.Value) -> Size:
    return Size(value, write)


def write(name: str, left: ir.Value | int, right: ir.Value | int) -> ir.Value:
    """An operator of Python on indices or conditions."""
    a, b = (constant_index(side) if isinstance(side, int) else side for side in (left, right))
    return compare(_PREDICATES[name], a, b) if name in _PREDICATES else create(_OPERATIONS[name], a.type, [a, b])


def assert_that(condition: ir.Value, said: str) -> None:
    ir.Operation.create("cf.assert", operands=[condition], attributes={"msg": ir.StringAttr.get(said)})


def compare(predicate: int, left: ir.Value, right: ir.Value) -> ir.Value:
    return create("arith.cmpi", ir.IntegerType.get_signless(1), [left, right], {"predicate": i64(predicate)})
