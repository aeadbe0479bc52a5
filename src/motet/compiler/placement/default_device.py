"""The device of what says nothing of where it runs."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import DEFAULT_DEVICE, DEVICE_OP


def default_device(module: ir.Module) -> str | None:
    """The one the module names, else the first it declares; None where it declares none."""
    attributes = module.operation.attributes
    if DEFAULT_DEVICE in attributes:
        return ir.StringAttr(attributes[DEFAULT_DEVICE]).value
    for entry in module.body.operations:
        if entry.operation.name == DEVICE_OP:
            return ir.StringAttr(entry.operation.attributes["sym_name"]).value
    return None
