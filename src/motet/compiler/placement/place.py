"""place: splits each function of a program into regions, functions of one device, and a plan of steps over them.

    "motet.device"() {sym_name = "a", …}                       func.func @f_a_0(%x) attributes {motet.device = "a"}
    "motet.device"() {sym_name = "b", …}                  →    func.func @f_b_1(%0) attributes {motet.device = "b"}
    func.func @f(%x) {                                         the plan of @f: f_a_0 on a, a transfer, f_b_1 on b
      %0 = math.exp %x {motet.affinity = "a"} …
      %1 = math.absf %0 {motet.affinity = "b"} …

The module gives the order of the passes of placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.device_flags import DeviceFlag
from motet.artifact.schema import Link, LogicalDevice
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import LOOP_PART, parse_affinity
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import Placement, Program
from motet.compiler.passes.base import Pass
from motet.compiler.passes.running import run_on_module
from motet.compiler.placement.assign_devices import AssignDevices
from motet.compiler.placement.erase_devices import erase_devices
from motet.compiler.placement.place_by_name import PlaceByName
from motet.compiler.placement.place_loops_on_fallback import FindObstacles, PlaceLoopsOnFallback, control_flow
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.placement.resolve_aliases import ResolveAliases
from motet.compiler.placement.resolve_on_device import ResolveOnDevice
from motet.compiler.placement.verify_devices import VerifyDevices
from motet.compiler.targets.rates import RateTable


@dataclass(frozen=True)
class Place(Pass):
    """`flags`, the device flags, add to the program's own devices or replace them; `places` are patterns of
    names and where the operations are to run that have them. `automatic` places by cost what nothing else does; `table`
    says what devices can do. Operations for which a device has `obstacles`, and those from the locations `left`, run on
    what it falls back to. Sets the program's `placement`; a program without devices is left for one."""

    name = "place"
    flags: tuple[DeviceFlag, ...] = ()
    automatic: bool = False
    places: tuple[tuple[str, str], ...] = ()
    table: RateTable | None = None
    left: frozenset[str] = frozenset()
    obstacles: FindObstacles = control_flow

    def run(self, program: Program) -> bool:
        module = program.module
        assign(program, self.flags, self.places, self.automatic)
        devices, default, links = devices_of(module)
        if devices:
            program.placement = self._split(module, devices, default, links)
        erase_devices(module)
        return True

    def _split(
        self, module: ir.Module, devices: list[LogicalDevice], default: int, links: list[Link]
    ) -> Placement:
        """Each function as steps over regions, functions of one device."""
        # Most programs use no device: what follows is loaded for those that do.
        from motet.compiler.placement.check_code import CheckCode
        from motet.compiler.placement.estimate_steps import EstimateSteps
        from motet.compiler.placement.fold_transfers import FoldTransfers
        from motet.compiler.placement.insert_transfers import InsertTransfers
        from motet.compiler.placement.machine import ProgramMachine, rates_of_families
        from motet.compiler.placement.outline_loops import OutlineLoops, take_apart
        from motet.compiler.placement.outline_regions import OutlineRegions
        from motet.compiler.placement.place_automatically import PlaceAutomatically
        from motet.compiler.placement.place_operations import PlaceOperations
        from motet.compiler.scheduling.requirements import requirements
        from motet.compiler.scheduling.shapes import Shapes
        from motet.compiler.scheduling.signatures import read_interface

        for function in public_functions(module):
            take_apart(function)
        required = requirements(module)  # before functions are split
        loops = OutlineLoops()
        run_on_module(loops, module)
        run_on_module(PlaceLoopsOnFallback(self.left, self.obstacles), module)
        rates = self.table or rates_of_families()
        if self.automatic:
            run_on_module(PlaceAutomatically(rates), module)
        for each in (PlaceOperations(), InsertTransfers(), FoldTransfers()):
            run_on_module(each, module)
        signatures = {
            (name := symbol_name(function)): read_interface(function, Shapes(function), required.get(name, ()))
            for function in public_functions(module) if LOOP_PART not in function.attributes
        }
        outline = OutlineRegions(tuple(device.name for device in devices))
        run_on_module(outline, module)
        run_on_module(CheckCode(), module)
        EstimateSteps(ProgramMachine(devices, links, rates), outline.plans).run(module)
        return Placement(devices, default, links, outline.plans, signatures, self.automatic, loops.places)


def annotate(program: Program, place: Place) -> None:
    """Writes next to each operation, argument and result what is found of its devices, in place of splitting the
    program. Cost has placed before what nothing else does, if `place` is automatic and has a table."""
    from motet.compiler.placement.annotate_affinities import AnnotateAffinities
    from motet.compiler.placement.outline_loops import take_apart
    from motet.compiler.placement.place_automatically import PlaceAutomatically

    module, automatic = program.module, place.automatic and place.table is not None
    assign(program, place.flags, place.places, automatic)
    for function in public_functions(module):
        take_apart(function)
    if automatic and place.table is not None:
        run_on_module(PlaceAutomatically(place.table), module)
    run_on_module(AnnotateAffinities(), module)


def assign(
    program: Program, flags: Sequence[DeviceFlag], places: Sequence[tuple[str, str]] = (), automatic: bool = False
) -> None:
    """Gives a program the devices of the command line, and verifies the result; `read_devices` must have run."""
    used = frozenset(name for _, text in places for name in _devices_in(text))
    passes = (
        AssignDevices(tuple(flags), None if automatic else used), ResolveAliases(), ResolveOnDevice(),
        PlaceByName(tuple(places), program.named), VerifyDevices(),
    )
    for each in passes:
        run_on_module(each, program.module)


def _devices_in(affinity: str) -> list[str]:
    """The devices that an affinity names; none if it does not parse, which is refused at its use."""
    try:
        return [name for name, _ in parse_affinity(affinity).devices]
    except ValueError:
        return []
