"""The device of operations that are not placed otherwise."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import DEFAULT_DEVICE, DEVICE_OP, Affinity, parse_affinity
from motet.compiler.ir.functions import symbol_name


def default_device(module: ir.Module) -> str | None:
    """The device that the module names as default, else the first it declares; None if it declares none."""
    said = said_default(module.operation)
    if said is not None:
        return said.devices[0][0]
    for entry in module.body.operations:
        if entry.operation.name == DEVICE_OP:
            return symbol_name(entry.operation)
    return None


def default_affinity(module: ir.Module, function: ir.Operation) -> Affinity | None:
    """The default affinity of a function's operations, a single device; None if there is no device."""
    said = said_default(function) or said_default(module.operation)
    if said is not None:
        return Affinity(said.devices[:1])
    name = default_device(module)
    return None if name is None else parse_affinity(name)


def said_default(operation: ir.Operation) -> Affinity | None:
    """The default affinity in the attributes of a module or function; None for a number, which `assign-devices`
    resolves."""
    if DEFAULT_DEVICE not in operation.attributes:
        return None
    value = operation.attributes[DEFAULT_DEVICE]
    return parse_affinity(value.value) if isinstance(value, ir.StringAttr) else None
