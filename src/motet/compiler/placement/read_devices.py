"""Reads the devices of a module in Motet's syntax (`ir/devices.py`), for the artifact.

    module attributes {motet.default_device = "gpu", motet.links = ["cpu->gpu:unified"]} {
      "motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
      "motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()
    →  [LogicalDevice("cpu", …), LogicalDevice("gpu", …)], 1, [Link("cpu", "gpu", unified_memory=True)]
"""

from __future__ import annotations

from motet.artifact.device_flags import parse_alternative, print_alternative
from motet.artifact.schema import Alternative, Link, LogicalDevice
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import (
    ALTERNATIVES,
    DEVICE_OP,
    LINKS,
    is_device_name,
    parse_link,
)
from motet.compiler.placement.default_device import default_device
from motet.errors import CompileError, OptionError


def devices_of(module: ir.Module) -> tuple[list[LogicalDevice], int, list[Link]]:
    """The devices of a module in the order of their declarations, the index of the default one, and the links between
    them. Raises CompileError for what does not parse; `verify-devices` checks names."""
    devices = [
        LogicalDevice(declared_name(operation), alternatives_of(operation)) for operation in declarations(module)
    ]
    names = [device.name for device in devices]
    default = default_device(module)
    return devices, names.index(default) if default in names else 0, links_of(module)


def declarations(module: ir.Module) -> list[ir.Operation]:
    """The operations that declare devices, in order."""
    return [entry.operation for entry in module.body.operations if entry.operation.name == DEVICE_OP]


def declared_name(declaration: ir.Operation) -> str:
    """The name in a declaration. Raises CompileError if it is missing or invalid."""
    name = symbol_name(declaration)
    if not is_device_name(name):
        raise CompileError(
            f"device @\"{name}\": expected a name of letters, digits, _, $, - and .", locate(declaration.location)
        )
    return name


def symbol_name(operation: ir.Operation) -> str:
    """The name of a declaration or global. Raises CompileError if it has none."""
    name = operation.attributes.get("sym_name")
    if not isinstance(name, ir.StringAttr):
        raise CompileError(f"{operation.name}: it has no name; expected sym_name = \"…\"", locate(operation.location))
    return name.value


def alternatives_of(declaration: ir.Operation) -> list[Alternative]:
    """The alternatives of a declared device. Raises CompileError if there are none, or one does not parse."""
    name = declared_name(declaration)
    where = f"motet.device @{name}"
    given = declaration.attributes.get(ALTERNATIVES)
    texts = strings(given)
    if not texts:
        raise CompileError(
            f"{where}: nothing says what it may be; expected --device {name}=host or another family, a value such as "
            "#hal.device.alias<\"local\">, or alternatives = [\"host\", …]", locate(declaration.location),
        )
    try:
        return [parse_alternative(text) for text in texts]
    except OptionError as error:
        raise CompileError(f"{where}: {error}", locate(declaration.location)) from None


def declare(name: str, alternatives: list[Alternative], point: ir.InsertionPoint, location: ir.Location) -> None:
    """Adds the declaration of a device to a module."""
    texts = ir.ArrayAttr.get([ir.StringAttr.get(print_alternative(one)) for one in alternatives])
    attributes = {"sym_name": ir.StringAttr.get(name), ALTERNATIVES: texts}
    ir.Operation.create(DEVICE_OP, attributes=attributes, loc=location, ip=point)


def links_of(module: ir.Module) -> list[Link]:
    """The links between devices. Raises CompileError for what does not parse."""
    attributes = module.operation.attributes
    try:
        return [parse_link(text) for text in strings(attributes[LINKS])] if LINKS in attributes else []
    except ValueError as error:
        raise CompileError(f"{LINKS}: {error}", locate(module.operation.location)) from None


def strings(attribute: ir.Attribute | None) -> list[str]:
    """The texts of a list of strings; empty for other attributes."""
    if not isinstance(attribute, ir.ArrayAttr):
        return []
    return [entry.value for entry in ir.ArrayAttr(attribute) if isinstance(entry, ir.StringAttr)]
