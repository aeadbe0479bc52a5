"""Placement: the order of its passes, from device annotations and flags to regions and plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import LOOP_PART, parse_affinity
from motet.compiler.ir.program import Place, Placement, Program
from motet.compiler.passes.pipelines import READ_DEVICES
from motet.compiler.passes.running import run_on_module, run_steps
from motet.compiler.placement.assign_devices import AssignDevices
from motet.compiler.placement.erase_devices import erase_devices
from motet.compiler.placement.place_by_name import PlaceByName
from motet.compiler.placement.place_loops_on_fallback import FindObstacles, PlaceLoopsOnFallback, control_flow
from motet.compiler.placement.rates import RateTable
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.placement.resolve_aliases import ResolveAliases
from motet.compiler.placement.resolve_on_device import ResolveOnDevice
from motet.compiler.placement.verify_devices import VerifyDevices


def read_devices(module: ir.Module) -> None:
    """Converts device annotations in any syntax to Motet's. Must run first, since foreign attributes and globals do
    not survive other passes."""
    run_steps(READ_DEVICES, Program(module))


def placer(
    flags: Sequence[str], automatic: bool, places: Sequence[tuple[str, str]] = (), table: RateTable | None = None,
    left: frozenset[str] = frozenset(), obstacles: FindObstacles = control_flow,
) -> Place:
    """A function that places a module. `flags`, the texts of `--device`, add to or replace the module's devices;
    `places` are patterns of operations' names with the devices that run them. `automatic` places by cost the operations
    that are not placed otherwise; `table` has the rates of devices. Operations for which a device has `obstacles`, and
    those at the locations `left`, run on its fallback."""
    def place(module: ir.Module) -> Placement | None:
        assign(module, flags, places, automatic)
        devices, default, links = devices_of(module)
        if not devices:
            erase_devices(module)
            return None
        # Most programs have no devices: import the passes only for those that do.
        from motet.compiler.build.signatures import read_interface
        from motet.compiler.ir.functions import public_functions, symbol_name
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

        for function in public_functions(module):
            take_apart(function)
        required = requirements(module)  # before functions are split
        loops = OutlineLoops()
        run_on_module(loops, module)
        run_on_module(PlaceLoopsOnFallback(left, obstacles), module)
        rates = table or rates_of_families()
        if automatic:
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
        erase_devices(module)
        return Placement(devices, default, links, outline.plans, signatures, automatic, loops.places)

    return place


def annotator(
    flags: Sequence[str], take: Callable[[str], None], places: Sequence[tuple[str, str]] = (),
    table: RateTable | None = None,
) -> Place:
    """A function that passes the text of a module annotated with affinities to `take`, and prepares the module for one
    device. With `table`, operations that are not placed otherwise are first placed by cost."""

    from motet.compiler.ir.functions import public_functions
    from motet.compiler.placement.annotate_affinities import AnnotateAffinities
    from motet.compiler.placement.outline_loops import take_apart
    from motet.compiler.placement.place_automatically import PlaceAutomatically

    def place(module: ir.Module) -> Placement | None:
        assign(module, flags, places, table is not None)
        for function in public_functions(module):
            take_apart(function)
        if table is not None:
            run_on_module(PlaceAutomatically(table), module)
        run_on_module(AnnotateAffinities(), module)
        take(str(module))
        erase_devices(module)
        return None

    return place


def assign(
    module: ir.Module, flags: Sequence[str], places: Sequence[tuple[str, str]] = (), automatic: bool = False
) -> None:
    """Gives a module the devices of the command line, and verifies the result; `read_devices` must have run."""
    used = frozenset(name for _, text in places for name in _devices_in(text))
    passes = (
        AssignDevices(tuple(flags), None if automatic else used), ResolveAliases(), ResolveOnDevice(),
        PlaceByName(tuple(places)), VerifyDevices(),
    )
    for each in passes:
        run_on_module(each, module)


def _devices_in(affinity: str) -> list[str]:
    """The devices that an affinity names; none if it does not parse, which is refused at its use."""
    try:
        return [name for name, _ in parse_affinity(affinity).devices]
    except ValueError:
        return []
