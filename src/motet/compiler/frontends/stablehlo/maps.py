"""Writes StableHLO's maps, and reductions over no dimensions, as the element-wise operations of their bodies.

    stablehlo.map %x, %y { %c = stablehlo.constant 2.0          %c = chlo.constant_like %x, 2.0
                           %0 = stablehlo.multiply %a, %b   →   %0 = stablehlo.multiply %x, %y
                           stablehlo.add %0, %c }               stablehlo.add %0, %c

A reduction over no dimensions applies its body to the initial value and each element; JAX writes one for the sum of a
scalar. Bodies that have control flow are left unchanged. Complex constants must already be split into parts.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations


def spread_maps(module: ir.Module) -> None:
    """Rewrites each `stablehlo.map`, and each `stablehlo.reduce` over no dimensions, in place."""
    for op in find_operations(module, "stablehlo.map", "stablehlo.reduce"):
        block = op.regions[0].blocks[0]
        reduces = op.name == "stablehlo.reduce"
        if reduces and len(ir.DenseI64ArrayAttr(op.attributes["dimensions"])):
            continue
        if op.operands and not any(len(entry.operation.regions) for entry in block.operations):
            _Map(op, block).write(len(op.results) if reduces else 0)


class _Map:
    def __init__(self, op: ir.Operation, block: ir.Block) -> None:
        self.op, self.block = op, block
        self.at = ir.InsertionPoint(op)
        self.kind = ir.RankedTensorType(op.results[0].type)
        self.values: dict[ir.Value, ir.Value] = {}

    def write(self, initial: int) -> None:
        """The last `initial` operands are scalars, which are the body's first arguments."""
        given = list(self.op.operands)
        scalars = [self._broadcast(scalar) for scalar in given[len(given) - initial :]]
        self.values.update(zip(self.block.arguments, scalars + given[: len(given) - initial], strict=True))
        *body, last = [entry.operation for entry in self.block.operations]
        for operation in body:
            if operation.name != "stablehlo.constant":
                self._spread(operation)
        for result, value in zip(self.op.results, last.operands, strict=True):
            result.replace_all_uses_with(self._of(value))
        self.op.erase()

    def _spread(self, operation: ir.Operation) -> None:
        new = ir.Operation.create(
            operation.name,
            results=[self._like(value) for value in operation.results],
            operands=[self._of(value) for value in operation.operands],
            attributes={name: operation.attributes[name] for name in operation.attributes},
            loc=operation.location,
            ip=self.at,
        )
        self.values.update(zip(operation.results, new.results, strict=True))

    def _like(self, scalar: ir.Value) -> ir.Type:
        element = ir.RankedTensorType(scalar.type).element_type
        return ir.RankedTensorType.get(self.kind.shape, element, self.kind.encoding)

    def _of(self, scalar: ir.Value) -> ir.Value:
        """The tensor of the values of `scalar` for all elements; constants and outer scalars are broadcast."""
        if scalar not in self.values:
            owner = None if isinstance(scalar.owner, ir.Block) else scalar.owner.operation
            if owner is not None and owner.name == "stablehlo.constant":
                self.values[scalar] = self._filled(owner)
            else:
                self.values[scalar] = self._broadcast(scalar)
        return self.values[scalar]

    def _filled(self, constant: ir.Operation) -> ir.Value:
        number = constant.attributes["value"].get_splat_value()
        return ir.Operation.create(
            "chlo.constant_like", results=[self._like(constant.result)], operands=[self.op.operands[0]],
            attributes={"value": number}, loc=constant.location, ip=self.at,
        ).result  # fmt: skip

    def _broadcast(self, scalar: ir.Value) -> ir.Value:
        if self.kind.rank == 0:
            return scalar
        shape = ir.Operation.create(
            "shape.shape_of", operands=[self.op.operands[0]], loc=self.op.location, ip=self.at,
            results=[ir.RankedTensorType.get([self.kind.rank], ir.IndexType.get())],
        ).result  # fmt: skip
        return ir.Operation.create(
            "stablehlo.dynamic_broadcast_in_dim", results=[self._like(scalar)], operands=[scalar, shape],
            attributes={"broadcast_dimensions": ir.DenseI64ArrayAttr.get([])}, loc=self.op.location, ip=self.at,
        ).result  # fmt: skip
