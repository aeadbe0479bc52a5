"""erase-devices: removes all device annotations from a module, so that it runs on one device as a whole.

    "motet.device"() {sym_name = "gpu", …}                            func.func @f(%x: tensor<4xf32>) … {
    func.func @f(%x: tensor<4xf32> {motet.affinity = "gpu"}) … {   →    %1 = linalg.abs ins(%x …) …
      %0 = "motet.transfer"(%x) {to = "gpu"}
      %1 = linalg.abs {motet.affinity = "gpu"} ins(%0 …) …
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEFAULT_DEVICE, DEVICE_OP, LINKS, TRANSFER_OP, TURN
from motet.compiler.passes.base import ModulePass


@dataclass(frozen=True)
class EraseDevices(ModulePass):
    name = "erase-devices"

    def run(self, module: ir.Module) -> None:
        erase_devices(module)


def erase_devices(module: ir.Module) -> None:
    """Rewrites the module in place. A transfer is replaced by its operand."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        if TURN in operation.attributes:
            del operation.attributes[TURN]
        if operation.name in (TRANSFER_OP, DEVICE_OP) or AFFINITY in operation.attributes:
            found.append(operation)
        if operation.name == "func.func":
            if DEFAULT_DEVICE in operation.attributes:
                del operation.attributes[DEFAULT_DEVICE]
            for group in ("arg_attrs", "res_attrs"):
                _without_pins(operation, group)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        if AFFINITY in operation.attributes:
            del operation.attributes[AFFINITY]
        if operation.name == TRANSFER_OP:
            operation.results[0].replace_all_uses_with(operation.operands[0])
        if operation.name in (TRANSFER_OP, DEVICE_OP):
            operation.erase()
    for name in (DEFAULT_DEVICE, LINKS):
        if name in module.operation.attributes:
            del module.operation.attributes[name]


def _without_pins(function: ir.Operation, group: str) -> None:
    if group not in function.attributes:
        return
    dictionaries = [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]
    if not any(AFFINITY in dictionary for dictionary in dictionaries):
        return
    function.attributes[group] = ir.ArrayAttr.get([
        ir.DictAttr.get({entry.name: entry.attr for entry in dictionary if entry.name != AFFINITY})
        for dictionary in dictionaries
    ])
