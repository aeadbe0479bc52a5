"""materialize-devices: converts device declarations in any syntax to Motet's.

    "util.global"() {sym_name = "gpu", initial_value =             "motet.device"() {sym_name = "gpu",
      #hal.device.select<[#hal.device.alias<"cuda">,          →                      alternatives = ["cuda", "@cpu"]}
                          #hal.device.fallback<@cpu>]>}
    module attributes {hal.device.targets = [{a = #…}, #…]}   →    "motet.device"() {sym_name = "a", …}
    module attributes {stream.affinity.default = #…<@gpu>}    →    module attributes {motet.default_device = "gpu"}
    module attributes {stream.topology = #…<links = […]>}     →    module attributes {motet.links = ["gpu->cpu"]}

A device without a value must be filled by the command line; otherwise `read_devices.py` refuses it.

Devices of `hal.device.targets` come before those of globals; unnamed ones are named `__device_0`, ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import DEFAULT_DEVICE, GLOBAL_OP, LINKS, print_link
from motet.compiler.ir.hal_attributes import AttributeReader, SpellingError
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.read_devices import declarations, declare, declared_name
from motet.errors import CompileError

TARGETS = "hal.device.targets"
NAMED_DEFAULT = "hal.device.default"
DEFAULT_AFFINITY = "stream.affinity.default"
TOPOLOGY = "stream.topology"
DEVICE_TYPE = "!hal.device"

T = TypeVar("T")


@dataclass(frozen=True)
class MaterializeDevices(ModulePass):
    """Raises CompileError for invalid declarations, and for names declared twice."""

    name = "materialize-devices"

    def run(self, module: ir.Module) -> None:
        attributes = module.operation.attributes
        if TARGETS in attributes:
            _targets(module, attributes[TARGETS])
            del attributes[TARGETS]
        for operation in [entry.operation for entry in module.body.operations]:
            if operation.name == GLOBAL_OP and _is_device(operation):
                _global(operation)
        _defaults(module)
        if TOPOLOGY in attributes:
            links = read(attributes[TOPOLOGY], AttributeReader.links, TOPOLOGY, module.operation)
            attributes[LINKS] = ir.ArrayAttr.get([ir.StringAttr.get(print_link(link)) for link in links])
            del attributes[TOPOLOGY]


def read(
    attribute: ir.Attribute, reading: Callable[[AttributeReader], T], what: str, operation: ir.Operation
) -> T:
    """Parses the text of an attribute by `reading`. Raises CompileError at `operation`."""
    reader = AttributeReader(str(attribute))
    try:
        found = reading(reader)
        reader.finish()
    except SpellingError as error:
        raise CompileError(f"{what}: {error}", locate(operation.location)) from None
    return found


# -- globals -------------------------------------------------------------------------------------


def _is_device(operation: ir.Operation) -> bool:
    attributes = operation.attributes
    if "type" in attributes:
        return str(attributes["type"]) == DEVICE_TYPE
    return "initial_value" in attributes and str(attributes["initial_value"]).startswith("#hal.device")


def _global(operation: ir.Operation) -> None:
    name = declared_name(operation)
    what = f"util.global @{name}"
    value = operation.attributes.get("initial_value")
    alternatives = [] if value is None else read(value, AttributeReader.device, what, operation)
    declare(name, alternatives, ir.InsertionPoint(operation), operation.location)
    operation.erase()


# -- hal.device.targets --------------------------------------------------------------------------


def _targets(module: ir.Module, attribute: ir.Attribute) -> None:
    found = list(_entries(module, attribute))
    if not found:
        raise _wrong(module, f"{TARGETS}: it lists no devices; expected at least one")
    taken = {declared_name(operation) for operation in declarations(module)}
    point = ir.InsertionPoint.at_block_begin(module.body)
    for number, (name, values) in enumerate(found):
        name = name or f"__device_{number}"
        if name in taken:
            raise _wrong(module, f"{TARGETS}: the name {name} is taken; expected each name once")
        taken.add(name)
        what = f"{TARGETS}: device {name}"
        if not values:
            raise _wrong(module, f"{what}: its list is empty; expected at least one device")
        alternatives = [one for value in values for one in read(value, AttributeReader.device, what, module.operation)]
        declare(name, alternatives, point, module.operation.location)


def _entries(module: ir.Module, attribute: ir.Attribute) -> Iterator[tuple[str, list[ir.Attribute]]]:
    """The names (empty if unnamed) and the attributes of the alternatives, as written."""
    if isinstance(attribute, ir.DictAttr):
        for entry in attribute:
            yield entry.name, _values(entry.attr)
    elif isinstance(attribute, ir.ArrayAttr):
        for one in attribute:
            if isinstance(one, ir.DictAttr):
                yield from _entries(module, one)
            else:
                yield "", _values(one)
    else:
        raise _wrong(
            module, f"{TARGETS}: {attribute}; expected a list of devices, or a dictionary of them by name"
        )


def _values(attribute: ir.Attribute) -> list[ir.Attribute]:
    return list(attribute) if isinstance(attribute, ir.ArrayAttr) else [attribute]


# -- defaults ------------------------------------------------------------------------------------


def _defaults(module: ir.Module) -> None:
    """Converts the defaults of the module and of its functions; `assign-devices` resolves numbers."""
    attributes = module.operation.attributes
    if NAMED_DEFAULT in attributes:
        value = attributes[NAMED_DEFAULT]
        if isinstance(value, (ir.FlatSymbolRefAttr, ir.SymbolRefAttr)):
            value = ir.StringAttr.get(str(value).removeprefix("@").strip('"'))
        if not isinstance(value, (ir.StringAttr, ir.IntegerAttr)):
            raise _wrong(module, f"{NAMED_DEFAULT}: {value}; expected the name of a device, or its number from 0")
        attributes[DEFAULT_DEVICE] = value
        del attributes[NAMED_DEFAULT]
    for operation in (module.operation, *(entry.operation for entry in module.body.operations)):
        if DEFAULT_AFFINITY in operation.attributes:
            value = operation.attributes[DEFAULT_AFFINITY]
            affinity = read(value, AttributeReader.affinity, DEFAULT_AFFINITY, operation)
            operation.attributes[DEFAULT_DEVICE] = ir.StringAttr.get(str(affinity))
            del operation.attributes[DEFAULT_AFFINITY]


def _wrong(module: ir.Module, message: str) -> CompileError:
    return CompileError(message, locate(module.operation.location))
