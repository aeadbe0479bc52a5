"""resolve-globals: replaces loads of constant globals by their data.

    "util.global"() {sym_name = "w", initial_value = dense<…>}       →     %0 = arith.constant dense<…>
    %0 = "util.global.load"() {global = @w}

As a constant it is copied to every device that reads it; it keeps the affinity of the global or the load. Globals that
functions write are not constants: resolve-states has converted them to arguments and results. The value that an
initializer stores in a global is computed from constants at the load, which is folded when compiling:

    func.func private @motet.initializer.1() {                       →     %1 = linalg.exp ins(%c …) …
      %1 = linalg.exp ins(%c …) …
      "util.global.store"(%1) {global = @w} …
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEVICE_OP, GLOBAL_OP, INITIALIZER, LOAD_OP, STORE_OP
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.read_devices import declared_name, symbol_name
from motet.errors import CompileError


@dataclass(frozen=True)
class ResolveGlobals(ModulePass):
    """Raises CompileError, at the load or global, for data that the program does not contain."""

    name = "resolve-globals"

    def run(self, module: ir.Module) -> None:
        operations = [entry.operation for entry in module.body.operations]
        globals_ = {symbol_name(one): one for one in operations if one.name == GLOBAL_OP}
        devices = [declared_name(one) for one in operations if one.name == DEVICE_OP]
        stored = _Stores(globals_, devices)
        for operation in operations:
            if operation.name == "func.func" and symbol_name(operation).startswith(INITIALIZER):
                stored.read(operation)
        for operation in all_operations(module):
            if operation.name == STORE_OP and not symbol_name(_function_of(operation)).startswith(INITIALIZER):
                raise CompileError(
                    f"{STORE_OP}: a function stores in a global; expected resolve-states to run first",
                    locate(operation.location),
                )
        for load in [one for one in all_operations(module) if one.name == LOAD_OP]:
            if not symbol_name(_function_of(load)).startswith(INITIALIZER):
                stored.resolve(load)
        for one in [*globals_.values(), *stored.initializers]:
            one.erase()


class _Stores:
    """The values that initializers store in globals."""

    def __init__(self, globals_: dict[str, ir.Operation], devices: list[str]) -> None:
        self.globals = globals_
        self.devices = devices
        self.initializers: list[ir.Operation] = []
        self.values: dict[str, ir.Value] = {}  # by name of the global

    def read(self, initializer: ir.Operation) -> None:
        """Reads an initializer; its loads are resolved with the stores of earlier ones."""
        blocks = list(initializer.regions[0].blocks)
        if len(blocks) != 1:
            raise CompileError(
                "util.initializer: branches between blocks; expected one block", locate(initializer.location)
            )
        for load in [one for one in all_operations(initializer) if one.name == LOAD_OP]:
            self.resolve(load)
        for entry in blocks[0].operations:
            if entry.operation.name == STORE_OP:
                name = self._stored(entry.operation)
                self.values[name] = entry.operation.operands[0]
        self.initializers.append(initializer)

    def _stored(self, store: ir.Operation) -> str:
        name = ir.FlatSymbolRefAttr(store.attributes["global"]).value
        if name not in self.globals:
            there = ", ".join(f"@{one}" for one in self.globals) or "none"
            raise CompileError(f"{STORE_OP}: @{name} names no global; globals: {there}", locate(store.location))
        return name

    def resolve(self, load: ir.Operation) -> None:
        """Replaces a load by the value of its global."""
        loaded = load.attributes.get("global")
        name = loaded.value if isinstance(loaded, ir.FlatSymbolRefAttr) else ""
        value = self.values.get(name)
        if value is None:
            _resolve(load, self.globals, self.devices)
            return
        if value.type != load.results[0].type:
            raise CompileError(
                f"{LOAD_OP}: @{name} is {value.type}; it is loaded as {load.results[0].type}", locate(load.location)
            )
        made = _computed(value, load, {})
        load.results[0].replace_all_uses_with(made)
        load.erase()


def _computed(value: ir.Value, load: ir.Operation, copies: dict[ir.Value, ir.Value]) -> ir.Value:
    """A copy of `value`, and of the operations that compute it, before `load`."""
    if value not in copies:
        owner = value.owner.operation
        for operand in _read_by(owner):
            _computed(operand, load, copies)
        copy = owner.clone(ir.InsertionPoint(load))
        remap(copy, copies)
        copies.update(zip(owner.results, copy.results, strict=True))
    return copies[value]


def _read_by(operation: ir.Operation) -> list[ir.Value]:
    """The outer values that an operation and its contents read."""
    inside = all_operations(operation)
    own = {result for each in inside for result in each.results}
    own |= {argument for each in inside for region in each.regions for block in region for argument in block.arguments}
    return [operand for each in inside for operand in each.operands if operand not in own]


def _function_of(operation: ir.Operation) -> ir.Operation:
    """The function that contains an operation."""
    while operation.name != "func.func" and operation.parent is not None:
        operation = operation.parent.operation
    return operation


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
    value, kind = data_of(found), load.results[0].type
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


def global_of(access: ir.Operation) -> str:
    """The name of the global that a load or store accesses."""
    named = access.attributes.get("global")
    return named.value if isinstance(named, ir.FlatSymbolRefAttr) else ""


def data_of(found: ir.Operation) -> ir.Attribute:
    """The data of a global. Raises CompileError if the program does not contain it."""
    value = found.attributes.get("initial_value")
    if value is None or not _is_data(value):
        there = "nothing" if value is None else str(value)
        kind = ir.TypeAttr(found.attributes["type"]).value if "type" in found.attributes else "tensor<4xf32>"
        raise CompileError(
            f"{GLOBAL_OP} @{symbol_name(found)}: its value is {there}; expected data in the program, such as "
            f"dense<…> : {kind}; data from outside is passed as an argument", locate(found.location),
        )
    return value


def _is_data(value: ir.Attribute) -> bool:
    if isinstance(value, (ir.DenseElementsAttr, ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr)):
        return True
    return str(value).startswith("dense_resource<")
