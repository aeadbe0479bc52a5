"""fold-transfers: removes transfers without effect on any reader.

    %1 = "motet.transfer"(%0) {to = "a"}          %2 = "motet.transfer"(%0) {to = "b"}
    %2 = "motet.transfer"(%1) {to = "b"}    →

Removed are a transfer to the device of the value, a transfer of a transferred value (it starts from the first device
instead), a second transfer of a value to the same device, transfers to a device that reads the source's memory in place
(a link with transparent access), and unused transfers. A transfer that only a reshape reads moves after it, where it
may meet another one; but arguments are transferred before they are reshaped, so that no region only reshapes.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, STAGE, TO, TRANSFER_OP
from motet.compiler.ir.functions import public_functions
from motet.compiler.kernels.roles import ALIASES
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.default_device import default_affinity
from motet.compiler.placement.insert_transfers import device_of, is_placed, located
from motet.compiler.placement.read_devices import links_of
from motet.compiler.placement.rematerialize import rematerialize


@dataclass(frozen=True)
class FoldTransfers(ModulePass):
    name = "fold-transfers"

    def run(self, module: ir.Module) -> None:
        transparent = {(link.source, link.target) for link in links_of(module) if link.transparent_access}
        for function in public_functions(module):
            default = default_affinity(module, function)
            if default is None or not is_placed(function):
                continue
            device = default.devices[0][0]
            _sink(function, located(function, device))
            _fold(function, device, transparent)
            _drop_unread(function)
            if _hoist(function):
                _fold(function, device, transparent)
                _drop_unread(function)
            rematerialize(function)  # values that were returned, and therefore computed once, may be cheap now


def _transfers(function: ir.Operation) -> list[ir.Operation]:
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    return [operation for operation in operations if operation.name == TRANSFER_OP]


def _sink(function: ir.Operation, where: dict[ir.Value, str]) -> None:
    """Moves transfers after reshapes: a reshape is free, so it is done on the value's device."""
    for operation in [entry.operation for entry in function.regions[0].blocks[0].operations]:
        if operation.name not in ALIASES or isinstance(operation.operands[0].owner, ir.Block):
            continue
        if STAGE in operation.attributes:  # placed by cost
            continue
        transfer = operation.operands[0].owner.operation
        if transfer.name != TRANSFER_OP or len(list(transfer.results[0].uses)) != 1:
            continue
        source = transfer.operands[0]
        operation.operands[0] = source
        behind = ir.Operation.create(
            TRANSFER_OP, results=[operation.results[0].type], operands=[operation.results[0]],
            attributes={TO: transfer.attributes[TO]}, loc=transfer.location, ip=ir.InsertionPoint.after(operation),
        )
        operation.results[0].replace_all_uses_except(behind.results[0], behind)
        if source in where:
            operation.attributes[AFFINITY] = ir.StringAttr.get(where[source])
            where[operation.results[0]] = where[source]
        transfer.erase()


def _fold(function: ir.Operation, default: str, transparent: set[tuple[str, str]]) -> None:
    known: dict[tuple[ir.Value, str], ir.Value] = {}
    where = located(function, default)
    for transfer in _transfers(function):
        source = transfer.operands[0]
        while not isinstance(source.owner, ir.Block) and source.owner.operation.name == TRANSFER_OP:
            source = source.owner.operation.operands[0]
        transfer.operands[0] = source
        device = device_of(transfer) or default
        lying = where.get(source)
        in_place = lying == device or (lying is not None and (lying, device) in transparent)
        there = source if in_place else known.get((source, device))
        if there is None:
            known[source, device] = transfer.results[0]
        else:
            transfer.results[0].replace_all_uses_with(there)


def _hoist(function: ir.Operation) -> bool:
    """Moves transfers before the reshapes of an argument without other readers, which would form a region that only
    copies."""
    changed = False
    for transfer in _transfers(function):
        chain: list[ir.Operation] = []
        value = transfer.operands[0]
        while not isinstance(value.owner, ir.Block) and value.owner.operation.name in ALIASES and (
            len(list(value.uses)) == 1
        ):
            chain.append(value.owner.operation)
            value = chain[-1].operands[0]
        if not chain or not isinstance(value.owner, ir.Block):
            continue
        moved = ir.Operation.create(
            TRANSFER_OP, results=[value.type], operands=[value], attributes={TO: transfer.attributes[TO]},
            loc=transfer.location, ip=ir.InsertionPoint(chain[-1]),
        )
        chain[-1].operands[0] = moved.results[0]
        for operation in chain:
            operation.attributes[AFFINITY] = transfer.attributes[TO]
        transfer.results[0].replace_all_uses_with(transfer.operands[0])
        transfer.erase()
        changed = True
    return changed


def _drop_unread(function: ir.Operation) -> None:
    for transfer in reversed(_transfers(function)):
        if not any(True for _ in transfer.results[0].uses):
            transfer.erase()
