"""resolve-promises: converts affinities in any syntax, including IREE's promises of devices, to Motet's.

    "motet.transfer"(%0) {to = #hal.device.promise<@gpu>}     →    "motet.transfer"(%0) {to = "gpu"}
    linalg.abs {stream.affinity = #hal.device.affinity<@a>}   →    linalg.abs {motet.affinity = "a"}
    func.func @f(%x: … {iree.abi.affinity = #…promise<@a>})   →    func.func @f(%x: … {motet.affinity = "a"})

For an argument or result, `iree.abi.affinity` takes precedence over `stream.affinity`; on a function it applies to
arguments and results without their own. Promises in other attributes are kept, and checked by verify-devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEFAULT_DEVICE, TO, TRANSFER_OP, parse_affinity
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.hal_attributes import AttributeReader
from motet.compiler.ir.program import DEVICE
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.materialize_devices import DEFAULT_AFFINITY, read
from motet.errors import CompileError

PIN = "iree.abi.affinity"
OWN = "stream.affinity"
# The names of an attribute, in order of precedence; the last one is that of graphs built in Python.
NAMES = (AFFINITY, OWN, DEVICE)
PIN_NAMES = (AFFINITY, PIN, OWN, DEVICE)


@dataclass(frozen=True)
class ResolvePromises(ModulePass):
    """Raises CompileError, at the operation, for an invalid affinity."""

    name = "resolve-promises"

    def run(self, module: ir.Module) -> None:
        for operation in all_operations(module):
            if operation.name == TRANSFER_OP:
                _transfer(operation)
            elif operation.name == "func.func":
                _function(operation)
                _default(operation)
            elif operation.name == "builtin.module":
                _default(operation)
            elif DEFAULT_AFFINITY in operation.attributes:
                raise CompileError(
                    f"{operation.name}: {DEFAULT_AFFINITY}: expected on a module or function; say {OWN} here",
                    locate(operation.location),
                )
            elif len(operation.attributes):
                _set(operation, _said(operation.attributes, NAMES, operation), NAMES)


def affinity_text(attribute: ir.Attribute, what: str, operation: ir.Operation) -> str:
    """Converts an affinity to Motet's syntax. Raises CompileError at `operation`."""
    if not isinstance(attribute, ir.StringAttr):
        return str(read(attribute, AttributeReader.affinity, what, operation))
    if what not in (AFFINITY, DEVICE, DEFAULT_DEVICE, f"{TRANSFER_OP}: {TO}"):
        raise CompileError(
            f"{what}: {attribute}; expected #hal.device.affinity<@name>, or a promise or choice of those",
            locate(operation.location),
        )
    try:
        return str(parse_affinity(attribute.value))
    except ValueError as error:
        raise CompileError(f"{what}: {error}", locate(operation.location)) from None


def _default(operation: ir.Operation) -> None:
    """Converts the default device of a module, which may be a number, or of a function."""
    value = operation.attributes.get(DEFAULT_DEVICE)
    if value is not None and not (isinstance(value, ir.IntegerAttr) and operation.name == "builtin.module"):
        operation.attributes[DEFAULT_DEVICE] = ir.StringAttr.get(affinity_text(value, DEFAULT_DEVICE, operation))


def _transfer(operation: ir.Operation) -> None:
    if TO not in operation.attributes:
        raise CompileError(f"{TRANSFER_OP}: it does not say where to; expected to = \"…\"", locate(operation.location))
    text = affinity_text(operation.attributes[TO], f"{TRANSFER_OP}: {TO}", operation)
    operation.attributes[TO] = ir.StringAttr.get(text)


def _function(function: ir.Operation) -> None:
    said = _said(function.attributes, NAMES, function)
    pin = _said(function.attributes, (PIN,), function)
    _set(function, said or pin, (*NAMES, PIN))
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    for group, count in (("arg_attrs", len(kind.inputs)), ("res_attrs", len(kind.results))):
        _pins(function, group, count, pin if said else None)


def _pins(function: ir.Operation, group: str, count: int, default: str | None) -> None:
    if group not in function.attributes and default is None:
        return
    given = (
        [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]
        if group in function.attributes
        else [ir.DictAttr.get({})] * count
    )
    if default is None and not any(name in one for one in given for name in PIN_NAMES):
        return
    resolved: list[ir.DictAttr] = []
    for one in given:
        kept = {entry.name: entry.attr for entry in one if entry.name not in PIN_NAMES}
        said = _said(one, PIN_NAMES, function) or default
        if said is not None:
            kept[AFFINITY] = ir.StringAttr.get(said)
        resolved.append(ir.DictAttr.get(kept))
    function.attributes[group] = ir.ArrayAttr.get(resolved)


def _said(
    attributes: Mapping[str, ir.Attribute] | ir.DictAttr, names: tuple[str, ...], operation: ir.Operation
) -> str | None:
    """The affinity in the first of the attributes `names` that is present."""
    found = [affinity_text(attributes[name], name, operation) for name in names if name in attributes]
    return found[0] if found else None


def _set(operation: ir.Operation, said: str | None, names: tuple[str, ...]) -> None:
    if said is None:
        return
    for name in names:
        if name in operation.attributes:
            del operation.attributes[name]
    operation.attributes[AFFINITY] = ir.StringAttr.get(said)
