"""resolve-globals: puts the data of constant globals where it is read.

    "util.global"() {sym_name = "w", initial_value = dense<…>}       →     %0 = arith.constant dense<…>
    %0 = "util.global.load"() {global = @w}

As a constant it is made on every device that reads it. What the global or the load says of devices, the constant
says.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEVICE_OP
from motet.compiler.ir.find import all_operations
from motet.compiler.placement.materialize_devices import GLOBAL_OP
from motet.compiler.placement.read_devices import declared_name, symbol_name
from motet.errors import CompileError

LOAD_OP = "util.global.load"


@dataclass(frozen=True)
class ResolveGlobals:
    """Raises CompileError, at the load or global, for data that is not in the program."""

    name = "resolve-globals"

    def run(self, module: ir.Module) -> None:
        operations = [entry.operation for entry in module.body.operations]
        globals_ = {symbol_name(one): one for one in operations if one.name == GLOBAL_OP}
        devices = [declared_name(one) for one in operations if one.name == DEVICE_OP]
        loads = [one for one in all_operations(module) if one.name == LOAD_OP]
        for load in loads:
            _resolve(load, globals_, devices)
        for one in globals_.values():
            one.erase()


def _resolve(load: ir.Operation, globals_: dict[str, ir.Operation], devices: list[str]) -> None:
    where = locate(load.location)
    loaded = load.attributes.get("global")
    if not isinstance(loaded, ir.FlatSymbolRefAttr) or len(load.results) != 1:
        raise CompileError(f"{LOAD_OP}: it loads nothing; expected @name and a type", where)
    name = loaded.value
    if name not in globals_:
        is_not = "is a device, not a value" if name in devices else "names no global"
        there = ", ".join(f"@{one}" for one in globals_) or "none"
        raise CompileError(f"{LOAD_OP}: @{name} {is_not}; globals: {there}", where)
    found = globals_[name]
    value = found.attributes.get("initial_value")
    kind = load.results[0].type
    if value is None or not _is_data(value):
        there = "nothing" if value is None else str(value)
        raise CompileError(
            f"{GLOBAL_OP} @{name}: its value is {there}; expected data in the program, such as dense<…> : {kind}; "
            "data from outside is passed as an argument", locate(found.location),
        )
    if value.type != kind:
        raise CompileError(f"{LOAD_OP}: @{name} is {value.type}; it is loaded as {kind}", where)
    attributes = {"value": value}
    said = load.attributes.get(AFFINITY) or found.attributes.get(AFFINITY)
    if said is not None:
        attributes[AFFINITY] = said
    constant = ir.Operation.create(
        "arith.constant", results=[kind], attributes=attributes, loc=load.location, ip=ir.InsertionPoint(load)
    )
    load.results[0].replace_all_uses_with(constant.results[0])
    load.erase()


def _is_data(value: ir.Attribute) -> bool:
    if isinstance(value, (ir.DenseElementsAttr, ir.IntegerAttr, ir.FloatAttr)):
        return True
    return str(value).startswith("dense_resource<")
