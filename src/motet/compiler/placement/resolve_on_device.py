"""resolve-on-device: converts `memref.on_device` of arguments and results to affinities.

    func.func @f(%x: … {memref.on_device})            →    func.func @f(%x: … {motet.affinity = "acc"})
    func.func @f(%x: … {memref.on_device = "acc"})    →    the same

Without a name it means the program's only device other than the default one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.read_devices import devices_of
from motet.errors import CompileError

_log = logging.getLogger("motet")

ON_DEVICE = "memref.on_device"


@dataclass(frozen=True)
class ResolveOnDevice(ModulePass):
    """Raises CompileError if it is ambiguous which device is meant. In a program without devices the attribute is
    ignored, with a warning."""

    name = "resolve-on-device"

    def run(self, module: ir.Module) -> None:
        for entry in module.body.operations:
            if entry.operation.name == "func.func":
                for group in ("arg_attrs", "res_attrs"):
                    if group in entry.operation.attributes:
                        _resolve(module, entry.operation, group)


def _resolve(module: ir.Module, function: ir.Operation, group: str) -> None:
    dictionaries = [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]
    if not any(ON_DEVICE in dictionary for dictionary in dictionaries):
        return
    resolved: list[ir.Attribute] = []
    for number, dictionary in enumerate(dictionaries):
        entries = {entry.name: entry.attr for entry in dictionary}
        said = entries.pop(ON_DEVICE, None)
        if said is not None and AFFINITY not in entries:
            what = f"{'argument' if group == 'arg_attrs' else 'result'} {number}: {ON_DEVICE}"
            device = _device(module, function, said, what)
            entries |= {AFFINITY: ir.StringAttr.get(device)} if device else {}
        resolved.append(ir.DictAttr.get(entries))
    function.attributes[group] = ir.ArrayAttr.get(resolved)


def _device(module: ir.Module, function: ir.Operation, said: ir.Attribute, what: str) -> str:
    """The name of the device that is meant; empty in a program without devices."""
    if isinstance(said, ir.StringAttr):
        return said.value
    if not isinstance(said, ir.UnitAttr):
        raise CompileError(f"{what}: {said}; expected no value, or a device's name", locate(function.location))
    devices, default, _ = devices_of(module)
    others = [device.name for number, device in enumerate(devices) if number != default]
    if len(others) > 1:
        names = ", ".join(f'"{name}"' for name in others)
        raise CompileError(f"{what}: which device? expected a name: one of {names}", locate(function.location))
    if not others:
        _log.warning("%s: the program has no other device than the default one; it is not followed", what)
    return others[0] if others else ""
