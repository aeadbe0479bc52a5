"""anchor-operations: records by transfers the devices of operations that are lowered before they are placed.

    %1 = tosa.add %0, %c {motet.affinity = "gpu"}      →      %t = "motet.transfer"(%0) {to = "gpu"}
                                                              %1 = tosa.add %t, %c

Lowerings drop attributes, but the lowered operations run where their operands are. Constants are not transferred: they
are created where they are read, and lowerings inspect them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, TO, TRANSFER_OP
from motet.compiler.passes.base import ModulePass


@dataclass(frozen=True)
class AnchorOperations(ModulePass):
    """`dialects` are those whose operations will be lowered."""

    name = "anchor-operations"
    dialects: tuple[str, ...] = ("tosa", "stablehlo", "chlo")

    def run(self, module: ir.Module) -> None:
        found: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            operation = op.operation
            if AFFINITY in operation.attributes and operation.name.split(".")[0] in self.dialects:
                found.append(operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for operation in found:
            said = operation.attributes[AFFINITY]
            for index in _movable(operation):
                value = operation.operands[index]
                operation.operands[index] = ir.Operation.create(
                    TRANSFER_OP, results=[value.type], operands=[value], attributes={TO: said},
                    loc=operation.location, ip=ir.InsertionPoint(operation),
                ).results[0]
            del operation.attributes[AFFINITY]


def _movable(operation: ir.Operation) -> Iterator[int]:
    """The numbers of the operands that are tensors of non-constant data."""
    for index, value in enumerate(operation.operands):
        constant = not isinstance(value.owner, ir.Block) and "const" in value.owner.operation.name
        if isinstance(value.type, ir.ShapedType) and not constant:
            yield index
