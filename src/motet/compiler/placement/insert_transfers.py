"""insert-transfers: transfers every value to the devices that read it.

    %1 = linalg.abs … {motet.affinity = "cpu"}         %1 = linalg.abs … {motet.affinity = "cpu"}
    %2 = linalg.exp ins(%1) …                    →     %t = "motet.transfer"(%1) {to = "gpu"}
           {motet.affinity = "gpu"}                    %2 = linalg.exp ins(%t) … {motet.affinity = "gpu"}

Runs on placed operations (place-operations). All readers on one device share a transfer. Values that are computed on
each device that needs them (constants, sizes) are not transferred but copied, once for each device.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, HOMES, LOOP_OP, TO, TRANSFER_OP, WANTED
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import parameters_of
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import (
    explicit_affinity,
    is_replicable,
    is_tensor,
    names_in,
    pins,
    tensor_operands,
)
from motet.compiler.placement.default_device import default_affinity
from motet.compiler.placement.rematerialize import rematerialize


@dataclass(frozen=True)
class InsertTransfers(ModulePass):
    name = "insert-transfers"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            default = default_affinity(module, function)
            if default is not None and is_placed(function):
                rematerialize(function)
                _Inserter(function, default.devices[0][0]).run()


def is_placed(function: ir.Operation) -> bool:
    """Whether every operation of a function has a device."""
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    return all(AFFINITY in o.attributes or o.name in (TRANSFER_OP, LOOP_OP, "func.return") for o in operations)


def located(function: ir.Operation, default: str) -> dict[ir.Value, str]:
    """The device of each tensor of a placed function, without tensors that are recomputed where they are read."""
    block = function.regions[0].blocks[0]
    found: dict[ir.Value, str] = {}
    argument_pins = pins(function, "arg_attrs", len(block.arguments))
    constants = parameters_of(function)
    for argument, pin in zip(block.arguments, argument_pins, strict=True):
        if argument not in constants and is_tensor(argument):
            found[argument] = pin.devices[0][0] if pin else default
    for entry in block.operations:
        operation = entry.operation
        if is_replicable(operation):
            continue
        if operation.name == LOOP_OP:
            found.update(zip(operation.results, names_in(operation, HOMES), strict=True))
            continue
        device = device_of(operation)
        if device is not None:
            found.update((result, device) for result in operation.results if is_tensor(result))
    return found


def device_of(operation: ir.Operation) -> str | None:
    """The device that a placed operation runs on, or transfers to."""
    if operation.name == TRANSFER_OP:
        return ir.StringAttr(operation.attributes[TO]).value.split("|")[0].split("[")[0]
    affinity = explicit_affinity(operation)
    return None if affinity is None else affinity.devices[0][0]


class _Inserter:
    def __init__(self, function: ir.Operation, default: str) -> None:
        self.function = function
        self.default = default
        self.block = function.regions[0].blocks[0]
        self.where = located(function, default)
        self.moved: dict[tuple[ir.Value, str], ir.Value] = {}

    def run(self) -> None:
        operations = [entry.operation for entry in self.block.operations]
        for operation in operations[:-1]:
            if operation.name == TRANSFER_OP or is_replicable(operation):
                continue
            if operation.name == LOOP_OP:
                for index, wanted in enumerate(names_in(operation, WANTED)):
                    value = operation.operands[index]
                    if self.where.get(value, wanted) != wanted:
                        operation.operands[index] = self._on(value, wanted)
                continue
            device = device_of(operation)
            for value in dict.fromkeys(tensor_operands(operation)):
                if device is not None and self.where.get(value, device) != device:
                    remap(operation, {value: self._on(value, device)})
        self._return(operations[-1])

    def _on(self, value: ir.Value, device: str) -> ir.Value:
        """`value` on `device`, transferred right after its definition."""
        if (value, device) not in self.moved:
            owner = value.owner
            if isinstance(owner, ir.Block):
                point = ir.InsertionPoint.at_block_begin(self.block)
                location = self.function.location
            else:
                point = ir.InsertionPoint.after(owner.operation)
                location = owner.operation.location
            transfer = ir.Operation.create(
                TRANSFER_OP, results=[value.type], operands=[value], attributes={TO: ir.StringAttr.get(device)},
                loc=location, ip=point,
            )
            self.moved[value, device] = transfer.results[0]
        return self.moved[value, device]

    def _return(self, terminator: ir.Operation) -> None:
        wanted = pins(self.function, "res_attrs", len(terminator.operands))
        for index, (value, pin) in enumerate(zip(list(terminator.operands), wanted, strict=True)):
            # A result without an affinity stays where it was computed; its reader transfers it if necessary.
            if pin is not None and value in self.where:
                allowed = {name for name, _ in pin.devices}
                if self.where[value] not in allowed:
                    terminator.operands[index] = self._on(value, pin.devices[0][0])
