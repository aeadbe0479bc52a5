"""place-loops-on-fallback: loops over tensors that a GPU has no code for, and branches, run on its fallback.

    scf.while (%s = %x) : … {…}          with --device gpu=cuda,@cpu    →    scf.while … {motet.affinity = "cpu"}

What says where it runs stays there, and so do loops that `unroll-loops` takes apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.schema import LogicalDevice
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass
from motet.compiler.passes.fuse.unroll_loops import is_taken_apart
from motet.compiler.placement.affinity_analysis import explicit_affinity
from motet.compiler.placement.default_device import default_affinity
from motet.compiler.placement.families import device_families
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.targets.families import families
from motet.compiler.targets.gpu import GpuTarget

_CONTROL = ("scf.for", "scf.while", "scf.if")


@dataclass(frozen=True)
class PlaceLoopsOnFallback(ModulePass):
    """Changes the operations of functions whose default device has a fallback: loops and branches where it is a GPU,
    and those `left`, the locations of operations that it has turned out to have no code for."""

    name = "place-loops-on-fallback"
    left: frozenset[str] = frozenset()

    def run(self, module: ir.Module) -> None:
        devices, _, _ = devices_of(module)
        for function in public_functions(module):
            default = default_affinity(module, function)
            device = _device(devices, default.devices[0][0]) if default is not None else None
            fallback = _fallback(devices, device) if device is not None else ""
            if device is None or not fallback:
                continue
            on_gpu = _is_gpu(device.alternatives[0].family)
            for block in function.regions[0].blocks:
                for entry in block.operations:
                    operation = entry.operation
                    if len(operation.results) and self._is_left(operation, on_gpu):
                        operation.attributes[AFFINITY] = ir.StringAttr.get(fallback)

    def _is_left(self, operation: ir.Operation, on_gpu: bool) -> bool:
        if any(explicit_affinity(each) is not None for each in (operation, *all_operations(operation))):
            return False
        control = on_gpu and operation.name in _CONTROL and not is_taken_apart(operation)
        return control or (bool(self.left) and str(operation.location) in self.left)


def _device(devices: Sequence[LogicalDevice], name: str) -> LogicalDevice | None:
    return next((each for each in devices if each.name == name and each.alternatives), None)


def _fallback(devices: Sequence[LogicalDevice], device: LogicalDevice) -> str:
    """The device that `device` falls back to and that is no GPU; empty where there is none."""
    for alternative in device.alternatives:
        found = device_families(devices, alternative.fallback) if alternative.fallback else []
        if found and not any(map(_is_gpu, found)):
            return alternative.fallback
    return ""


def _is_gpu(family: str) -> bool:
    found = families().get(family)
    return found is not None and any(isinstance(target, GpuTarget) for target in found.targets.values())
