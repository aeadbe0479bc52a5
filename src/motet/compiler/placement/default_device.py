"""The device of what says nothing of where it runs."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import DEFAULT_DEVICE, DEVICE_OP, parse_affinity


def default_device(module: ir.Module) -> str | None:
    """The one the module names, else the first it declares; None where it declares none."""
    said = default_affinity(module.operation)
    if said is not None:
        return parse_affinity(said).devices[0][0]
    for entry in module.body.operations:
        if entry.operation.name == DEVICE_OP:
            return ir.StringAttr(entry.operation.attributes["sym_name"]).value
    return None


def default_affinity(operation: ir.Operation) -> str | None:
    """What a module or function says of the operations in it that nothing else places."""
    if DEFAULT_DEVICE not in operation.attributes:
        return None
    value = operation.attributes[DEFAULT_DEVICE]
    return value.value if isinstance(value, ir.StringAttr) else None
