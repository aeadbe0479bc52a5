"""place-loops-on-fallback: places operations without code on their device, such as loops on a GPU, on its fallback.

    scf.while (%s = %x) : … {…}          with --device gpu=cuda,@cpu    →    scf.while … {motet.affinity = "cpu"}

Explicit affinities are kept. Code generators are asked about each operation, so that placement is final before code is
generated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
from motet.compiler.targets.families import HOST, families

_CONTROL = ("scf.for", "scf.while", "scf.if")
_log = logging.getLogger("motet")

FindObstacles = Callable[[str, ir.Operation], Mapping[int, str]]
"""The reasons why devices of a family have no code for operations of a function, by position
(`compiler/obstacles.py`)."""


def control_flow(family: str, function: ir.Operation) -> dict[int, str]:
    """The obstacles that are known without asking a code generator: only the host supports loops and branches, except
    loops that `unroll-loops` unrolls."""
    known = families()
    if family not in known or known[family].codegen == known[HOST].codegen:
        return {}
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    return {
        position: f"operation {operation.name}" for position, operation in enumerate(operations)
        if operation.name in _CONTROL and not is_taken_apart(operation)
    }


@dataclass(frozen=True)
class PlaceLoopsOnFallback(ModulePass):
    """Rewrites functions whose default device has a fallback. `obstacles` asks the code generators; `left` are the
    locations of further operations whose code generation failed."""

    name = "place-loops-on-fallback"
    left: frozenset[str] = frozenset()
    obstacles: FindObstacles = field(default=control_flow)

    def run(self, module: ir.Module) -> None:
        devices, _, _ = devices_of(module)
        for function in public_functions(module):
            default = default_affinity(module, function)
            device = _device(devices, default.devices[0][0]) if default is not None else None
            if device is not None and any(each.fallback for each in device.alternatives):
                self._place(function, device, devices)

    def _place(self, function: ir.Operation, device: LogicalDevice, devices: Sequence[LogicalDevice]) -> None:
        own = self._find([each.family for each in device.alternatives if each.family], function)
        fallbacks = {
            each.fallback: device_families(devices, each.fallback) for each in device.alternatives if each.fallback
        }
        refused = {name: self._find(found, function) for name, found in fallbacks.items() if found}
        for position, entry in enumerate(function.regions[0].blocks[0].operations):
            operation = entry.operation
            if not len(operation.results) or not (position in own or str(operation.location) in self.left):
                continue
            if any(explicit_affinity(each) is not None for each in (operation, *all_operations(operation))):
                continue
            fallback = next((name for name, reasons in refused.items() if position not in reasons), "")
            if fallback:
                reason = own.get(position, "none was made")
                _log.info("%s runs on @%s, no code for @%s: %s", operation.name, fallback, device.name, reason)
                operation.attributes[AFFINITY] = ir.StringAttr.get(fallback)

    def _find(self, families: Sequence[str], function: ir.Operation) -> dict[int, str]:
        found: dict[int, str] = {}
        for family in families:
            found = {**self.obstacles(family, function), **found}
        return found


def _device(devices: Sequence[LogicalDevice], name: str) -> LogicalDevice | None:
    return next((each for each in devices if each.name == name and each.alternatives), None)
