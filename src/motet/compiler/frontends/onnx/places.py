"""ONNX nodes in the dialect `torch`: their operands' extents, and assertions about these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import TorchKind, kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.ir.source_names import names_of

EQUAL, AT_MOST, ABOVE = 0, 3, 4  # predicates of arith.cmpi

Extents = Mapping[str, Sequence[int | str | None]]  # by name of the value: numbers, symbols, None if unknown


@dataclass(frozen=True)
class ExtentOperand:
    """Input `number` of a node, a tensor; `symbols` are the model's names of its extents."""

    number: int
    value: ir.Value
    kind: TorchKind
    symbols: Sequence[int | str | None]

    @property
    def rank(self) -> int:
        return len(self.kind.extents)


@dataclass(frozen=True)
class NodeOperands:
    op: ir.Operation
    operands: Sequence[ExtentOperand]

    @staticmethod
    def of(op: ir.Operation, inputs: Mapping[str, Sequence[str]], extents: Extents) -> NodeOperands | None:
        """The operands of `op`; None if the type of an input is unknown, for which there is no lowering."""
        names = next((inputs[name] for name in names_of(op.location) if name in inputs), ())
        found: list[ExtentOperand] = []
        for number, value in enumerate(op.operands):
            kind = kind_of(value)
            if kind is not None:
                symbols = extents.get(names[number], ()) if number < len(names) else ()
                known = symbols if len(symbols) == len(kind.extents) else [None] * len(kind.extents)
                found.append(ExtentOperand(number, value, kind, known))
            elif number < len(names) and names[number]:
                return None
        return NodeOperands(op, found)

    def operand(self, number: int) -> ExtentOperand | None:
        return next((operand for operand in self.operands if operand.number == number), None)

    def attribute(self, name: str, default: int) -> int:
        key = f"torch.onnx.{name}"
        return ir.IntegerAttr(self.op.attributes[key]).value if key in self.op.attributes else default


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

    def may_differ(self, other: OperandAxis) -> bool:
        """Whether one of the two extents may be 1 where the other is not."""
        if not self.is_dynamic and not other.is_dynamic:
            return False
        symbol = self.operand.symbols[self.axis]
        return symbol is None or symbol != other.operand.symbols[other.axis]

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


def assert_equal(first: OperandAxis, second: OperandAxis) -> None:
    if first.is_dynamic or second.is_dynamic:
        assert_any([(first.size, second.size)], f"{first} and {second} must be equal")


def assert_any(pairs: Sequence[tuple[ir.Value, ir.Value]], said: str) -> None:
    """Asserts that the two values of at least one of `pairs` are equal; `said` is the error."""
    condition = compare(EQUAL, *pairs[0])
    for pair in pairs[1:]:
        condition = create("arith.ori", condition.type, [condition, compare(EQUAL, *pair)])
    assert_that(condition, said)


def assert_that(condition: ir.Value, said: str) -> None:
    ir.Operation.create("cf.assert", operands=[condition], attributes={"msg": ir.StringAttr.get(said)})


def compare(predicate: int, left: ir.Value, right: ir.Value) -> ir.Value:
    return create("arith.cmpi", ir.IntegerType.get_signless(1), [left, right], {"predicate": i64(predicate)})


def on_indices(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return create(name, ir.IndexType.get(), [left, right])
