"""Whether a module has any device annotations; most programs have none."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEFAULT_DEVICE, DEVICE_OP, TRANSFER_OP


def uses_devices(operation: ir.Operation | ir.Module) -> bool:
    """Whether a module or function contains declarations of devices, affinities or transfers."""
    found: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        inner = op.operation
        attributes = inner.attributes
        if inner.name in (TRANSFER_OP, DEVICE_OP) or AFFINITY in attributes or DEFAULT_DEVICE in attributes or (
            inner.name == "func.func" and is_pinned(inner)
        ):
            found.append(inner.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    operation.operation.walk(visit)
    return bool(found)


def is_pinned(function: ir.Operation) -> bool:
    """Whether any argument or result of a function has an affinity."""
    return any(
        AFFINITY in ir.DictAttr(attribute)
        for group in ("arg_attrs", "res_attrs") if group in function.attributes
        for attribute in ir.ArrayAttr(function.attributes[group])
    )
