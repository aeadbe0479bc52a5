"""The loops and the body of the linalg operation that a statement becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.raising.nest import Compute, Index, Node, Unraisable
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine


@dataclass
class LinalgLoops:
    """The loops of one linalg operation while its operands are collected: `dims` in their order."""

    dims: tuple[int, ...]
    parallel: int
    inputs: list[tuple[ir.Value, ir.AffineMap]] = field(default_factory=list[tuple[ir.Value, ir.AffineMap]])
    places: dict[Node, int] = field(default_factory=dict[Node, int])

    def map(self, expressions: Sequence[Affine]) -> ir.AffineMap:
        return ir.AffineMap.get(len(self.dims), 0, [self._expression(linear) for linear in expressions])

    def _expression(self, linear: Affine) -> ir.AffineExpr:
        total: ir.AffineExpr = ir.AffineExpr.get_constant(linear.constant)
        for dim, coefficient in linear.terms:
            total = total + ir.AffineExpr.get_dim(self.dims.index(dim)) * coefficient
        return total

    def add(self, node: Node, value: ir.Value, expressions: Sequence[Affine]) -> None:
        self.places[node] = len(self.inputs)
        self.inputs.append((value, self.map(expressions)))


class LinalgBody:
    """The body of a linalg operation."""

    def __init__(self, block: ir.Block, loops: LinalgLoops, location: ir.Location) -> None:
        self.block = block
        self.loops = loops
        self.location = location
        self.made: dict[Node, ir.Value] = {}

    def value(self, node: Node) -> ir.Value:
        if node not in self.made:
            self.made[node] = self._make(node)
        return self.made[node]

    def _make(self, node: Node) -> ir.Value:
        if node in self.loops.places:
            return self.block.arguments[self.loops.places[node]]
        if isinstance(node, Index):
            return self._index(node.value)
        if not isinstance(node, Compute):
            raise Unraisable("a value that is nowhere")
        operands = [self.value(operand) for operand in node.operands]
        return self.create(node.name, operands, node.kind, node.attributes)

    def _index(self, linear: Affine) -> ir.Value:
        index = ir.IndexType.get()
        total = self._number(linear.constant)
        for dim, coefficient in linear.terms:
            attributes: dict[str, ir.Attribute] = {
                "dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.loops.dims.index(dim))
            }
            counter = self.create("linalg.index", [], index, attributes)
            scaled = self.create("arith.muli", [counter, self._number(coefficient)], index, {})
            total = self.create("arith.addi", [total, scaled], index, {})
        return total

    def _number(self, number: int) -> ir.Value:
        index = ir.IndexType.get()
        return self.create("arith.constant", [], index, {"value": ir.IntegerAttr.get(index, number)})

    def create(
        self, name: str, operands: list[ir.Value], kind: ir.Type | None, attributes: dict[str, ir.Attribute]
    ) -> ir.Value:
        operation = ir.Operation.create(
            name, results=[] if kind is None else [kind], operands=operands, attributes=attributes,
            loc=self.location, ip=ir.InsertionPoint(self.block),
        )
        return operation.results[0] if kind is not None else operands[0]
